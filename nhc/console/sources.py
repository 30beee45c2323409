"""Where the console's fleet comes from: the fleet store, or a directory of reports for which there is no store."""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from nhc.console.snapshot import NodeRow, ProblemRow, Snapshot, take
from nhc.console.standing import about_nodes
from nhc.model import Report, Verdict
from nhc.policy.reconcile import BadReports, load_reports
from nhc.store import audit
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems
from nhc.store.database import Store
from nhc.system.bounded_read import read_text


class SourceError(Exception):
    """The fleet cannot be read now. One line for a person."""


class FleetSource(Protocol):
    """Something that shows a fleet."""

    name: str

    def snapshot(self) -> Snapshot:
        """The fleet now. Raises SourceError, StoreError."""
        ...

    def report(self, node: str) -> Optional[Report]:
        """A node's latest report. Raises SourceError, StoreError."""
        ...


class StoreSource:
    """The fleet store of the remedy loop."""

    def __init__(self, store: Store, stale: float, clock: Callable[[], float] = time.time) -> None:
        self.store, self.stale, self.clock = store, stale, clock
        self.name = store.name

    def snapshot(self) -> Snapshot:
        now = self.clock()
        with self.store.read() as connection:
            nodes = store_nodes.list_nodes(connection)
            problems = store_problems.list_problems(connection)
            newest = audit.head(connection)
            about = about_nodes(connection, now)
        rows = [NodeRow(n.node, n.verdict, n.reported_at, n.since, n.kind, n.groups, n.source) for n in nodes]
        standing = [
            ProblemRow(p.node, p.check, p.reason, p.target, p.verdict, p.action, p.message, p.began, p.ended)
            for p in problems
        ]
        return take(rows, standing, now, self.stale, newest.seq if newest else 0, about)

    def report(self, node: str) -> Optional[Report]:
        with self.store.read() as connection:
            return store_nodes.latest(connection, [node]).get(node)


class ReportsSource:
    """Reports in files and directories: a sweep's, or what agents write. Files are read anew when they change."""

    def __init__(self, paths: Sequence[str], stale: float, clock: Callable[[], float] = time.time) -> None:
        self.paths, self.stale, self.clock = tuple(paths), stale, clock
        self.name = ", ".join(self.paths)
        self._stamp: Tuple[Tuple[str, int, int], ...] = ()
        self._reports: Dict[str, Report] = {}

    def snapshot(self) -> Snapshot:
        self._refresh()
        rows = [node_row(report) for _name, report in sorted(self._reports.items())]
        problems = [row for _name, report in sorted(self._reports.items()) for row in problem_rows(report)]
        return take(rows, problems, self.clock(), self.stale)

    def report(self, node: str) -> Optional[Report]:
        self._refresh()
        return self._reports.get(node)

    def _refresh(self) -> None:
        stamp = tuple(self._look())
        if stamp == self._stamp and self._stamp:
            return
        try:
            found = load_reports(self.paths, read_text)
        except BadReports as error:
            raise SourceError(str(error)) from None
        newest: Dict[str, Report] = {}
        for report in found:
            if report.host not in newest or newest[report.host].started < report.started:
                newest[report.host] = report
        self._stamp, self._reports = stamp, newest

    def _look(self) -> List[Tuple[str, int, int]]:
        found = []
        for path in self.paths:
            try:
                names = [f"{path}/{name}" for name in sorted(os.listdir(path))] if os.path.isdir(path) else [path]
                for name in names:
                    seen = os.stat(name)
                    found.append((name, seen.st_mtime_ns, seen.st_size))
            except OSError as error:
                raise SourceError(f"{path}: {error.strerror}") from None
        return found


def node_row(report: Report) -> NodeRow:
    """What a report says of its node."""
    labels: Mapping[str, str] = report.labels or {}
    return NodeRow(report.host, report.verdict.name, report.started, None, "", dict(labels), "report")


def problem_rows(report: Report) -> List[ProblemRow]:
    """The problems that a report names: all that is worse than OK."""
    return [
        ProblemRow(
            report.host, result.check, result.outcome.reason, result.outcome.target, result.verdict.name,
            result.outcome.action.value, result.outcome.message, report.started,
        )
        for result in report.results
        if result.verdict in (Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT)
    ]  # fmt: skip
