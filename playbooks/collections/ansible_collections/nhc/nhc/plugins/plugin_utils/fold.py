# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of nhc_check on many nodes comes to, with equal findings folded."""

from __future__ import annotations

from ansible_collections.nhc.nhc.plugins.modules.nhc_check import describe, not_run
from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import import_nhc

ORDER = ("CRIT", "UNKNOWN", "WARN", "OK")


def report_of(host, result):
    """The report in a task's result; one of UNKNOWN, saying why, where there is none."""
    report = (result.get("ansible_facts") or {}).get("nhc_report")
    if isinstance(report, dict):
        return report
    if result.get("unreachable"):
        return not_run(host, "Unreachable", first_line(result.get("msg")))
    if result.get("timedout"):
        return not_run(host, "Timeout", first_line(result.get("msg")))
    return not_run(host, "NotChecked", first_line(result.get("msg")))


def first_line(message):
    """The first line of what Ansible says, at most 300 characters of it."""
    lines = str(message or "no result").strip().splitlines()
    return (lines[0] if lines else "no result")[:300]


class Findings:
    """The reports of a run, by the names that the inventory has for the nodes."""

    def __init__(self, reports, groups=None):
        self.reports, self.groups = reports, groups or {}
        self.fold = import_nhc("nhc.nodeset").fold
        self.printable = import_nhc("nhc.model").printable

    def by_finding(self):
        """Pairs of a verdict and a line for people: `gpu[003,007] CRIT check_gpu_xid: GPU has fallen off the bus`."""
        groups = {}
        for host, report in self.reports.items():
            for key in self._keys(report):
                groups.setdefault(key, []).append(host)
        for verdict in ORDER:
            for key, hosts in groups.items():
                if key[0] == verdict:
                    yield verdict, "%s %s" % (self.fold(sorted(hosts)), " ".join(part for part in key if part))

    def by_node(self):
        """The same, with all that is wrong with a node on one line; nodes of which the same is true share it."""
        groups = {}
        for host, report in self.reports.items():
            key = (report["verdict"], "; ".join(" ".join(part for part in key[1:] if part) for key in self._keys(report)))
            groups.setdefault(key, []).append(host)
        for verdict in ORDER:
            for key, hosts in groups.items():
                if key[0] == verdict:
                    yield verdict, ("%s %s %s" % (self.fold(sorted(hosts)), verdict, key[1])).rstrip()

    def _keys(self, report):
        """What is wrong with a node, most significant first; its verdict alone where nothing is."""
        keys = []
        for line in describe(report)["summary"]:
            verdict, _blank, rest = self.printable(line).partition(" ")
            keys.append((verdict, rest))
        return keys or [(report["verdict"], "")]

    def counts(self):
        """How many nodes have each verdict."""
        counts = dict.fromkeys(ORDER, 0)
        for report in self.reports.values():
            counts[report["verdict"]] = counts.get(report["verdict"], 0) + 1
        return counts

    def total(self):
        """One line that sums up the run."""
        shown = ", ".join("%d %s" % (count, verdict) for verdict, count in self.counts().items() if count)
        return "%d node%s: %s" % (len(self.reports), "" if len(self.reports) == 1 else "s", shown or "none checked")

    def documents(self):
        """The reports as JSON's own types, each with its groups."""
        return [dict(report, host=host) for host, report in self.reports.items()]

    def html(self, title):
        return "TBD"
