"""A train beside the loop, and beside another train: processes of their own that spend from the same bounds."""

import pytest

from nhc.core.model import Action
from nhc.store import episodes, holds
from tests.support.train_world import PLAN, Line, plan_of

pytestmark = pytest.mark.thorough

QUIET = '[quiet-hours]\nhours = ["daily 08:00-09:00"]\nactions = ["reboot"]\n'
ONE = "[bounds.fleet]\nout = 1\nrepairing = 1"


def comes_between(world, moments, happens):
    """Something happens at these moments of what runs: the first one, the second… The most nodes out at any of all."""
    most, count, busy = [0], [0], [False]

    def see(what):
        most[0] = max(most[0], sum(not node.available for node in world.nodes.values()))
        if busy[0] or what == "before a commit":  # nobody else writes then
            return
        count[0] += 1
        if count[0] in moments:
            busy[0] = True
            happens()
            busy[0] = False

    world.at_boundary = see
    return most


@pytest.mark.parametrize("moment", range(1, 9))
def test_the_last_room_is_taken_by_one_of_the_two(world, moment):
    """Whatever the moment at which the train comes between what the loop reads and what it writes."""
    line = Line(world, settings=ONE)
    line.begin()
    world.fall_sick("n7")
    world.tick(1.0)
    most = comes_between(world, [moment], line.engine().round)
    world.controller(ONE).round()
    assert most == [1]


@pytest.mark.parametrize("moment", [2, 4])
def test_the_same_the_other_way_round(world, moment):
    line = Line(world, settings=ONE)
    line.begin()
    world.fall_sick("n7")
    world.tick(1.0)
    most = comes_between(world, [moment], world.controller(ONE).round)
    line.engine().round()
    assert most == [1]


@pytest.mark.parametrize("moment", [2, 4])
def test_two_trains_take_the_last_room_once(world, moment):
    first, second = Line(world, settings=ONE), Line(world, PLAN.replace('"kernel"', '"second"'), ONE)
    first.begin()
    second.begin()
    most = comes_between(world, [moment], second.engine().round)
    first.engine().round()
    assert most == [1]


def test_what_is_said_after_the_last_look_holds_the_work(world):
    line = Line(world, plan_of(work='[[work]]\ncommand = ["/usr/sbin/flash"]\n'))
    line.begin()

    def come(what):
        if what == "machine looked at":
            world.at_boundary = lambda _what: None
            with world.plain.write() as connection:
                holds.hold(connection, "fleet", "", by="alice", why="stop", now=world.now)

    world.at_boundary = come
    line.run(5)
    assert world.commands == []
    with world.plain.write() as connection:
        holds.release(connection, "fleet", "", by="alice", now=world.now)
    line.run()
    assert set(line.states().values()) == {"returned"}
    assert len(world.commands) == len(world.nodes)


def test_quiet_hours_that_begin_after_the_last_look_hold_the_work(world):
    """Machines are looked at for minutes each: by then it may be an hour in which no work may begin."""
    world.now = world.ticks = 1_700_000_000.0 - 1_700_000_000.0 % 86400 + 7 * 3600 + 59 * 60 + 50.0  # 07:59:50 UTC
    line = Line(world, plan_of(work='[[work]]\ncommand = ["/usr/sbin/flash"]\n'), QUIET)
    line.begin()

    def come(what):
        if what == "machine looked at":
            world.at_boundary = lambda _what: None
            world.now, world.ticks = world.now + 30, world.ticks + 30

    world.at_boundary = come
    line.run(5)
    assert world.commands == []
    world.tick(3600.0)
    line.run()
    assert set(line.states().values()) == {"returned"}


def test_a_mark_that_was_only_written_down_waits_for_the_breaker(world):
    line = Line(world)
    line.begin()

    class Gone(BaseException):
        pass

    def die(what):
        if what == "before marks are set":
            raise Gone

    world.at_boundary = die
    with pytest.raises(Gone):
        line.engine().round()
    world.at_boundary = lambda _what: None
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="alice", why="many at once", now=world.now)
    line.run(3)
    assert world.marked == []
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "closed", by="alice", why="it was nothing", now=world.now)
    line.run()
    assert set(line.states().values()) == {"returned"}


def test_the_reason_of_a_trains_reboot_is_no_fault_for_the_loop(world):
    """Slurm keeps the reason of a reboot on the node: there the train's own mark asks for one while the node boots."""
    line = Line(world)
    line.begin()
    line.run(1)
    world.tick(1.0)
    out = [node for node in world.nodes.values() if node.under_way]
    assert [line.states()[node.name] for node in out] == ["watching"]
    for node in out:
        node.mark = node.mark._replace(action=Action.REBOOT, since=world.now)
    world.controller().round()
    with world.plain.read() as connection:
        assert episodes.list_episodes(connection, is_open=True) == []
