"""Where the console's fleet comes from: the fleet store, or a directory of reports for which there is no store."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.console.fleet_nodes import FleetNodes, NodeRow
from nhc.console.snapshot import ProblemRow, Snapshot, take
from nhc.console.standing import StandingWork
from nhc.core.model import Report, Verdict, speaks_of
from nhc.core.system.bounded_read import read_text
from nhc.marks.policy.reconcile import BadReports, load_reports
from nhc.store import audit, schema
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems
from nhc.store.database import Store


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


OVERLAP = 5.0
"""Seconds by which a report may be written later than one that came in after it: a server writes many at once, and its
clock may be behind another server's. What is written later still is seen with the next whole read."""
WHOLE = 60.0
"""Seconds after which all nodes are read, also those that changed without a report."""


class StoreSource:
    """The fleet store of the remedy loop. Of the nodes, those are read whose reports came in since the last time."""

    def __init__(self, store: Store, stale: float, clock: Callable[[], float] = time.time) -> None:
        self.store, self.stale, self.clock = store, stale, clock
        self.name = store.name
        self._lock = threading.Lock()
        self._nodes = FleetNodes()
        self._groups: Dict[str, Mapping[str, str]] = {}
        self._received = self._whole_at = float("-inf")
        self._standing = StandingWork()

    def snapshot(self) -> Snapshot:
        now = self.clock()
        with self._lock:
            with self.store.read() as connection:
                newest = audit.head(connection)
                revision = newest.seq if newest else 0
                self._read_nodes(connection, now)
                problems = store_problems.list_problems(connection)
                about = self._standing.about_nodes(connection, now, revision)
            standing = [
                ProblemRow(
                    p.node, p.check, p.reason, p.target, p.verdict, p.action, p.message, p.began, p.ended, p.about()
                )
                for p in problems
            ]
            return take(self._nodes, standing, now, self.stale, revision, about)

    def _read_nodes(self, connection: Connection, now: float) -> None:
        """Those that reported since the last time; all of them once a minute, and where there are more or fewer."""
        seen: Sequence[store_nodes.SeenNode] = ()
        some = 0 <= now - self._whole_at < WHOLE
        if some:
            seen = store_nodes.seen(connection, self._received - OVERLAP)
            new = sum(row.node not in self._nodes.rows for row in seen)
            some = schema.count(connection, schema.nodes) == len(self._nodes.rows) + new
        if not some:
            seen, self._whole_at, self._groups = store_nodes.seen(connection), now, {}
            self._nodes.forget(self._nodes.rows.keys() - {row.node for row in seen})
        newest = max((row[-1] for row in seen if row[-1] is not None), default=self._received)
        self._received = min(newest, now)  # one server's clock may be ahead of all the others'
        known = self._groups
        for text in {row.groups for row in seen} - known.keys():
            known[text] = json.loads(text)
        self._nodes.put([
            NodeRow(node, verdict, reported_at, since, kind, known[groups], source)
            for node, verdict, reported_at, since, kind, groups, source, _received in seen
        ])  # fmt: skip

    def report(self, node: str) -> Optional[Report]:
        with self.store.read() as connection:
            return store_nodes.latest(connection, [node]).get(node)


class ReportsSource:
    """Reports in files and directories: a sweep's, or what agents write. Files are read anew when they change."""

    def __init__(self, paths: Sequence[str], stale: float) -> None:
        self.paths, self.stale = tuple(paths), stale
        self.name = ", ".join(self.paths)
        self._nodes = FleetNodes()
        self._stamp: Tuple[Tuple[str, int, int], ...] = ()
        self._reports: Dict[str, Report] = {}

    def snapshot(self) -> Snapshot:
        self._refresh()
        self._nodes.replace(map(node_row, self._reports.values()))
        problems = [row for _name, report in sorted(self._reports.items()) for row in problem_rows(report)]
        return take(self._nodes, problems, time.time(), self.stale)

    def report(self, node: str) -> Optional[Report]:
        self._refresh()
        return self._reports.get(node)

    def _refresh(self) -> None:
        stamp = tuple(self._look())
        if stamp == self._stamp and self._stamp:
            return
        try:
            reports = load_reports(self.paths, read_text)
        except BadReports as error:
            raise SourceError(str(error)) from None
        newest: Dict[str, Report] = {}
        for report in reports:
            if report.host not in newest or newest[report.host].started < report.started:
                newest[report.host] = report
        self._stamp, self._reports = stamp, newest

    def _look(self) -> List[Tuple[str, int, int]]:
        files = []
        for path in self.paths:
            try:
                names = [f"{path}/{name}" for name in sorted(os.listdir(path))] if os.path.isdir(path) else [path]
                for name in names:
                    seen = os.stat(name)
                    files.append((name, seen.st_mtime_ns, seen.st_size))
            except OSError as error:
                raise SourceError(f"{path}: {error.strerror}") from None
        return files


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
            about=speaks_of(result.outcome.scope, result.outcome.device),
        )
        for result in report.results
        if result.verdict in (Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT)
    ]  # fmt: skip
