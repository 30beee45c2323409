"""The machines beside a silent node: where none of them answers, a switch died, and no node is repaired for it."""

import socket

from nhc.ports.repair import Rung
from nhc.remedy.neighbours import GROUPS, witnesses
from nhc.system.answering import answers
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
