"""Play a scenario: the real loop, with a store of its own, made-up nodes, and the site's policy.

The site's settings give bounds, breaker, drain, verification, effects and `limits.patience`. Assumed: every action is
enabled, persons agree at once, there is no deep suite. The loop must keep its promises in every scenario.
"""

from __future__ import annotations

import contextlib
from typing import Dict, List, NamedTuple, Optional, Tuple

from nhc.core.limits import Mode
from nhc.lab.drills.scenarios import Scenario, Stand
from nhc.lab.drills.world import DrillWorld, Killed
from nhc.marks.policy.bounds import ACTIONS, FLEET
from nhc.marks.policy.breaker import NAME
from nhc.remedy.actuators import Actuators
from nhc.remedy.cases import Written
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.machine import ENDS
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RemedySettings, RepairerSettings, Sources
from nhc.store import attempts, episodes, holds
from nhc.store import nodes as store_nodes
from nhc.store import reports as store_reports
from nhc.store.connect import stand_in
from nhc.store.database import Store
from nhc.store.intake import Incoming

BEGIN = 1_700_000_000.0
STEP = 15.0
"""Seconds between two rounds of a drill."""
LARGEST = 600.0
LONGEST = 14 * 86400.0
"""Seconds of made-up time after which a drill that has not ended has failed."""


class DrillTiming(NamedTuple):
    """A state that the drilled node's episode entered, and how many seconds after the fault."""

    after: float
    state: str
    why: str


class Promise(NamedTuple):
    """Something that the loop must keep, and what broke it, "" for nothing."""

    name: str
    broken: str


class Drilled(NamedTuple):
    """What came of a drill."""

    scenario: str
    timings: Tuple[DrillTiming, ...]
    promises: Tuple[Promise, ...]
    rounds: int
    seconds: float

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return not any(promise.broken for promise in self.promises)


def prepared(settings: RemedySettings) -> RemedySettings:
    """The site's policy, with everything enabled and persons who agree."""
    return settings._replace(
        modes=dict.fromkeys(ACTIONS, Mode.ON),
        sources=Sources(max_age=max(settings.sources.max_age, 4 * STEP), settle=settings.sources.settle),
        bounds=settings.bounds._replace(approvals={}, protected=(), quiet=settings.bounds.quiet._replace(hours=()),
                                        windows=settings.bounds.windows._replace(hours=())),
        verify=settings.verify._replace(suite=""),
    )  # fmt: skip


def play(scenario: Scenario, settings: RemedySettings, node: str, *, nodes: int = 20, takes: float = 300.0) -> Drilled:
    """Play it to its end. Raises StoreError."""
    names = [node, *(f"drill{number:03}" for number in range(1, scenario.nodes or nodes))]
    world = DrillWorld(names, BEGIN, takes)
    with contextlib.closing(stand_in("drill")) as store:
        with store.write() as connection:
            store_nodes.describe(connection, [
                store_nodes.NodeDescription(drilled.name, groups={"rack": drilled.rack})
                for drilled in world.fleet.values()
            ])  # fmt: skip
        return _Playing(scenario, prepared(settings), world, store, node).to_the_end()


class _Playing:
    def __init__(
        self, scenario: Scenario, settings: RemedySettings, world: DrillWorld, store: Store, node: str
    ) -> None:
        self.scenario, self.settings, self.world, self.store, self.node = scenario, settings, world, store, node
        self.timings: List[DrillTiming] = []
        self.began = world.now

    def _controller(self) -> EpisodeLoop:
        entry = RepairerEntry(RepairerSettings("drill", "drill"), self.world)
        return repair_loop(
            self.store, self.settings, Actuators(self.world, Repairers([entry]), workers=0), publish=self._tell,
            clock=lambda: self.world.now, monotonic=lambda: self.world.now,
        )  # fmt: skip

    def _tell(self, written: Written) -> None:
        row = written.case.episode
        if row.node == self.node and written.move.event is not None:
            self.timings.append(DrillTiming(row.updated - self.began, row.state, written.move.because))

    def _stand(self) -> Stand:
        with self.store.read() as connection:
            rows = episodes.list_episodes(connection, node=self.node)
        return Stand(self.world, self.node, self.world.now - self.began, rows)

    def to_the_end(self) -> Drilled:
        """Rounds until the scenario is over. It begins on the second day, unless it is about the first one's bound."""
        controller = self._controller()
        if not self.scenario.first_day:
            self._round(controller)
            self._report(self.settings.bounds.first_run_for + 1)
        self.began = self.world.now
        self.scenario.begin(self._stand())
        old = self.world.report(self.world.fleet[self.node])
        rounds, again, pause = 0, False, STEP
        while True:
            before = len(self.timings)
            self._report(pause)
            stand = self._stand()
            self.scenario.act(stand)
            self._persons()
            if not self._round(controller):
                controller = self._controller()  # killed: a new process, which knows what the store knows
            rounds += 1
            stand = self._stand()
            if stand.state == "returned" and not again:
                again = True
                with self.store.write() as connection:  # a copy of what is over
                    store_reports.receive(connection, [Incoming(old, "drill", self.world.now)])
            # Long waits are passed in larger steps; what happens is seen in small ones.
            pause = STEP if len(self.timings) > before or self.world.working else min(pause * 1.5, LARGEST)
            over = self.scenario.over or _ended
            if over(stand) or stand.since > LONGEST:
                return Drilled(
                    self.scenario.name, tuple(self.timings), self._promises(stand), rounds, stand.since
                )  # fmt: skip

    def _persons(self) -> None:
        """What persons say to the loop."""
        if self.world.breaker_opens:
            with self.store.write() as connection:
                holds.set_breaker(connection, NAME, "open", by="a person", why="the drill", now=self.world.now)

    def _report(self, seconds: float) -> None:
        reports = self.world.pass_time(seconds)
        with self.store.write() as connection:
            store_reports.receive(connection, [Incoming(report, "drill", self.world.now) for report in reports])

    @staticmethod
    def _round(controller: EpisodeLoop) -> bool:
        """Whether the process survived it."""
        try:
            controller.round()
        except Killed:
            return False
        return True

    def _promises(self, stand: Stand) -> Tuple[Promise, ...]:
        fleet = self.settings.bounds.radii[FLEET]
        size, out = len(self.world.fleet), self.world.most_out
        limit = fleet.out.of(size) if fleet.out is not None else size
        if self.scenario.first_day:
            limit = min(limit, self.settings.bounds.first_run.of(size))
        at_work = fleet.repairing.of(size) if fleet.repairing is not None else size
        return (
            Promise("ended", self._open(stand)),
            Promise("once", self._twice()),
            Promise("nodes out", "" if out <= limit else f"{out} nodes were out, the policy allows {limit}"),
            Promise("under repair", "" if self.world.most_at_work <= at_work
                    else f"{self.world.most_at_work} nodes were under repair, the policy allows {at_work}"),
            Promise("every attempt has an outcome", self._undecided()),
            Promise("others' marks", self._taken()),
            Promise("as expected", self.scenario.expect(stand)),
        )  # fmt: skip

    def _open(self, stand: Stand) -> str:
        still = [row for row in stand.episodes if row.ended is None]
        if stand.since > LONGEST:
            return f"it had not ended after {LONGEST / 86400:g} days"
        if still and self.scenario.over is None:
            return f"episode {still[0].id} is {still[0].state}"
        return ""

    def _twice(self) -> str:
        """An order is sent once: one key, and one rung of one episode."""
        seen: Dict[Tuple[str, str, str], int] = {}
        for order in self.world.sent:
            key = (order.node, order.episode, order.rung.value)
            seen[key] = seen.get(key, 0) + 1
        twice = [f"{rung} of {node}" for (node, _episode, rung), count in seen.items() if count > 1]
        return f"sent more than once: {', '.join(twice)}" if twice else ""

    def _undecided(self) -> str:
        with self.store.read() as connection:
            rows = episodes.list_episodes(connection, is_open=False)
            left = [
                f"{attempt.rung} of {attempt.node}"
                for row in rows for attempt in attempts.attempts_of(connection, row.id)
                if attempt.state != "ended" or attempt.outcome == "ambiguous"
            ]  # fmt: skip
        return f"without an outcome: {', '.join(left)}" if left else ""

    def _taken(self) -> str:
        theirs = [node.name for node in self.world.fleet.values() if node.mark is not None and not node.mark.ours]
        touched = [name for _at, name in self.world.cleared if name in theirs]
        return f"a mark of somebody else's was cleared: {', '.join(touched)}" if touched else ""


def _ended(stand: Stand) -> bool:
    last: Optional[episodes.Episode] = stand.last
    return last is not None and last.state in {state.value for state in ENDS}
