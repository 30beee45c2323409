"""Many faults at once: marked in chunks, the worst first, in few statements, each written down before it is done."""

import os
import random
import signal
import tempfile

import pytest
import sqlalchemy as sa

from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import Action
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.adapter import Mark
from nhc.remedy.counting import FleetGroups
from nhc.remedy.machine import EpisodeEvent
from nhc.remedy.node_holds import ENDED, held_now
from nhc.remedy.view import Move
from nhc.store import audit, episodes, holds
from nhc.store.audit import verify
from nhc.store.errors import Conflict
from nhc.store.rounds.loop import CHUNK
from tests.support.new_store import new_store
from tests.support.remedy_world import Sickness, World

SETTINGS = """
[bounds.fleet]
out = "100%"
repairing = 1
[bounds.fleet.rate]
mark = "100000 per 1h"
repair = "1 per 1h"
[bounds.rack]
out = "100%"
[limits]
first-run = "100%"
[breaker]
faults = "100%"
blind = "100%"
"""

UNBOUNDED = SETTINGS.replace("repairing = 1", 'repairing = "100%"').replace("1 per 1h", "100000 per 1h")


def storm(store, faults):
    """A world in which so many nodes fall sick, every tenth so that it has to be replaced."""
    world = World(store, faults)
    for number, name in enumerate(world.nodes):
        action = Action.REPLACE if number % 10 == 9 else Action.REBOOT
        world.fall_sick(name, Sickness(action=action))
    world.report()
    return world


def states(world):
    with world.read() as connection:
        return {row.node: row.state for row in episodes.list_episodes(connection)}


@pytest.mark.thorough
def test_the_worst_are_marked_before_the_steps_of_the_others_are_written(store):
    world = storm(store, 3 * CHUNK)
    seen = []

    def look(what):
        if what == "before marks are set":
            found = list(states(world).values())
            seen.append((len(world.marked), found.count("detected")))

    world.at_boundary = look
    world.controller(SETTINGS).round()
    assert seen[:3] == [(0, 2 * CHUNK), (CHUNK, CHUNK), (2 * CHUNK, 0)]
    assert len(world.marked) == len(set(world.marked)) == 3 * CHUNK
    first = set(world.marked[:CHUNK])
    assert {name for name in world.nodes if name.endswith("9")} <= first


@pytest.mark.thorough
def test_a_chunk_of_faults_takes_as_many_statements_as_one(store):
    def statements(faults, store):
        world, counted = storm(store, faults), []
        count = lambda *args: counted.append(args[2])  # noqa: E731
        sa.event.listen(world.engine, "before_cursor_execute", count)
        world.controller(SETTINGS).round()
        sa.event.remove(world.engine, "before_cursor_execute", count)
        assert len(world.marked) == faults
        return len(counted)

    with tempfile.TemporaryDirectory() as place:
        other = new_store(place)
        few = statements(2, other)
        other.close()
    assert statements(CHUNK, store) <= few + 5


@pytest.mark.thorough
def test_the_last_look_before_many_repairs_asks_as_often_as_before_a_few(store):
    def asked(faults, store):
        world, counted = storm(store, faults), []
        count = lambda *args: counted.append(args[2])  # noqa: E731
        sa.event.listen(world.engine, "before_cursor_execute", count)
        world.run(world.controller(UNBOUNDED), 1)
        sa.event.remove(world.engine, "before_cursor_execute", count)
        assert len(world.sent) == faults
        return sum("FROM holds" in text for text in counted)

    with tempfile.TemporaryDirectory() as place:
        other = new_store(place)
        few = asked(2, other)
        other.close()
    assert asked(60, store) <= few


def test_who_is_held_is_the_same_for_one_node_and_for_many(store):
    chance, now = random.Random(3), 1000.0
    nodes = [f"n{number}" for number in range(40)]
    groups = {node: (("rack", f"r{number // 4}"),) for number, node in enumerate(nodes)}
    fleet = FleetGroups(groups, {}, NodeNames(nodes, [f"{node}.example.org" for node in nodes[:10]]))
    with store.write() as connection:
        own = {}
        for node in chance.sample(nodes, 12):
            name = f"{node}.example.org" if node in nodes[:10] else node
            for _each in range(chance.randint(1, 2)):
                until = chance.choice([None, now - 1, now + 60])
                own[node] = holds.hold(connection, "node", name, by="ada", why="disk", now=1.0, until=until).id
        holds.hold(connection, "group", "rack=r3", by="ada", why="power", now=1.0)
        asked = [(node, chance.choice([0, own.get(node, 0), 999])) for node in nodes]
        many = held_now(connection, asked, now, fleet)
        assert many == [why for one in asked for why in held_now(connection, [one], now, fleet)]
        assert {why.partition(":")[0] for why in many} > {"", "rack=r3 held by ada", ENDED}
        holds.set_breaker(connection, NAME, "open", by="ada", why="too many", now=now)
        assert set(held_now(connection, asked, now, fleet)) == {"the breaker is open: too many"}


@pytest.mark.thorough
def test_killed_in_a_storm_each_mark_was_written_before_and_the_next_loop_goes_on(store):
    world = storm(store, 3 * CHUNK)
    store.engine.dispose()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        calls = []

        def die(what):
            calls.append(what)
            if calls.count("after marks are set") == 2:
                os.write(theirs, " ".join(world.marked).encode())
                os.kill(os.getpid(), signal.SIGKILL)

        world.at_boundary = die
        try:
            world.controller(SETTINGS).round()
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours) as told:
        marked = told.read().split()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(marked) == 2 * CHUNK
    with store.read() as connection:
        rows = audit.entries(connection, what="episode.marking", limit=10_000)
        assert {row.node for row in rows} == set(marked)
        assert verify(connection, store.anchor).mistakes == ()

    # What the scheduler has after the kill.

    for name in marked:
        world.nodes[name].available, world.nodes[name].mark = False, Mark("broken", owner="nhc-remedy")
    world.run(world.controller(SETTINGS), 2)
    assert set(world.marked) == set(world.nodes) - set(marked)
    assert {"marking", "detected"}.isdisjoint(states(world).values())
    with store.read() as connection:
        assert verify(connection, store.anchor).mistakes == ()
        count = sa.text("SELECT count(*) FROM audit WHERE what = 'episode.marking'")
        assert connection.scalar(count) == 3 * CHUNK


def test_a_move_of_an_episode_that_a_person_changed_is_dropped_and_the_others_are_written(store):
    world = storm(store, 3)
    controller = world.controller(SETTINGS)
    controller.flow.records.admit(controller.flow.observer.begin(world.now).admissions, world.now)
    with store.read() as connection:
        cases = controller.flow.records.cases(connection)
    with store.write() as connection:
        row = cases[1].episode
        episodes.save_step(connection, row, episodes.EpisodeStep("ada", "episode.noted"), now=world.now)
        with pytest.raises(Conflict):
            episodes.save_step(connection, row, episodes.EpisodeStep("eve", "episode.noted"), now=world.now)
    moves = [(case, Move(EpisodeEvent.MARK_ALLOWED, case.detail, "test")) for case in cases]
    written = controller.flow.records.save(moves, world.now, {})
    assert [one.case.episode.id for one in written] == [cases[0].episode.id, cases[2].episode.id]
    with store.read() as connection:
        assert [one.case.episode for one in written] == [
            episodes.get(connection, one.case.episode.id) for one in written
        ]
        found = audit.entries(connection, node=cases[1].episode.node)
        assert [row.what for row in found] == ["episode.opened", "episode.noted"]
        assert verify(connection, store.anchor).mistakes == ()


def test_a_row_that_a_savepoint_took_back_is_no_head(store):
    with store.write() as connection:
        audit.append(connection, 1.0, "ada", "test.kept")
        savepoint = connection.begin_nested()
        audit.append(connection, 2.0, "ada", "test.taken-back")
        savepoint.rollback()
    with store.write() as connection:
        savepoint = connection.begin_nested()
        audit.append(connection, 3.0, "ada", "test.taken-back")
        savepoint.rollback()
        audit.append(connection, 4.0, "ada", "test.kept")
    with store.read() as connection:
        assert [row.at for row in audit.entries(connection)] == [1.0, 4.0]
        assert verify(connection, store.anchor).mistakes == ()
