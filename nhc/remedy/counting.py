"""Counts for the bounds and the breaker, from the store's episodes and attempts and from the nodes' states."""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

from sqlalchemy.engine import Connection

from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import printable
from nhc.marks.policy.bounds import FLEET, MARK, BegunAction, Bounds, Radius, Usage, radii_of, sizes
from nhc.marks.policy.breaker import NAME, BreakerInput, BreakerSettings
from nhc.marks.ports.adapter import REMEDY_OWNER, DeviceState, NodeState
from nhc.marks.ports.marks import out_by_nhc
from nhc.remedy import detail as details
from nhc.remedy import reclaim
from nhc.remedy.cases import EpisodeCase
from nhc.remedy.detail import Detail
from nhc.remedy.machine import OUT, EpisodeState
from nhc.store import attempts, ended_episodes, holds, nodes
from nhc.store.attempts import AttemptStatus
from nhc.store.ended_episodes import EndedEpisode
from nhc.store.episodes import Episode
from nhc.store.holds import Hold


class FleetGroups(NamedTuple):
    """The nodes by the scheduler's names: the radii of each node, and the number of nodes in each radius."""

    groups: Mapping[str, Tuple[Radius, ...]]
    sizes: Mapping[Radius, int]
    names: NodeNames


def fleet(connection: Connection, states: Sequence[NodeState]) -> FleetGroups:
    """The fleet as the scheduler and the store know it together: the scheduler's nodes, the store's groups."""
    stored = nodes.groups(connection)
    names = NodeNames((state.name for state in states), stored)
    groups = {state.name: radii_of(state) for state in states}
    for node, named in stored.items():
        here = names.scheduler_name(node)
        if here in groups:
            own = tuple((kind, name) for kind, name in named.items() if name)
            groups[here] = tuple(dict.fromkeys((*groups[here], *own)))
    absent = {state.name for state in states if state.absent}
    return FleetGroups(groups, sizes(groups, absent), names)


def unmatched(bounds: Bounds, in_force: Iterable[Hold], fleet: FleetGroups) -> List[str]:
    """What bounds or holds a group that no node is in, one line each."""
    names = {f"{kind}={name}" for kind, name in fleet.sizes}
    return bounds.without_nodes(fleet.sizes) + [
        f"the hold on {printable(hold.name)} by {printable(hold.by)} holds no node: none is in such a group"
        for hold in in_force if hold.scope == "group" and hold.name not in names
    ]  # fmt: skip


class Counted(NamedTuple):
    """What a round may spend, and what the breaker judges; `faulty` names the nodes that it counts as such."""

    usage: Usage
    seen: BreakerInput
    faulty: FrozenSet[str]


def longest(bounds: Bounds, breaker: BreakerSettings) -> float:
    """How many seconds of history the bounds look back on."""
    rates = [rate.seconds for radius in bounds.radii.values() for rate in radius.rates.values()]
    return max([bounds.window, breaker.within, 3600.0, *rates])


def count(
    connection: Connection,
    fleet: FleetGroups,
    cases: Sequence[EpisodeCase],
    states: Iterable[NodeState],
    bounds: Bounds,
    breaker: BreakerSettings,
    now: float,
    max_age: float,
    ended: Optional[EndedBeginnings] = None,
    devices: Iterable[DeviceState] = (),
) -> Counted:
    """Count again what is out, under repair, and begun within the windows. `cases` are the open episodes of the loop
    and of all trains: they share the same bounds. A node counts as out if the loop has one of its `devices` out, also
    when that device is left to a person. `ended` caches what cannot change: the details of episodes that have ended.
    """
    here = fleet.names.scheduler_name
    usage = Usage(fleet.groups, fleet.sizes, {here(node): at for node, at in nodes.machines_since(connection).items()})
    ledger = StoreLedger(connection, cases, now - longest(bounds, breaker), ended)
    states = list(states)
    out: Set[str] = {case.episode.node for case in cases if case.state in OUT}
    out |= {state.name for state in states if out_by_nhc(state)}
    out -= taken_away(cases, states)
    out |= {device.node for device in devices if device.mark is not None and device.mark.owner == REMEDY_OWNER}
    for node in out:
        usage.count_out(node)
    for case in cases:
        if case.at_work:
            usage.count_repairing(case.episode.node)
    for action in ledger.history():
        usage.begin(action)
    states_of = {row.id: EpisodeState(row.state) for row in ledger.known}
    begun = holds.breaker_of(connection, NAME).since
    recent = max(now - breaker.within, begun)
    faulty = frozenset(
        row.node for row in ledger.known
        if row.train is None and row.opened > recent and ledger.beginnings[row.id].fault
        and not reclaim.of_cause(row.cause)
    )  # fmt: skip
    repairs = [one for one in ledger.attempts if one.episode not in ledger.maintained and one.written > begun]
    seen = BreakerInput(
        usage.size((FLEET, "")), len(faulty), _blind(connection, fleet, now, max_age), _repairs(repairs, states_of)
    )
    return Counted(usage, seen, faulty)


def taken_away(cases: Iterable[EpisodeCase], states: Iterable[NodeState]) -> Set[str]:
    """The nodes that are silent because the cloud has taken their machines away; the loop did not take them out."""
    silent = {state.name for state in states if state.silence is not None}
    return {case.episode.node for case in cases if case.detail.reclaimed and case.episode.node in silent}


def _repairs(repairs: Sequence[attempts.Attempt], states: Mapping[int, EpisodeState]) -> List[bool]:
    """How the repairs ended, in their order: true if the node came back after it, false if another repair followed or a
    person was needed. Repairs under way are left out.
    """
    last: Dict[int, int] = {}
    for attempt in repairs:
        last[attempt.episode] = max(last.get(attempt.episode, 0), attempt.number)
    ended = []
    for attempt in repairs:
        if attempt.status in (AttemptStatus.REFUSED, AttemptStatus.SUPERSEDED):
            continue
        state = states.get(attempt.episode)
        if attempt.number < last[attempt.episode] or state is EpisodeState.ESCALATED:
            ended.append(False)
        elif state is EpisodeState.RETURNED:
            ended.append(True)
    return ended


def _blind(connection: Connection, fleet: FleetGroups, now: float, max_age: float) -> int:
    """Nodes of the fleet that report and have no verdict now: UNKNOWN, or silent for longer than a report counts.

    The store still has nodes that the cluster no longer has, mostly replaced ones: they stay silent for ever.
    """
    unknown = nodes.list_nodes(connection, verdicts=("UNKNOWN",))
    silent = nodes.list_nodes(connection, verdicts=("OK", "WARN"), silent_since=now - max_age, now=now)
    return sum(fleet.names.scheduler_name(row.node) in fleet.groups for row in (*unknown, *silent))


class Beginning(NamedTuple):
    """How an episode began. `marked`: when it marked its node, 0.0 for never. `fault`: a fault opened it. Maintenance
    has no fault, nor has the proof of a released node, whose mark is of the previous episode.
    """

    marked: float
    fault: bool

    @classmethod
    def of(cls, detail: Detail) -> Beginning:
        """By its detail, which keeps its faults until it ends."""
        return cls(detail.marked if detail.faults or detail.why else 0.0, bool(detail.faults))


class StoreLedger:
    """The database as a ledger (`nhc.marks.policy.ledger.CountsActions`), read once: actions begun `since` in the open
    episodes (`cases`, with those of all trains) and in the ended ones. A mark begins and ends in the row of its
    episode, a repair in the row of its attempt, each in the transaction of the step (`nhc.remedy.records`).
    """

    def __init__(
        self, connection: Connection, cases: Sequence[EpisodeCase], since: float,
        ended: Optional[EndedBeginnings] = None,
    ) -> None:  # fmt: skip
        rows = ended_episodes.since(connection, since)
        self.since = since
        self.known: List[Union[Episode, EndedEpisode]] = [*(case.episode for case in cases), *rows]
        self.beginnings = (ended or EndedBeginnings()).of(connection, rows)
        self.beginnings.update({case.episode.id: Beginning.of(case.detail) for case in cases})
        self.maintained = {row.id for row in self.known if row.train is not None}
        self.attempts = attempts.attempts_since(connection, since, maintenance=True)

    def history(self, since: float = 0.0) -> List[BegunAction]:
        """The marks that were set, and the repairs but those that were refused. The steps of maintenance of one node
        are one.
        """
        since = max(since, self.since)
        marks = [BegunAction(self.beginnings[row.id].marked, row.node, MARK) for row in self.known]
        repairs: List[BegunAction] = []
        begun_on: Set[int] = set()
        for attempt in self.attempts:
            planned = attempt.episode in self.maintained
            if attempt.status is not AttemptStatus.REFUSED and attempt.episode not in begun_on:
                repairs.append(BegunAction(attempt.written, attempt.node, attempt.rung, planned))
                begun_on |= {attempt.episode} if planned else set()
        return [action for action in (*marks, *repairs) if action.when > since]


class EndedBeginnings:
    """How ended episodes began. Each detail is read once, and again if its version has changed."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[int, int], Beginning] = {}

    def of(self, connection: Connection, rows: Sequence[EndedEpisode]) -> Dict[int, Beginning]:
        """By the numbers of the rows. Entries that are not among the rows are dropped."""
        texts = ended_episodes.details(connection, [row.id for row in rows if (row.id, row.version) not in self._known])
        self._known = {
            (row.id, row.version): Beginning.of(details.read_or_empty(texts[row.id]))
            if row.id in texts
            else self._known[row.id, row.version]
            for row in rows
        }
        return {row.id: self._known[row.id, row.version] for row in rows}
