#!/usr/bin/python
# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of nhc_preflight, which runs on the controller: see the action plugin of that name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nhc_preflight
short_description: See on the controller that what is to be sent to nodes can be used
version_added: 0.1.0
description:
  - Reads the configuration and the site checks that M(nhc.nhc.nhc_check) is about to send, and fails with every line
    that is wrong. Fails too for a check, a tag, a profile or a context that does not exist.
  - Connects to nobody. One run for a play is enough (C(run_once)).
options:
  config_src:
    description: Configuration files or directories on the controller that will be sent.
    type: list
    elements: path
    default: []
  scripts_src:
    description: Directories of site checks on the controller that will be sent.
    type: list
    elements: path
    default: []
  config:
    description: Configuration on the nodes. Where it is used, checks and tags are not looked up.
    type: list
    elements: path
    default: []
  scripts:
    description: Site checks on the nodes. Where they are used, checks and tags are not looked up.
    type: list
    elements: path
    default: []
  profile:
    description: The node type that will be asked for.
    type: str
    default: auto
  checks:
    description: The checks that will be asked for.
    type: list
    elements: str
    default: []
  tags:
    description: The tags that will be asked for.
    type: list
    elements: str
    default: []
  context:
    description: The context that will be asked for.
    type: str
    default: ''
  archive:
    description: The archive of nhc on the controller that will be sent.
    type: path
  engine:
    description: As for M(nhc.nhc.nhc_check).
    type: str
    choices: [auto, installed, archive]
    default: auto
  templates:
    description: The configuration files may be templates of Ansible's. Those that are one are not judged here.
    type: bool
    default: false
attributes:
  check_mode:
    description: Changes nothing in either mode.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
seealso:
  - module: nhc.nhc.nhc_check
author:
  - The nhc authors (@nhc)
"""

EXAMPLES = r"""
- name: See that the site's configuration can be used, before anybody is asked
  nhc.nhc.nhc_preflight:
    config_src: [files/nhc.conf]
  run_once: true
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule


def main():
    paths = {"type": "list", "elements": "path", "default": []}
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "config_src": paths,
            "scripts_src": paths,
            "config": paths,
            "scripts": paths,
            "profile": {"type": "str", "default": "auto"},
            "checks": names,
            "tags": names,
            "context": {"type": "str", "default": ""},
            "archive": {"type": "path"},
            "engine": {"type": "str", "default": "auto", "choices": ["auto", "installed", "archive"]},
            "templates": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="nhc_preflight runs on the controller, through its action plugin")


if __name__ == "__main__":
    main()
