"""What bounds, holds and the breaker are counted from: nodes by the cluster's names, groups as they are now."""

import pytest

from nhc.core.model import Action
from nhc.marks.policy.breaker import NAME
from nhc.marks.ports.repair import Rung
from nhc.remedy import operators
from nhc.store import holds, nodes, reports
from nhc.store.intake import Incoming
from tests.support.remedy_world import Node, Sickness


@pytest.mark.thorough
def test_a_node_that_has_just_joined_counts_in_its_rack_at_once(world):
    """The fleet's groups are remembered for ten minutes; a bound on racks holds in those, too."""
    for node in world.nodes.values():
        node.busy = True
    controller = world.controller("[bounds.rack]\nout = 1")
    world.fall_sick("n0")
    world.run(controller, 2)
    assert world.marked == ["n0"]
    for name in ("n8", "n9"):
        world.nodes[name] = Node(name)
    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription(name, groups={"rack": "r0"}) for name in ("n8", "n9")])
    world.fall_sick("n8")
    world.fall_sick("n9")
    world.run(controller, 2)
    assert world.marked == ["n0"]


@pytest.mark.thorough
def test_a_sick_node_whose_rack_is_told_late_counts_there(world):
    """Agents bring the rack with their first report, which may come after the loop has begun."""
    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription(name, groups={}) for name in world.nodes])
    for node in world.nodes.values():
        node.busy = True
    controller = world.controller("[bounds.rack]\nout = 1")
    world.run(controller, 1)
    with world.plain.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription(name, groups={"rack": "r0"}) for name in world.nodes])
    for name in world.nodes:
        world.fall_sick(name)
    world.run(controller, 2)
    assert world.marked == ["n0"]


def test_a_hold_under_the_name_that_the_store_has_holds_the_node(world):
    """`nhc top` and reports may say n1.example.org where the scheduler says n1."""
    with world.plain.write() as connection:
        holds.hold(connection, "node", "n1.example.org", by="alice", why="mine", now=world.now)
    world.fall_sick("n1")
    world.run(world.controller(), 3)
    assert (world.marked, world.sent) == ([], [])


@pytest.mark.thorough
def test_nodes_that_the_cluster_has_no_more_are_not_blind(world):
    """A fleet whose nodes are replaced by others: what is gone is silent for ever, and must not stop the loop."""
    gone = [world.report_of(Node(f"old{number}"), world.now - 86400.0) for number in range(20)]
    with world.plain.write() as connection:
        reports.receive(connection, [Incoming(one, "agent", world.now - 86400.0) for one in gone])
    world.fall_sick("n1")
    world.report(["n0", "n2", "n3"])
    world.run(world.controller("[breaker]\nblind = 2\nfaults = '100%'\nfailures = 0"), 20)
    assert world.sendings("n1") == [Rung.REBOOT]
    assert world.cleared == ["n1"]


def breakers(world):
    with world.plain.read() as connection:
        return {name: row.state for name, row in holds.breakers(connection).items()}


def test_a_node_that_falls_sick_again_is_one_sick_node(world):
    """Three nodes fell sick, one of them twice, and three may."""
    controller = world.controller("[breaker]\nfaults = 3\nwithin = '1h'\nblind = '100%'\nfailures = 0")
    for name in ("n0", "n1", "n2"):
        world.fall_sick(name)
    world.run(controller, 8, 60.0)
    assert sorted(world.cleared) == ["n0", "n1", "n2"]
    world.fall_sick("n0")
    world.run(controller, 8, 60.0)
    assert NAME not in breakers(world)
    assert world.cleared.count("n0") == 2


def test_nodes_that_persons_release_have_not_fallen_sick(world):
    """Repaired by hand, and given back to the loop at once: it proves them, no breaker opens, and another is marked."""
    controller = world.controller(
        "[breaker]\nfaults = 3\nwithin = '1h'\nblind = '100%'\nfailures = 0\n[bounds.fleet.rate]\nmark = '3 per 1h'"
    )
    for name in ("n0", "n1", "n2"):
        world.fall_sick(name, Sickness(Action.INSPECT, Rung.ESCALATE))
    world.run(controller, 2)
    world.now, world.ticks = world.now + 7200.0, world.ticks + 7200.0
    for name in ("n0", "n1", "n2"):
        world.nodes[name].sick.clear()
        operators.release(world.plain, name, by="alice", why="a new board", now=world.now)
    world.fall_sick("n3")
    world.report()
    world.run(controller, 8, 60.0)
    assert sorted(world.cleared) == ["n0", "n1", "n2", "n3"]
    assert NAME not in breakers(world)
