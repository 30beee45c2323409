"""What happened to nodes, for a simulation: reports in the order of time, from the store, files and event logs."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.json_values import parse_object
from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict, ok
from nhc.core.system.bounded_read import read_text
from nhc.core.timestamps import from_utc
from nhc.marks.policy.reconcile import BadReports, load_reports
from nhc.store import attempts, nodes, problems
from nhc.store.attempts import AttemptStatus
from nhc.store.database import Store

LIMIT = 1 << 30
"""Bytes of one file of reports or events."""


class BadHistory(ValueError):
    """A recording that cannot be read, in one line."""


class FleetHistory(NamedTuple):
    """A fleet's history: its nodes with their groups, and the reports with changes, the oldest first.

    `repairs` are the times at which the loop really repaired a node, if known. `unread` names files, and reports in
    them, that could not be read.
    """

    groups: Mapping[str, Mapping[str, str]]
    reports: Tuple[Report, ...]
    repairs: Mapping[str, Tuple[float, ...]] = {}
    unread: Tuple[str, ...] = ()

    def repaired(self, node: str, since: float, until: float) -> bool:
        """Whether a node was really repaired in this period."""
        return any(since <= at <= until for at in self.repairs.get(node, ()))

    @property
    def began(self) -> float:
        """When it begins, as Unix time."""
        return self.reports[0].started if self.reports else 0.0


def of_store(store: Store, since: float, until: float) -> FleetHistory:
    """The stored history of nodes that had a problem in this period. Raises StoreError."""
    with store.read() as connection:
        groups = {row.node: dict(row.groups) for row in nodes.list_nodes(connection)}
        names = {row.node for row in problems.list_problems(connection, is_open=None, since=since)}
        reports = [
            past.report._replace(host=name, started=past.started)
            for name in sorted(names)
            for past in nodes.history(connection, name, since, until)
        ]
        repairs: Dict[str, List[float]] = {}
        for attempt in attempts.attempts_since(connection, since):
            if attempt.status is AttemptStatus.SUCCEEDED:
                repairs.setdefault(attempt.node, []).append(attempt.written)
    return FleetHistory(groups, _in_order(reports), {node: tuple(times) for node, times in repairs.items()})


def of_files(reports: Sequence[str], events: Sequence[str]) -> FleetHistory:
    """Read recorded reports and the agents' event logs. Raises BadHistory."""
    history: List[Report] = []
    unread: Tuple[str, ...] = ()
    try:
        history, unread, notes = load_reports(reports, lambda path: read_text(path, LIMIT))
        unread += notes if history else ()
    except BadReports as error:
        raise BadHistory(str(error)) from None
    for path in events:
        try:
            history += of_events(read_text(path, LIMIT).splitlines(), path)
        except OSError as error:
            raise BadHistory(f"{path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise BadHistory(f"{path}: is no text in UTF-8") from None
    return FleetHistory({report.host: {} for report in history}, _in_order(history), unread=unread)


def of_events(lines: Iterable[str], path: str) -> List[Report]:
    """The reports that a log of events is equal to: one after each change of a node's problems. Raises BadHistory."""
    standing: Dict[str, Dict[Tuple[str, str, str], CheckResult]] = {}
    checks: Dict[str, Dict[str, None]] = {}
    reports = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = parse_object(line)
            kind, host, at = str(value["event"]), str(value["host"]), from_utc(value["time"], -1.0)
            if not kind.startswith("problem."):
                continue
            key = (str(value["check"]), str(value["reason"]), str(value["target"]))
            outcome = Outcome(
                Verdict[value["verdict"]], key[1], str(value["message"]), key[2], action=Action(value["action"])
            )
        except (ValueError, KeyError, TypeError):
            raise BadHistory(f"{path}:{number}: is no event of nhc's agent (docs/event.schema.json)") from None
        if at < 0:
            raise BadHistory(f"{path}:{number}: its time is none: {value['time']!r}")
        now = standing.setdefault(host, {})
        checks.setdefault(host, {})[key[0]] = None
        if kind == "problem.ended":
            now.pop(key, None)
        else:
            now[key] = CheckResult(key[0], outcome)
        bad = {result.check for result in now.values()}
        results = (*now.values(), *(CheckResult(check, ok()) for check in checks[host] if check not in bad))
        reports.append(Report(host, str(value.get("boot_id", "")), at, 0.0, results))
    return reports


def joined(some: Sequence[FleetHistory]) -> FleetHistory:
    """Several recordings as one."""
    groups: Dict[str, Mapping[str, str]] = {}
    for history in some:
        for name, more in history.groups.items():
            groups[name] = {**groups.get(name, {}), **more}
    repairs: Dict[str, Tuple[float, ...]] = {}
    for history in some:
        for name, times in history.repairs.items():
            repairs[name] = (*repairs.get(name, ()), *times)
    return FleetHistory(groups, _in_order([report for history in some for report in history.reports]), repairs)


def _in_order(reports: Iterable[Report]) -> Tuple[Report, ...]:
    return tuple(sorted(reports, key=lambda report: (report.started, report.host)))
