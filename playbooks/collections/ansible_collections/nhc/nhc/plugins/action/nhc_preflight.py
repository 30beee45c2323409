# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""See on the controller, before any connection, that what is to be sent to nodes and asked of them can be used."""

from __future__ import annotations

import re

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import (
    Unavailable,
    find_archive,
    found_by_ansible,
    import_nhc,
    local_path,
)

_PATHS = {"type": "list", "elements": "path", "default": []}
_NAMES = {"type": "list", "elements": "str", "default": []}
ARGUMENTS = {
    "config_src": _PATHS,
    "scripts_src": _PATHS,
    "config": _PATHS,
    "scripts": _PATHS,
    "profile": {"type": "str", "default": "auto"},
    "checks": _NAMES,
    "tags": _NAMES,
    "context": {"type": "str", "default": ""},
    "archive": {"type": "path"},
    "engine": {"type": "str", "default": "auto", "choices": ["auto", "installed", "archive"]},
    "templates": {"type": "bool", "default": False},
}
TEMPLATE = re.compile(rb"\{\{|\{%|\{#")
"""What makes a file a template of Ansible's: what it says is known once it is rendered for a node."""
OPTIONS = (("--check ", "nhc_checks: "), ("--tag ", "nhc_tags: "), ("--profile ", "nhc_profile: "),
           ("--context ", "nhc_context: "), ("--set scripts=DIR", "nhc_scripts_src"))  # fmt: skip
"""Options of `nhc fleet check` that its messages name, and what the playbooks call them."""


def is_template(path):
    """Whether a file is to be rendered; one that cannot be read is none, and is complained of where it is used."""
    try:
        with open(path, "rb") as file:
            return bool(TEMPLATE.search(file.read(1 << 20)))
    except OSError:
        return False


class ActionModule(ActionBase):
    """Runs on the controller and needs no connection."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        result.update(changed=False)
        try:
            config = [self._local(path) for path in args["config_src"]]
            if args["templates"]:
                config = [path for path in config if not is_template(path)]
            preflight, push = import_nhc("nhc.fleet.preflight"), import_nhc("nhc.fleet.bundles")
            if args["engine"] != "installed":
                find_archive(args["archive"] and self._local(args["archive"]))
            scripts = [self._local(path) for path in args["scripts_src"]]
            # Configurations and scripts that lie on the nodes are theirs: what they define is not known here.
            own = bool(args["config"] or args["scripts"])
            wanted = preflight.WantedChecks(
                config=config, profile=args["profile"], checks=() if own else args["checks"],
                tags=() if own else args["tags"], context=args["context"],
            )  # fmt: skip
            try:
                preflight.refuse_wrong(wanted, scripts)
                if config or scripts:
                    push.site_files(config, scripts)
            except (preflight.Wrong, push.BadSiteFiles) as error:
                raise Unavailable(str(error)) from None
        except Unavailable as error:
            message = str(error)
            for option, variable in OPTIONS:
                message = message.replace(option, variable)
            raise AnsibleActionFail(message) from None
        return result

    def _local(self, path):
        return local_path(path, lambda name: found_by_ansible(self, name))
