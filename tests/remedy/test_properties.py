"""Whatever goes wrong where, with repairs and with maintenance: at most one destructive call a node and rung of an
episode, bounds kept by the loop and a train together, every episode ends, and nobody else's mark is touched.

A machine of hypothesis plays time, sickness, operators, lost answers, a clock that is set, and a controller that is
killed at any of its boundaries (before and after each call and each commit). The invariants are checked after each
step, against what reached the world, not against what the store says.
"""

import contextlib
import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nhc.core.model import Action
from nhc.marks.ports.repair import LADDER, Rung
from nhc.remedy.machine import ENDS, EpisodeState
from nhc.remedy.trains import train_operators
from nhc.remedy.trains.machine import TrainState
from nhc.store import audit, episodes, holds, trains
from nhc.store.errors import RequestRefused, StoreError
from tests.support.new_store import new_store
from tests.support.remedy_world import Killed, Sickness, World
from tests.support.train_world import Line, plan_of

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OUT, REPAIRING = 3, 2
BOUNDED = f"""
[bounds.fleet]
out = "{OUT}"
repairing = "{REPAIRING}"
[bounds.rack]
out = "2"
[limits]
first-run = "100%"
attempts = 12
patience = "3h"
stalled = "30m"
leave-alone = "1d"
[drain]
deadline = "20m"
[effect]
reboot = "10m"
power-cycle = "10m"
replace = "10m"
reset-device = "10m"
reload-driver = "10m"
[verify]
healthy-for = "1m"
deadline = "10m"
grace = "0s"
""".strip()
TRAIN = plan_of(waves='[waves]\nfirst = 1\nsize = "2"\npause = "1m"\n') + '[drain]\ndeadline = "20m"\n'
TRAIN = TRAIN.replace('every = "1s"', 'every = "1s"\npatience = "20m"')
NAMES = st.sampled_from(["n0", "n1", "n4", "n5"])
SICK = st.tuples(
    st.sampled_from([Action.RESET_DEVICE, Action.REBOOT, Action.REPLACE]),
    st.sampled_from([Rung.RESET_DEVICE, Rung.REBOOT, Rung.POWER_CYCLE, Rung.ESCALATE]),
    st.sampled_from(["GpuBroken", "Xid79"]),
    st.sampled_from(["", "gpu1"]),
).map(lambda parts: Sickness(*parts))
MOODS = st.lists(st.sampled_from(["", "lost", "dropped", "refused", "throttled"]), max_size=4)


class Loop(RuleBasedStateMachine):
    """One fleet of eight nodes in two racks."""

    def __init__(self):
        super().__init__()
        self.place = tempfile.TemporaryDirectory(dir=SHARED)
        self.store = new_store(self.place.name)
        self.world = World(self.store, 8)
        self.world.machine = ("n4", "n5")
        self.controller = None

    @initialize(names=st.sets(NAMES, min_size=1), sickness=SICK, mood=MOODS)
    def start(self, names, sickness, mood):
        self.line = Line(self.world, TRAIN, BOUNDED)
        self.line.begin()
        self.restart()
        self.world.lose = mood
        for name in sorted(names):
            self.world.fall_sick(name, sickness)

    # What happens.

    @rule(name=NAMES, sickness=SICK)
    def a_node_falls_sick(self, name, sickness):
        self.world.fall_sick(name, sickness)

    @rule(name=NAMES)
    def a_node_recovers(self, name):
        self.world.nodes[name].sick.clear()
        self.world.report([name])

    @rule(name=NAMES, busy=st.booleans())
    def work_comes_and_goes(self, name, busy):
        self.world.nodes[name].busy = busy and self.world.nodes[name].available

    @rule(name=NAMES)
    def an_operator_takes_a_node_out(self, name):
        node = self.world.nodes[name]
        if node.available or node.mark.ours:
            self.world.operator_takes_out(name)

    @rule(name=NAMES)
    def an_operator_puts_a_node_back(self, name):
        self.world.operator_puts_back(name)

    @rule(name=NAMES)
    def an_operator_holds_a_node(self, name):
        with self.store.write() as connection:
            holds.hold(connection, "node", name, by="bob", why="mine", now=self.world.now, until=self.world.now + 900)

    @rule(mood=MOODS)
    def answers_get_lost(self, mood):
        self.world.lose = mood

    @rule(name=NAMES)
    def an_old_report_comes_late_and_twice(self, name):
        from nhc.store import reports
        from nhc.store.intake import Incoming

        old = self.world.report_of(self.world.nodes[name], self.world.now - 120)
        with self.store.write() as connection:
            reports.receive(connection, [Incoming(old, "agent", self.world.now)] * 2)

    @rule(seconds=st.sampled_from([5, 30, 90, 400]))
    def time_passes(self, seconds):
        self.world.tick(seconds)

    @rule(seconds=st.sampled_from([-5000, -30, 30, 5000]))
    def the_clock_is_set(self, seconds):
        self.world.now += seconds
        self.world.report()

    @rule(count=st.integers(1, 8), seconds=st.sampled_from([20, 60, 200]))
    def some_rounds(self, count, seconds):
        for _ in range(count):
            self.round()
            self.world.tick(seconds)

    @rule(boundary=st.integers(1, 60), what=st.sampled_from(["kill", "take out", "put back"]), name=NAMES)
    def rounds_that_are_cut_into(self, boundary, what, name):
        """Killed at a boundary, or somebody comes in right there."""
        if what == "kill":
            self.world.kill_at = self.world.boundaries + boundary
        else:
            do = self.world.operator_takes_out if what == "take out" else self.world.operator_puts_back
            self.at(boundary, lambda: do(name))
        for _ in range(3):
            self.round()
            self.world.tick(30)
        self.world.kill_at, self.world.at_boundary = -1, lambda _what: None

    @rule()
    def the_scheduler_is_away_for_a_round(self):
        self.world.down = True
        self.round()
        self.world.down = False

    @rule()
    def a_restart(self):
        self.restart()

    def restart(self):
        self.controller, self.engine = self.world.controller(BOUNDED), self.line.engine()

    @rule(to=st.sampled_from([TrainState.HELD, TrainState.PLANNED]))
    def a_person_holds_or_resumes_the_train(self, to):
        with contextlib.suppress(RequestRefused):
            train_operators.change(self.store, "kernel", to, by="bob", why="mine", now=self.world.now)

    def at(self, boundary, do):
        wanted = self.world.boundaries + boundary

        def hear(_what):
            if self.world.boundaries == wanted:
                before = {name: node.mark for name, node in self.world.nodes.items()}
                do()
                self.world.machine = ()  # what comes in between the last look and the sending, nobody can see
                self.by_hand |= {name for name, node in self.world.nodes.items() if node.mark != before[name]}

        self.world.at_boundary = hear

    def round(self):
        before = {name: node.mark for name, node in self.world.nodes.items()}
        self.by_hand = set()
        self.world.machine = ("n4", "n5")
        try:
            self.controller.round()
            self.engine.round()
        except Killed:
            self.restart()
        for name, mark in before.items():
            if mark is not None and not mark.ours and name not in self.by_hand:
                now = self.world.nodes[name].mark
                assert now is not None and not now.ours, f"{name}: somebody else's mark was touched"  # noqa: PT018

    # What must hold.

    @invariant()
    def one_destructive_call_a_node_and_rung_of_an_episode(self):
        with self.store.read() as connection:
            keys = {}
            for row in self.every(connection):
                for one in self.attempts(connection, row.id):
                    keys[one.key] = (row.id, one.rung, one.device)
        sent = [keys[one.key] for one in self.world.sent]
        assert len(sent) == len(set(sent)), "a repair was sent twice"
        assert len({one.key for one in self.world.sent}) == len(self.world.sent), "one order was sent twice"

    def every(self, connection):
        """Repairs and maintenance."""
        return [*episodes.list_episodes(connection), *trains.nodes_of(connection, self.line.train().id)]

    @staticmethod
    def attempts(connection, episode):
        from nhc.store import attempts

        return attempts.attempts_of(connection, episode)

    @invariant()
    def the_ladder_goes_up_within_an_episode(self):
        with self.store.read() as connection:
            for row in episodes.list_episodes(connection):
                rungs = [LADDER.index(Rung(one.rung)) for one in self.attempts(connection, row.id)]
                assert rungs == sorted(rungs)

    @invariant()
    def no_bound_is_exceeded(self):
        ours = [name for name, node in self.world.nodes.items() if node.mark is not None and node.mark.ours]
        assert len(ours) <= OUT
        for rack in range(2):
            assert sum(1 for name in ours if int(name[1:]) // 4 == rack) <= 2

    @invariant()
    def no_repair_disturbs_another_node_of_its_machine(self):
        assert self.world.disturbed == []

    @invariant()
    def one_open_episode_a_node_and_ends_are_ends(self):
        with self.store.read() as connection:
            rows = episodes.list_episodes(connection, is_open=True)
            everything = self.every(connection)
        assert len({row.node for row in rows}) == len(rows)
        for row in everything:
            assert (row.ended is not None) == (EpisodeState(row.state) in ENDS)

    @rule()
    def everything_ends(self):
        """Left alone for long enough, no episode stays open, and no attempt without an outcome."""
        self.world.lose = []
        for name, node in self.world.nodes.items():
            node.busy = False
            if name in self.world.machine and node.mark is not None and not node.mark.ours:
                self.world.operator_puts_back(name)  # a machine's repair waits for a person who holds a mate
        for _ in range(160):
            if self.line.train().state in ("held", "stopped"):
                train_operators.change(
                    self.store, "kernel", TrainState.PLANNED, by="bob", why="go on", now=self.world.now
                )
            self.round()
            self.world.tick(120)
            with self.store.read() as connection:
                rows = [row for row in self.every(connection) if row.ended is None]
            if not rows:
                break
        breaker_open = False
        with self.store.read() as connection:
            found = holds.breakers(connection).get("remedy")
            breaker_open = found is not None and found.state == "open"
            for row in rows:
                assert breaker_open, f"{row.node} stays in {row.state}: {row.detail}"
            for row in (row for row in self.every(connection) if row.ended is not None):
                assert all(one.state == "ended" and one.outcome != "ambiguous"
                           for one in self.attempts(connection, row.id))  # fmt: skip
        if breaker_open:
            with self.store.write() as connection:
                holds.set_breaker(connection, "remedy", "closed", by="bob", why="", now=self.world.now)

    def teardown(self):
        try:
            with self.store.read() as connection:
                numbers = [one.seq for chunk in audit.walk(connection) for one in chunk]
            assert numbers == list(range(1, len(numbers) + 1))
        except StoreError:
            raise
        finally:
            self.store.close()
            self.place.cleanup()


def one_life(kill_at, mood=""):
    """A sick node and a controller that is killed once, at that boundary; the world, and how many there were."""
    with tempfile.TemporaryDirectory(dir=SHARED) as place:
        store = new_store(place)
        try:
            world = World(store, 4)
            world.lose = [mood]
            world.fall_sick("n1")
            world.boundaries, world.kill_at = 0, kill_at
            controller = world.controller('[effect]\nreboot = "5m"')
            for _ in range(60):
                try:
                    controller.round()
                except Killed:
                    controller = world.controller('[effect]\nreboot = "5m"')
                world.tick(30)
                with store.read() as connection:
                    rows = episodes.list_episodes(connection)
                if rows and rows[-1].ended is not None:
                    break
            return world, rows
        finally:
            store.close()


@pytest.mark.slow
@pytest.mark.parametrize("mood", ["", "lost"])
def test_killed_at_each_boundary_the_node_comes_back_and_no_order_is_sent_twice(mood):
    world, rows = one_life(-1, mood)
    whole = world.boundaries
    assert whole > 40
    for boundary in range(1, whole, 1 if mood else 2):
        world, rows = one_life(boundary, mood)
        where = f"killed at boundary {boundary}"
        assert [row.state for row in rows] == ["returned"], where
        assert len({(one.node, one.rung) for one in world.sent}) == len(world.sent), where
        assert world.nodes["n1"].available, where
        assert (world.marked, world.cleared) == (["n1"], ["n1"]), where


TestLoop = pytest.mark.slow(Loop.TestCase)
TestLoop.settings = settings(
    max_examples=int(os.environ.get("NHC_EXAMPLES", "20")), stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
