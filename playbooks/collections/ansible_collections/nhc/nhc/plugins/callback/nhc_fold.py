# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Print what nhc_check found at the end of a run, nodes of which the same is true on one line."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nhc_fold
type: aggregate
short_description: Print nhc's verdicts, equal ones folded
version_added: 0.1.0
description:
  - At the end of a run, prints what M(nhc.nhc.nhc_check) found. Nodes of which the same is true share a line, and
    their names are folded to ranges (C(OK 127 nodes gpu[001-127])).
  - Of a run of the playbook C(remediate), the plan comes last, which nodes are to be repaired how.
  - Nodes that could not be reached, or on which the check could not run, are V(UNKNOWN) with the reason.
  - The playbooks of this collection load it by themselves. For others, name it in C(callbacks_enabled).
options:
  by:
    description: Group nodes by all that is wrong with them (V(node)), or show each check's verdicts (V(check)).
    type: str
    choices: [node, check]
    default: node
    env:
      - name: NHC_FOLD_BY
    ini:
      - section: callback_nhc_fold
        key: by
requirements:
  - nhc on the controller (a checkout of which this collection is part, or the package)
author:
  - The nhc authors (@nhc)
"""

from ansible import constants as C
from ansible import context
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.callback import CallbackBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable
from ansible_collections.nhc.nhc.plugins.plugin_utils.fold import Findings, report_of

ACTIONS = ("nhc_check", "nhc.nhc.nhc_check")
COLOURS = {"OK": C.COLOR_OK, "WARN": C.COLOR_WARN, "UNKNOWN": C.COLOR_WARN, "CRIT": C.COLOR_ERROR}


class CallbackModule(CallbackBase):
    """Remember the last report of each node, and show them when the run ends."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "nhc.nhc.nhc_fold"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.reports = {}
        self.plans = {}
        self.confirmed = False

    def v2_playbook_on_play_start(self, play):
        """Whether a plan of repairs is to be carried out, which is the same for all plays of a run."""
        confirm = play.get_variable_manager().extra_vars.get("nhc_confirm", False)
        self.confirmed = boolean(confirm, strict=False) and not context.CLIARGS.get("check")

    def _take(self, result):
        task, host = getattr(result, "task", None) or result._task, getattr(result, "host", None) or result._host
        values = getattr(result, "result", None) or result._result
        steps = (values.get("ansible_facts") or {}).get("nhc_steps")
        if steps and host.get_name() not in self.plans:
            self.plans[host.get_name()] = ", ".join(str(step) for step in steps)
        if task.action in ACTIONS and not values.get("skipped"):
            self.reports[host.get_name()] = report_of(host.get_name(), values)

    v2_runner_on_ok = v2_runner_on_unreachable = _take

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._take(result)

    def _planned(self, findings):
        """What is to be done to which nodes, and whether it was begun: the last lines of a run that repairs."""
        if not self.plans:
            return
        hosts = {}
        for host, steps in self.plans.items():
            hosts.setdefault(steps, []).append(host)
        for steps, names in sorted(hosts.items()):
            count = "%d node%s" % (len(names), "" if len(names) == 1 else "s")
            yield "plan: %s: %s: %s" % (count, findings.folded(names), steps)
        if not self.confirmed:
            yield "dry run: nothing was changed; -e nhc_confirm=true carries the plan out"

    def v2_playbook_on_stats(self, stats):
        if not self.reports:
            return
        self._display.banner("NHC")
        try:
            findings = Findings(self.reports)
            for verdict, lines in findings.checks() if self.get_option("by") == "check" else findings.groups():
                self._display.display("\n".join(lines), color=COLOURS.get(verdict))
            self._display.display(findings.total())
            for line in self._planned(findings):
                self._display.display(line)
        except Unavailable as error:
            self._display.warning(str(error))
