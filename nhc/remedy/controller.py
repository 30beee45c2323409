"""The loop: rounds of intake, decide, store, act, watch.

A round goes over the open episodes until nothing moves any more. In each pass it reads, decides by `nhc.remedy.steps`,
writes the moves down, and only then does what the states ask for: set marks (MARKING), send repairs (ACTING), clear
marks (RETURNING). An attempt in ACTING that this round did not write was begun by an earlier controller: its effect is
looked for. So a round may end anywhere, and the next one continues.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import Mode
from nhc.core.model import printable
from nhc.marks.policy.bounds import MARK, BegunAction
from nhc.marks.policy.breaker import opens
from nhc.marks.policy.door import MarkRequest, rule
from nhc.marks.ports.adapter import REMEDY_OWNER, ConditionReport, Effect, Mark, NodeState, NodeStep
from nhc.remedy import reclaim
from nhc.remedy.actuators import Actuators
from nhc.remedy.admit import Admission
from nhc.remedy.cases import Written, is_unrepairable
from nhc.remedy.gather import Gatherer
from nhc.remedy.machine import CAUSE, ENDS, EpisodeState
from nhc.remedy.neighbours import Asks
from nhc.remedy.observer import MARKING, Base, Observer
from nhc.remedy.passes import PASSES, Passes, Waiting, Would, nothing
from nhc.remedy.proving import SuiteProver
from nhc.remedy.records import Records
from nhc.remedy.settings import RemedySettings
from nhc.store import holds
from nhc.store.database import Fence, Store
from nhc.store.episodes import Episode


class RemedyRound(NamedTuple):
    """What one round did. `problems` are what could not be read; `decisions` counts the steps that were decided."""

    at: float
    opened: int
    moved: Tuple[Written, ...]
    waiting: Tuple[Waiting, ...]
    would: Tuple[Would, ...]
    problems: Tuple[str, ...]
    decisions: int
    seconds: float

    def followed_by(self, other: RemedyRound) -> RemedyRound:
        """Both rounds as one, this one the first: all that was done, and what waits in the end."""
        return other._replace(
            at=self.at, opened=self.opened + other.opened, moved=(*self.moved, *other.moved),
            problems=tuple(dict.fromkeys((*self.problems, *other.problems))),
            decisions=self.decisions + other.decisions, seconds=self.seconds + other.seconds,
        )  # fmt: skip

    @property
    def ended(self) -> List[Written]:
        """The episodes that ended in it."""
        return [written for written in self.moved if written.case.state in ENDS]


class RemedyController(Passes):
    """One site's loop over one store. One at a time leads; `fence` is its number, and a lost lead ends a round.

    `publish` is called with each move once it is in the store.
    """

    def __init__(
        self,
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
        publish: Callable[[Written], None] = nothing,
    ) -> None:
        records = Records(store, fence)
        observer = Observer(store, settings, actuators, records, reports, evidence, suite, asks, unread)
        super().__init__(records, settings, actuators, observer, clock, monotonic, publish)
        self._waits: Dict[int, Tuple[str, str]] = {}
        """What each episode was shown to wait for."""

    def round(self, apply: bool = True) -> RemedyRound:
        """Go over everything once. Raises StoreError (LeadershipLost among them): then nothing more was done."""
        ticks, now = self.monotonic(), self.clock()
        self._decisions = 0
        jumped = self.mind_the_clock(now, apply)
        marking = self.settings.mode(MARK)
        if apply and marking is Mode.ON:
            with self.store.write(self.records.fence) as connection:
                holds.saw_settings(connection, MARKING, "on", now, self.records.actor)
        base = self.observer.begin(now)
        self.performer.begin()
        if apply and base.requests.answered:
            self.records.ask_lead()
            self.observer.problems += self.actuators.answer(base.requests.answered)
        would: List[Would] = []
        opened: Sequence[Episode] = ()
        if apply and marking is Mode.ON:
            opened = self.records.admit(base.admissions, now)
        elif marking is not Mode.OFF:
            would = self._would_mark(base)
        self._breaker(base, apply, opened)
        refused = [admission for admission in base.admissions if admission.refused]
        waiting = [Waiting(admission.node, 0, "", admission.refused) for admission in refused]
        moved, held = self._passes(base, apply, would)
        if apply:
            self.observer.problems += self.actuators.show(self._steps(moved, held, now))
        if apply and marking is Mode.ON and base.states is not None:
            self._tidy()  # after the episodes have seen that their mark was undone, and the nodes show what they are at
            left = self.records.left_out()
            back = self._put_back(base, left)
            self.observer.problems += self.actuators.show(self._steps(back, held, now))
            moved += back
            self._prove_recovered(base, left)
        return RemedyRound(
            now, len(opened), tuple(moved), (*waiting, *held), tuple(would), (*jumped, *self.problems()),
            self._decisions, self.monotonic() - ticks,
        )  # fmt: skip

    def _steps(self, moved: Sequence[Written], held: Sequence[Waiting], now: float) -> List[NodeStep]:
        """What the nodes themselves are to show of this round: each move, and what an episode waits for from now on."""
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
        """Take off what is left of our marks where persons put nodes back: whoever does not lead any more does not."""
        self.records.ask_lead()
        self.observer.problems += self.actuators.tidy()

    def _put_back(self, base: Base, left: Sequence[Episode]) -> List[Written]:
        """What was left to a person is so no more where they have put the node back. The nodes are read anew: what the
        round began with may be older than the end of an episode.
        """
        here = self.observer.fleet.names.here
        rows = [row for row in left if row.ended is not None and row.ended < base.now]
        names = {here(row.node) for row in rows} & {state.name for state in base.states or () if state.available}
        if not names:
            return []
        available = {state.name: state.uid for state in self.observer.states(sorted(names)) or () if state.available}
        back = [row for row in rows if here(row.node) in available]
        uids = {row.node: available[here(row.node)] for row in back}
        return self._tell(self.records.put_back(back, base.now, uids))

    def _prove_recovered(self, base: Base, left: Sequence[Episode]) -> None:
        """Begin the proof of nodes that were left to a person with faults that no repair is known for, once these have
        ended by themselves: after an outage of a shared file system, say. No sooner than `verify.healthy-for` after the
        episode: a fault that comes and goes begins no more proofs than that.
        """
        here, earliest = self.observer.fleet.names.here, base.now - self.settings.verify.healthy_for
        rows = {here(row.node): row for row in left if row.ended is not None and row.ended <= earliest}
        out = {state.name for state in base.states or () if state.out_by_us}
        alone = {name: row for name, row in rows.items() if name in out and is_unrepairable(row)}
        recovered = self.observer.recovered(alone, base) if alone else []
        self.records.prove_again([alone[name] for name in recovered], base.now)

    def _passes(self, base: Base, apply: bool, would: List[Would]) -> Tuple[List[Written], List[Waiting]]:
        moved: List[Written] = []
        held: List[Waiting] = []
        for number in range(PASSES if apply else 1):
            held = []
            done = self.pass_over(base, number == 0, apply, held, would)
            moved += done
            if not done:
                break
        return moved, held

    def _breaker(self, base: Base, apply: bool, opened: Sequence[Episode]) -> None:
        """Open the breaker where too much is wrong at once, the episodes that were opened now among it."""
        if base.states is None:
            return  # without the nodes nobody knows how many there are
        faulty = base.counted.faulty | {row.node for row in opened if not reclaim.of_cause(row.cause)}
        why = opens(self.settings.breaker, base.counted.seen._replace(faulty=len(faulty)))
        if why and apply:
            self.open_breaker(why, base.now)

    def _would_mark(self, base: Base) -> List[Would]:
        """What a dry run would mark, within the bounds."""
        with self.store.read() as connection:
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
