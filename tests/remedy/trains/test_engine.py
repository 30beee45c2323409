"""Trains from the first wave to the last, with what goes wrong on the way."""

import pytest

from nhc.marks.ports.adapter import OWNER, REMEDY_OWNER
from nhc.marks.ports.repair import Rung
from nhc.remedy.trains import train_operators
from nhc.remedy.trains.machine import TrainState
from nhc.store import audit, holds
from nhc.store.errors import RequestRefused
from tests.support.remedy_world import Sickness
from tests.support.train_world import PLAN, Line, plan_of


@pytest.mark.thorough
def test_each_node_is_rebooted_once_in_waves_and_comes_back(world):
    line = Line(world)
    waves = line.begin()
    assert [len(wave) for wave in waves] == [1, 3, 3, 1]
    out = []
    world.at_boundary = lambda _what: out.append(sum(not node.available for node in world.nodes.values()))
    line.run()
    assert line.train().state == "done"
    assert set(line.states().values()) == {"returned"}
    assert sorted(one.node for one in world.sent) == sorted(world.nodes)
    assert all(node.available and node.boot == 2 for node in world.nodes.values())
    assert max(out) <= 3
    with world.plain.read() as connection:
        assert holds.in_force(connection, world.now) == []
    order = [one.node for one in world.sent]
    assert order[0] == waves[0][0]
    assert set(order[1:4]) == set(waves[1])


@pytest.mark.thorough
def test_between_two_waves_there_is_a_pause(world):
    line = Line(world, PLAN.replace('pause = "2m"', 'pause = "1h"'))
    line.begin()
    line.run(60)
    assert len(world.sent) == 1
    for _ in range(200):
        world.tick(20)
    line.run(3)
    assert len(world.sent) > 1


@pytest.mark.thorough
def test_a_node_of_which_nobody_can_tell_is_left_as_it_is(world):
    """Two machines push under its name, or a check could not tell: no report could prove it afterwards."""
    world.nodes["n2"].unknown = True
    world.report()
    line = Line(world)
    line.begin()
    line.run()
    assert (line.train().state, line.states()["n2"], world.sendings("n2")) == ("done", "skipped", [])


@pytest.mark.thorough
def test_a_node_that_its_scheduler_does_not_hear_is_not_put_back_on_its_reports_alone(world):
    """Its agent says that it is healthy; its slurmd is dead since the boot."""
    line = Line(world)
    line.begin()
    engine = line.engine()
    for _ in range(200):
        for node in world.nodes.values():
            if node.boot > 1 and node.silence is None:
                world.die(node.name, heard=True)
        engine.round()
        world.tick(20.0)
        if line.train().state == "stopped":
            break
    assert line.train().state == "stopped"
    failed = [row for row in line.rows().values() if row.state == "escalated"]
    assert "not heard within" in failed[0].outcome
    assert not any(node.available for node in world.nodes.values() if node.boot > 1)


@pytest.mark.thorough
def test_bounds_of_the_loop_hold_a_train_too(world):
    line = Line(world, settings="[bounds.fleet]\nout = 1\nrepairing = 1")
    line.begin()
    out = []
    world.at_boundary = lambda _what: out.append(sum(not node.available for node in world.nodes.values()))
    line.run(300)
    assert (line.train().state, max(out)) == ("done", 1)


@pytest.mark.thorough
def test_a_command_then_a_reboot_then_a_check(world):
    work = '[[work]]\ncommand = ["/usr/sbin/flash", "--all"]\n[[work]]\nrung = "reboot"\n'
    plan = plan_of(work=work, verify='[verify]\nhealthy-for = "0s"\ncommand = ["/usr/bin/nhc", "check", "local"]\n')
    line = Line(world, plan)
    line.begin()
    line.run()
    assert set(line.states().values()) == {"returned"}
    for name in world.nodes:
        assert [words[0] for node, words, _key in world.commands if node == name] == ["/usr/sbin/flash", "/usr/bin/nhc"]
        assert world.sendings(name) == [Rung.REBOOT]


@pytest.mark.thorough
def test_a_failure_in_the_first_wave_stops_the_train(world):
    line = Line(world, plan_of(work='[[work]]\ncommand = ["/usr/sbin/flash"]\n'))
    line.begin()
    world.fails["n0"] = "flash ended with 1: no such device"
    line.run(20)
    assert line.train().state == "stopped"
    assert line.states()["n0"] == "escalated"
    assert not world.nodes["n0"].available
    assert [node for node, _, _ in world.commands] == ["n0"]
    train_operators.change(
        world.plain, "kernel", TrainState.PLANNED, by="bob", why="n0 has an old board", now=world.now
    )
    line.run(100)
    assert line.train().state == "done"
    assert list(line.states().values()).count("returned") == 7


@pytest.mark.thorough
def test_more_failures_than_the_plan_allows_stop_it(world):
    line = Line(world, plan_of(work='[[work]]\ncommand = ["/usr/sbin/flash"]\n') + "[stop]\nfailures = 1\n")
    waves = line.begin()
    world.fails = dict.fromkeys(waves[1][:2], "no")
    line.run(60)
    assert line.train().state == "stopped"
    assert all(line.states()[node] == "planned" for wave in waves[2:] for node in wave)


@pytest.mark.thorough
def test_a_node_that_is_sick_after_the_work_is_the_loops(world):
    line = Line(world)
    line.begin()
    world.fall_sick("n0", Sickness(cure=Rung.POWER_CYCLE))
    world.tick()
    line.run(1)
    assert line.states()["n0"] == "skipped"
    world.nodes["n0"].sick.clear()
    world.tick()
    line2 = Line(world, PLAN.replace('"kernel"', '"second"'))
    line2.begin()
    line2.run(2)
    assert line2.states()["n0"] == "watching"
    world.fall_sick("n0", Sickness(cure=Rung.POWER_CYCLE))
    line2.run(20)
    assert line2.states()["n0"] == "escalated"
    controller = world.controller()
    world.run(controller, 30)
    assert Rung.POWER_CYCLE in world.sendings("n0")
    assert world.nodes["n0"].available


@pytest.mark.thorough
def test_the_loop_keeps_off_a_node_of_a_train(world):
    line = Line(world, PLAN.replace('grace = "0s"', 'grace = "10m"'))
    line.begin()
    engine, controller = line.engine(), world.controller()
    for _ in range(3):
        engine.round()
        controller.round()
        world.tick(20)
    assert line.states()["n0"] == "watching"
    world.fall_sick("n0")  # the report of a node that is rebooting, say
    for _ in range(6):
        controller.round()
        engine.round()
        world.tick(20)
    assert world.sendings("n0") == [Rung.REBOOT]


@pytest.mark.thorough
def test_work_that_does_not_end_in_time_is_skipped_and_the_node_put_back(world):
    line = Line(world, PLAN + '[drain]\ndeadline = "5m"\n')
    line.begin()
    world.nodes["n0"].busy = True
    line.run(40)
    assert (line.states()["n0"], world.sendings("n0"), world.nodes["n0"].available) == ("skipped", [], True)
    assert "work still runs" in line.rows()["n0"].outcome


@pytest.mark.thorough
def test_a_node_that_falls_sick_while_its_work_ends_is_not_put_back(world):
    line = Line(world, PLAN + '[drain]\ndeadline = "5m"\n')
    line.begin()
    world.nodes["n0"].busy = True
    line.run(2)
    assert line.states()["n0"] == "draining"
    world.fall_sick("n0", Sickness(cure=Rung.POWER_CYCLE))
    line.run(40)
    assert (line.states()["n0"], world.sendings("n0"), world.nodes["n0"].available) == ("withdrawn", [], False)
    assert "faulty by now" in line.rows()["n0"].outcome


@pytest.mark.thorough
@pytest.mark.parametrize("mood", ["lost", "dropped", "throttled", "refused"])
def test_whatever_the_answer_is_nothing_is_begun_twice(world, mood):
    line = Line(world)
    line.begin()
    world.lose = [mood]
    line.run(60)
    assert len({one.node for one in world.sent}) == len(world.sent)
    after = {"lost": "returned", "dropped": "escalated", "throttled": "returned", "refused": "skipped"}[mood]
    assert line.states()["n0"] == after


@pytest.mark.thorough
def test_a_node_that_an_operator_puts_back_is_left(world):
    line = Line(world)
    line.begin()
    world.nodes["n0"].busy = True
    line.run(2)
    world.operator_puts_back("n0")
    line.run(3)
    assert (line.states()["n0"], world.sendings("n0")) == ("withdrawn", [])


@pytest.mark.thorough
def test_a_mark_that_hooks_clear_on_a_node_of_a_train_becomes_the_trains_own(world):
    line = Line(world)
    line.begin()
    world.nodes["n0"].busy = True
    line.run(2)
    mark = world.nodes["n0"].mark
    assert mark.owner == REMEDY_OWNER
    world.nodes["n0"].mark = mark._replace(owner=OWNER)  # as an nhc before had it
    line.run(1)
    assert world.nodes["n0"].mark.owner == REMEDY_OWNER
    assert line.states()["n0"] == "draining"


@pytest.mark.thorough
def test_a_repair_that_a_person_cancels_ends_the_nodes_part_in_the_train(world):
    line = Line(world)
    line.begin()
    line.run(2)
    assert line.states()["n0"] == "watching"
    world.operator_cancels("n0")
    line.run(2)
    assert (line.states()["n0"], world.nodes["n0"].available) == ("escalated", False)
    assert world.sendings("n0") == [Rung.REBOOT]


@pytest.mark.thorough
def test_a_node_is_put_back_once_the_scheduler_has_seen_its_reboot_end(world):
    """slurmctld may say REBOOT for a while after the node has reported its new boot."""
    world.reboot_lingers = 600.0
    line = Line(world)
    line.begin()
    line.run(12)
    assert (line.states()["n0"], world.cleared) == ("returning", [])
    line.run(240)
    assert set(line.states().values()) == {"returned"}
    assert all(node.available for node in world.nodes.values())


@pytest.mark.thorough
def test_a_person_who_ends_the_hold_takes_the_node(world):
    line = Line(world)
    line.begin()
    world.nodes["n0"].busy = True
    line.run(2)
    with world.plain.write() as connection:
        holds.release(connection, "node", "n0", by="bob", now=world.now, why="mine")
    line.run(3)
    assert line.states()["n0"] == "withdrawn"
    assert world.nodes["n0"].mark is not None


@pytest.mark.thorough
def test_an_open_breaker_begins_nothing_and_still_puts_back(world):
    line = Line(world)
    line.begin()
    line.run(3)
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="test", why="many", now=world.now)
    line.run(40)
    assert (line.states()["n0"], len(world.sent)) == ("returned", 1)


@pytest.mark.thorough
def test_an_aborted_train_finishes_what_it_began(world):
    line = Line(world)
    line.begin()
    line.run(3)
    assert line.states()["n0"] == "watching"
    train_operators.change(world.plain, "kernel", TrainState.ABORTING, by="bob", why="enough", now=world.now)
    line.run(40)
    assert line.train().state == "aborted"
    assert line.states() == {"n0": "returned", **{f"n{number}": "skipped" for number in range(1, 8)}}


@pytest.mark.thorough
def test_a_held_train_begins_nothing_until_it_is_resumed(world):
    line = Line(world)
    line.begin()
    train_operators.change(world.plain, "kernel", TrainState.HELD, by="bob", why="wait", now=world.now)
    line.run(5)
    assert (world.marked, line.train().state) == ([], "held")
    train_operators.change(world.plain, "kernel", TrainState.PLANNED, by="bob", why="go", now=world.now)
    line.run()
    assert line.train().state == "done"


@pytest.mark.thorough
def test_two_persons_must_agree_where_the_policy_says_so(world):
    line = Line(world, settings="[approval]\nreboot = 2")
    line.begin("alice")
    line.run(3)
    assert (world.marked, line.train().state) == ([], "planned")
    with pytest.raises(RequestRefused):
        line.agree("alice")
    line.agree("bob")
    line.run()
    assert line.train().state == "done"


def test_protected_nodes_and_quiet_hours(world):
    line = Line(world, settings='[quiet-hours]\nhours = ["daily 00:00-24:00"]\nactions = ["reboot"]')
    line.begin()
    line.run(3)
    assert (world.marked, world.sent) == ([], [])


@pytest.mark.thorough
def test_every_step_is_in_the_audit_log(world):
    line = Line(world)
    line.begin()
    line.run()
    with world.plain.read() as connection:
        whats = [one.what for one in audit.entries(connection, node="n0", limit=100)]
    whats = [what for what in whats if what != "episode.waits"]
    assert whats == [
        "hold.set", "episode.marking", "episode.marked", "episode.draining", "episode.recheck", "episode.acting",
        "attempt.written", "attempt.sent", "episode.watching", "attempt.ended", "episode.verifying",
        "episode.returning", "hold.released", "episode.returned",
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_start_time_that_the_provider_shows_is_no_boot_id(world):
    """EC2 shows a launch time, slurmctld a BootTime: no report has that as its boot id, and it is not rebooted yet."""
    world.boot_shown = lambda node: f"2026-11-22T10:0{node.boot}:00+00:00"
    line = Line(world)
    waves = line.begin()
    line.run(1)
    first = waves[0][0]
    assert line.states()[first] == "watching"
    world.report_on_the_way_down(first)
    line.run(1)
    assert (line.states()[first], world.nodes[first].boot) == ("watching", 1)
    line.run()
    assert set(line.states().values()) == {"returned"}
