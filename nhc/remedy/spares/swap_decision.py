"""Which spare goes in for which node, and which one comes back. Pure.

Never two spares for one node, never more in service than the pool allows, never a spare that is not verified. A spare
comes back when the node that it replaced is in service again.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.timestamps import is_recent
from nhc.core.units import show_number
from nhc.marks.policy.door import report_doubts
from nhc.marks.ports.adapter import NodeState
from nhc.remedy.machine import OUT, EpisodeState
from nhc.remedy.spares.settings import PoolSettings
from nhc.remedy.view import Health
from nhc.store.episodes import Episode
from nhc.store.spares import ENTERING, LEAVING, SpareInUse


class SpareView(NamedTuple):
    """All that bears on one pool. `waiting` are its spares that wait, `marked` when each node was marked (Unix time).

    `verdicts` are the newest of the pool's deep suite by node, with their times. `episodes` are the open ones and the
    newest ended one of each node. A pool whose spares are added when they are needed names what it adds to (`adds`),
    how many more may be there (`addable`), and the episodes for which it added one already (`had`). `healthy_for` is
    how long (seconds) a spare's reports must have said that it is healthy: a single report is no proof. `held` says why
    a node or a spare must not be touched.
    """

    pool: PoolSettings
    waiting: Sequence[str]
    in_use: Sequence[SpareInUse]
    states: Mapping[str, NodeState]
    health: Mapping[str, Health]
    verdicts: Mapping[str, Tuple[str, float]]
    episodes: Mapping[str, Episode]
    marked: Mapping[str, float]
    held: Mapping[str, str]
    max_age: float
    now: float
    adds: str = ""
    addable: int = 0
    had: FrozenSet[int] = frozenset()
    healthy_for: float = 0.0


class SpareStep(NamedTuple):
    """One thing to do: `swap-in` of a spare for a node, or `back`. `row` is the spare's, if it has one."""

    action: str
    spare: str
    stands_for: str
    why: str
    episode: int = 0
    row: Optional[SpareInUse] = None


class SpareWait(NamedTuple):
    """A node or a spare for which nothing is done now, and why."""

    node: str
    why: str


class SpareDecision(NamedTuple):
    """The steps, and what waits."""

    steps: Tuple[SpareStep, ...]
    waits: Tuple[SpareWait, ...]


def unverified(view: SpareView, node: str) -> str:
    """Why a spare must not get work, "" if it may."""
    health = view.health.get(node)
    state = view.states.get(node)
    if state is None:
        return "the cluster does not know it"
    if view.held.get(node):
        return view.held[node]
    if state.mark is not None and (state.mark.ours or not state.available):
        return f"it is marked{'' if state.mark.ours else f' by {state.mark.owner}'}: {state.mark.why}"
    if health is None or not health.is_fresh(view.now, view.max_age):
        return "it has no fresh report"
    doubts = report_doubts(health.at, health.boot, state, view.now, view.max_age)
    if doubts:
        return doubts[0].why
    if not health.healthy:
        return f"its newest report is {health.verdict.name}"
    if not health.lasts(view.healthy_for):
        so_far = f"{health.at - health.since:.0f} s"
        return f"its reports say {health.verdict.name} for {so_far}, not for {view.healthy_for:g} s"
    if not view.pool.suite:
        return ""
    verdict, at = view.verdicts.get(node, ("", 0.0))
    if verdict not in ("OK", "WARN"):
        return f"the deep suite {view.pool.suite} {'failed' if verdict else 'has not run on it'}"
    if not is_recent(at, view.now, view.pool.verified):
        days = (view.now - at) / 86400
        return f"the deep suite {view.pool.suite} passed {f'{days:.1f} days ago' if days > 0 else 'in the future'}"
    return ""


def decide(view: SpareView) -> SpareDecision:
    """The next steps of one pool."""
    steps: List[SpareStep] = []
    waits: List[SpareWait] = []
    for row in view.in_use:
        if row.state == ENTERING and not (view.adds and _is_back(view, row.stands_for)):
            steps.append(SpareStep("swap-in", row.node, row.stands_for, row.why, row.episode or 0, row))
        elif row.state == LEAVING or _is_back(view, row.stands_for):
            why = row.why if row.state == LEAVING else f"{row.stands_for} is in service again"
            steps.append(SpareStep("back", row.node, row.stands_for, why, row.episode or 0, row))
    room, addable = view.pool.most - len(view.in_use), view.addable
    served = {row.stands_for for row in view.in_use}
    taken = {row.node for row in view.in_use}
    free = []
    for node in view.waiting:
        why = unverified(view, node)
        if why:
            waits.append(SpareWait(node, f"not verified: {why}"))
        elif node not in taken:
            free.append(node)
    for node, since, number in _missing(view):
        if node in served:
            continue
        why = f"out for {(view.now - since) / 60:.0f} min"
        refused = _refused(view, node, number, room, addable if view.adds else len(free))
        if refused:
            waits.append(SpareWait(node, refused))
            continue
        spare = added_name(view.adds, node) if view.adds else free.pop(0)
        steps.append(SpareStep("swap-in", spare, node, why, number))
        room, addable = room - 1, addable - 1
    return SpareDecision(tuple(steps), tuple(waits))


def _refused(view: SpareView, node: str, number: int, room: int, left: int) -> str:
    """Why a node that is out gets no spare now, "" if it gets one. `left` are the spares that could go in."""
    if view.held.get(node):
        return view.held[node]
    if room <= 0:
        return f"no more than {show_number(view.pool.most, 'spare')} may be in service"
    if number in view.had:
        return f"a node was added for episode {number} already"
    if left <= 0:
        return f"{view.adds} has as many nodes as the pool allows" if view.adds else "no verified spare waits"
    return ""


def added_name(adds: str, node: str) -> str:
    """The name of a spare that is added for a node: it has no name of its own before it runs."""
    return f"{adds}+{node}"


def _is_back(view: SpareView, node: str) -> bool:
    """Whether a node is in service again: available, and in no episode that has it out."""
    state, episode = view.states.get(node), view.episodes.get(node)
    out = episode is not None and episode.ended is None and EpisodeState(episode.state) in OUT
    return state is not None and state.available and not out


def _missing(view: SpareView) -> List[Tuple[str, float, int]]:
    """Nodes of the pool's kind that an episode has taken out for too long, the longest first, with since when."""
    missing: Dict[str, Tuple[float, int]] = {}
    for node, episode in view.episodes.items():
        if node in view.waiting or not any(fnmatchcase(node, pattern) for pattern in view.pool.serves):
            continue
        state = view.states.get(node)
        gone = state is None or not state.available
        left = episode.state == EpisodeState.ESCALATED.value
        since = view.marked.get(node, 0.0) or episode.opened
        if gone and (EpisodeState(episode.state) in OUT or left) and view.now - since >= view.pool.after:
            missing[node] = (since, episode.id)
    return [(node, since, number) for node, (since, number) in sorted(missing.items(), key=lambda entry: entry[1])]
