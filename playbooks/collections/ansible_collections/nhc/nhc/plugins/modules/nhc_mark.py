#!/usr/bin/python
# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of nhc_mark, which runs on the controller: see the action plugin of that name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nhc_mark
short_description: Drain sick nodes, and put back those that are well again
version_added: 0.1.0
description:
  - Hands the reports of M(nhc.nhc.nhc_check) to an adapter of nhc, which drains, taints or labels nodes by the policy,
    under its ceilings, and takes back only what nhc itself did.
  - A node whose verdict is V(UNKNOWN) is left as it is. Nodes are never rebooted by this, whatever the policy allows.
  - Runs on the controller, which needs what the adapter uses there (C(scontrol), a kubeconfig).
options:
  hosts:
    description: The hosts whose reports are handed over.
    type: list
    elements: str
    required: true
  variable:
    description: The variable that M(nhc.nhc.nhc_check) was registered as.
    type: str
    default: nhc_health
  adapter:
    description: The adapter, such as V(slurm), V(slurm-rest), V(kubernetes), V(pbs), V(lsf).
    type: str
    required: true
  apply:
    description: Do it. Without this, and in check mode, the result says what would be done.
    type: bool
    default: false
  policy:
    description: The policy on the controller. C(/etc/nhc/policy.toml) where there is one, else nhc's defaults.
    type: path
  ledger:
    description: The directory in which operations are remembered, from run to run. C(/var/lib/nhc) where this is not set.
    type: path
attributes:
  check_mode:
    description: In check mode nothing is marked, the result says what would be.
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
- name: Judge every node
  nhc.nhc.nhc_check:
    node: "{{ inventory_hostname }}"
  register: nhc_health

- name: Drain the sick ones
  nhc.nhc.nhc_mark:
    hosts: "{{ ansible_play_hosts_all }}"
    adapter: slurm
    apply: true
  run_once: true
"""

RETURN = r"""
lines:
  description: What was done, or would be, and why.
  returned: always
  type: list
  elements: str
  sample: ['slurm: mark  gpu128  check_gpu_xid GpuXid79', 'slurm: 1 of 1 done']
remedies:
  description: The nodes, and what was or would be done to each.
  returned: always
  type: list
  elements: dict
  sample: [{node: gpu128, deed: mark, because: check_gpu_xid GpuXid79}]
nodes:
  description: What the scheduler says of each of the nodes now, under the name that it has for it.
  returned: always
  type: dict
  sample: {gpu128: {state: idle+drain, out: true, busy: false, ours: true, reason: 'check_gpu_xid: ...', hold: ''}}
dry_run:
  description: Whether nothing was to be changed.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "variable": {"type": "str", "default": "nhc_health"},
            "adapter": {"type": "str", "required": True},
            "apply": {"type": "bool", "default": False},
            "policy": {"type": "path"},
            "ledger": {"type": "path"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="nhc_mark runs on the controller, through its action plugin")


if __name__ == "__main__":
    main()
