# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Find a file of the site on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: source
short_description: A file or directory of the site on the controller
version_added: 0.1.0
description:
  - Finds a relative name as Ansible does, in C(files/) or C(templates/) of the role or play, else below the directory in which the run was
    started. An absolute name stays as it is.
options:
  _terms:
    description: The names.
    required: true
    type: list
    elements: path
author:
  - The nhc authors (@nhc)
"""

EXAMPLES = r"""
- name: Copy the policy
  ansible.builtin.copy:
    src: "{{ lookup('nhc.nhc.source', 'site/policy.toml') }}"
    dest: /etc/nhc/policy.toml
    mode: "0644"
"""

RETURN = r"""
_raw:
  description: The paths.
  type: list
  elements: path
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable, local_path

PLACES = ("files", "templates")


class LookupModule(LookupBase):
    """One path for each name."""

    def run(self, terms, variables=None, **kwargs):
        def find(name):
            places = (self.find_file_in_search_path(variables, place, name, ignore_missing=True) for place in PLACES)
            return next(filter(None, places), "")

        try:
            return [local_path(term, find) for term in terms]
        except Unavailable as error:
            raise AnsibleLookupError(str(error)) from None
