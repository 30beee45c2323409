"""What users of other loops complained of, each as a test of ours. The issue stands in each docstring."""

import pytest

from nhc.core.limits import Limit
from nhc.core.model import Action
from nhc.marks.ports.repair import Rung
from nhc.store import audit, holds, reports
from nhc.store.intake import Incoming
from tests.remedy.test_controller import all_episodes, last, tried
from tests.support.remedy_world import Sickness, World


@pytest.mark.thorough
def test_1_a_fault_that_is_told_again_and_again_stays_one_fault(world):
    """aws/eks-node-monitoring-agent#39: two failing tests rewrote one condition, so a repair was never due."""
    world.fall_sick("n1", Sickness(reason="DcgmA"))
    world.fall_sick("n1", Sickness(reason="DcgmB"))
    world.run(world.controller('[sources]\nsettle = "2m"\nmax-age = "5m"\n'), 20)
    assert (last(world).state, world.sendings("n1")) == ("returned", [Rung.REBOOT])
    assert len(all_episodes(world)) == 1


@pytest.mark.thorough
def test_2_a_mark_is_cleared_after_success_and_services_that_start_do_not_count(world):
    """aws/eks-node-monitoring-agent#266: never cleared after success; a race at boot set it."""
    world.fall_sick("n1")
    controller = world.controller('[verify]\nhealthy-for = "2m"\ngrace = "5m"\n')
    world.run(controller, 4)
    assert world.nodes["n1"].boot == 2
    world.fall_sick("n1", Sickness(reason="NotReadyYet"))  # right after the boot
    world.run(controller, 2)
    world.nodes["n1"].sick.clear()
    world.run(controller, 10)
    assert (last(world).state, world.sendings("n1")) == ("returned", [Rung.REBOOT])
    assert world.nodes["n1"].available


def test_3_what_could_not_be_checked_is_never_repaired(world):
    """aws/containers-roadmap#2555: an agent that could not reach DCGM had healthy nodes replaced."""
    world.nodes["n1"].unknown = True
    world.report()
    world.run(world.controller(), 5)
    assert (all_episodes(world), world.marked, world.sent) == ([], [], [])


@pytest.mark.thorough
def test_3b_an_unknown_verdict_before_the_repair_holds_it(world):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()
    world.run(controller, 2)
    world.nodes["n1"].sick.clear()
    world.nodes["n1"].unknown = True
    world.nodes["n1"].busy = False
    world.tick()
    world.run(controller, 5)
    assert (world.sent, last(world).state) == ([], "recheck")


@pytest.mark.thorough
def test_4_one_that_marks_healthy_nodes_is_stopped_by_level_rate_and_breaker(store):
    """kubernetes-sigs/karpenter#2811: a component marked healthy nodes, too many were terminated."""
    world = World(store, 20)
    for number in range(12):
        world.fall_sick(f"n{number}")
    bounds = """
    [bounds.fleet]
out = "3"
repairing = "2"
[breaker]
faults = "100"
blind = "100%"
failures = 0
"""
    controller = world.controller(bounds.strip())
    for _ in range(6):
        controller.round()
        assert sum(1 for node in world.nodes.values() if not node.available) <= 3
        assert sum(1 for node in world.nodes.values() if node.under_way) <= 2
        world.tick(20)
    tripped = World(store, 20)
    breaker = tripped.controller('[breaker]\nfaults = "5"\nblind = "100%"')
    for number in range(12):
        tripped.fall_sick(f"n{number}")
    before = len(tripped.marked)
    tripped.run(breaker, 3)
    assert len(tripped.marked) == before
    with store.read() as connection:
        found = holds.breakers(connection)["remedy"]
    assert (found.state, "fell sick" in found.why) == ("open", True)


def test_5_one_node_of_three_can_be_repaired():
    """kubernetes-sigs/karpenter#2134: 1 of 3 is 33 %, so it was never repaired."""
    assert Limit(share=0.2).of(3) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("force", [False, True])
def test_6_a_drain_that_does_not_end_is_escalated_or_forced_by_policy(world, force):
    """kubernetes-sigs/karpenter#2042: repair waits for disruption budgets for hours."""
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    then = "force" if force else "escalate"
    controller = world.controller(f'[drain]\ndeadline = "2m"\nthen = "{then}"')
    world.run(controller, 4)
    assert (world.sent, last(world).state) == ([], "draining")
    world.run(controller, 3)
    if force:
        assert world.sendings("n1") == [Rung.REBOOT]
    else:
        assert (last(world).state, world.sent) == ("escalated", [])
        assert "work still runs" in last(world).outcome


@pytest.mark.thorough
def test_7_a_stalled_repair_alarms_once(world):
    """aws/karpenter-provider-aws#8629: nodes stay in disruption for days."""
    world.fall_sick("n1")
    world.duration = 1e9
    world.run(world.controller('[limits]\nstalled = "3m"\nfirst-run = "100%"\nattempts = 9'), 12)
    with world.read() as connection:
        whats = [one.what for one in audit.entries(connection, episode=last(world).id)]
    assert whats.count("episode.stalled") == 1


@pytest.mark.thorough
def test_8_an_event_that_is_played_again_repairs_nothing(world):
    """NVIDIA/NVSentinel#1280: a stale event that was replayed rebooted a node that had been returned."""
    world.fall_sick("n1")
    old = world.report_of(world.nodes["n1"])
    world.run(world.controller(), 20)
    assert last(world).state == "returned"
    with world.plain.write() as connection:
        reports.receive(connection, [Incoming(old, "agent", world.now)])
    world.run(world.controller(), 10)
    assert (len(all_episodes(world)), world.sendings("n1")) == (1, [Rung.REBOOT])


@pytest.mark.thorough
@pytest.mark.parametrize("mood", ["", "lost", "dropped", "refused", "throttled"])
def test_9_every_attempt_ends(world, mood):
    """NVSentinel#1807: a reboot that failed stayed in progress for ever."""
    world.fall_sick("n1")
    world.lose = [mood]
    world.run(world.controller('[effect]\nreboot = "5m"'), 60)
    episode = last(world)
    assert episode.state == "returned"
    outcomes = [outcome for _, outcome in tried(world, episode.id)]
    assert set(outcomes) <= {"succeeded", "failed", "refused"}
    first = {"": "succeeded", "lost": "succeeded", "dropped": "failed", "refused": "refused", "throttled": "refused"}
    assert outcomes[0] == first[mood]
    assert len(set(world.sendings("n1"))) == len(world.sendings("n1"))


@pytest.mark.thorough
def test_11_a_repair_says_who_why_and_which_episode(world):
    """NVSentinel#1688: a reboot leaves no trace on the node."""
    world.fall_sick("n1")
    controller = world.controller()
    orders = []
    repairer = controller.flow.actuators.repairers.entries[0].repairer
    send = repairer.send
    repairer.send = lambda order: (orders.append(order), send(order))[1]
    world.run(controller, 4)
    assert (orders[0].because, orders[0].episode) == ("GpuBroken: it is broken", str(last(world).id))


@pytest.mark.thorough
def test_12_an_open_breaker_stops_marks_and_repairs_but_never_a_clear(world):
    """NVSentinel PR #1852: a tripped breaker kept recovered nodes cordoned."""
    world.fall_sick("n1")
    controller = world.controller()
    world.run(controller, 4)
    assert last(world).state in ("watching", "verifying")
    with world.plain.write() as connection:
        holds.set_breaker(connection, "remedy", "open", by="test", why="many", now=world.now)
    world.fall_sick("n2")
    world.run(controller, 12)
    assert (last(world).state, world.nodes["n1"].available) == ("returned", True)
    assert (world.nodes["n2"].available, last(world, "n2").state) == (True, "detected")


@pytest.mark.slow
def test_13_a_node_that_an_operator_put_back_is_left_alone(world):
    """planetlabs/draino#17: drained after the operator had uncordoned; uncordoned what others had cordoned."""
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()
    world.run(controller, 2)
    world.operator_puts_back("n1")
    world.nodes["n1"].busy = False
    world.run(controller, 10)
    assert (last(world).state, world.sent, world.marked) == ("withdrawn", [], ["n1"])
    assert len(all_episodes(world)) == 1  # and it is not begun again for the same fault


@pytest.mark.thorough
def test_13b_a_node_that_an_operator_took_out_is_theirs(world):
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()
    world.run(controller, 2)
    world.operator_takes_out("n1")
    world.nodes["n1"].sick.clear()
    world.nodes["n1"].busy = False
    world.run(controller, 10)
    assert (last(world).state, world.sent, world.cleared) == ("withdrawn", [], [])
    assert world.nodes["n1"].mark.owner == "bob"


@pytest.mark.thorough
def test_14_the_first_start_takes_one_node_out(store):
    """planetlabs/draino#54: all nodes were cordoned at the first start."""
    world = World(store, 8)
    for name in world.nodes:
        world.fall_sick(name)
    first = '[limits]\nfirst-run = "1"\nfirst-run-for = "1d"\nattempts = 9'
    world.run(world.controller(first), 3)
    assert len(world.marked) == 1


@pytest.mark.thorough
def test_15_a_node_that_recovers_for_a_while_is_not_repaired_for_ever(world):
    """pfnet-research/node-operation-controller#31: endless repair of a node that recovers for a while."""
    limits = '[limits]\nfirst-run = "100%"\nattempts = 3\nwindow = "7d"'
    for _ in range(6):
        world.fall_sick("n1")
        world.run(world.controller(limits), 20)
    assert len(world.sendings("n1")) == 3
    assert last(world).state == "escalated"
    assert "3 repairs within" in last(world).outcome


@pytest.mark.thorough
def test_16_a_node_that_is_healthy_again_is_not_repaired(world):
    """medik8s/self-node-remediation#159: fencing went on after the node was healthy."""
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()
    world.run(controller, 2)
    world.nodes["n1"].sick.clear()
    world.nodes["n1"].busy = False
    world.tick()
    world.run(controller, 10)
    assert (last(world).state, world.sent, world.nodes["n1"].available) == ("returned", [], True)


@pytest.mark.thorough
def test_17_a_restarted_controller_finishes_what_it_began(world):
    """kubereboot/kured#63: a node stayed out of service after the reboot."""
    world.fall_sick("n1")
    for _ in range(15):
        world.controller().round()  # a new process each time
        world.tick()
    assert (last(world).state, world.nodes["n1"].available) == ("returned", True)
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_18_a_step_that_fails_keeps_the_mark(world):
    """cybozu-go/neco#2298: one failed eviction, and the node was uncordoned and begun again."""
    world.fall_sick("n1")
    world.nodes["n1"].busy = True
    controller = world.controller()
    world.run(controller, 2)
    world.down = True
    world.run(controller, 3)
    world.down = False
    world.nodes["n1"].busy = False
    world.run(controller, 15)
    assert (world.marked, world.cleared, last(world).state) == (["n1"], ["n1"], "returned")


@pytest.mark.thorough
def test_two_actors_are_never_at_one_node(world):
    """Section 1.7 of the facts: the platform's own repair is looked for right before ours."""
    world.fall_sick("n1")
    world.claimed["n1"] = "replaces it"
    controller = world.controller()
    world.run(controller, 4)
    assert (world.sent, last(world).state) == ([], "recheck")
    del world.claimed["n1"]
    world.run(controller, 2)
    assert world.sendings("n1") == [Rung.REBOOT]


@pytest.mark.thorough
def test_a_verdict_is_worth_nothing_when_it_is_old(world):
    world.fall_sick("n1")
    world.nodes["n1"].silent = True
    for _ in range(12):
        world.tick(60)
    world.run(world.controller(), 3)
    assert all_episodes(world) == []


@pytest.mark.thorough
def test_an_unknown_suggestion_goes_to_a_person(world):
    world.fall_sick("n1", Sickness(Action.INSPECT))
    world.run(world.controller(), 5)
    assert (last(world).state, last(world).outcome) == ("escalated", "no repair is known for this fault")
    assert world.sent == []
