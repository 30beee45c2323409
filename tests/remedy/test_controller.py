"""The loop over a real store and a small world: from a fault to a returned node, or to an escalation."""

import pytest

from nhc.console import open_work, screens
from nhc.console.top import app
from nhc.core.model import Action
from nhc.marks.ports.adapter import REMEDY_OWNER, Mark
from nhc.marks.ports.repair import Rung
from nhc.store import attempts, audit, ended_episodes, episodes
from tests.support.remedy_world import Sickness


def all_episodes(world, node="n1"):
    with world.read() as connection:
        return episodes.list_episodes(connection, node=node)


def last(world, node="n1"):
    return all_episodes(world, node)[-1]


def left(world):
    with world.read() as connection:
        return [one.node for one in ended_episodes.left_to_operators(connection)]


def tried(world, number):
    with world.read() as connection:
        return [(one.rung, one.outcome or one.state) for one in attempts.attempts_of(connection, number)]


@pytest.mark.thorough
def test_a_fault_becomes_a_returned_node(world):
    world.fall_sick("n1")
    world.run(world.controller(), 20)
    episode = last(world)
    assert (episode.state, world.sendings("n1")) == ("returned", [Rung.REBOOT])
    assert tried(world, episode.id) == [("reboot", "succeeded")]
    assert world.nodes["n1"].available
    assert (world.marked, world.cleared) == (["n1"], ["n1"])
    with world.read() as connection:
        steps = [one.what for one in audit.entries(connection, episode=episode.id)]
    states = [one.partition(".")[2] for one in steps if one.startswith("episode.")]
    assert [one for one in states if one != "waits"] == [
        "opened", "marking", "marked", "draining", "evidence", "recheck", "acting", "watching", "verifying",
        "returning", "returned",
    ]  # fmt: skip
    assert steps.index("attempt.written") < steps.index("attempt.sent") < steps.index("attempt.ended")


@pytest.mark.thorough
def test_a_node_is_put_back_once_the_scheduler_has_seen_its_reboot_end(world):
    """slurmctld may say REBOOT for a while after the node has reported its new boot."""
    world.reboot_lingers = 1800.0
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 40)
    assert (last(world).state, world.cleared) == ("returning", [])
    assert "left alone: it is rebooting" in last(world).detail
    world.run(controller, 40)
    assert (last(world).state, world.cleared) == ("returned", ["n1"])
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_the_ladder_goes_up_until_something_helps(world):
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.POWER_CYCLE, target="gpu3"))
    world.run(world.controller(), 60)
    assert last(world).state == "returned"
    assert world.sendings("n1") == [Rung.RESET_DEVICE, Rung.RELOAD_DRIVER, Rung.REBOOT, Rung.POWER_CYCLE]
    assert [one.device for one in world.sent] == ["gpu3", "", "", ""]


@pytest.mark.thorough
def test_what_nothing_cures_is_given_to_a_person_with_all_that_was_tried(world):
    world.fall_sick("n1", Sickness(cure=Rung.ESCALATE))
    world.run(world.controller(), 80)
    episode = last(world)
    assert (episode.state, episode.outcome) == ("escalated", "no repair is left on the ladder")
    assert [rung for rung, _ in tried(world, episode.id)] == ["reboot", "power-cycle", "replace"]
    assert not world.nodes["n1"].available  # it stays out, and nothing more is done
    before = len(world.sent)
    world.run(world.controller(), 10)
    assert len(world.sent) == before
    assert len(all_episodes(world)) == 1


@pytest.mark.thorough
def test_a_node_that_a_person_puts_back_is_left_to_nobody_any_more(world):
    world.fall_sick("n1")
    controller = world.controller('[actions]\nmark = "on"\n')
    world.run(controller, 5)
    assert left(world) == ["n1"]
    world.nodes["n1"].sick = {}
    world.operator_puts_back("n1")
    (done,) = world.run(controller, 1)
    assert left(world) == []
    assert [one.case.state.value for one in done.moved] == ["withdrawn"], "shown as every step is"
    assert [(one.state, one.outcome) for one in all_episodes(world)][-1] == (
        "withdrawn", "somebody put the node back into service"
    )  # fmt: skip
    world.run(controller, 3)
    assert len(all_episodes(world)) == 2


def test_a_mark_of_the_loops_without_an_episode_is_named(world):
    """The store was lost, or is another's: nobody would ever put the node back. What is left to a person is not so."""
    world.nodes["n1"].mark, world.nodes["n1"].available = Mark("it was repaired", owner=REMEDY_OWNER), False
    world.fall_sick("n2")
    controller = world.controller('[actions]\nmark = "on"\n')
    for found in (controller.round(apply=False), *world.run(controller, 5)):
        assert [one.node for one in found.waiting if one.why.startswith("mark: it is the loop's")] == ["n1"]
    assert left(world) == ["n2"]


def test_nothing_is_done_unless_it_is_enabled(world):
    world.fall_sick("n1")
    controller = world.controller("[actions]\n")
    rounds = world.run(controller, 3)
    assert (world.marked, world.sent, all_episodes(world)) == ([], [], [])
    assert rounds[0].would == (("n1", "mark", "it is broken"),)


def test_a_dry_round_writes_nothing_and_says_what_it_would_do(world):
    world.fall_sick("n1")
    found = world.controller().round(apply=False)
    assert (world.marked, all_episodes(world)) == ([], [])
    assert [(one.node, one.action) for one in found.would] == [("n1", "mark")]


@pytest.mark.thorough
def test_only_marking_is_enabled_then_the_repair_is_left_to_a_person(world):
    world.fall_sick("n1")
    world.run(world.controller('[actions]\nmark = "on"\n'), 5)
    assert (last(world).state, last(world).outcome) == ("escalated", "would reboot, which is not enabled (dry run)")
    assert (world.marked, world.sent) == (["n1"], [])


@pytest.mark.thorough
def test_what_is_shown_is_the_fault_that_stands_and_no_repair_that_is_over(world):
    """Xid95 was repaired; the port that went down meanwhile is what a person has to look at."""
    world.fall_sick("n1", Sickness(Action.RESET_DEVICE, Rung.RESET_DEVICE, "Xid95", "gpu3"))
    controller = world.controller()
    world.run(controller, 1)
    world.fall_sick("n1", Sickness(Action.INSPECT, Rung.ESCALATE, "IbPortDown", "mlx5_0", "check_ib_state"))
    world.run(controller, 12)
    row = last(world)
    assert (row.state, row.cause, row.rung) == ("escalated", "check_gpu|Xid95|gpu3", "reset-device")
    shown = screens.episode_row(row)
    assert (shown["cause"], shown["rung"]) == ("check_ib_state|IbPortDown|mlx5_0", "")
    with world.read() as connection:
        (work,) = open_work.OpenWork().by_node(connection, world.now, 1)["n1"]
    assert (work.cause, work.why) == ("check_ib_state|IbPortDown|mlx5_0", "check_ib_state, IbPortDown, mlx5_0")
    world.fall_sick("n2", Sickness(cure=Rung.ESCALATE))
    world.nodes["n2"].busy = True
    world.run(controller, 2)
    assert screens.episode_row(last(world, "n2"))["cause"] == last(world, "n2").cause
    assert [line.cause for line in app.open_repairs(world)] == ["check_gpu, GpuBroken"]
