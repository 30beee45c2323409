"""A node that dies: its silence is a fault with a wait of its own, and forty that die together are not forty faults."""

import pytest

from nhc.marks.ports.adapter import NodeState, Silence
from nhc.marks.ports.repair import Rung
from nhc.remedy import silence
from nhc.store import episodes, nodes
from tests.remedy.test_controller import last
from tests.support.remedy_world import World


def all_episodes(world):
    with world.read() as connection:
        return episodes.list_episodes(connection)


def waits(world, controller):
    return {one.node: one.why for one in controller.round().waiting}


def dead(world, name):
    """A node that has been silent for longer than its wait; the others report."""
    world.die(name)
    world.tick(400)


def cured(world, name, seconds=120.0):
    """The power cycle that was sent brings the node back."""
    world.tick(seconds)
    world.come_back(name)


@pytest.mark.thorough
def test_a_dead_node_is_power_cycled_after_its_own_wait_and_returned_when_it_reports(store):
    world = World(store, 8)
    world.report()
    controller = world.controller("[reasons.NodeSilent]\nsettle = '5m'")
    world.die("n1")
    world.run(controller, 9)
    assert all_episodes(world) == []
    world.run(controller, 4)
    assert world.sendings("n1") == [Rung.POWER_CYCLE]
    assert (last(world).state, last(world).cause) == ("verifying", "cluster|NodeSilent|")
    cured(world, "n1")
    world.run(controller, 8)
    assert last(world).state == "returned"
    assert world.sendings("n1") == [Rung.POWER_CYCLE]


@pytest.mark.thorough
def test_a_node_that_is_heard_again_must_still_report_that_it_is_healthy(store):
    world = World(store, 8)
    world.report()
    controller = world.controller("[actions]\nmark = 'on'\npower-cycle = 'on'\n[drain]\ndeadline = '1d'")
    world.nodes["n1"].busy = True
    world.die("n1")
    world.run(controller, 14)
    assert last(world).state == "draining"
    world.nodes["n1"].silence = None
    world.run(controller, 6)
    assert (last(world).state, world.sent) == ("verifying", [])
    world.come_back("n1")
    world.run(controller, 8)
    assert (last(world).state, world.sent) == ("returned", [])


@pytest.mark.thorough
def test_a_node_of_which_no_report_ever_came_is_returned_by_its_scheduler_alone(store):
    world = World(store, 8)
    controller = world.controller()
    world.die("n1")
    for _ in range(14):
        controller.round()
        world.now, world.ticks = world.now + 30, world.ticks + 30  # nobody reports
    assert world.sendings("n1") == [Rung.POWER_CYCLE]
    world.nodes["n1"].silence = None
    world.nodes["n1"].under_way.clear()
    world.nodes["n1"].boot += 1
    for _ in range(10):
        controller.round()
        world.now, world.ticks = world.now + 30, world.ticks + 30
    assert last(world).state == "returned"


def test_what_comes_back_by_itself_is_left_alone(world):
    controller = world.controller("[reasons.NodeSilent]\nsettle = '1m'\n[actions]\nmark = 'dry-run'")
    dead(world, "n1")
    assert [one.node for one in controller.round().would] == ["n1"]
    world.come_back("n1")
    world.tick()
    assert controller.round().would == ()


@pytest.mark.thorough
def test_a_rack_that_falls_silent_is_not_four_nodes(store):
    world = World(store, 40)
    world.report()
    controller = world.controller("[silence]\ntogether = '50%'")
    for name in ("n4", "n5", "n6", "n7"):
        world.die(name)
        world.tick(20)
    world.die("n20")
    rounds = world.run(controller, 14)
    assert {row.node for row in all_episodes(world)} == {"n20"}
    assert rounds[-1].problems == ()
    whys = {one.node: one.why for one in rounds[-1].waiting}
    assert all("4 of 4 nodes in rack r1 fell silent together" in whys[name] for name in ("n4", "n5", "n6", "n7"))
    assert {one.node for one in world.sent} == {"n20"}


@pytest.mark.thorough
def test_nodes_that_fall_silent_one_after_another_are_faults_of_their_own(store):
    world = World(store, 40)
    world.report()
    controller = world.controller("[silence]\nwithin = '10m'")
    dead(world, "n4")
    world.tick(400)
    world.die("n5")
    world.run(controller, 14)
    assert {row.node for row in all_episodes(world)} == {"n4", "n5"}


@pytest.mark.thorough
def test_a_repair_is_held_when_the_rest_of_the_rack_dies_before_it_is_sent(store):
    world = World(store, 40)
    world.report()
    world.nodes["n4"].busy = True
    controller = world.controller("[drain]\ndeadline = '1d'")
    dead(world, "n4")
    world.run(controller, 2)
    assert last(world, "n4").state == "draining"
    for name in ("n5", "n6", "n7"):
        world.die(name, world.now - 300)
    world.nodes["n4"].busy = False
    world.run(controller, 3)
    assert world.sent == []
    assert "fell silent together" in waits(world, controller)["n4"]


@pytest.mark.thorough
def test_more_silent_nodes_than_the_limit_are_the_networks_fault(store):
    world = World(store, 40)
    world.report()
    controller = world.controller("[silence]\ntogether = 2\n[bounds.rack]\nout = '100%'")
    for name in ("n0", "n8", "n16"):
        world.die(name)
    rounds = world.run(controller, 14)
    assert all_episodes(world) == []
    assert (
        "3 of 40 nodes in the fleet fell silent together, more than 2"
        in {one.node: one.why for one in rounds[-1].waiting}["n8"]
    )


@pytest.mark.thorough
def test_a_machine_that_is_powered_off_is_for_a_person_who_may_have_switched_it_off(store):
    world = World(store, 8)
    world.report()
    controller = world.controller()
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    look = repairer.look
    repairer.look = lambda machine: look(machine)._replace(power="off")
    dead(world, "n1")
    world.run(controller, 3)
    assert (last(world).state, world.sent) == ("escalated", [])
    assert "the machine is off: somebody may have switched it off" in last(world).outcome


@pytest.mark.thorough
def test_a_machine_without_power_is_switched_on_where_the_settings_say_so(store):
    world = World(store, 8)
    world.report()
    controller = world.controller("[silence]\npower-on = true")
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    look = repairer.look
    repairer.look = lambda machine: look(machine)._replace(power="off")
    dead(world, "n1")
    world.run(controller, 1)
    assert world.sendings("n1") == [Rung.POWER_CYCLE]


@pytest.mark.thorough
def test_a_node_whose_agent_still_reports_is_rebooted_and_not_returned_before_its_scheduler_hears_it(store):
    world = World(store, 8)
    world.report()
    controller = world.controller()
    world.die("n1", heard=True)
    world.run(controller, 13)
    assert world.sendings("n1") == [Rung.REBOOT]
    assert last(world).cause == "cluster|NodeNotReady|"
    world.run(controller, 6)
    assert last(world).state == "verifying"  # its reports are healthy all the while
    world.come_back("n1")
    world.run(controller, 8)
    assert last(world).state == "returned"


@pytest.mark.thorough
def test_a_node_that_stays_silent_after_its_repair_gets_the_next_one(store):
    world = World(store, 8)
    world.report()
    controller = world.controller("[verify]\nhealthy-for = '2m'\ndeadline = '10m'")
    dead(world, "n1")
    world.run(controller, 60)
    assert world.sendings("n1") == [Rung.POWER_CYCLE, Rung.REPLACE]


@pytest.mark.thorough
def test_a_node_that_boots_for_its_repair_is_not_silent_besides(store):
    world = World(store, 8)
    world.fall_sick("n1")
    world.duration = 900.0
    controller = world.controller()
    world.run(controller, 2)
    assert world.sendings("n1") == [Rung.REBOOT]
    world.die("n1")
    world.run(controller, 25)
    with world.read() as connection:
        assert "NodeSilent" not in episodes.get(connection, last(world).id).detail
    world.come_back("n1")
    world.run(controller, 20)
    assert (last(world).state, world.sendings("n1")) == ("returned", [Rung.REBOOT])


def test_a_silent_node_that_somebody_else_took_out_is_theirs(store):
    world = World(store, 8)
    world.report()
    world.operator_takes_out("n1")
    dead(world, "n1")
    world.run(world.controller(), 3)
    assert all_episodes(world) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("begin", "sent"), [("reboot", [Rung.REBOOT]), ("escalate", []), ("ignore", [])])
def test_where_the_ladder_begins_is_the_sites_to_say(store, begin, sent):
    world = World(store, 8)
    world.report()
    dead(world, "n1")
    world.run(world.controller(f"[reasons.NodeSilent]\nbegin = '{begin}'"), 3)
    assert world.sendings("n1") == sent
    assert bool(all_episodes(world)) is (begin != "ignore")


@pytest.mark.thorough
def test_a_reason_has_its_own_wait_and_its_own_first_repair(store):
    world = World(store, 8)
    world.report()
    controller = world.controller("[reasons.'Gpu*']\nsettle = '10m'\nbegin = 'replace'")
    world.fall_sick("n1")
    world.run(controller, 19)
    assert world.sent == []
    world.run(controller, 4)
    assert world.sendings("n1") == [Rung.REPLACE]


@pytest.mark.thorough
def test_a_fault_that_counts_for_nothing_keeps_no_node_out(store):
    world = World(store, 8)
    world.report()
    world.fall_sick("n1")
    controller = world.controller("[reasons.GpuBroken]\nbegin = 'ignore'")
    world.run(controller, 3)
    assert all_episodes(world) == []


def test_an_ok_of_last_week_is_not_counted_as_ok(store):
    world = World(store, 4)
    world.report()
    world.die("n1")
    world.tick(7 * 86400)
    with world.read() as connection:
        assert nodes.counts(connection, world.now - 900) == {"OK": 3, "SILENT": 1}
        assert nodes.counts(connection) == {"OK": 4}


NOW = 1_700_000_000.0


def test_a_silent_node_does_not_speak_by_a_report_from_ahead_of_the_clock():
    state = NodeState("n1", "NotReady", True, silence=Silence(NOW - 600, "not heard"))
    for at, reason in ((NOW - 10, silence.NOT_READY), (NOW + 86400, silence.SILENT)):
        (fault,) = silence.faults([state], {"n1": at}, NOW, 900.0)
        assert fault.reason == reason
