"""What needs a person now, and whether a node is out of service: from the shared snapshot and the store's episodes."""

from __future__ import annotations

from typing import List, Optional, Sequence, Set, Tuple

from nhc.console.screens import ROWS, Value, episode_row
from nhc.console.snapshot import Snapshot, fold_causes
from nhc.matching.node_ranges import fold
from nhc.remedy import detail as details
from nhc.remedy.machine import OUT, EpisodeState
from nhc.store import ended_episodes, episodes, holds, node_work
from nhc.store.database import Store


def needs(snapshot: Snapshot, store: Optional[Store], trouble: str) -> Value:
    """What waits for a person, in the order in which it is looked at.

    `approvals` are episodes that wait for agreement, the longest-waiting first. `left` are those that the loop gave up
    (or a person aborted), whose nodes nobody does anything about. `unplanned` are causes that are CRIT on nodes without
    an episode or a hold. `silent` are nodes without a fresh report.
    """
    approvals: List[episodes.Episode] = []
    left: List[episodes.Episode] = []
    planned: Set[str] = set()
    if store is not None:
        with store.read() as connection:
            standing = episodes.list_episodes(connection, is_open=True)
            left = [one for one in ended_episodes.left_to_persons(connection) if one.node in snapshot.nodes]
            held = holds.in_force(connection, snapshot.at)
        approvals = [one for one in standing if one.state == episodes.AWAITING]
        planned = {one.node for one in (*standing, *left)} | {one.name for one in held if one.scope == "node"}
    alone = snapshot._replace(
        problems=tuple(row for row in snapshot.problems if row.verdict == "CRIT" and row.node not in planned)
    )
    unplanned = fold_causes(alone)
    silent = [name for name, letter in zip(snapshot.names, snapshot.letters) if letter in "sn"]
    return {
        "at": snapshot.at, "trouble": trouble,
        "approvals": [episode_row(one) for one in approvals[:ROWS]], "approvals_left_out": _rest(approvals),
        "left": [episode_row(one) for one in left[:ROWS]], "left_left_out": _rest(left),
        "unplanned": [one._asdict() for one in unplanned[:ROWS]], "unplanned_left_out": _rest(unplanned),
        "silent": {"count": len(silent), "nodes": fold(silent[:ROWS])},
    }  # fmt: skip


def _rest(rows: Sequence[object]) -> int:
    return max(0, len(rows) - ROWS)


def service(store: Store, name: str) -> Value:
    """Whether nhc has a node out of service: by which of its parts, since when, and why.

    `out` is False where nhc has not: what a person did at the scheduler is known there alone.
    """
    with store.read() as connection:
        standing = episodes.list_episodes(connection, node=name, is_open=True)
        left = ended_episodes.left_to_persons(connection, name)
        trains = [one for one in node_work.trains_of(connection, name) if one.ended is None and one.marked]
    for one in (*standing, *left):
        since, why = _marked(one)
        if since:
            given_up = f", which ended as {one.state}: a person must act" if one.ended is not None else ""
            return {"out": True, "by": f"the remedy loop, episode {one.id}{given_up}", "since": since, "why": why,
                    "episode": one.id}  # fmt: skip
    for train in trains:
        return {"out": True, "by": f"maintenance train {train.train}", "since": train.marked, "why": train.why}
    return {"out": False}


def _marked(one: episodes.Episode) -> Tuple[float, str]:
    """Since when the loop's mark stands, 0.0 where it does not; and the fault."""
    why = ", ".join(part for part in one.cause.split("|") if part)
    try:
        detail = details.read(one.detail)
    except details.BadDetail:
        return 0.0, why
    out = one.ended is not None or one.state in {state.value for state in OUT - {EpisodeState.RETURNING}}
    return (detail.marked if out else 0.0), why
