"""What nhc does about each node now, or leaves to a person: the open episode, its next step, and which part took it
out.
"""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.console.snapshot import NodeWork
from nhc.marks.ports.marks import cause_in_words
from nhc.remedy import detail as details
from nhc.remedy.cases import standing_cause
from nhc.remedy.machine import OUT, EpisodeState
from nhc.store import ended_episodes, episodes, holds, node_work

NEXT = {
    EpisodeState.DETECTED: "take the node out of service",
    EpisodeState.MARKING: "take the node out of service",
    EpisodeState.MARKED: "choose a repair",
    EpisodeState.DRAINING: "wait until running work has ended, then {rung}",
    EpisodeState.EVIDENCE: "collect evidence, then {rung}",
    EpisodeState.RECHECK: "judge the fault again, then {rung}",
    EpisodeState.AWAITING_APPROVAL: "waits for your agreement to {rung}",
    EpisodeState.ACTING: "send {rung}",
    EpisodeState.WATCHING: "wait for the effect of {rung}",
    EpisodeState.VERIFYING: "prove that the node is healthy",
    EpisodeState.RETURNING: "put the node back in service",
}
"""What follows in each state of an open episode, for a person."""


class OpenWork:
    """The open work on each node: its episodes, the newest first, then maintenance and holds.

    Its size depends on the nodes with open work, not on the history. Each step of an episode is written with a row of
    the audit log, so episodes are read again when the number of the log's newest row changes.
    """

    def __init__(self) -> None:
        self._revision = -1
        self._kept: Dict[str, Tuple[NodeWork, ...]] = {}

    def by_node(self, connection: Connection, now: float, revision: int) -> Dict[str, Tuple[NodeWork, ...]]:
        """By node. `revision` is that number, asked before this. Raises StoreError."""
        if revision != self._revision:
            self._kept = _of_episodes(connection)
            self._revision = revision
        by_node = self._kept.copy()
        for hold in holds.in_force(connection, now):
            if hold.scope == "node":
                work = NodeWork(f"held by {hold.by}: {hold.why}")
                by_node[hold.name] = (*by_node.get(hold.name, ()), work)
        return by_node


def _of_episodes(connection: Connection) -> Dict[str, Tuple[NodeWork, ...]]:
    by_node: Dict[str, List[NodeWork]] = {}
    left = ended_episodes.left_to_operators(connection)
    for episode in (*reversed(episodes.list_episodes(connection, is_open=True)), *left):
        by_node.setdefault(episode.node, []).append(_of_episode(episode))
    for name, train in node_work.begun_by_train(connection):
        by, marked = f"maintenance train {train.train}", details.read_or_empty(train.detail).marked
        if marked:
            by_node.setdefault(name, []).append(
                NodeWork(f"{by}, {train.state}: {train.why}", out=marked, by=by, why=train.why)
            )
    return {name: tuple(rows) for name, rows in by_node.items()}


def _of_episode(episode: episodes.Episode) -> NodeWork:
    cause = standing_cause(episode)
    why = cause_in_words(cause)
    detail = details.read_or_empty(episode.detail)
    if episode.ended is not None:
        by = f"the remedy loop, episode {episode.id}, which ended as {episode.state}: a person must act"
        because = detail.because or episode.outcome
        following = f"a person must act{f': {because}' if because else ''}"
        return NodeWork(following, episode.id, cause, episode.state, True, detail.node_marked, by, why)
    state = next((state for state in NEXT if state.value == episode.state), None)
    following = NEXT[state].format(rung=episode.rung or "repair") if state else episode.state
    waits = "" if state is EpisodeState.AWAITING_APPROVAL else detail.waiting
    if detail.about.known:
        following = following.replace("the node", f"{detail.about} of the node")
    out = detail.node_marked if state in OUT - {EpisodeState.RETURNING} else 0.0
    return NodeWork(following, episode.id, cause, episode.state, state is EpisodeState.AWAITING_APPROVAL, out,
                    f"the remedy loop, episode {episode.id}", why, waits)  # fmt: skip


def out_of(works: Sequence[NodeWork]) -> Dict[str, object]:
    """Whether nhc has a node out of service: by which of its parts, since when, and why.

    `out` is False if nhc has not: only the scheduler knows what a person did there.
    """
    for work in works:
        if work.out:
            answer = {"out": True, "by": work.by, "since": work.out, "why": work.why}
            return {**answer, "episode": work.episode} if work.episode else answer
    return {"out": False}
