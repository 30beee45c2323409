#!/usr/bin/python
# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of nhc_report, which runs on the controller: see the action plugin of that name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nhc_report
short_description: Gather the reports of nhc_check into one, on the controller
version_added: 0.1.0
description:
  - Takes what M(nhc.nhc.nhc_check) registered on each host of a run, and writes it as JSON, as an HTML page and as
    folded text on the controller.
  - A host that could not be reached, or on which the check could not run, is in it as V(UNKNOWN) with the reason.
  - Runs on the controller alone, so one run for a play is enough (C(run_once)).
options:
  hosts:
    description: The hosts to report on.
    type: list
    elements: str
    required: true
  variable:
    description: The variable that M(nhc.nhc.nhc_check) was registered as.
    type: str
    default: nhc_health
  directory:
    description: Directory on the controller to write to, made where it is missing.
    type: path
    default: nhc-report
  group_by:
    description: The group, or the variable of hosts (such as their rack), that the page's heat map is grouped by.
    type: str
    default: ''
  history:
    description:
      - A history on the controller to keep the run in, which C(nhc fleet diff) compares runs of.
      - That of C(nhc fleet) itself is C(~/.local/share/nhc/fleet.sqlite). Kept nowhere where this is not set.
    type: path
  fail_on:
    description: The least verdict of a host that counts towards O(max_unhealthy).
    type: str
    choices: [never, warn, unknown, crit]
    default: never
  max_unhealthy:
    description: Most hosts, as a number or a share such as V(5%), that may have such a verdict before the task fails.
    type: str
    default: '0'
attributes:
  check_mode:
    description: In check mode nothing is written, the result is the same.
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
  register: nhc_health

- name: Gather what was found
  nhc.nhc.nhc_report:
    hosts: "{{ ansible_play_hosts_all }}"
    directory: reports/today
    fail_on: crit
    max_unhealthy: 2%
  run_once: true
"""

RETURN = r"""
lines:
  description: What was found, equal findings folded, most significant first.
  returned: always
  type: list
  elements: str
  sample: ['gpu128 CRIT check_gpu_xid: GPU has fallen off the bus', 'gpu[001-127] OK']
total:
  description: One line that sums up the run.
  returned: always
  type: str
  sample: '128 nodes: 1 CRIT, 127 OK'
counts:
  description: How many hosts have each verdict.
  returned: always
  type: dict
  sample: {CRIT: 1, UNKNOWN: 0, WARN: 0, OK: 127}
unhealthy:
  description: The hosts whose verdict is CRIT.
  returned: always
  type: list
  elements: str
  sample: [gpu128]
within_limit:
  description: Whether no more hosts than O(max_unhealthy) count by O(fail_on).
  returned: always
  type: bool
files:
  description: What was written, by kind. Empty in check mode.
  returned: always
  type: dict
  sample: {json: nhc-report/reports.json, html: nhc-report/report.html, text: nhc-report/summary.txt}
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "variable": {"type": "str", "default": "nhc_health"},
            "directory": {"type": "path", "default": "nhc-report"},
            "group_by": {"type": "str", "default": ""},
            "history": {"type": "path"},
            "fail_on": {"type": "str", "default": "never", "choices": ["never", "warn", "unknown", "crit"]},
            "max_unhealthy": {"type": "str", "default": "0"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="nhc_report runs on the controller, through its action plugin")


if __name__ == "__main__":
    main()
