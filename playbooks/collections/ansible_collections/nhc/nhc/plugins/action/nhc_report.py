# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Gather what nhc_check registered on the hosts of a run; write it as JSON, HTML and text on the controller."""

from __future__ import annotations

import json
import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable
from ansible_collections.nhc.nhc.plugins.plugin_utils.fold import Findings, report_of

ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "variable": {"type": "str", "default": "nhc_health"},
    "directory": {"type": "path", "default": "nhc-report"},
    "title": {"type": "str", "default": "Fleet health"},
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
        results = self._results(args, task_vars["hostvars"])
        reports = {host: report_of(host, found) for host, found in results.items()}
        if not reports:
            raise AnsibleActionFail(
                "no host has a result in %s: was nhc_check run, and registered as that?" % args["variable"]
            )
        try:
            findings = Findings(reports, {host: self._groups(host, task_vars) for host in reports})
            result.update(
                lines=findings.lines(),
                total=findings.total(),
                counts=findings.counts(),
                unhealthy=findings.at_least("CRIT"),
                files={},
                changed=not self._task.check_mode,
            )
            if not self._task.check_mode:
                result["files"] = self._write(args, findings, result)
        except Unavailable as error:
            raise AnsibleActionFail(str(error)) from None
        except OSError as error:
            raise AnsibleActionFail("%s: %s: no report written" % (error.filename, error.strerror)) from None
        wrong = [found for found in results.values() if found.get("failed") and "verdict" not in found]
        if wrong and len(wrong) == len(results):
            result.update(failed=True, msg="the check ran on no host: %s" % wrong[0].get("msg"))
        bad = [] if args["fail_on"] == "never" else findings.at_least(args["fail_on"].upper())
        if len(bad) > limit:
            counted = "%d of %d nodes are %s or worse" % (len(bad), len(reports), args["fail_on"].upper())
            result.update(failed=True, msg="%s: %s" % (counted, findings.folded(bad)))
        return result

    def _results(self, args, hostvars):
        """What each host registered; a host that the play never came to has nothing."""
        found = {}
        for host in args["hosts"]:
            value = hostvars[host].get(args["variable"])
            if isinstance(value, dict) and not value.get("skipped"):
                found[host] = value
        return found

    def _groups(self, host, task_vars):
        """The groups that the inventory has the host in."""
        groups = task_vars["hostvars"][host].get("group_names") or []
        return [str(group) for group in groups]

    def _limit(self, text, hosts):
        """How many hosts the task may find unhealthy without failing."""
        try:
            number = float(text.rstrip("%"))
            if number < 0 or (text.endswith("%") and number > 100):
                raise ValueError(text)
            return int(hosts * number / 100) if text.endswith("%") else int(number)
        except ValueError:
            raise AnsibleActionFail("max_unhealthy: %r is neither a number of hosts nor a share such as 5%%" % text) from None

    def _write(self, args, findings, result):
        directory = args["directory"]
        os.makedirs(directory, exist_ok=True)
        text = "".join("%s\n" % line for line in (*result["lines"], result["total"]))
        pages = {"json": ("reports.json", json.dumps(findings.documents(), indent=1, ensure_ascii=False) + "\n"),
                 "html": ("report.html", findings.html(args["title"])),
                 "text": ("summary.txt", text)}  # fmt: skip
        written = {}
        for kind, (name, content) in pages.items():
            path = os.path.join(directory, name)
            temporary = "%s.%d.tmp" % (path, os.getpid())
            # Reports quote logs and command lines: they are for the people who ran this.
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w", encoding="utf-8") as file:
                file.write(content)
            os.replace(temporary, path)
            written[kind] = path
        return written
