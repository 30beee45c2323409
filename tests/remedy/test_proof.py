"""What proves a node healthy: reports at the beginning and at the end of the time, of the boot that is put back."""

import json

import pytest

from nhc.core.model import Verdict
from nhc.remedy.operators import abort, release
from nhc.remedy.spares.swap_decision import unverified
from nhc.remedy.view import Health
from tests.remedy.spares.test_swap_decision import NOW, view
from tests.remedy.test_controller import all_episodes, last
from tests.support.train_world import Line, plan_of

PROOF = '[verify]\nhealthy-for = "10m"\ngrace = "0s"\ndeadline = "30m"\n[sources]\nsettle = "0s"\nmax-age = "15m"\n'


def until_healthy(world, controller, name="n1"):
    """Rounds until the first healthy report counts."""
    for _ in range(40):
        world.run(controller, 1)
        row = last(world, name)
        if row.state == "verifying" and '"healthy":' in row.detail:
            return
    raise AssertionError(row)


def repaired(world, controller):
    world.fall_sick("n1")
    until_healthy(world, controller)


def recovered(world, controller):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    world.run(controller, 3)
    world.nodes["n1"].sick.clear()
    until_healthy(world, controller)
    world.nodes["n1"].busy = False


def released(world, controller):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    world.run(controller, 3)
    abort(world, last(world).id, by="ann", why="mine", now=world.now)
    world.nodes["n1"].sick.clear()
    world.nodes["n1"].busy = False
    world.run(controller, 1)
    release(world, "n1", by="ann", why="", now=world.now)
    until_healthy(world, controller)


BEGINNINGS = pytest.mark.parametrize("begin", [repaired, recovered, released])


@pytest.mark.thorough
@BEGINNINGS
def test_one_healthy_report_and_then_silence_puts_no_node_back(world, begin):
    """Its agent died right after it: the report is young enough to be believed for longer than healthy-for."""
    controller = world.controller(PROOF)
    begin(world, controller)
    world.nodes["n1"].silent = True
    world.run(controller, 120)
    assert (last(world).state, world.nodes["n1"].available) == ("escalated", False)


@pytest.mark.thorough
def test_after_a_silence_the_reports_that_follow_prove_it(world):
    controller = world.controller(PROOF)
    repaired(world, controller)
    world.nodes["n1"].silent = True
    world.run(controller, 10)
    assert last(world).state == "verifying"
    world.nodes["n1"].silent = False
    world.run(controller, 25)
    assert (last(world).state, world.nodes["n1"].available) == ("returned", True)


@pytest.mark.thorough
def test_a_train_puts_no_node_back_for_one_healthy_report(world):
    line = Line(world, plan_of(verify='[verify]\nhealthy-for = "10m"\ngrace = "0s"\ndeadline = "30m"\n'), PROOF)
    line.begin()
    engine = line.engine()
    for _ in range(400):
        for node in world.nodes.values():
            node.silent = node.silent or (node.boot > 1 and line.states()[node.name] == "verifying"
                                          and '"healthy":' in line.rows()[node.name].detail)  # fmt: skip
        engine.round()
        world.tick(20.0)
        if line.train().state == "stopped":
            break
    assert line.train().state == "stopped"
    assert not any(node.available for node in world.nodes.values() if node.boot > 1)


def test_a_spare_that_was_healthy_once_is_not_verified():
    wanted = view()._replace(healthy_for=600.0)
    for since, verified in ((NOW - 60, False), (NOW - 600, False), (NOW - 660, True)):
        spare = wanted._replace(health={"s1": Health(Verdict.OK, NOW - 60, since=since)})
        assert (unverified(spare, "s1") == "") is verified


@pytest.mark.thorough
def test_a_spares_time_begins_anew_after_a_gap(world):
    """The store's reports: healthy for an hour, none for an hour, and one."""
    from nhc.core.matching.node_ranges import NodeNames
    from nhc.remedy import health

    def lasts():
        with world.read() as connection:
            return health.stored(connection, NodeNames(world.nodes, ()), ["n1"])["n1"].lasts(600.0)

    world.run(world.controller(), 30, 60.0)
    assert lasts()
    world.now += 3600.0
    world.report()
    assert not lasts()


@pytest.mark.thorough
@BEGINNINGS
def test_a_boot_during_the_proof_begins_it_anew(world, begin):
    controller = world.controller(PROOF)
    begin(world, controller)
    world.run(controller, 15)
    assert last(world).state == "verifying"
    world.nodes["n1"].boot += 1
    world.run(controller, 15)
    assert (last(world).state, world.nodes["n1"].available) == ("verifying", False)
    world.run(controller, 10)
    assert (last(world).state, world.nodes["n1"].available) == ("returned", True)


@pytest.mark.thorough
@pytest.mark.parametrize("seen", ["report", "scheduler"])
def test_a_proof_is_of_the_boot_that_is_put_back(world, seen):
    """slurmctld died right after `scontrol reboot`, and issues it again on its restart: the loop has proved boot 2."""
    controller = world.controller()
    repaired(world, controller)
    world.nodes["n1"].rebooting_until = world.ticks + 600.0
    for _ in range(20):
        world.run(controller, 1)
        if last(world).state == "returning":
            break
    assert last(world).state == "returning"
    proved = world.nodes["n1"].boot
    if seen == "scheduler":
        world.nodes["n1"].rebooting = True
        world.run(controller, 2)
        assert last(world).state == "verifying"
        world.run(controller, 10)
        assert last(world).state == "verifying", "a boot that ends proves nothing"
    world.nodes["n1"].silent = True
    world.run(controller, 1)
    world.nodes["n1"].silent, world.nodes["n1"].boot = False, proved + 1
    world.nodes["n1"].rebooting_until, world.nodes["n1"].rebooting = 0.0, False
    world.report()
    world.run(controller, 3)
    assert (last(world).state, world.nodes["n1"].available) == ("verifying", False)
    world.run(controller, 8)
    assert (last(world).state, world.nodes["n1"].available) == ("returned", True)
    assert len(world.sendings("n1")) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("shown", ["time", "id"])
@pytest.mark.parametrize("state", ["verifying", "returning"])
def test_a_node_that_booted_while_the_loop_was_away_is_proved_in_that_boot(world, state, shown):
    """Its newest report, of the boot before, is still young enough to be believed."""
    controller = world.controller()
    node = world.nodes["n1"]
    node.boot_id = "boot1" if shown == "id" else ""  # as before the repair: a kubelet says a new one late
    repaired(world, controller)
    node.rebooting_until = world.ticks + 600.0 if state == "returning" else 0.0
    for _ in range(20):
        if last(world).state == state:
            break
        world.run(controller, 1)
    world.tick(150.0)  # enough for the proof, and no loop is there
    node.silent, node.rebooting_until = True, 0.0
    world.now, world.ticks = world.now + 30.0, world.ticks + 30.0
    node.boot += 1
    node.booted, node.boot_id = (world.now, "") if shown == "time" else (0.0, f"boot{node.boot}")
    world.run(controller, 3)
    assert (last(world).state, node.available) == ("verifying", False)
    node.silent = False
    world.run(controller, 8)
    assert (last(world).state, node.available) == ("returned", True)
    assert len(world.sendings("n1")) == 1


@pytest.mark.thorough
def test_a_machine_that_boots_again_and_again_is_left_to_a_person(world):
    controller = world.controller()
    repaired(world, controller)
    for _ in range(40):
        world.nodes["n1"].boot += 1
        world.run(controller, 1)
    assert (last(world).state, world.nodes["n1"].available) == ("escalated", False)
    assert len(all_episodes(world)) == 1


def returning(world, controller):
    """Until its mark is about to be cleared, which its scheduler does not allow yet."""
    repaired(world, controller)
    world.nodes["n1"].rebooting_until = world.ticks + 3600.0
    for _ in range(40):
        world.run(controller, 1)
        if last(world).state == "returning":
            return world.nodes["n1"]
    raise AssertionError(last(world))


@pytest.mark.thorough
def test_a_proof_that_has_grown_old_puts_no_node_back(world):
    """Its scheduler lets nobody touch it for longer than a report counts, and its agent has died meanwhile."""
    controller = world.controller(PROOF)
    node = returning(world, controller)
    node.silent = True
    world.run(controller, 32)
    node.rebooting_until = 0.0
    world.run(controller, 3)
    assert (last(world).state, node.available) == ("returning", False)
    node.silent = False
    world.run(controller, 3)
    assert (last(world).state, node.available) == ("returned", True)


@pytest.mark.thorough
def test_a_return_asks_the_one_door(world):
    """Whose the node is, and whether the policy lets anybody touch it, is asked as it is before a mark."""
    controller = world.controller(PROOF)
    node = returning(world, controller)
    settings = controller.flow.observer.settings
    controller.flow.observer.settings = settings._replace(bounds=settings.bounds._replace(protected=("n1",)))
    node.rebooting_until = 0.0
    world.run(controller, 3)
    assert (last(world).state, node.available) == ("returning", False)
    assert json.loads(last(world).detail)["waiting"].startswith("protected: ")
    world.operator_takes_out("n1")
    world.run(controller, 3)
    assert (last(world).state, node.available) == ("withdrawn", False)
