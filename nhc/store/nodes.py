"""The nodes of a fleet: the facts of each, and its state in its newest report."""

from __future__ import annotations

import json
import re
import zlib
from itertools import groupby
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Report, printable
from nhc.core.render.json import from_dict, parse, to_dict
from nhc.core.same_machine import another_machine
from nhc.core.system.bounded_read import parse_json, unpacked
from nhc.core.timestamps import AHEAD
from nhc.store import schema
from nhc.store.errors import StoreError
from nhc.store.intake import is_contested
from nhc.store.schema import batches, insert_into, nodes, of_nodes, report_history

# Limits of a stored report: no node can fill the store, or write a row that cannot be read again.


KEPT = 4 << 20
"""Bytes of one report as it is stored, before it is packed. One of 500 results with evidence has less than a tenth."""
LABELS = 100
"""Labels of one node. Kubernetes nodes with every discovery add-on have about 80."""
RESULTS = 5000
LINES = 50
"""Lines of evidence, tags and notes, each; metrics of one result four times as many."""
LINE = 1000
NAME = 200


def fitted(report: Report, size: int) -> Report:
    """A report that is too large, cut so that it fits: the worst results first, each with bounded texts.

    `size` is what it had, in bytes, for the note that says what was left out.
    """
    kept: List[CheckResult] = []
    room = KEPT // 5  # characters, of up to four bytes each
    for result in sorted(report.results[: 20 * RESULTS], key=lambda result: -result.verdict)[:RESULTS]:
        cut = _result(result)
        room -= _length(cut)
        if room < 0:
            break
        kept.append(cut)
    note = (
        f"the report was cut as it was kept: {size} bytes, {len(kept)} of {len(report.results)} results, "
        "the worst first, and the beginnings of long texts"
    )
    return report._replace(
        results=tuple(kept), notes=(note, *_lines(report.notes)), labels=bounded_labels(report.labels),
        boot_id=printable(report.boot_id, NAME), version=printable(report.version, NAME),
    )  # fmt: skip


def is_large(report: Report) -> bool:
    """Whether a report must be cut before it is processed."""
    return len(report.results) > RESULTS or sum(_length(result) for result in report.results) > KEPT // 5


def bounded_labels(labels: Mapping[str, str]) -> Dict[str, str]:
    """Labels as they are stored: the first by name if there are too many."""
    return {printable(str(name), NAME): printable(str(labels[name]), 500) for name in sorted(labels)[:LABELS]}


def _result(result: CheckResult) -> CheckResult:
    outcome = result.outcome
    shorter = Outcome(
        outcome.verdict, printable(outcome.reason, NAME), printable(outcome.message, 2000),
        printable(outcome.target, 500), action=outcome.action,
        metrics=tuple(Metric(printable(name, NAME), value, printable(unit, NAME))
                      for name, value, unit, *_levels in outcome.metrics[: 4 * LINES]),
        evidence=_lines(outcome.evidence), scope=outcome.scope,
        device=DeviceId(*(printable(name, NAME) for name in outcome.device)),
    )  # fmt: skip
    return result._replace(
        check=printable(result.check, NAME), outcome=shorter, source=printable(result.source, LINE),
        line=printable(result.line, LINE), tags=_lines(result.tags),
    )  # fmt: skip


def _lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(line, LINE) for line in lines[:LINES])


def _length(result: CheckResult) -> int:
    """Characters of its texts, and as many again as its names of fields take."""
    outcome = result.outcome
    texts = [result.check, result.source, result.line, *result.tags, outcome.reason, outcome.message, outcome.target]
    texts += [*outcome.device, *outcome.evidence, *(metric.name + metric.unit for metric in outcome.metrics)]
    return 250 + sum(map(len, texts)) + 60 * (len(outcome.metrics) + len(outcome.evidence))


GROUPS = ("rack", "leaf", "nvlink_domain", "zone", "pool", "instance_group")
"""The labels that say with which other nodes a node may fail together."""
IDENTITY = {"machine/uuid": "uuid", "machine/provider-id": "provider_id", "machine/address": "address"}
"""The columns of the labels that say which machine a node is (nhc.node.facts.machine_identity)."""
REPORT_LIMIT = 64 << 20
"""Bytes of one stored report, unpacked."""


class StoredNode(NamedTuple):
    """One node. None for a time: it has no report yet.

    `reported_at` is the time of its newest report's state, `received_at` when that report came in. Every result of it
    was judged at `judged_at` or later. Its reports have had no gap since `covered_since`. At `machine_since` a
    different machine took the name; None: none did. `mark` is the text that takes it out if the store is the source of
    nodes, "" for none.
    """

    node: str
    kind: str
    groups: Mapping[str, str]
    provider_id: str
    address: str
    uuid: str
    boot_id: str
    labels: Mapping[str, str]
    verdict: str
    since: Optional[float]
    reported_at: Optional[float]
    judged_at: Optional[float]
    received_at: Optional[float]
    source: str
    covered_since: Optional[float] = None
    contested: Optional[float] = None
    machine_since: Optional[float] = None
    mark: str = ""

    @property
    def is_contested(self) -> bool:
        """Whether two machines push under its name, so that neither is trusted."""
        return is_contested(self.contested, self.received_at)


class NodeDescription(NamedTuple):
    """What a cluster or an inventory says about a node. None leaves the known value."""

    node: str
    kind: Optional[str] = None
    groups: Optional[Mapping[str, str]] = None
    provider_id: Optional[str] = None
    address: Optional[str] = None
    uuid: Optional[str] = None
    labels: Optional[Mapping[str, str]] = None


class HistoryRow(NamedTuple):
    """One row of a node's history: from `started` on its reports said this. `report` is the first that did."""

    node: str
    started: float
    boot_id: str
    verdict: str
    source: str
    digest: str
    report: Report


_SHOWN = [nodes.c[name] for name in StoredNode._fields]


def describe(connection: Connection, seen: Sequence[NodeDescription]) -> None:
    """Write down what nodes are. A node that is new has no report yet."""
    rows = []
    for description in sorted(seen, key=lambda node: node.node):  # the same order everywhere prevents deadlocks
        given: Dict[str, object] = {name: value for name, value in description._asdict().items() if value is not None}
        for name, value in given.items():
            given[name] = printable(value, 500) if isinstance(value, str) else _clean(value)
        rows.append(given)
    for names, some in groupby(rows, key=tuple):  # rows of the same fields go in one statement
        made = insert_into(connection, nodes)
        change = {name: made.excluded[name] for name in names if name != "node"}
        connection.execute(
            made.on_conflict_do_update(index_elements=["node"], set_=change)
            if change
            else made.on_conflict_do_nothing(),
            [{"groups": {}, "labels": {}, **given} for given in some],
        )


def set_marks(connection: Connection, texts: Mapping[str, str]) -> None:
    """Take nodes out with these texts, or ("") put them back."""
    change = sa.update(nodes).where(nodes.c.node == sa.bindparam("name")).values(mark=sa.bindparam("text"))
    connection.execute(change, [{"name": name, "text": texts[name]} for name in sorted(texts)])


def get(connection: Connection, node: str) -> Optional[StoredNode]:
    """One node, None if it is not known."""
    row = connection.execute(sa.select(*_SHOWN).where(nodes.c.node == node)).first()
    return StoredNode._make(row) if row else None


def list_nodes(
    connection: Connection,
    names: Optional[Sequence[str]] = None,
    *,
    verdicts: Sequence[str] = (),
    silent_since: Optional[float] = None,
    now: float = float("inf"),
) -> List[StoredNode]:
    """Nodes by name: these, of these verdicts, whose last report came in before `silent_since`, or ahead of `now`."""
    asked = sa.select(*_SHOWN).order_by(nodes.c.node)
    if verdicts:
        asked = asked.where(nodes.c.verdict.in_(verdicts))
    if silent_since is not None:
        asked = asked.where(_is_silent(nodes.c.received_at, silent_since, now))
    return [StoredNode._make(row) for query in of_nodes(asked, nodes, names) for row in connection.execute(query)]


class NodeSummary(NamedTuple):
    """What the view of a fleet needs of one node; `groups` as JSON, which most nodes share with others."""

    node: str
    verdict: str
    reported_at: Optional[float]
    since: Optional[float]
    kind: str
    groups: str
    source: str
    received_at: Optional[float]
    contested: Optional[float]

    @property
    def is_contested(self) -> bool:
        """As `StoredNode.is_contested`."""
        return is_contested(self.contested, self.received_at)


def count(connection: Connection) -> int:
    """How many nodes there are."""
    return schema.count(connection, nodes)


def summaries(connection: Connection, received_since: Optional[float] = None) -> List[NodeSummary]:
    """All nodes, or those whose newest report came in at `received_since` (Unix seconds) or later, in any order."""
    columns = [nodes.c[name] if name != "groups" else sa.cast(nodes.c.groups, sa.Text) for name in NodeSummary._fields]
    asked = sa.select(*columns)
    if received_since is not None:
        asked = asked.where(nodes.c.received_at >= received_since)
    return list(map(NodeSummary._make, connection.execute(asked).all()))  # `all`: a third of the time of one by one


def groups(connection: Connection, names: Optional[Sequence[str]] = None) -> Dict[str, Mapping[str, str]]:
    """The groups of these nodes (None: all), by name. Nodes of the same groups share them: each text is read once."""
    known: Dict[str, Mapping[str, str]] = {}
    by_name: Dict[str, Mapping[str, str]] = {}
    asked = of_nodes(sa.select(nodes.c.node, sa.cast(nodes.c.groups, sa.Text)), nodes, names)
    for row in (row for query in asked for row in connection.execute(query)):
        node, text = str(row[0]), str(row[1])
        if text not in known:
            known[text] = json.loads(text)
        by_name[node] = known[text]
    return by_name


SILENT = "SILENT"
"""In counts: nodes whose newest report is too old to count."""


def _is_silent(at: sa.Column[float], since: float, now: float) -> sa.ColumnElement[bool]:
    """Whether a time is from before `since`, or ahead of the clock, which has been set since."""
    return at < since if now == float("inf") else (at < since) | (at > now + AHEAD)


def contested(connection: Connection) -> List[str]:
    """The nodes under whose names two machines push now."""
    rows = connection.execute(sa.select(*_SHOWN).where(nodes.c.contested.is_not(None)).order_by(nodes.c.node))
    return [row.node for row in map(StoredNode._make, rows) if row.is_contested]


def machines_since(connection: Connection) -> Dict[str, float]:
    """When a different machine replaced the one before, by node; nodes without a replacement are left out."""
    asked = sa.select(nodes.c.node, nodes.c.machine_since).where(nodes.c.machine_since.is_not(None))
    return {row.node: float(row.machine_since) for row in connection.execute(asked)}


def counts(connection: Connection, silent_since: Optional[float] = None, now: float = float("inf")) -> Dict[str, int]:
    """How many nodes there are of each verdict; "" are those without a report. Those whose newest report is from before
    `silent_since` (Unix time), or from ahead of `now`, are SILENT: an OK of last week does not count.
    """
    verdict: sa.ColumnElement[str] = nodes.c.verdict
    if silent_since is not None:
        verdict = sa.case((_is_silent(nodes.c.reported_at, silent_since, now), SILENT), else_=nodes.c.verdict)
    asked = sa.select(verdict, sa.func.count()).group_by(verdict)
    return {str(row[0]): int(row[1]) for row in connection.execute(asked)}


def latest(connection: Connection, names: Sequence[str]) -> Dict[str, Report]:
    """The stored report of each of these nodes that has one."""
    return {name: unpack(packed) for name, packed in latest_packed(connection, names).items()}


def latest_packed(connection: Connection, names: Sequence[str]) -> Dict[str, bytes]:
    """The same as `pack` packed them."""
    packed: Dict[str, bytes] = {}
    for batch in batches(names):
        asked = sa.select(nodes.c.node, nodes.c.report).where(nodes.c.node.in_(batch))
        packed.update({row.node: bytes(row.report) for row in connection.execute(asked) if row.report is not None})
    return packed


def history(
    connection: Connection, node: str, since: float = 0.0, until: float = 1e12, limit: int = 1000
) -> List[HistoryRow]:
    """A node's rows of a time, the oldest first; if there are more than `limit`, the newest of them."""
    rows = connection.execute(_past(list(report_history.c), node, since, until, limit))
    return [HistoryRow._make((*row[:6], unpack(row.report))) for row in rows][::-1]


class PastVerdict(NamedTuple):
    """What a node's report was, without the report."""

    started: float
    boot_id: str
    verdict: str


def verdicts(connection: Connection, node: str, since: float, until: float, limit: int) -> List[PastVerdict]:
    """A node's past verdicts of a time, the oldest first; if there are more than `limit`, the newest of them."""
    columns = [report_history.c[name] for name in PastVerdict._fields]
    return [PastVerdict._make(row) for row in connection.execute(_past(columns, node, since, until, limit))][::-1]


def _past(columns: Sequence[sa.Column[Any]], node: str, since: float, until: float, limit: int) -> sa.Select[Any]:
    """A node's rows of the history of a time, the newest first."""
    here = sa.and_(report_history.c.node == node, report_history.c.started >= since, report_history.c.started <= until)
    return sa.select(*columns).where(here).order_by(report_history.c.started.desc()).limit(limit)


def pack(report: Report, text: bytes = b"") -> bytes:
    """A report as it is stored, cut if it is too large. `text`: its JSON as it came in, which is stored as it is if
    possible; then nothing else of the report is needed. Level 1: half of zlib's usual time, a tenth more bytes.
    """
    if not text or len(text) > KEPT or not _is_printable(text):
        whole = parse(text.decode()) if text else report
        text = _text(whole)
        if len(text) > KEPT:
            text = _text(fitted(whole, len(text)))
    return zlib.compress(text, 1)


def _is_printable(text: bytes) -> bool:
    """Whether no text within a JSON has a character that `printable` would change."""
    return text.decode().isprintable() and _UNPRINTABLE.search(text.replace(b"\\\\", b"")) is None


_UNPRINTABLE = re.compile(rb'\\[^"/]')
"""A character that JSON writes as an escape, except a quotation mark and what follows a backslash."""


def _text(report: Report) -> bytes:
    return json.dumps(to_dict(report), separators=(",", ":"), ensure_ascii=False).encode()


def unpack(data: bytes) -> Report:
    """The report that `pack` packed. Raises StoreError if it is damaged."""
    try:
        return from_dict(parse_json(unpacked(data, REPORT_LIMIT)))
    except ValueError as error:
        raise StoreError(f"a kept report is damaged: {error}") from None


def groups_of(labels: Mapping[str, str]) -> Dict[str, str]:
    """The groups that labels name."""
    return {name: labels[name] for name in GROUPS if labels.get(name)}


class DescribedNode(NamedTuple):
    """The columns of a node that its report's labels change: its groups and labels, and which machine it is.

    `reported` gives the source of the labels that reports named.
    """

    groups: Mapping[str, str]
    labels: Mapping[str, str]
    reported: Mapping[str, str]
    uuid: str = ""
    provider_id: str = ""
    address: str = ""


def merged(known: DescribedNode, labels: Mapping[str, str], source: str) -> DescribedNode:
    """A node with its report's labels, and without the labels that the same source named before.

    Values from a cluster or an inventory stay.
    """
    machine_labels = {column: printable(str(labels.get(name, "")), 500) for name, column in IDENTITY.items()}
    marks = ("uuid", "provider_id")
    # The labels of the old machine do not apply to the one that has the name now.
    another = another_machine(*({mark: of[mark] for mark in marks} for of in (known._asdict(), machine_labels)))
    machine = {column: value or ("" if another else getattr(known, column)) for column, value in machine_labels.items()}
    new = bounded_labels({name: value for name, value in labels.items() if name not in IDENTITY})
    gone = {name for name, by in known.reported.items() if by == source and name not in new}
    groups = {
        name: value for name, value in known.groups.items() if name not in gone or value != known.labels.get(name)
    }
    return DescribedNode(
        {**groups, **groups_of(new)},
        {**{name: value for name, value in known.labels.items() if name not in gone}, **new},
        {**{name: by for name, by in known.reported.items() if name not in gone}, **dict.fromkeys(new, source)},
        **machine,
    )


def _clean(labels: object) -> Dict[str, str]:
    pairs = labels.items() if isinstance(labels, Mapping) else ()
    return {printable(str(name), 200): printable(str(value), 500) for name, value in pairs}
