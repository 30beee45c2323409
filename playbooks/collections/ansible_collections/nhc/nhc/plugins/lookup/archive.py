# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Find, or build, the one-file archive of nhc on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: archive
short_description: The one-file archive of nhc on the controller
version_added: 0.1.0
description:
  - Finds C(nhc.pyz) as M(nhc.nhc.nhc_check) does. It is the file that is named, the one that E(NHC_PYZ) names, the one
    built from the checkout that this collection is part of, or the one that the collection carries.
options:
  _terms:
    description: The archive's path, where it is known. Empty names are as if there were none.
    required: false
    type: list
    elements: path
author:
  - The nhc authors (@nhc)
"""

EXAMPLES = r"""
- name: Copy the archive
  ansible.builtin.copy:
    src: "{{ lookup('nhc.nhc.archive').path }}"
    dest: /opt/nhc/nhc.pyz
    mode: "0755"
"""

RETURN = r"""
_raw:
  description: The archive's C(path), C(digest) (SHA-256) and the C(version) of nhc in it.
  type: list
  elements: dict
"""

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import (
    Unavailable,
    digest_of,
    find_archive,
    version_of,
)


class LookupModule(LookupBase):
    """One archive, as a dictionary."""

    def run(self, terms, variables=None, **kwargs):
        asked = [term for term in terms if term]
        try:
            path = find_archive(asked[0] if asked else "")
            if not path:
                raise Unavailable(
                    "no archive of nhc on the controller: give its path, or build one (python -m nhc.core.archive.build nhc.pyz)"
                )
            return [{"path": path, "digest": digest_of(path), "version": version_of(path)}]
        except Unavailable as error:
            raise AnsibleLookupError(str(error)) from None
