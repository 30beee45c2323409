"""The machines beside a silent node: where none of them answers, a switch died, and no node is repaired for it."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from nhc.core.system.addresses import answers
from nhc.marks.ports.repair import Rung
from nhc.remedy.neighbours import GROUPS, witnesses
from nhc.remedy.remedy_site import ANSWER
from nhc.store import nodes as store_nodes
from tests.support.leaves import PORT, leaves
from tests.support.remedy_world import World

GROUPED = {**{f"a{n}": (("partition", "work"), ("rack", "r1"), ("leaf", "s1")) for n in range(6)},
           **{f"b{n}": (("partition", "work"), ("rack", "r2"), ("leaf", "s2")) for n in range(6)}}  # fmt: skip
HEARD = sorted(set(GROUPED) - {"a0"})


class Network:
    """Which nodes answer; what was asked is kept."""

    def __init__(self, *up):
        self.up, self.asked = up, []

    def __call__(self, nodes):
        self.asked.append(list(nodes))
        return {node: node in self.up for node in nodes}


def test_neighbours_that_answer_leave_the_silence_its_own():
    network = Network(*HEARD)
    assert witnesses(["a0"], HEARD, GROUPED, network) == ({}, ())
    assert network.asked == [["a1", "a2", "a3", "a4", "b0", "b1", "b2", "b3"]]


def test_a_leaf_of_which_nobody_answers_is_no_fault_of_a_node():
    found = witnesses(["a0"], HEARD, GROUPED, Network("b2"))
    assert found.shared == {
        "a0": "none of its neighbours in leaf s1 answers, and nodes elsewhere do: look for a common cause (a switch, "
        "power)"
    }


def test_where_nobody_answers_at_all_neighbours_prove_nothing_and_that_is_said():
    found = witnesses(["a0"], HEARD, GROUPED, Network())
    assert (found.shared, len(found.problems)) == ({}, 1)


def test_a_node_without_a_group_or_with_one_neighbour_has_no_witnesses():
    network = Network()
    assert witnesses(["a0"], ["a1", *HEARD[5:]], GROUPED, network) == ({}, ())
    assert witnesses(["x"], HEARD, {**GROUPED, "x": (("partition", "work"), ("zone", "z1"))}, network) == ({}, ())
    assert network.asked == []


def test_more_groups_than_a_round_asks_about_wait_for_the_next():
    groups = {f"n{n}-{one}": (("leaf", f"s{n:02}"),) for n in range(GROUPS + 1) for one in range(4)}
    silent = [name for name in groups if name.endswith("-0")]
    heard = [name for name in groups if not name.endswith("-0")]
    found = witnesses(silent, heard, groups, Network(*heard))
    assert found.shared == {f"n{GROUPS}-0": "its neighbours are asked in the next round"}


@pytest.mark.thorough
def test_no_node_is_repaired_while_its_rack_does_not_answer_and_one_is_when_it_does(store):
    world = World(store, 8)
    world.report()
    network = Network("n4", "n5")
    controller = world.controller(asks=network)
    world.die("n1")
    rounds = world.run(controller, 14)
    assert world.sent == []
    assert "none of its neighbours in rack r0 answers" in {one.node: one.why for one in rounds[-1].waiting}["n1"]
    network.up = ("n0", "n4")
    world.run(controller, 4)
    assert world.sendings("n1") == [Rung.POWER_CYCLE]


def test_nobody_is_asked_while_nothing_is_silent_or_where_the_settings_name_no_port(world):
    network = Network()
    world.run(world.controller(asks=network), 2)
    world.die("n1")
    world.run(world.controller("[silence]\nport = 0", asks=network), 2)
    assert network.asked == []


def test_an_open_and_a_refused_connection_are_answers():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert answers("127.0.0.1", port, 5.0), "refused: nobody listens yet"
        listener.listen()
        assert answers("127.0.0.1", port, 5.0)
    assert not answers("no.such.host.invalid", port, 5.0)
    assert not answers("224.0.0.1", port, 5.0), "no machine's address: TCP connects to none"


@pytest.fixture
def fabric():
    with leaves(40) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("dead", ["lose_packets", "unplug"])
def test_a_host_behind_a_dead_switch_does_not_answer_and_one_elsewhere_does(fabric, dead):
    near, far = fabric.addresses["s1"][0], fabric.addresses["s2"][0]
    assert [answers(one, port, 5.0) for one in (near, far) for port in (PORT, PORT + 1)] == [True] * 4
    getattr(fabric, dead)("s1")
    assert [answers(near, PORT, ANSWER), answers(far, PORT, 5.0)] == [False, True]


@pytest.mark.slow
def test_forty_nodes_behind_a_dead_switch_are_left_alone_and_the_one_that_died_is_repaired(store, fabric):
    world = World(store, 80)
    addresses = dict(zip(world.nodes, [*fabric.addresses["s1"], *fabric.addresses["s2"]]))
    behind = list(world.nodes)[:40]
    with store.write() as connection:
        store_nodes.describe(connection, [
            store_nodes.NodeDescription(name, groups={"rack": "r0", "leaf": "s1" if name in behind else "s2"})
            for name in world.nodes
        ])  # fmt: skip
    world.report()
    with ThreadPoolExecutor(8) as pool:

        def asks(names):
            return dict(zip(names, pool.map(lambda name: answers(addresses[name], PORT, ANSWER), names)))

        controller = world.controller("[reasons.NodeSilent]\nsettle = '5m'", asks=asks)
        fabric.lose_packets("s1")
        for name in behind:
            world.nodes[name].silent = True  # no report arrives
        world.die(behind[0])  # the scheduler misses one first, and the others minutes later
        first = world.run(controller, 4, seconds=120)[-1]
        for name in behind[1:]:
            world.die(name)
        last = world.run(controller, 4, seconds=120)[-1]
        why = {one.node: one.why for one in first.waiting}
        assert "none of its neighbours in leaf s1 answers, and nodes elsewhere do" in why[behind[0]]
        assert sorted(one.node for one in last.waiting) == sorted(behind)
        assert (world.marked, world.sent) == ([], [])

        fabric.carry_packets("s1")
        for name in behind[1:]:
            world.come_back(name)
        world.run(controller, 4, seconds=120)
    assert world.marked == [behind[0]]
    assert world.sendings(behind[0]) == [Rung.POWER_CYCLE]
    assert len(world.sent) == 1
