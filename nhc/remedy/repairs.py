"""Repairs in the loop: what opens an episode, and what follows at the end of a round."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from nhc.core.limits import Mode
from nhc.core.model import printable
from nhc.core.system.steady_time import SteadyTime
from nhc.marks.policy.bounds import MARK, BegunAction
from nhc.marks.policy.breaker import opens
from nhc.marks.policy.door import MarkRequest, rule
from nhc.marks.ports.adapter import REMEDY_OWNER, ConditionReport, Effect, Mark, NodeState, NodeStep
from nhc.remedy import reclaim, steps
from nhc.remedy.actuators import Actuators
from nhc.remedy.admit import Admission
from nhc.remedy.cases import Written, is_unrepairable
from nhc.remedy.episode_flow import EpisodeFlow, EpisodeLoop
from nhc.remedy.gather import Gatherer
from nhc.remedy.machine import CAUSE, ENDS, EpisodeState
from nhc.remedy.neighbours import Asks
from nhc.remedy.observer import MARKING, Base, Observer
from nhc.remedy.proving import SuiteProver
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.remedy.view import EpisodeView, Move, Scene
from nhc.store import holds
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode
from nhc.store.rounds.loop import FlowLoop, Opened, Waiting, Would, open_breaker


def repair_loop(
    store: Store,
    settings: RemedySettings,
    actuators: Actuators,
    *,
    fence: Optional[Fence] = None,
    evidence: Optional[Gatherer] = None,
    suite: Optional[SuiteProver] = None,
    asks: Optional[Asks] = None,
    reports: Callable[[], Iterable[ConditionReport]] = tuple,
    unread: Callable[[], Iterable[str]] = tuple,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    publish: Callable[[Written], None] = lambda _written: None,
) -> EpisodeLoop:
    """The loop over the repairs of one site."""
    records = Records(store, fence)
    observer = Observer(store, settings, actuators, records, reports, evidence, suite, asks, unread)
    flow = EpisodeFlow(Repairs(records, observer, actuators), records, actuators, observer, clock)
    return FlowLoop(store, flow, fence=fence, clock=clock, monotonic=monotonic, publish=publish)


class Repairs:
    """The purpose of episodes that were opened by a fault."""

    def __init__(self, records: Records, observer: Observer, actuators: Actuators) -> None:
        self.records, self.observer, self.actuators = records, observer, actuators
        self.settings = observer.settings
        self._waits: Dict[int, Tuple[str, str]] = {}
        """The wait that was last shown for each episode."""

    def begin(self, now: float, apply: bool) -> Tuple[Base, Opened]:
        """See Purpose."""
        marking, store = self.settings.mode(MARK), self.records.store
        if apply and marking is Mode.ON:
            with store.write(self.records.fence) as connection:
                holds.saw_settings(connection, MARKING, "on", now, self.records.actor)
        base = self.observer.begin(now)
        if apply and base.requests.answered:
            self.records.ask_lead()
            self.observer.complain(self.actuators.answer(base.requests.answered))
        would: List[Would] = []
        opened: Sequence[Episode] = ()
        if apply and marking is Mode.ON:
            opened = self.records.admit(base.admissions, now)
        elif marking is not Mode.OFF:
            would = self._would_mark(base)
        self._breaker(base, apply, opened)
        refused = [admission for admission in base.admissions if admission.refused]
        waiting = [Waiting(admission.node, 0, "", admission.refused) for admission in refused]
        return base, Opened(len(opened), waiting, would)

    @staticmethod
    def before_pass(_time: SteadyTime) -> bool:
        """See Purpose."""
        return True

    @staticmethod
    def step(view: EpisodeView, scene: Scene) -> Move:
        """See Purpose."""
        return steps.step(view, scene)

    def end(self, base: Base, moved: Sequence[Written], held: Sequence[Waiting], apply: bool) -> List[Written]:
        """See Purpose."""
        if not apply:
            return []
        self.observer.complain(self.actuators.show(self._steps(moved, held, base.now)))
        if self.settings.mode(MARK) is not Mode.ON or base.states is None:
            return []
        self._tidy()  # after the episodes have seen that their mark was undone, and the nodes show what they are at
        left = self.records.left_out()
        back = self._put_back(base, left)
        self.observer.complain(self.actuators.show(self._steps(back, held, base.now)))
        self._prove_recovered(base, left)
        return back

    def _steps(self, moved: Sequence[Written], held: Sequence[Waiting], now: float) -> List[NodeStep]:
        """The events of this round for the nodes to show: each move, and each episode's new wait."""
        steps = []
        for written in moved:
            row, state = written.case.episode, written.case.state
            alarm = state is EpisodeState.ESCALATED
            why = written.move.because or (CAUSE[written.move.event] if written.move.event is not None else "")
            steps.append(NodeStep(row.node, row.id, row.state, why, now, False, state in ENDS, alarm))
        for wait in held:
            key = (wait.state, wait.why.partition(":")[0])
            if wait.episode and self._waits.get(wait.episode) != key:
                steps.append(NodeStep(wait.node, wait.episode, wait.state, wait.why, now, True))
        self._waits = {wait.episode: (wait.state, wait.why.partition(":")[0]) for wait in held}
        return steps

    def _tidy(self) -> None:
        """Remove the rest of our marks on nodes that persons put back. A process that no longer leads does not."""
        self.records.ask_lead()
        self.observer.complain(self.actuators.tidy())

    def _put_back(self, base: Base, left: Sequence[Episode]) -> List[Written]:
        """End what was left to a person who has put the node back. The nodes are read again: the data from the start of
        the round may be older than the end of an episode.
        """
        here = self.observer.fleet.names.scheduler_name
        rows = [row for row in left if row.ended is not None and row.ended < base.now]
        names = {here(row.node) for row in rows} & {state.name for state in base.states or () if state.available}
        if not names:
            return []
        available = {state.name: state.uid for state in self.observer.states(sorted(names)) or () if state.available}
        back = [row for row in rows if here(row.node) in available]
        uids = {row.node: available[here(row.node)] for row in back}
        return self.records.put_back(back, base.now, uids)

    def _prove_recovered(self, base: Base, left: Sequence[Episode]) -> None:
        """Begin the proof of nodes that were left to a person because no repair is known for their faults, once these
        have ended by themselves, for example after an outage of a shared file system. Not before `verify.healthy-for`
        after the episode: this limits the proofs that a fault that comes and goes can begin.
        """
        here, earliest = self.observer.fleet.names.scheduler_name, base.now - self.settings.verify.healthy_for
        rows = {here(row.node): row for row in left if row.ended is not None and row.ended <= earliest}
        out = {state.name for state in base.states or () if state.out_by_us}
        alone = {name: row for name, row in rows.items() if name in out and is_unrepairable(row)}
        recovered = self.observer.recovered(alone, base) if alone else []
        self.records.prove_again([alone[name] for name in recovered], base.now)

    def _breaker(self, base: Base, apply: bool, opened: Sequence[Episode]) -> None:
        """Open the breaker if too much is wrong at once, the episodes that were just opened included."""
        if base.states is None:
            return  # without the nodes their number is unknown
        faulty = base.counted.faulty | {row.node for row in opened if not reclaim.of_cause(row.cause)}
        why = opens(self.settings.breaker, base.counted.seen._replace(faulty=len(faulty)))
        if why and apply:
            open_breaker(self.records.store, self.records.fence, self.records.actor, why, base.now)

    def _would_mark(self, base: Base) -> List[Would]:
        """What a dry run would mark, within the bounds."""
        with self.records.store.read() as connection:
            enabled = holds.first_seen(connection, MARKING)
        new = [admission for admission in base.admissions if not admission.refused and admission.joins is None]
        states = {state.name: state for state in base.states or ()}
        return [self._would(admission, base, states.get(admission.node), enabled) for admission in new]

    def _would(self, admission: Admission, base: Base, state: Optional[NodeState], enabled: Optional[float]) -> Would:
        device = admission.about.known
        mark = f"mark {printable(str(admission.about))}" if device else "mark"
        ask = MarkRequest(
            admission.node, NodeState(admission.node, "", True) if device else state, Mark(""), REMEDY_OWNER
        )
        ruling = rule(ask, self.settings.bounds, base.counted.usage, base.now, enabled)
        if ruling.effect in (Effect.REFUSED, Effect.FAILED):
            why = f"{ruling.bound}: {ruling.why}" if ruling.bound else ruling.why
            return Would(admission.node, f"not {mark}", why)
        base.counted.usage.count_out(admission.node)
        base.counted.usage.begin(BegunAction(base.now, admission.node, MARK))
        return Would(admission.node, mark, admission.faults[0].message)
