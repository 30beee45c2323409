# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""What a run of nhc_check on many nodes comes to: nhc's own sweep results, made of what Ansible has."""

from __future__ import annotations

import json
import os
import time
import zlib

from ansible_collections.nhc.nhc.plugins.module_utils.report import not_run
from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable, import_nhc

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


def results_of(hosts, variable, hostvars):
    """What each host registered under `variable`; a host that the play never came to has nothing."""
    found = {}
    for host in hosts:
        value = hostvars[host].get(variable)
        if isinstance(value, dict) and not value.get("skipped"):
            found[host] = value
    return found


def registered(hosts, variable, hostvars):
    """The reports of these hosts. Raises Unavailable where there is none at all."""
    results = results_of(hosts, variable, hostvars)
    if not results:
        raise Unavailable("no host has a result in %s: was nhc_check run, and registered as that?" % variable)
    return {host: report_of(host, result) for host, result in results.items()}


def first_line(message):
    """The first line of what Ansible says, at most 300 characters of it."""
    text = str(message or "").strip()
    for words in WORDY:
        if text.startswith(words):
            text = text[len(words) :]
    lines = text.splitlines()
    return (lines[0] if lines else "no result")[:300]


class Findings:
    """The reports of a run as nhc's own picture of a sweep, by the names that the inventory has for the nodes.

    `about` says of a host what its groups are, and facts such as its rack. `own_names` takes the names that the
    reports carry instead, where no two nodes have the same.
    """

    def __init__(self, reports, about=None, group_by="", own_names=False):
        self._output = import_nhc("nhc.fleet.summary")
        self._result = import_nhc("nhc.fleet.node_result")
        self._show = import_nhc("nhc.fleet.fold")
        transport = import_nhc("nhc.fleet.transport")
        about = about or {}
        names = self._names(reports) if own_names else {host: host for host in reports}
        self.results = []
        for host in sorted(reports, key=_natural):
            groups, facts = about.get(host, ((), {}))
            node = transport.Node(names[host], groups=tuple(groups), facts=facts)
            self.results.append(self._read(node, reports[host], transport.Trouble))
        reached = [result.report for result in self.results if result.report.version]
        started = min((report.started for report in reached), default=time.time())
        self.picture = self._output.Picture([result.node for result in self.results], started, group_by)
        self.picture.ended = max((report.started + report.elapsed for report in reached), default=started)
        for index, result in enumerate(self.results):
            report = result.report
            found, numbers = self._result.findings(report), self._result.metrics(report)
            self.picture.add(index, int(report.verdict), found, numbers, report.labels)
        self.folder = self.picture.folder

    def _names(self, reports):
        own = {host: str(report.get("host") or host) for host, report in reports.items()}
        return own if len(set(own.values())) == len(own) else {host: host for host in reports}

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
            yield verdict, self._show.show_by_node([group]).splitlines()

    def checks(self):
        """The same by check: pairs of a verdict's name and one line."""
        for fact in self.folder.by_check():
            yield fact.verdict.name, self._show.show_by_check([fact]).splitlines()

    def lines(self):
        """Everything as lines of text."""
        return [line for _verdict, lines in self.groups() for line in lines]

    def total(self):
        """One line that sums up the run."""
        count = len(self.results)
        return "%d node%s: %s" % (count, "" if count == 1 else "s", self._show.counted(self.folder.counts))

    def counts(self):
        """How many nodes have each verdict."""
        return {verdict.name: count for verdict, count in self.folder.counts.items() if verdict.name != "SKIP"}

    def at_least(self, verdict):
        """The names of nodes of which this verdict, or a worse one, is true."""
        least = import_nhc("nhc.core.model").Verdict[verdict]
        return [result.node.name for result in self.results if result.report.verdict >= least]

    def refused(self):
        """The names of nodes whose configuration nhc could not use."""
        return [
            result.node.name
            for result in self.results
            if any(each.outcome.reason == "BadConfiguration" for each in result.report.results)
        ]

    def folded(self, names):
        """Names as ranges."""
        return import_nhc("nhc.core.matching.node_ranges").fold(names)

    def write(self, paths, history_path=""):
        """Write what `nhc fleet check` writes: JSON, HTML and text. Kept in a history where one is named."""
        html = import_nhc("nhc.fleet.html")
        history = import_nhc("nhc.fleet.history").SweepHistory(history_path)
        version = import_nhc("nhc").__version__
        replace = import_nhc("nhc.core.system.written_files").replace_output
        try:
            number = history.begin("ansible-playbook", version, self.picture.started)
            for result in self.results:
                line = zlib.compress(self._result.line(result).encode())
                history.add(number, result.node.name, int(result.report.verdict), result.seconds, line)
            history.end(number)
            far = self.picture.outliers()
            writers = {
                "json": lambda file: self._output.write_json(file, self.picture, history, number, far),
                "html": lambda file: html.write_html(file, self.picture, history, number, far),
                "text": lambda file: file.write(self._output.text(self.picture, far, "node", False, False)),
            }
            for kind, path in paths.items():
                # Reports quote logs and command lines: they are for the people who ran this.
                mask = os.umask(0o027)
                try:
                    replace(path, writers[kind])
                finally:
                    os.umask(mask)
            return history.warning
        finally:
            history.close()


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
