"""Which machine a node was, its hardware, and since when: a new row when either changes.

A machine that replaces another one under its name starts with a clean record: `forget` ends the old machine's problems
and lets jobs use the node again, earlier episodes and proofs than `nodes.machine_since` do not count
(`of_this_machine`), and a row of the audit log records it. `nhc.core.same_machine` defines what a different machine is.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.same_machine import another_machine
from nhc.store import audit
from nhc.store.coverage import ReportSpan
from nhc.store.schema import batches, insert_into, job_nodes, machines, nodes, problems

MADE_OF = ("model", "firmware", "kernel", "driver")
"""What a machine is made of, by the names of the labels `machine/...` (nhc.node.facts.machine_identity)."""
OFTEN = 3
WEEK = 7 * 86400.0
"""If a name gets a different machine more than OFTEN times a week, its machine has a new UUID at each boot: from then
on nothing is forgotten. Otherwise its repairs would never count, and nhc would never give up."""
WHO = "nhc"


class MachineChange(NamedTuple):
    """What a report says about its node's machine, if that is new. `before` and `after` identify the machine: uuid and
    provider_id. `sole` is false while two machines push under the name.
    """

    node: str
    at: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    labels: Mapping[str, str]
    sole: bool = True


def note(connection: Connection, changes: Sequence[MachineChange]) -> Dict[str, float]:
    """Write the changes down, and forget what belongs to replaced machines; returns since when the new ones are there.

    The nodes' rows are locked: the caller must save `machine_since`.
    """
    newest = _newest(connection, [change.node for change in changes])
    rows: List[Dict[str, object]] = []
    replaced: Dict[str, float] = {}
    for change in changes:
        made_of = {name: change.labels[f"machine/{name}"] for name in MADE_OF if change.labels.get(f"machine/{name}")}
        if newest.get(change.node) == (change.after, made_of):
            continue
        rows.append({"node": change.node, "began": change.at, **change.after, "made_of": made_of})
        if change.sole and another_machine(change.before, change.after) and _forget(connection, change):
            replaced[change.node] = change.at
    if rows:
        connection.execute(insert_into(connection, machines).on_conflict_do_nothing(), rows)
    return replaced


def _newest(connection: Connection, names: Sequence[str]) -> Dict[str, Tuple[Mapping[str, str], Mapping[str, str]]]:
    newest: Dict[str, Tuple[Mapping[str, str], Mapping[str, str]]] = {}
    for batch in batches(names):
        for row in connection.execute(sa.select(machines).where(machines.c.node.in_(batch)).order_by(machines.c.began)):
            newest[row.node] = ({"uuid": row.uuid, "provider_id": row.provider_id}, row.made_of)
    return newest


def _forget(connection: Connection, change: MachineChange) -> bool:
    """End the problems of the old machine; false if the name changes its machine too often to be trusted."""
    here = sa.and_(machines.c.node == change.node, machines.c.began > change.at - WEEK)
    marks = sa.select(machines.c.uuid, machines.c.provider_id).where(here).distinct()
    detail: Dict[str, object] = {"before": dict(change.before), "after": dict(change.after)}
    if len(connection.execute(marks).all()) > OFTEN:
        audit.append(connection, change.at, WHO, "node.changes-often", node=change.node, detail=detail)
        return False
    standing = sa.and_(problems.c.node == change.node, problems.c.ended.is_(None))
    ended = connection.execute(sa.update(problems).where(standing).values(ended=change.at)).rowcount
    pairs = connection.execute(sa.delete(job_nodes).where(job_nodes.c.node == change.node)).rowcount
    detail.update(problems=ended, jobs=pairs)
    audit.append(connection, change.at, WHO, "node.replaced", node=change.node, detail=detail)
    return True


def of_this_machine(node: sa.ColumnElement[str], at: sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Whether what happened to a node at a time happened to the machine that has its name now."""
    later = nodes.alias()
    return ~sa.exists().where(later.c.node == node, later.c.machine_since > at)


def spans(
    connection: Connection, fact: str, began: float, ended: float, names: Optional[Sequence[str]] = None
) -> Dict[str, List[Tuple[str, ReportSpan]]]:
    """By node: what its `fact` (of MADE_OF) was, and from when to when, between two times. "" is not known."""
    asked = sa.select(machines.c.node, machines.c.began, machines.c.made_of).where(machines.c.began < ended)
    rows: Dict[str, List[Tuple[float, str]]] = {}
    for some in [None] if names is None else batches(names):
        which = asked if some is None else asked.where(machines.c.node.in_(some))
        for row in connection.execute(which.order_by(machines.c.node, machines.c.began)):
            rows.setdefault(row.node, []).append((float(row.began), str(row.made_of.get(fact, ""))))
    found: Dict[str, List[Tuple[str, ReportSpan]]] = {}
    for node, steps in rows.items():
        ends = [at for at, _value in steps[1:]] + [ended]
        kept = [(value, ReportSpan(max(at, began), end)) for (at, value), end in zip(steps, ends) if end > began]
        if kept[0][1].began > began:
            kept.insert(0, ("", ReportSpan(began, kept[0][1].began)))
        found[node] = kept
    return found
