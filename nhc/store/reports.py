"""Take in reports, many at a time: every way into the store leads through `receive`.

It also imports existing reports: files, directories of files, stored sweeps.
"""

from __future__ import annotations

import functools
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import Report, Verdict, printable
from nhc.store import coverage, deep, machines
from nhc.store.database import Store
from nhc.store.intake import (
    Findings,
    Incoming,
    IntakeDecision,
    IntakeSettings,
    KnownNode,
    Receipt,
    digest,
    findings,
    is_contested,
    judge,
    judge_unchanged,
    refusal,
)
from nhc.store.machines import MachineChange
from nhc.store.nodes import DescribedNode, fitted, is_large, latest_packed, merged, pack, unpack
from nhc.store.problems import Going
from nhc.store.schema import batches, insert_into, nodes, report_history

INTO_THE_STORE = "agents through nhc serve server, [sources] of remedy.toml, or nhc store import"
"""The ways in which reports arrive, for a person who sees none."""


class Received(NamedTuple):
    """The result for one report, in the order in which the reports were passed in."""

    node: str
    receipt: Receipt
    message: str = ""
    digest: str = ""
    """The content of the report, if it is its node's newest."""


class _Taken(NamedTuple):
    incoming: Incoming
    findings: Findings
    judged: IntakeDecision


NOTHING = Findings((), frozenset(), frozenset(), False, Verdict.UNKNOWN)


class _Packed:
    """Reports as they are stored. A report that goes both to its node and into the history is packed once."""

    def __init__(self) -> None:
        self._made: Dict[int, bytes] = {}

    def of(self, incoming: Incoming) -> bytes:
        """The bytes of a report of this batch."""
        packed = self._made.get(id(incoming))
        if packed is None:
            packed = self._made[id(incoming)] = pack(incoming.report, incoming.text)
        return packed


def receive(
    connection: Connection,
    incoming: Sequence[Incoming],
    pace: IntakeSettings = IntakeSettings(),  # noqa: B008
) -> List[Received]:
    """Store reports. Those of one node may come in any order, twice, and late; none damages what is known already."""
    ordinary = iter(_receive(connection, [item for item in incoming if not item.suite], pace))
    return [_receive_deep(connection, item, pace) if item.suite else next(ordinary) for item in incoming]


def _receive_deep(connection: Connection, incoming: Incoming, pace: IntakeSettings) -> Received:
    why = refusal(incoming, pace)
    if why:
        return Received(incoming.report.host, Receipt.REFUSED, why)
    report = fitted(incoming.report, 0) if is_large(incoming.report) else incoming.report
    added = deep.add_report(connection, report, incoming.suite)
    return Received(incoming.report.host, Receipt.CHANGED if added else Receipt.DUPLICATE)


def _receive(connection: Connection, incoming: Sequence[Incoming], pace: IntakeSettings) -> List[Received]:
    before = _known(connection, {item.report.host for item in incoming if not refusal(item, pace)})
    known = dict(before)
    taken = []
    kept = _kept(connection, incoming)
    for arrived in incoming:
        host = arrived.report.host
        left = _left_boot(connection, arrived, known.get(host))
        taken.append(_judged(arrived, known.get(host), kept, pace, left))
        judged = taken[-1].judged
        if judged.receipt is not Receipt.REFUSED:
            known[host] = judged.after
        if not arrived.unchanged:
            kept.pop(host, None)  # what the database has is not the newest any more
    packed = _Packed()
    _save_nodes(connection, before, taken, packed)
    _save_history(connection, taken, packed)
    _save_problems(connection, taken)
    for item in taken:
        if item.judged.closed is not None:
            coverage.add(connection, item.judged.after.node, item.judged.closed, pace.gap)
    return [_received(item) for item in taken]


def _received(item: _Taken) -> Received:
    judged = item.judged
    newest = judged.receipt in (Receipt.CHANGED, Receipt.SAME)
    return Received(item.incoming.report.host, judged.receipt, judged.message, judged.after.digest if newest else "")


def _left_boot(connection: Connection, arrived: Incoming, known: Optional[KnownNode]) -> bool:
    """Whether a report is of a boot that its node has left: the history has it, and the newest is of another."""
    boot = printable(arrived.report.boot_id, 100)
    if known is None or not arrived.made or not boot or boot in (known.boot_id, "") or not known.boot_id:
        return False
    there = sa.exists().where(report_history.c.node == known.node, report_history.c.boot_id == boot)
    return bool(connection.scalar(sa.select(there)))


def _judged(
    each: Incoming, known: Optional[KnownNode], kept: Dict[str, bytes], pace: IntakeSettings, known_boot: bool = False
) -> _Taken:
    if not each.unchanged:
        seen = findings(each.report, each.complete)
        return _Taken(each, seen, judge(known, each, seen, pace, known_boot))
    judged = judge_unchanged(known, each, pace)
    if judged.receipt is not Receipt.SAME or not each.report.results:
        return _Taken(each, NOTHING, judged)
    # Its problems have their texts: it is treated as the whole report that it replaces.
    host = each.report.host
    if host in kept:
        whole = each._replace(report=_restored(unpack(kept[host]), each.report), unchanged="")
        seen = findings(whole.report, whole.complete)
        if digest(whole.report, whole.source, seen) == each.unchanged:
            return _Taken(whole, seen, judge(known, whole, seen, pace))
    return _Taken(each, NOTHING, judged._replace(receipt=Receipt.WHOLE, after=known or judged.after, closed=None))


def _kept(connection: Connection, incoming: Sequence[Incoming]) -> Dict[str, bytes]:
    """The stored reports of nodes that have problems and report no change."""
    names = sorted({item.report.host for item in incoming if item.unchanged and item.report.results})
    return latest_packed(connection, names) if names else {}


def _restored(kept: Report, now: Report) -> Report:
    """The whole report, with the times and the problems of `now`."""
    problems = iter(now.results)
    results = [next(problems, None) if result.is_problem else result for result in kept.results]
    return kept._replace(started=now.started, elapsed=now.elapsed, results=(*filter(None, results), *problems))


def _known(connection: Connection, names: set[str]) -> Dict[str, KnownNode]:
    """The stored state of these nodes; their rows are locked until this transaction ends."""
    known = _locked(connection, sorted(names))
    new = sorted(names - set(known))
    if new:  # what is not there cannot be locked: another server may see the node's first report at this moment, too
        rows = [{"node": name, "groups": {}, "labels": {}} for name in new]
        connection.execute(insert_into(connection, nodes).on_conflict_do_nothing(), rows)
        known.update(_locked(connection, new))
    return known


def _locked(connection: Connection, names: Sequence[str]) -> Dict[str, KnownNode]:
    known = {}
    for batch in batches(names):
        for row in connection.execute(_LOCKED, {"names": batch}):
            known[row.node] = KnownNode._make(row)
    return known


_LOCKED = (
    sa.select(*(nodes.c[name] for name in KnownNode._fields))
    .where(nodes.c.node.in_(sa.bindparam("names", expanding=True)))
    .order_by(nodes.c.node)
    .with_for_update()
)


@functools.lru_cache(maxsize=256)
def _update(columns: Tuple[str, ...]) -> sa.Update:
    """The statement that writes these columns of one node: made once, since making it takes as long as writing several
    rows.
    """
    values: Dict[str, object] = {name: sa.bindparam(name) for name in columns}
    return sa.update(nodes).where(nodes.c.node == sa.bindparam("known")).values(values)


def _save_nodes(
    connection: Connection, before: Mapping[str, KnownNode], taken: Sequence[_Taken], packed: _Packed
) -> None:
    """Write, once for each node, what differs from its row `before`; its report if it is to be stored, its labels if
    they may have changed.
    """
    after: Dict[str, KnownNode] = {}
    changed: Dict[str, Incoming] = {}
    differ: Set[str] = set()
    for item in taken:
        judged = item.judged
        if judged.receipt in (Receipt.REFUSED, Receipt.DUPLICATE, Receipt.WHOLE):
            continue
        after[judged.after.node] = judged.after
        if judged.store:
            changed[judged.after.node] = item.incoming
        if judged.receipt is Receipt.CHANGED:
            differ.add(judged.after.node)
    labelled = {name: item for name, item in changed.items() if item.report.labels or name in differ}
    labels, machine_changes = _described(connection, labelled, after)
    replaced = machines.note(connection, machine_changes) if machine_changes else {}
    rows: Dict[Tuple[str, ...], List[Dict[str, object]]] = {}
    for name in sorted(after):
        row: Dict[str, object] = {
            column: value for column, value, was in zip(KnownNode._fields, after[name], before[name]) if value != was
        }
        if name in changed:
            row["report"] = packed.of(changed[name])
        row.update(labels.get(name, {}))
        if name in replaced:
            row["machine_since"] = replaced[name]
        if row:
            rows.setdefault(tuple(row), []).append({**row, "known": name})
    for columns, values in rows.items():
        connection.execute(_update(columns), values)


def _described(
    connection: Connection, changed: Dict[str, Incoming], now: Dict[str, KnownNode]
) -> Tuple[Dict[str, Dict[str, object]], List[MachineChange]]:
    """What the labels of reports change in their nodes, by column, and in the machines of these nodes."""
    names, described, machine_changes = sorted(changed), {}, []
    standing: Dict[str, DescribedNode] = {}
    columns = [nodes.c[name] for name in DescribedNode._fields]
    for batch in batches(names):
        asked = sa.select(nodes.c.node, *columns).where(nodes.c.node.in_(batch))
        standing.update({row.node: DescribedNode(*row[1:]) for row in connection.execute(asked)})
    for name in names:
        before = standing.get(name, DescribedNode({}, {}, {}))
        after = merged(before, changed[name].report.labels, printable(changed[name].source, 100))
        if after != before:
            described[name] = dict(after._asdict())
            was, marks = ({"uuid": one.uuid, "provider_id": one.provider_id} for one in (before, after))
            node = now[name]
            at, sole = node.reported_at or 0.0, not is_contested(node.contested, node.received_at)
            machine_changes.append(MachineChange(name, at, was, marks, changed[name].report.labels, sole))
    return described, machine_changes


def _save_history(connection: Connection, taken: Sequence[_Taken], packed: _Packed) -> None:
    rows = []
    for item in taken:
        report, judged = item.incoming.report, item.judged
        if not judged.note:
            continue
        key = digest(report, item.incoming.source, item.findings)
        if judged.receipt is Receipt.LATE and key == _digest_before(connection, report.host, judged.when):
            continue
        rows.append({
            "node": report.host, "started": judged.when, "boot_id": printable(report.boot_id, 100), "digest": key,
            "source": printable(item.incoming.source, 100), "verdict": item.findings.verdict.name,
            "report": packed.of(item.incoming),
        })  # fmt: skip
    if rows:
        connection.execute(insert_into(connection, report_history).on_conflict_do_nothing(), rows)


def _digest_before(connection: Connection, node: str, started: float) -> str:
    here = sa.and_(report_history.c.node == node, report_history.c.started <= started)
    asked = sa.select(report_history.c.digest).where(here).order_by(report_history.c.started.desc()).limit(1)
    return str(connection.scalar(asked) or "")


def _save_problems(connection: Connection, taken: Sequence[_Taken]) -> None:
    gone_through = [item for item in taken if item.judged.problems]
    if not gone_through:
        return
    going = Going(connection, {item.judged.after.node for item in gone_through})
    for item in gone_through:
        going.apply(item.judged.after.node, item.findings, item.judged.after.source, item.judged.when)
    going.save()


BATCH = 500


class Imported(NamedTuple):
    """How many reports had which result, and why some were refused (the first few)."""

    receipts: Dict[str, int]
    refused: List[str]


def import_reports(store: Store, reports: Iterable[Report], source: str, pace: IntakeSettings, now: float) -> Imported:
    """Take in reports, the oldest first within each batch. Raises StoreError: earlier batches stay stored."""
    counts = dict.fromkeys((receipt.value for receipt in Receipt), 0)
    refused: List[str] = []
    for batch in _batches(reports):
        batch.sort(key=lambda report: report.started)
        with store.write() as connection:
            done = receive(connection, [Incoming(report, source, now) for report in batch], pace)
        for receipt in done:
            counts[receipt.receipt.value] += 1
            if receipt.receipt is Receipt.REFUSED and len(refused) < 10:
                refused.append(f"{receipt.node}: {receipt.message}")
    return Imported(counts, refused)


def _batches(reports: Iterable[Report]) -> Iterator[List[Report]]:
    batch: List[Report] = []
    for report in reports:
        batch.append(report)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
