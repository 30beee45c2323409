"""A clock that is set makes no train hurry: waits for work and the proof of health are time that passed."""

import pytest

from nhc.core.limits import Limit
from nhc.remedy.detail import read as read_detail
from nhc.remedy.machine import EpisodeState
from nhc.store import holds
from tests.support.train_world import PLAN, Line, plan_of

FORCED = plan_of(waves="[waves]\nfirst = 1\n") + '[drain]\ndeadline = "1d"\nthen = "force"\n'


def until(line, engine, state, rounds=60):
    """Rounds until a node is in this state; the node."""
    for _ in range(rounds):
        engine.round()
        for name, row in line.rows().items():
            if row.state == state.value:
                return name
        line.world.tick(10.0)
    raise AssertionError(line.states())


def breaker(world):
    with world.plain.read() as connection:
        return holds.breakers(connection)["remedy"]


def close_breaker(world):
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "closed", by="ann", why="seen", now=world.now)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.thorough
def test_a_busy_node_is_not_rebooted_because_the_clock_was_set(world, restarted):
    line = Line(world, FORCED)
    line.begin()
    for node in world.nodes.values():
        node.busy = True
    engine = line.engine()
    until(line, engine, EpisodeState.DRAINING)
    world.now += 2 * 86400.0
    world.report()
    line.run(10, engine=line.engine() if restarted else engine)
    assert world.sent == []
    assert "clock jumped" in breaker(world).why  # and rates are counted again once a person has looked
    close_breaker(world)
    line.run(10)
    assert world.sent == []
    for _ in range(25):
        world.tick(3600.0)
        line.engine().round()
    assert world.sent != []


@pytest.mark.thorough
def test_a_node_that_is_verified_is_neither_failed_nor_returned_by_a_step(world):
    line = Line(world, PLAN)
    line.begin()
    engine = line.engine()
    name = until(line, engine, EpisodeState.VERIFYING)
    while not read_detail(line.rows()[name].detail).healthy:
        world.tick(5.0)
        engine.round()
    before = world.ticks
    world.now += 300.0
    world.report()
    while line.rows()[name].state == "verifying" and world.ticks < before + 600:
        engine.round()
        world.tick(5.0)
    assert line.rows()[name].state == "returned"
    assert world.ticks - before >= 60.0


@pytest.mark.thorough
def test_a_train_stops_for_failures_after_the_clock_was_set_back(world):
    line = Line(world, PLAN.replace("first = 1", "first = 0") + "[stop]\nfailures = 0\n")
    assert line.plan.failures == Limit(0)
    line.begin()
    engine = line.engine()
    until(line, engine, EpisodeState.WATCHING)
    world.now -= 5000.0
    for node in world.nodes.values():
        node.silent = True
    line.run(5, engine=engine)
    assert line.train().state == "running"
    assert "clock jumped" in breaker(world).why  # nobody fails while the breaker is open
    close_breaker(world)
    for _ in range(120):
        engine.round()
        world.tick(20.0)
    assert line.train().state == "stopped"
