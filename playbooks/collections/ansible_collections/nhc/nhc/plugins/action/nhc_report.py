# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Gather what nhc_check registered on the hosts of a run; write it as JSON, HTML and text on the controller."""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable
from ansible_collections.nhc.nhc.plugins.plugin_utils.fold import Findings, registered, results_of

ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "variable": {"type": "str", "default": "nhc_health"},
    "directory": {"type": "path", "default": "nhc-report"},
    "group_by": {"type": "str", "default": ""},
    "history": {"type": "path"},
    "fail_on": {"type": "str", "default": "never", "choices": ["never", "warn", "unknown", "crit"]},
    "max_unhealthy": {"type": "str", "default": "0"},
}


class ActionModule(ActionBase):
    """Runs on the controller and needs no connection."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        limit = self._limit(args["max_unhealthy"], len(args["hosts"]))
        hostvars = task_vars["hostvars"]
        try:
            reports = registered(args["hosts"], args["variable"], hostvars)
            about = {host: self._about(host, args, hostvars) for host in reports}
            findings = Findings(reports, about, args["group_by"], own_names=True)
            result.update(
                lines=findings.lines(),
                total=findings.total(),
                counts=findings.counts(),
                unhealthy=findings.at_least("CRIT"),
                files={},
                changed=False,  # the hosts are as they were
            )
            if not self._task.check_mode:
                result["files"] = self._write(args, findings)
        except Unavailable as error:
            raise AnsibleActionFail(str(error)) from None
        except OSError as error:
            raise AnsibleActionFail("%s: %s: no report written" % (error.filename, error.strerror)) from None
        results = results_of(args["hosts"], args["variable"], hostvars)
        wrong = [found for found in results.values() if found.get("failed") and "verdict" not in found]
        if wrong and len(wrong) == len(results):
            result.update(failed=True, msg="the check ran on no host: %s" % wrong[0].get("msg"))
        refused = findings.refused()
        if refused and len(refused) == len(reports):
            result.update(failed=True, msg="every node refuses its configuration: %s" % result["lines"][0])
        bad = [] if args["fail_on"] == "never" else findings.at_least(args["fail_on"].upper())
        result["within_limit"] = len(bad) <= limit
        if not result["within_limit"]:
            counted = "%d of %d nodes are %s or worse" % (len(bad), len(reports), args["fail_on"].upper())
            result.update(failed=True, msg="%s: %s" % (counted, findings.folded(bad)))
        return result

    def _about(self, host, args, hostvars):
        """The groups that the inventory has the host in, and the variable that the page is grouped by."""
        values = hostvars[host]
        by = args["group_by"]
        facts = {by: str(values[by])} if by and by in values else {}
        return [str(group) for group in values.get("group_names") or []], facts

    def _limit(self, text, hosts):
        """How many hosts the task may find unhealthy without failing."""
        try:
            number = float(text.rstrip("%"))
            if number < 0 or (text.endswith("%") and number > 100):
                raise ValueError(text)
            return int(hosts * number / 100) if text.endswith("%") else int(number)
        except ValueError:
            raise AnsibleActionFail(
                "max_unhealthy: %r is neither a number of hosts nor a share such as 5%%" % text
            ) from None

    def _write(self, args, findings):
        """The files, by kind."""
        os.makedirs(args["directory"], mode=0o750, exist_ok=True)
        names = {"json": "reports.json", "html": "report.html", "text": "summary.txt"}
        paths = {kind: os.path.join(args["directory"], name) for kind, name in names.items()}
        warning = findings.write(paths, args["history"] or "")
        if warning:
            self._display.warning(warning)
        return paths
