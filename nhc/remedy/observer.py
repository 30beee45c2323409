"""What a round reads before it decides: the nodes, their health, holds, breakers, approvals, and the progress of
repairs.

Everything from which bounds are counted is read once a round. Data that must be current (marks, work, holds) is read in
every pass; a machine is observed right before its repair is decided.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from sqlalchemy.engine import Connection

from nhc.core.limits import Mode
from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import Verdict
from nhc.core.system.service_log import failure
from nhc.core.system.steady_time import SteadyTime
from nhc.marks.policy.bounds import MARK
from nhc.marks.policy.breaker import NAME, blind
from nhc.marks.policy.devices import DEVICE
from nhc.marks.ports.adapter import ConditionReport, DeviceState, NodeState
from nhc.marks.ports.repair import Request, Rung
from nhc.remedy import counting, health, of_device, reasons, silence
from nhc.remedy.actuators import Actuators, Looked, Watched
from nhc.remedy.admit import Admission, admit
from nhc.remedy.cases import EpisodeCase, boots_of, causes_of, standing
from nhc.remedy.counting import Counted, FleetGroups
from nhc.remedy.gather import Gatherer
from nhc.remedy.ladder import NodeFault
from nhc.remedy.machine import REPAIRING, EpisodeState
from nhc.remedy.neighbours import Asks, witnesses
from nhc.remedy.node_holds import StandingHolds, held_now
from nhc.remedy.node_requests import RequestsSeen, answers, fault_of, kept, taken_back
from nhc.remedy.proving import PROOF, SuiteProver
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import Consent, EpisodeView, Health, Scene
from nhc.store import attempts, episodes, holds, nodes
from nhc.store.database import Store
from nhc.store.episodes import Episode
from nhc.store.intake import NEITHER
from nhc.store.rounds.service import one_item

GROUPS_EVERY = 600.0
"""Seconds for which the fleet's groups are cached, unless a node is new or a faulty node's groups have changed."""
MARKING = "remedy: marking"
"""The name under which the store records when marking was first enabled."""
LOST_MARK = "mark: it is the loop's, and the store has no episode of it: put the node back in the scheduler"
"""The wait reason of a node that nobody else would put back (docs/node-out.md)."""
PROVED = (EpisodeState.VERIFYING, EpisodeState.RETURNING)
"""States in which a node is about to be put back."""
TWO_MACHINES = f"reports: two machines push under this name (a cloned image, a copied token): {NEITHER}"
"""The wait reason of a node whose reports come from two machines."""
RECENT = 5
"""How many episodes of a node are searched for the one that ended last."""


class Base(NamedTuple):
    """What holds for a whole round. `states` is None while the cluster cannot be asked."""

    now: float
    states: Optional[List[NodeState]]
    own: Mapping[str, Health]
    admissions: Sequence[Admission]
    counted: Counted
    requests: RequestsSeen = RequestsSeen()
    shared: Mapping[str, str] = {}
    """Silent nodes whose silence is not their own fault, and why."""
    repairing: Mapping[str, int] = {}
    """The open repairs of nodes, for maintenance."""
    devices: Optional[Sequence[DeviceState]] = ()
    """The accelerators that can be marked alone, if they matter; None if they cannot be read."""


Proof = Callable[[EpisodeCase, SteadyTime], Optional[bool]]
"""Says whether a node that is being proved is healthy, None while that is not known."""


class Observer:
    """Reads the store, the adapter and the repairers; changes nothing but its own memory of one round."""

    def __init__(
        self, store: Store, settings: RemedySettings, actuators: Actuators, records: Records,
        reports: Callable[[], Iterable[ConditionReport]],
        evidence: Optional[Gatherer], suite: Optional[SuiteProver], asks: Optional[Asks] = None,
        unread: Callable[[], Iterable[str]] = tuple, proved: Optional[Proof] = None,
    ) -> None:  # fmt: skip
        self.store, self.settings, self.actuators, self.records = store, settings, actuators, records
        self.reports, self.evidence, self.suite, self.asks = reports, evidence, suite, asks
        self.proof: Proof = proved or self._by_suite
        self.unread = unread  # what of `reports` could not be read, once it has been called
        self.problems: List[str] = []
        """Messages for a person about what could not be read in this round."""
        self.fleet = FleetGroups({}, {}, NodeNames((), ()))
        self._read = float("-inf")
        self._watched: Dict[str, Watched] = {}
        self._ended = counting.EndedBeginnings()
        self._unseen: Set[int] = set()

    def complain(self, lines: Iterable[str]) -> None:
        """What else could not be read or done in this round."""
        self.problems += lines

    def know_fleet(self, connection: Connection, states: Sequence[NodeState]) -> None:
        """Read the fleet's groups again."""
        self.fleet = counting.fleet(connection, states)

    def forget(self) -> None:
        """A new round: what could not be read may be asked for again."""
        self.problems, self._watched, self._unseen = [], {}, set()

    def begin(self, now: float) -> Base:
        """Read what a round needs. Raises StoreError."""
        self.forget()
        states = self.states(None)
        with one_item("the machines behind the nodes cannot be read", self.problems):
            self.actuators.repairers.learn_machines()
        reported = self.reported()
        with self.store.read() as connection:
            if states is not None and not 0 <= now - self._read < GROUPS_EVERY:
                self.fleet, self._read = counting.fleet(connection, states), now
            own, unhealthy = self._healths(connection, reported, now)
            if states is not None and self._behind(connection, states, list(unhealthy)):
                self.fleet, self._read = counting.fleet(connection, states), now
                own, unhealthy = self._healths(connection, reported, now)
            known = {state.name for state in states or ()}
            faults = [fault for seen in unhealthy.values() for fault in seen.faults if fault.node in known]
            cases = self.records.cases(connection)
            rows = [case.episode for case in cases]
            away = counting.taken_away(cases, states or ())
            silent = [state for state in states or () if state.silence is not None and state.name not in away]
            common = silence.shared(silent, self.fleet.groups, self.fleet.sizes, self.settings.silence)
            others = self.records.note_others(connection)
            silences = self._silences(connection, silent, own, [*cases, *others], now)
            common = {**self._witnessed(silences, common, states or ()), **common}
            faults += [fault for fault in silences if fault.node not in common]
            # A train's mark does not ask for a repair: with Slurm, the reason of its reboot says reboot while that
            # runs.
            taken = {case.episode.node for case in (*cases, *others)} | set(unhealthy)
            marked = [fault for fault in health.of_marks(states or ()) if fault.node not in taken]
            lost = health.lost_marks(connection, states or (), self.fleet.names, taken | {f.node for f in marked})
            faults += self._marks(marked, connection)
            free = sorted(state.name for state in states or () if _free(state))
            asked, wrong = self._requests(free)
            boot = self.actuators.repairers.boot
            contested = {self.fleet.names.scheduler_name(name) for name in nodes.contested(connection)} & known
            faults = [fault for fault in faults if fault.node not in contested]
            faults = [fault if fault.boot else fault._replace(boot=boot(fault.node)) for fault in faults]
            wanted = {fault.node for fault in faults} - {row.node for row in rows} | set(asked)
            rows += episodes.newest_of(connection, sorted(wanted), RECENT)
            asked, answered = answers(asked, rows, {row.id: causes_of(row) for row in rows if row.node in asked})
            faults += [fault_of(node, request, now) for node, request in asked.items()]
            devices = self.devices(cases, admitting=bool(faults))
            counted = self.count(connection, [*cases, *others], states, devices, now)
            scopes = holds.in_force(connection, now)
        if states is not None:
            self.problems += counting.unmatched(self.settings.bounds, scopes, self.fleet)
        self.problems += wrong
        requests = RequestsSeen(asked, answered)
        admissions = admit(faults, standing(rows), self.settings, now, devices)
        working = {case.episode.node for case in cases}
        admissions += [
            Admission(fault.node, (fault,), refused=f"silence: {common[fault.node]}") for fault in silences
            if fault.node in common and fault.node not in working
        ]  # fmt: skip
        admissions += [Admission(name, (), refused=LOST_MARK) for name in lost]
        admissions += [Admission(name, (), refused=TWO_MACHINES) for name in sorted(contested)]
        return Base(now, states, own, admissions, counted, requests, common, devices=devices)

    def _requests(self, nodes: Sequence[str]) -> Tuple[Dict[str, Request], List[str]]:
        """Persons' requests on nodes. If a cluster or a repairer cannot be read, that is a problem, not a request."""
        try:
            return self.actuators.repairers.requests(nodes)
        except Exception as error:
            return {}, [f"requests for repairs cannot be read: {failure(error)}"]

    def count(
        self, connection: Connection, cases: Sequence[EpisodeCase], states: Optional[Sequence[NodeState]],
        devices: Optional[Sequence[DeviceState]], now: float,
    ) -> Counted:  # fmt: skip
        """What is out and was begun. `cases` are the open episodes of the loop and of all trains."""
        return counting.count(
            connection, self.fleet, cases, states or (), self.settings.bounds, self.settings.breaker, now,
            self.settings.sources.max_age, self._ended, devices or (),
        )  # fmt: skip

    def _silences(
        self, connection: Connection, silent: Sequence[NodeState], own: Mapping[str, Health],
        cases: Sequence[EpisodeCase], now: float,
    ) -> List[NodeFault]:  # fmt: skip
        """Silent nodes as faults. One that boots in the middle of a repair, or of maintenance, is silent for that."""
        booting = {case.episode.node for case in cases if case.state in REPAIRING or case.episode.train is not None}
        asked = [state for state in silent if state.name not in booting]
        stored = self.fleet.names.stored
        rows = nodes.list_nodes(connection, sorted(stored(state.name) for state in asked)) if asked else []
        heard = {self.fleet.names.scheduler_name(row.node): row.reported_at or 0.0 for row in rows}
        # UNKNOWN is also what an adapter itself says of a node that is silent.
        speaks = {name: report.at for name, report in own.items() if report.verdict is not Verdict.UNKNOWN}
        heard.update({name: max(at, heard.get(name, 0.0)) for name, at in speaks.items()})
        silences = silence.faults(asked, heard, now, self.settings.sources.max_age)
        return reasons.applied(silences, self.settings.reasons)

    def _witnessed(
        self, silences: Sequence[NodeFault], common: Mapping[str, str], states: Sequence[NodeState]
    ) -> Mapping[str, str]:
        """The silent nodes whose neighbours do not answer either, and why that is not their fault."""
        alone = [fault.node for fault in silences if fault.node not in common]
        if not alone or not self.settings.silence.port or self.asks is None:
            return {}
        heard = [state.name for state in states if state.silence is None and not state.hold]
        seen = witnesses(alone, heard, self.fleet.groups, self.asks)
        self.problems += seen.problems
        return seen.shared

    def _healths(
        self, connection: Connection, reported: Sequence[ConditionReport], now: float
    ) -> Tuple[Mapping[str, Health], Dict[str, Health]]:
        """The health of nodes by the adapter, and by adapter and store together."""
        own = health.reported(reported, self.fleet.names, "adapter", now)
        return own, self._together([health.stored(connection, self.fleet.names), own])

    def _together(self, healths: Sequence[Mapping[str, Health]]) -> Dict[str, Health]:
        return health.by_reason(health.together(healths), self.settings.reasons)

    def recovered(self, left: Mapping[str, Episode], base: Base) -> List[str]:
        """Which of these nodes, to which nothing was sent, are healthy since they were left to a person, by reports of
        the same boot: a node in another boot was booted by somebody who works on it.
        """
        with self.store.read() as connection:
            own = {name: base.own[name] for name in left if name in base.own}
            healths = self._together([health.stored(connection, self.fleet.names, sorted(left)), own])
            tried = {name for name, row in left.items() if attempts.attempts_of(connection, row.id)}
        well = []
        for name, row in left.items():
            seen, boots = healths.get(name), boots_of(row)
            if seen is None or not seen.healthy or not seen.is_fresh(base.now, self.settings.sources.max_age):
                continue
            booted = bool(boots and seen.boot) and seen.boot not in boots
            if seen.at > (row.ended or 0.0) and not booted and name not in tried:
                well.append(name)
        return well

    def _behind(self, connection: Connection, states: Sequence[NodeState], unhealthy: Sequence[str]) -> bool:
        """Whether a node, or a group of a faulty node, is missing in the cached fleet: the bounds of its blast radius
        would not count it.
        """
        groups, names = self.fleet.groups, self.fleet.names
        if any(state.name not in groups for state in states):
            return True
        known = nodes.groups(connection, sorted(names.stored(name) for name in unhealthy if name in groups))
        return any(
            (kind, name) not in groups.get(names.scheduler_name(node), ())
            for node, named in known.items()
            for kind, name in named.items()
            if name
        )

    def _marks(self, faults: List[NodeFault], connection: Connection) -> List[NodeFault]:
        """Nodes that a hook or a sync has marked and that have no report newer than the mark."""
        known = health.stored(connection, self.fleet.names, [fault.node for fault in faults])
        return [fault for fault in faults if fault.node not in known or known[fault.node].at <= fault.seen]

    def states(self, names: Optional[Sequence[str]]) -> Optional[List[NodeState]]:
        """The nodes' states, None where the cluster cannot be asked."""
        try:
            return self.actuators.states(names)
        except Exception as error:
            self.problems.append(f"nodes cannot be read: {failure(error)}")
            return None

    def reported(self) -> List[ConditionReport]:
        try:
            reports = list(self.reports())
            self.problems += self.unread()
            return reports
        except Exception as error:
            self.problems.append(f"reports cannot be read: {failure(error)}")
            return []

    def devices(self, cases: Sequence[EpisodeCase], admitting: bool = False) -> Optional[List[DeviceState]]:
        """The accelerators that can be marked alone, if an episode is (or may be) about one; None if they cannot be
        read.
        """
        if not any(case.detail.about.known for case in cases) and not (
            admitting and self.settings.devices.keep == DEVICE
        ):
            return []
        try:
            return self.actuators.device_states()
        except Exception as error:
            self.problems.append(f"devices cannot be read: {failure(error)}")
            return None

    def look(
        self, cases: Sequence[EpisodeCase], base: Base, time: SteadyTime, *, first: bool, apply: bool
    ) -> Tuple[Scene, Dict[int, EpisodeView]]:
        """All that bears on the open episodes."""
        now = time.now
        names = sorted({name for case in cases for name in (case.episode.node, case.detail.successor) if name})
        begun = [case for case in cases if case.state is not EpisodeState.PLANNED]
        # Nodes that are about to be put back are read by name: a list of all nodes may leave out their boot.
        asked = [case for case in begun if not first or (case.state in PROVED and case.detail.healthy)]
        again = {name for case in asked for name in (case.episode.node, case.detail.successor) if name}
        states = base.states if first and not again else self.states(sorted(again))
        by_name = {state.name: state for state in base.states or () if state.name not in again}
        by_name.update({state.name: state for state in states or ()})
        with self.store.read() as connection:
            stored = self.fleet.names.stored
            wanted = {case.detail.successor or case.episode.node for case in cases}
            own = {name: report for name, report in base.own.items() if name in wanted}
            rows = nodes.list_nodes(connection, sorted(stored(name) for name in names))
            reports = [row for row in rows if self.fleet.names.scheduler_name(row.node) in wanted]
            came = {self.fleet.names.scheduler_name(row.node): row.machine_since or 0.0 for row in rows}
            healths = self._together([health.stored(connection, self.fleet.names, sorted(wanted), reports), own])
            self.actuators.repairers.learn({self.fleet.names.scheduler_name(row.node): row for row in rows})
            in_force = holds.in_force(connection, now)
            held, numbers = StandingHolds(in_force, self.fleet), {hold.id for hold in in_force}
            breaker = holds.breaker_of(connection, NAME)
            enabled = holds.first_seen(connection, MARKING)
            joined = self._joined(connection, cases, base)
            consents = self.records.consents(connection, [
                case for case in cases if case.state in (EpisodeState.RECHECK, EpisodeState.AWAITING_APPROVAL)
            ])  # fmt: skip
        why = breaker.why if breaker.is_open else ""
        why = why or (blind(self.settings.breaker, base.counted.seen) if base.states is not None else "")
        scene = Scene(self.settings, base.counted.usage, time, enabled, self.actuators.repairers.can)
        watched = self._watch(cases)
        devices = base.devices if first else self.devices(cases)
        beside = of_device.by_node(devices or ())
        views = {}
        for case in cases:
            node = case.episode.node
            detail = case.detail
            judged = healths.get(detail.successor or node)
            if judged is None:
                judged = health.by_cluster(detail.faults, by_name.get(node), now)
            state = by_name.get(node)
            known = states is not None and not (detail.about.known and devices is None)
            node_out = ""
            if detail.about.known:
                node_out = of_device.out_with_it(state) if state is not None else ""
                judged = of_device.health_of(judged, detail.about, detail.faults) if judged is not None else None
                state = of_device.state_of(state, detail.about, beside.get(node, ())) if state is not None else None
            # As new as the newest fault is new enough: a fault that has just joined comes from that very report, which
            # also says which of the others have ended.
            newest = max((fault.seen for fault in detail.faults), default=0.0)
            if judged is not None and judged.faults and judged.at >= newest:
                detail = detail._replace(faults=kept(detail.faults, judged.faults))
            detail = detail._replace(faults=silence.current(detail.faults, by_name.get(node)))
            seen = watched.get(case.episode.id, Watched(None))
            by = held.why(node, detail.hold)
            collected, proved = False, None
            if apply:
                with one_item(f"episode {case.episode.id}", self.problems):
                    collected = not by and states is not None and self._collected(case)
                    proved = self.proof(case, time)
            views[case.episode.id] = case.view()._replace(
                detail=detail, node=state, successor=by_name.get(detail.successor), nodes_known=known, health=judged,
                held=by, breaker=why, progress=seen.progress, unseen=seen.unseen,
                consent=consents.get(case.episode.id, Consent()), collected=collected, proved=proved,
                hold_stands=not detail.hold or detail.hold in numbers,
                repairing=base.repairing.get(node, 0),
                taken_back=base.states is not None and taken_back(detail.faults, base.requests.standing, case.state),
                boot=self.actuators.repairers.boot(node), joined=joined.get(case.episode.id, ""),
                shared=base.shared.get(node, "") if any(map(silence.is_silence, detail.faults)) else "",
                node_out=node_out,
                replaced=came.get(node, 0.0) > case.episode.opened
                and all(one.rung != Rung.REPLACE.value for one in case.attempts),
            )  # fmt: skip
        return scene, views

    def _joined(self, connection: Connection, cases: Sequence[EpisodeCase], base: Base) -> Dict[int, str]:
        """The nodes as which the new machines of replaced ones have joined; of several the one that was repaired."""
        waiting = [case for case in cases if case.state is EpisodeState.VERIFYING and case.detail.replacement]
        if not waiting:
            return {}
        known = {state.name for state in base.states or ()}
        rows = [(self.fleet.names.scheduler_name(row.node), row) for row in nodes.list_nodes(connection)]
        joined = {}
        for case in waiting:
            names = self.actuators.repairers.node_of(case.detail.replacement, known, rows)
            if case.episode.node in names or len(names) == 1:
                joined[case.episode.id] = case.episode.node if case.episode.node in names else names[0]
        return joined

    def held(self, connection: Connection, asked: Sequence[Tuple[str, int]], now: float) -> List[str]:
        """For each node, why nothing may be sent to it now, "" if it may: a hold, or the open breaker."""
        return held_now(connection, asked, now, self.fleet)

    def machines(self, cases: Sequence[EpisodeCase]) -> Dict[int, Looked]:
        """Observe the machines of episodes that are about to be repaired; if one could not be observed, it is tried
        again in the next round, not in this one.
        """
        todo = [case for case in cases if case.episode.id not in self._unseen]
        looks = self.actuators.look(todo)
        self._unseen |= {number for number, looked in looks.items() if looked.sighting is None}
        return looks

    def _watch(self, cases: Sequence[EpisodeCase]) -> Dict[int, Watched]:
        """The progress of repairs: each attempt is queried once a round."""
        watching = [case for case in cases if case.state is EpisodeState.WATCHING and case.attempts]
        todo = [case for case in watching if case.attempts[-1].key not in self._watched]
        progress = self.actuators.watch(todo)
        self._watched.update({case.attempts[-1].key: progress[case.episode.id] for case in todo})
        return {case.episode.id: self._watched[case.attempts[-1].key] for case in watching}

    def _collected(self, case: EpisodeCase) -> bool:
        first = case.state is EpisodeState.DETECTED and self.settings.evidence_first and not case.detail.evidence
        if case.state is not EpisodeState.EVIDENCE and not (first and self.settings.mode(MARK) is Mode.ON):
            return False
        return self.evidence is None or self.evidence.collected(
            case, self.actuators.repairers.machine(case.episode.node)
        )

    def _by_suite(self, case: EpisodeCase, _time: SteadyTime) -> Optional[bool]:
        """Whether the deep suite says that the node is healthy, None while it says nothing."""
        name = PROOF if case.detail.about.known else self.settings.verify.suite
        if case.state is not EpisodeState.VERIFYING or not name or not case.detail.healthy:
            return None
        if self.suite is None:
            self.problems.append(f"verify.suite: nothing here runs the deep suite {name}")
            return None
        machine = self.actuators.repairers.machine(case.detail.successor or case.episode.node)
        passed = self.suite.proved(case, machine, name)
        complaint = self.suite.complaint(case)
        self.problems += [complaint] if complaint and complaint not in self.problems else []
        return passed


def _free(state: NodeState) -> bool:
    """Whether the loop may carry out a person's request on a node: nobody else has taken the node out."""
    return state.available or (state.mark is not None and state.mark.ours)
