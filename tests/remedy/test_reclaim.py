"""A machine that the cloud takes away, in each step of the loop: nothing is repaired, and nobody is called."""

from __future__ import annotations

import pytest

from nhc.core.model import Action
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.repair import Rung
from nhc.store import holds as store_holds
from tests.remedy.test_controller import all_episodes, last
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import Sickness, World

pytestmark = pytest.mark.thorough

NOTICE = Sickness(Action.NONE, Rung.ESCALATE, "CloudReclaim", "spot-terminate", "check_cloud_maintenance")
ONE = "[bounds.fleet]\nout = 0\n"
DAY = 86400.0


@pytest.fixture
def world(store):  # noqa: F811
    return World(store)


def taken(world, name="n1"):
    """The machine is gone, with its faults; the scheduler keeps the name and does not hear it."""
    world.nodes[name].sick.clear()
    world.nodes[name].under_way.clear()
    world.die(name)


def comes_anew(world, name="n1"):
    """Another machine has the name, and reports."""
    world.nodes[name].boot += 1
    world.come_back(name)
    world.tick(1.0)


def rounds_until(world, controller, state, name="n1"):
    for _ in range(400):
        controller.round()
        if all_episodes(world, name) and last(world, name).state == state:
            return
        world.tick(1.0)
    raise AssertionError(f"{last(world, name).state}, not {state}: {last(world, name).detail}")


class Never:
    """Collects evidence for ever."""

    def collected(self, case, machine):
        return False


#: How an episode comes to stand in each state, and the settings for that.
STATES = {
    "detected": ("[bounds.fleet]\nout = 0\n", lambda world: None, {}),
    "draining": ("", lambda world: setattr(world.nodes["n1"], "busy", True), {}),
    "evidence": ("", lambda world: None, {"evidence": Never()}),
    "recheck": ("", lambda world: world.claimed.update(n1="somebody"), {}),
    "awaiting-approval": ("[approval]\nreboot = 1\n", lambda world: None, {}),
    "watching": ("", lambda world: None, {}),
    "verifying": ("", lambda world: None, {}),
}


@pytest.mark.parametrize("state", STATES)
def test_a_notice_in_any_step_ends_the_repair_and_the_next_machine_is_proved(world, state):
    settings, prepare, more = STATES[state]
    prepare(world)
    controller = world.controller(settings, **more)
    world.fall_sick("n1")
    rounds_until(world, controller, state)
    sent = world.sendings("n1")
    world.fall_sick("n1", NOTICE)
    world.run(controller, 3)
    taken(world)
    world.nodes["n1"].busy = False
    world.run(controller, 30, 600.0)
    row = last(world)
    assert row.ended is None, (row.state, row.outcome)
    assert world.sendings("n1") == sent, "nothing was sent to a machine that goes"
    comes_anew(world)
    world.run(world.controller(), 12)
    row = last(world)
    assert row.state == ("withdrawn" if state == "detected" else "returned"), row.detail
    assert world.sendings("n1") == sent
    assert world.nodes["n1"].available


def test_a_notice_alone_marks_the_node_at_once_and_ends_with_it(world):
    controller = world.controller('[sources]\nsettle = "5m"\nmax-age = "5m"\n')
    world.fall_sick("n1", NOTICE)
    world.run(controller, 2, 1.0)
    assert world.marked == ["n1"], "no new work begins there"
    assert "reclaimed: it" not in last(world).detail
    assert "reclaimed: spot-terminate is broken: nothing is repaired" in last(world).detail
    world.run(controller, 20, DAY)
    assert (last(world).ended, "alarmed" in last(world).detail) == (None, False)
    world.nodes["n1"].gone = True
    world.run(controller, 1)
    row = last(world)
    assert (row.state, world.sent) == ("withdrawn", [])
    assert "reclaimed by the cloud: the cluster does not know the node any more" in row.detail


def test_the_next_machine_has_a_ladder_of_its_own(world):
    """It fails from its first report on: what was tried on the one before says nothing of it."""
    controller = world.controller()
    world.fall_sick("n1", Sickness(cure=Rung.REPLACE))
    rounds_until(world, controller, "verifying")
    world.fall_sick("n1", NOTICE)
    world.run(controller, 4)
    taken(world)
    world.run(controller, 3)
    assert world.sendings("n1") == [Rung.REBOOT]
    world.nodes["n1"].sick["GpuBroken"] = Sickness()
    comes_anew(world)
    world.run(controller, 14)
    first, second = sorted(all_episodes(world), key=lambda row: row.id)
    assert (first.state, second.state) == ("withdrawn", "returned")
    assert "another machine has its name" in first.detail
    assert world.sendings("n1") == [Rung.REBOOT, Rung.REBOOT]
    assert world.marked == ["n1"], "it was never in service in between"


def replaced_by_a_person(world, uuid, name="n1"):
    """Somebody put another machine into the slot, without a word to anybody."""
    world.nodes[name].sick.clear()
    world.nodes[name].under_way.clear()
    world.nodes[name].uuid = uuid
    comes_anew(world, name)


def test_a_machine_that_a_person_replaced_has_a_ladder_of_its_own(world):
    """No notice, and the episode waits for consent: faults and repairs of the machine before are none of its own."""
    world.nodes["n1"].uuid = "u-a"
    world.report()
    controller = world.controller("[approval]\npower-cycle = 1\n")
    world.fall_sick("n1", Sickness(cure=Rung.REPLACE))
    rounds_until(world, controller, "awaiting-approval")
    assert world.sendings("n1") == [Rung.REBOOT]
    replaced_by_a_person(world, "u-b")
    world.nodes["n1"].sick["GpuBroken"] = Sickness()
    world.report()
    world.run(controller, 14)
    first, second = sorted(all_episodes(world), key=lambda row: row.id)
    assert (first.state, second.state) == ("withdrawn", "returned")
    assert "another machine has its name" in first.detail
    assert world.sendings("n1") == [Rung.REBOOT, Rung.REBOOT]
    assert world.marked == ["n1"], "it was never in service in between"


@pytest.mark.parametrize(("replaced", "repairs"), [(True, 6), (False, 3)])
def test_strikes_are_the_machines_but_for_replacements(world, replaced, repairs):
    """attempts = 3 within a week: three reboots of one machine, and three more of the one that took its place."""
    world.nodes["n1"].uuid = "u-a"
    limits = '[limits]\nfirst-run = "100%"\nattempts = 3\nwindow = "7d"\n'
    for _ in range(4):
        world.fall_sick("n1")
        world.run(world.controller(limits), 20)
    assert (len(world.sendings("n1")), last(world).state) == (3, "escalated")
    if replaced:
        replaced_by_a_person(world, "u-b")
    for _ in range(5):
        world.fall_sick("n1")
        world.run(world.controller(limits), 20)
    assert len(world.sendings("n1")) == repairs


def test_many_notices_open_no_breaker_and_leave_room_for_a_sick_node(world):
    controller = world.controller('[breaker]\nfaults = "25%"\nblind = "100%"\nfailures = 0\n[bounds.fleet]\nout = 3\n')
    for name in ("n1", "n2", "n3"):
        world.fall_sick(name, NOTICE)
    world.run(controller, 2)
    for name in ("n1", "n2", "n3"):
        taken(world, name)
    world.run(controller, 2)
    with world.read() as connection:
        assert NAME not in store_holds.breakers(connection)
    world.fall_sick("n0")
    world.run(controller, 12)
    assert last(world, "n0").state == "returned"
    assert [one.node for one in world.sent] == ["n0"]


def test_a_notice_that_is_taken_back_ends_the_wait(world):
    controller = world.controller()
    world.fall_sick("n1", NOTICE)
    world.fall_sick("n1", Sickness(cure=Rung.REBOOT))
    world.run(controller, 3)
    assert world.sent == []
    world.nodes["n1"].sick.pop("CloudReclaimspot-terminate")
    world.run(controller, 12)
    assert (world.sendings("n1"), last(world).state) == ([Rung.REBOOT], "returned")


def test_a_site_may_ask_for_a_person_or_for_nothing(world):
    world.fall_sick("n1", NOTICE)
    world.run(world.controller("[reasons.CloudReclaim]\nbegin = 'ignore'\n"), 3)
    assert world.marked == []
    world.run(world.controller("[reasons.CloudReclaim]\nbegin = 'escalate'\n"), 3)
    assert last(world).state == "escalated"
