# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of nhc_check on many nodes comes to: nhc's own sweep results, made of what Ansible has."""

from __future__ import annotations

import json
import time

from ansible_collections.nhc.nhc.plugins.modules.nhc_check import not_run
from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import import_nhc

WORDY = ("Task failed: ", "Failed to connect to the host via ssh: ", "Data could not be sent to remote host. ")


def report_of(host, result):
    """The report in a task's result; one of UNKNOWN, saying why, where there is none."""
    report = (result.get("ansible_facts") or {}).get("nhc_report")
    if isinstance(report, dict):
        return report
    message = first_line(result.get("msg"))
    if result.get("unreachable"):
        return not_run(host, "Unreachable", message)
    if result.get("timedout"):
        return not_run(host, "Timeout", message)
    return not_run(host, "NotChecked", message)


def first_line(message):
    """The first line of what Ansible says, at most 300 characters of it."""
    text = str(message or "").strip()
    for words in WORDY:
        if text.startswith(words):
            text = text[len(words) :]
    lines = text.splitlines()
    return (lines[0] if lines else "no result")[:300]


class Findings:
    """The reports of a run, by the names that the inventory has for the nodes; `groups` are its groups of each."""

    def __init__(self, reports, groups=None):
        self._fold = import_nhc("nhc.fleet.fold")
        self._result = import_nhc("nhc.fleet.result")
        transport = import_nhc("nhc.fleet.transport")
        self.results = []
        for host in sorted(reports, key=_natural):
            node = transport.Node(host, groups=tuple((groups or {}).get(host, ())))
            self.results.append(self._read(node, reports[host], transport.Trouble))
        self.folder = self._fold.Folder([result.node.name for result in self.results])
        for index, result in enumerate(self.results):
            self.folder.add(index, int(result.report.verdict), self._result.findings(result.report))

    def _read(self, node, document, trouble):
        """The report as nhc reads any that a node sent: checked, and made safe to show."""
        now = time.time()
        try:
            # Its name is the inventory's here: the node may call itself otherwise.
            report = self._result.read_report(json.dumps(dict(document, host=node.name)), node, now)
        except trouble as error:
            report = self._result.unreached(node, error, now)
        return self._result.NodeResult(node, report, report.elapsed, hostname=str(document.get("host", "")))

    def groups(self):
        """For each group of nodes of which the same is true, the worst first: the verdict's name and its lines."""
        for group in self.folder.by_node():
            verdict = max(fact.verdict for fact in group).name
            yield verdict, self._fold.show_by_node([group]).splitlines()

    def checks(self):
        """The same by check: pairs of a verdict's name and one line."""
        for fact in self.folder.by_check():
            yield fact.verdict.name, self._fold.show_by_check([fact]).splitlines()

    def lines(self):
        """Everything as lines of text."""
        return [line for _verdict, lines in self.groups() for line in lines]

    def total(self):
        """One line that sums up the run."""
        count = len(self.results)
        return "%d node%s: %s" % (count, "" if count == 1 else "s", self._fold.counted(self.folder.counts))

    def counts(self):
        """How many nodes have each verdict."""
        return {verdict.name: count for verdict, count in self.folder.counts.items() if verdict.name != "SKIP"}

    def at_least(self, verdict):
        """The names of nodes of which this verdict, or a worse one, is true."""
        least = import_nhc("nhc.model").Verdict[verdict]
        return [result.node.name for result in self.results if result.report.verdict >= least]

    def folded(self, names):
        """Names as ranges."""
        return import_nhc("nhc.nodeset").fold(names)

    def documents(self):
        """The reports as JSON's own types, under the names that the nodes' schedulers have for them."""
        documents = []
        for result in self.results:
            document = self._result.to_json(result)
            document["fleet"]["inventory_name"] = document["host"]
            document["host"] = result.hostname or document["host"]
            documents.append(document)
        return documents


def _natural(name):
    """A key that sorts gpu2 before gpu10."""
    pieces, digits = [], ""
    for char in name + "\0":
        if char.isdigit() and char.isascii():
            digits += char
            continue
        if digits:
            pieces.append((0, int(digits), ""))
            digits = ""
        pieces.append((1, 0, char))
    return pieces
