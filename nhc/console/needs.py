"""What needs a person now: from the shared snapshot and the store's episodes."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.console import acts
from nhc.console.screens import DAY, ROWS, Value, cause_row, episode_row, left_out, silent
from nhc.console.snapshot import Snapshot, fold_causes
from nhc.core.matching.node_ranges import fold
from nhc.remedy.cases import standing_cause
from nhc.remedy.machine import REPAIRING as REPAIRING_STATES
from nhc.store import ended_episodes, episodes
from nhc.store.database import Store

REPAIRING = frozenset(state.value for state in REPAIRING_STATES)


def needs(snapshot: Snapshot, store: Optional[Store]) -> Value:
    """What waits for a person, in the order in which it is looked at.

    `approvals` are episodes that wait for agreement, the longest-waiting first; `alike` are those of them that have
    cause and repair in common, each with what its page shows (`acts.decide_alike`). `left` are those that the loop gave
    up (or a person aborted), whose nodes nobody does anything about. `unplanned` are causes that are CRIT on nodes
    about which nothing is done or held. `silent` are nodes without a fresh report.
    """
    approvals: List[episodes.Episode] = []
    left: List[episodes.Episode] = []
    alike: List[Value] = []
    if store is not None:
        with store.read() as connection:
            standing = episodes.list_episodes(connection, is_open=True)
            left = [episode for episode in ended_episodes.left_to_persons(connection) if episode.node in snapshot.nodes]
            approvals = [episode for episode in standing if episode.state == episodes.AWAITING]
            alike = _alike(connection, approvals)
    unplanned = fold_causes(snapshot.unplanned())
    wrong = {(row.node, f"{row.check}|{row.reason}"): row.message for row in snapshot.problems}

    def row_of(episode: episodes.Episode) -> Value:
        row = episode_row(episode)
        return {**row, "message": wrong.get((episode.node, str(row["cause"]).rpartition("|")[0]), ""),
                "out": snapshot.out(episode.node), "jobs": len(snapshot.jobs.get(episode.node, ()))}  # fmt: skip

    return {
        "at": snapshot.at, "alike": alike, "tiles": tiles(snapshot, store),
        "approvals": [row_of(episode) for episode in approvals[:ROWS]], "approvals_left_out": left_out(approvals),
        "left": [row_of(episode) for episode in left[:ROWS]], "left_left_out": left_out(left),
        "unplanned": [cause_row(episode) for episode in unplanned[:ROWS]], "unplanned_left_out": left_out(unplanned),
        "silent": silent(snapshot),
    }  # fmt: skip


def tiles(snapshot: Snapshot, store: Optional[Store]) -> Value:
    """The fleet in a few numbers; `returned` and `median_seconds_to_return` are those of the last day."""
    out = [name for name in snapshot.standing if snapshot.out(name)]
    value: Value = {
        "needs": len(snapshot.needing()), "crit": snapshot.letters.count("c"), "out": len(out),
        "devices_out": sum(snapshot.devices.get(name, 0) for name in out),
        "repairing": sum(any(work.state in REPAIRING for work in works) for works in snapshot.standing.values()),
    }  # fmt: skip
    if store is not None:
        since = snapshot.at - DAY
        with store.read() as connection:
            value["returned"] = ended_episodes.outcomes(connection, since).get("returned", 0)
            (value["median_seconds_to_return"],) = ended_episodes.durations(connection, since, "returned", (0.5,))
    return value


def _alike(connection: Connection, approvals: Sequence[episodes.Episode]) -> List[Value]:
    """The approvals that one decision may settle, in sets of two or more, at most ALIKE of each."""
    sets: Dict[Tuple[str, str, str], List[episodes.Episode]] = {}
    for episode in approvals:
        check, reason, _target = (*standing_cause(episode).split("|"), "", "")[:3]
        sets.setdefault((check, reason, episode.rung), []).append(episode)
    return [
        {
            "check": check, "reason": reason, "rung": rung, "nodes": fold(sorted({episode.node for episode in alike})),
            "count": len(alike),
            "episodes": " ".join(f"{episode.id}:{acts.digest(connection, episode)}" for episode in alike),
        }
        for (check, reason, rung), every in sets.items()
        for alike in [every[: acts.ALIKE]]
        if len(alike) > 1
    ]  # fmt: skip
