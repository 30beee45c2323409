"""The sources of the console's fleet: the fleet store, a directory of reports without a store, or a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from typing import (
    AbstractSet,
    Callable,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Set,
    Tuple,
)

from sqlalchemy.engine import Connection

from nhc.console.fleet_nodes import FleetNodes, NodeRow
from nhc.console.open_work import OpenWork
from nhc.console.snapshot import ProblemRow, Snapshot, take
from nhc.core.matching.node_ranges import fold
from nhc.core.model import Report, Verdict, scope_text
from nhc.core.system.bounded_read import read_text
from nhc.marks.policy.reconcile import BadReports, files_of, no_reports_in, read_report_file, where_from
from nhc.marks.ports.adapter import AdapterError, ConditionReport, ConditionReports, NodeSource, NodeState
from nhc.marks.ports.marks import cause_of
from nhc.store import audit
from nhc.store import job_restarts as store_jobs
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems
from nhc.store.database import Store
from nhc.store.errors import StoreError
from nhc.store.intake import NEITHER
from nhc.store.reports import INTO_THE_STORE


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
COUNTED = 100
"""Nodes whose accelerators are counted in one read."""
MOST = 1000
"""The most accelerators of a node: a larger count is ignored."""
JOBS = 10.0
"""Seconds after which the watched jobs are read again."""
WHOLE = 60.0
"""Seconds after which all nodes are read, also those that changed without a report."""


class StoreSource:
    """The fleet store of the remedy loop. It reads the nodes whose reports came in since the last time."""

    def __init__(self, store: Store, stale: float, clock: Callable[[], float] = time.time) -> None:
        self.store, self.stale, self.clock = store, stale, clock
        self.name = store.name
        self._lock = threading.Lock()
        self._nodes = FleetNodes()
        self._groups: Dict[str, Mapping[str, str]] = {}
        self._received = self._whole_at = float("-inf")
        self._standing = OpenWork()
        self._devices: Dict[str, int] = {}
        self._jobs: Tuple[float, Mapping[str, FrozenSet[int]]] = (float("-inf"), {})
        self._contested: Set[str] = set()

    def snapshot(self) -> Snapshot:
        now = self.clock()
        with self._lock:
            with self.store.read() as connection:
                newest = audit.head(connection)
                revision = newest.seq if newest else 0
                self._read_nodes(connection, now)
                problems = store_problems.list_problems(connection)
                about = self._standing.by_node(connection, now, revision)
                self._count_devices(connection, {p.node for p in problems} | about.keys(), now)
                if not 0 <= now - self._jobs[0] < JOBS:
                    self._jobs = now, _jobs_by_node(connection)
            standing = [
                ProblemRow(
                    p.node, p.check, p.reason, p.target, p.verdict, p.action, p.message, p.began, p.ended, p.about()
                )
                for p in problems
            ]
            notes = [f"Two machines push as {fold(sorted(self._contested))}: {NEITHER}"] if self._contested else []
            return take(self._nodes, standing, now, self.stale, revision, about, notes, INTO_THE_STORE,
                        devices=self._devices.copy(), jobs=self._jobs[1])  # fmt: skip

    def _count_devices(self, connection: Connection, names: AbstractSet[str], now: float) -> None:
        """The accelerators of some nodes; a few at a time, since a report is large."""
        if self._whole_at == now:
            self._devices = {name: count for name, count in self._devices.items() if count and name in names}
        self._devices.update(count_accelerators(connection, sorted(names - self._devices.keys())[:COUNTED]))

    def _read_nodes(self, connection: Connection, now: float) -> None:
        """Those that reported since the last time; all of them once a minute, and when their number changed."""
        seen: Sequence[store_nodes.NodeSummary] = ()
        some = 0 <= now - self._whole_at < WHOLE
        if some:
            seen = store_nodes.summaries(connection, self._received - OVERLAP)
            new = sum(row.node not in self._nodes.rows for row in seen)
            some = store_nodes.count(connection) == len(self._nodes.rows) + new
        if not some:
            seen, self._whole_at, self._groups = store_nodes.summaries(connection), now, {}
            self._nodes.forget(self._nodes.rows.keys() - {row.node for row in seen})
        newest = max((row.received_at for row in seen if row.received_at is not None), default=self._received)
        self._received = min(newest, now)  # one server's clock may be ahead of all the others'
        known = self._groups
        for text in {row.groups for row in seen} - known.keys():
            known[text] = json.loads(text)
        self._nodes.put([
            NodeRow(
                row.node, Verdict.UNKNOWN.name if row.is_contested else row.verdict, row.reported_at, row.since,
                row.kind, known[row.groups], row.source,
            )
            for row in seen
        ])  # fmt: skip
        self._contested.difference_update(row.node for row in seen)
        self._contested.update(row.node for row in seen if row.is_contested)
        self._contested &= self._nodes.rows.keys()

    def report(self, node: str) -> Optional[Report]:
        with self.store.read() as connection:
            return store_nodes.latest(connection, [node]).get(node)


def _jobs_by_node(connection: Connection) -> Dict[str, FrozenSet[int]]:
    found: Dict[str, set[int]] = {}
    for job in store_jobs.list_jobs(connection):
        for node in job.node_names:
            found.setdefault(node, set()).add(job.id)
    return {node: frozenset(jobs) for node, jobs in found.items()}


def count_accelerators(connection: Connection, names: Sequence[str]) -> Dict[str, int]:
    """The accelerators of nodes by their latest reports, 0 if a node has no readable report."""
    counts = dict.fromkeys(names, 0)
    for name, packed in store_nodes.latest_packed(connection, names).items():
        with contextlib.suppress(StoreError):  # a damaged report is its node's own matter
            counts[name] = accelerators(store_nodes.unpack(packed))
    return counts


def accelerators(report: Report) -> int:
    """How many accelerators a node has or should have, 0 if its report counts none."""
    metrics = (metric for result in report.results for metric in result.outcome.metrics)
    counts = (one.value for one in metrics if one.name in ("gpu_expected", "gpu_count"))
    return max((int(count) for count in counts if 0 <= count < MOST), default=0)


class ReportsSource:
    """Reports in files and directories: a sweep's, or what agents write. A file is read again when it changes.

    If a file can no longer be read, its last content stays, gets old, and the file is named.
    """

    def __init__(self, paths: Sequence[str], stale: float) -> None:
        self.paths, self.stale = tuple(paths), stale
        self.name = ", ".join(self.paths)
        self._nodes = FleetNodes()
        self._files: Dict[str, ReadFile] = {}
        self._notes: Tuple[str, ...] = ()
        self._reports: Dict[str, Report] = {}

    def snapshot(self) -> Snapshot:
        self._refresh()
        self._nodes.replace(map(node_row, self._reports.values()))
        problems = [row for _name, report in sorted(self._reports.items()) for row in problem_rows(report)]
        comes_from = where_from(self.paths)
        devices = {row.node: accelerators(self._reports[row.node]) for row in problems}
        return take(self._nodes, problems, time.time(), self.stale, notes=self._notes, comes_from=comes_from,
                    devices=devices)  # fmt: skip

    def report(self, node: str) -> Optional[Report]:
        self._refresh()
        return self._reports.get(node)

    def _refresh(self) -> None:
        names: List[str] = []
        passed: List[str] = []
        empty: List[str] = []
        try:
            for path in self.paths:
                some, note = files_of(path)
                names += some
                passed += [note] if note else []
                empty += [] if some else [path]
        except BadReports as error:
            raise SourceError(str(error)) from None
        passed += map(no_reports_in, empty if names else ())  # where there are none at all the screen says so
        before = self._files
        self._files = {name: self._look(name, before.get(name)) for name in names}
        broken = [file.problem for file in self._files.values() if file.problem]
        more = [f"and {len(broken) - NAMED} files more that cannot be read"] if len(broken) > NAMED else []
        self._notes = (*broken[:NAMED], *more, *passed)
        if self._files == before:
            return
        newest: Dict[str, Report] = {}
        for file in self._files.values():
            for report in file.reports:
                if report.host not in newest or newest[report.host].started < report.started:
                    newest[report.host] = report
        self._reports = newest

    def _look(self, name: str, before: Optional[ReadFile]) -> ReadFile:
        try:
            seen = os.stat(name)
        except OSError as error:
            if name in self.paths:
                raise SourceError(f"{name}: {error.strerror}") from None
            return ReadFile((0, 0, 0), before.reports if before else (), f"{name}: {error.strerror}")
        stamp = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
        if before is not None and before.stamp == stamp:
            return before
        try:
            reports, problem = read_report_file(name, read_text)
        except BadReports as error:
            if name in self.paths and (before is None or not before.reports):
                raise SourceError(str(error)) from None
            return ReadFile(stamp, before.reports if before else (), str(error))
        return ReadFile(stamp, tuple(reports), problem)


class ReadFile(NamedTuple):
    """A file of reports as it was read: its time, size and number, what it said, and what of it could not be read."""

    stamp: Tuple[int, int, int]
    reports: Tuple[Report, ...]
    problem: str


NAMED = 3
"""Files that cannot be read which a note names."""


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
            about=scope_text(result.outcome.scope, result.outcome.device),
        )
        for result in report.results
        if result.verdict in (Verdict.WARN, Verdict.UNKNOWN, Verdict.CRIT)
    ]  # fmt: skip


# A cluster as the console's fleet, without a store: its nodes, their conditions, and the marks that they carry.


class ClusterSource:
    """A scheduler's view of its nodes: verdicts by their conditions if it has any, otherwise by the marks alone.

    A node without a condition of ours is never healthy: it was not judged. `keep` is for how many seconds an answer is
    cached, so that many viewers cost the cluster no more than one.
    """

    def __init__(self, name: str, adapter: NodeSource, stale: float, keep: float = 5.0) -> None:
        self.name, self.adapter, self.stale, self.keep = name, adapter, stale, keep
        self._read_at = float("-inf")
        self._nodes = FleetNodes()
        self._states: List[NodeState] = []
        self._reports: Dict[str, ConditionReport] = {}

    def snapshot(self) -> Snapshot:
        self._refresh()
        self._nodes.replace(self._row(state) for state in self._states)
        problems = [row for name in sorted(self._reports) for row in self._problems(self._reports[name])]
        marked = [_marked(state) for state in self._states if _is_marked(state) and state.name not in self._reports]
        conditions = "conditions that nhc agents write" if isinstance(self.adapter, ConditionReports) else ""
        comes_from = conditions or f"none: the adapter {self.name} shows marks alone; show a store, or files (-r)"
        notes = [] if self._reports or not marked else [f"No node has reported yet; reports come from {comes_from}"]
        return take(
            self._nodes, [*problems, *marked], time.time(), self.stale, notes=notes, comes_from=comes_from
        )  # fmt: skip

    def report(self, node: str) -> Optional[Report]:
        self._refresh()
        reported = self._reports.get(node)
        return reported.report if reported else None

    def _refresh(self) -> None:
        now = time.time()
        if 0 <= now - self._read_at < self.keep:
            return
        try:
            self._states = self.adapter.nodes()
            if isinstance(self.adapter, ConditionReports):
                self._reports = {reported.report.host: reported for reported in self.adapter.condition_reports()}
        except AdapterError as error:
            raise SourceError(str(error)) from None
        self._read_at = now

    def _row(self, state: NodeState) -> NodeRow:
        reported = self._reports.get(state.name)
        groups = {"state": state.shown, **{f"group{place}": name for place, name in enumerate(state.groups, 1)}}
        if reported is not None:
            since = min(reported.since.values(), default=None)
            return NodeRow(state.name, reported.report.verdict.name, self._read_at, since, "", groups, self.name)
        verdict = "CRIT" if _is_marked(state) else ""
        return NodeRow(state.name, verdict, self._read_at if verdict else None, None, "", groups, self.name)

    @staticmethod
    def _problems(reported: ConditionReport) -> List[ProblemRow]:
        rows = problem_rows(reported.report)
        causes = {(result.check, result.outcome.reason): cause_of(result) for result in reported.report.results}
        return [
            row._replace(began=reported.since.get(causes.get((row.check, row.reason), ""), row.began)) for row in rows
        ]


def _is_marked(state: NodeState) -> bool:
    """Whether a mark keeps a node out; a scheduler may keep the reason of one that is back in service."""
    return state.mark is not None and not state.available


def _marked(state: NodeState) -> ProblemRow:
    """A node that is out of service, if only its mark says why."""
    why, since = ("", None) if state.mark is None else (state.mark.why, state.mark.since)
    return ProblemRow(state.name, "mark", "OutOfService", "", "CRIT", "none", why, since or 0.0)
