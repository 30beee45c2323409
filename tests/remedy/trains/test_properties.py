"""Whatever goes wrong where: work is begun at most once a node and step, bounds hold, every train ends, and nobody
else's mark is touched.

The process is killed at every boundary (before and after each call and each commit), answers are lost, an operator
comes in between. What is judged is what reached the nodes, not what the store says.
"""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nhc.core.limits import Limit
from nhc.remedy.trains import train_operators
from nhc.remedy.trains.machine import TrainState
from nhc.remedy.trains.settings import Waves
from nhc.remedy.trains.waves import spread
from nhc.store import holds
from tests.support.new_store import new_store
from tests.support.remedy_world import Killed, World
from tests.support.train_world import Line, plan_of

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
PLAN = plan_of(
    work='[[work]]\ncommand = ["/usr/sbin/flash"]\ntakes = "5m"\n[[work]]\nrung = "reboot"\ntakes = "10m"\n',
    waves='[waves]\nfirst = 1\nsize = "2"\npause = "0s"\n',
)
PLAN = PLAN.replace('every = "1s"', 'every = "1s"\npatience = "30m"')  # two nodes that failed leave no room
BOUNDS = "[bounds.fleet]\nout = 2\nrepairing = 2\n"


def one_life(kill_at=(), moods=(), at=None, rounds=120):
    """A train over four nodes whose process is killed at these boundaries; the world, the line, most nodes out."""
    with tempfile.TemporaryDirectory(dir=SHARED) as place:
        store = new_store(place)
        try:
            world = World(store, 4)
            line = Line(world, PLAN, BOUNDS)
            line.begin()
            world.lose, world.boundaries, kills, out = list(moods), 0, set(kill_at), []

            def boundary(what):
                out.append(sum(not node.available for node in world.nodes.values()))
                if at is not None:
                    at(world, line, what)
                if world.boundaries in kills:
                    raise Killed(what)

            world.at_boundary = boundary
            engine = line.engine()
            for _ in range(rounds):
                try:
                    engine.round()
                except Killed:
                    engine = line.engine()
                if line.train().ended is not None:
                    break
                if line.train().state == "stopped":
                    train_operators.change(store, "kernel", TrainState.PLANNED, by="bob", why="go on", now=world.now)
                world.tick(30)
            with store.read() as connection:
                left = holds.in_force(connection, world.now)
            return world, line.train().state, line.states(), max(out), left
        finally:
            store.close()


def judged(found, where=""):
    world, state, states, out, left = found
    assert state == "done", where
    assert out <= 2, where
    assert left == [], where
    assert len({(node, words) for node, words, _key in world.commands}) == len(world.commands), where
    assert len({(one.node, one.rung) for one in world.sent}) == len(world.sent), where
    for name, end in states.items():
        node = world.nodes[name]
        if end == "returned":
            assert node.available, where
            assert node.boot == 2, where
            assert [words for who, words, _key in world.commands if who == name] == [("/usr/sbin/flash",)], where
        elif end == "skipped":
            assert node.available, where
            assert node.boot == 1, where
        elif end == "escalated":
            assert node.mark is not None, where
    return states


@pytest.mark.slow
def test_killed_at_each_boundary_every_node_is_done_or_says_why_and_nothing_is_begun_twice():
    whole = one_life()
    assert set(judged(whole).values()) == {"returned"}
    last = whole[0].boundaries
    assert last > 150
    for boundary in range(1, last, 3):
        judged(one_life([boundary]), f"killed at boundary {boundary}")


@pytest.mark.slow
@settings(
    max_examples=int(os.environ.get("NHC_EXAMPLES", "25")), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    st.sets(st.integers(1, 400), max_size=4),
    st.lists(st.sampled_from(["", "", "lost", "dropped", "refused", "throttled"]), max_size=10),
    st.lists(st.tuples(st.integers(1, 400), st.sampled_from(["back", "out", "busy", "idle", "unknown", "hold"]),
                       st.integers(0, 3)), max_size=4),
)  # fmt: skip
def test_kills_lost_answers_and_operators_in_any_order(kills, moods, others):
    theirs = {}

    def interfere(world, line, _what):
        for boundary, what, number in others:
            if boundary != world.boundaries:
                continue
            node = world.nodes[f"n{number}"]
            if what == "back":
                world.operator_puts_back(node.name)
            elif what == "out":
                world.operator_takes_out(node.name)
                theirs[node.name] = True
            elif what in ("busy", "idle"):
                node.busy = what == "busy"
            elif what == "unknown":
                node.unknown = not node.unknown

    world, state, states, out, left = one_life(kills, moods, interfere, rounds=400)
    taken = len(theirs)
    assert len({(node, words) for node, words, _key in world.commands}) == len(world.commands)
    assert len({(one.node, one.rung) for one in world.sent}) == len(world.sent)
    assert out <= 2 + taken
    for name in theirs:
        node = world.nodes[name]
        assert node.available or (node.mark is not None)
        assert name not in world.cleared or node.mark is None or node.mark.owner == "bob"
    if not any(node.busy for node in world.nodes.values()):
        assert state == "done", (states, others)
        assert left == []


@pytest.mark.thorough
@given(
    st.integers(1, 60), st.integers(0, 5), st.integers(1, 9), st.integers(1, 3), st.integers(1, 8)
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_waves_take_each_node_once_and_spread_every_rack(count, first, size, per, rack):
    nodes = [f"n{number}" for number in range(count)]
    groups = {name: (("rack", f"r{number // rack}"),) for number, name in enumerate(nodes)}
    found = spread(nodes, Waves(first, Limit(size), (("rack", Limit(per)),)), groups)
    assert sorted(node for wave in found for node in wave) == sorted(nodes)
    assert not first or len(found[0]) <= first
    for wave in found:
        assert 0 < len(wave) <= size
        for name in {groups[node][0] for node in wave}:
            assert sum(groups[node][0] == name for node in wave) <= per
