"""Which machine a node was, what that was made of, and since when: a row where either is another than before.

A machine that takes another's place under its name begins anew: `forget` ends the problems of the one before it and
lets jobs use the node again, `nodes.machine_since` keeps episodes and proofs of before from counting
(`of_this_machine`), and a row of the audit log says so. `nhc.core.same_machine` says what another machine is.
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
"""A name that gets another machine more than OFTEN times a week has one whose UUID is made anew at each boot: from then
on nothing is forgotten, for what was never counted would never be given up."""
WHO = "nhc"


class MachineChange(NamedTuple):
    """What a report says of its node's machine, where that is not what was known. `before` and `after` are the marks
    of the machine: uuid and provider_id. `sole` is false while two machines push under the name.
    """

    node: str
    at: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    labels: Mapping[str, str]
    sole: bool = True


def note(connection: Connection, changes: Sequence[MachineChange]) -> Dict[str, float]:
    """Write the changes down, and forget what was of machines that others have replaced; since when those are there.

    The nodes' rows are locked: `machine_since` is the caller's to save.
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
    """End what was wrong with the machine before; false where the name changes its machine too often to be believed."""
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
