"""Work on a fleet grows with the fleet, not with its square: each is done at one size and at four times that."""

from __future__ import annotations

import json

import pytest

from nhc.core.limits import Limit
from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import Action, CheckResult, Report, Verdict, crit
from nhc.deep.group_test import GroupOutcome, GroupResult, GroupTest, Layer, Rules, Topology
from nhc.deep.node_verdicts import judge_sweep
from nhc.fleet.fold import Folder
from nhc.marks.policy import ledger
from nhc.marks.policy.bounds import BegunAction, Bounds, Usage, no_such_kind
from nhc.marks.policy.bounds import sizes as bounds_sizes
from nhc.marks.policy.ledger import Ledger
from nhc.marks.policy.mark_decision import Policy, reconcile
from nhc.marks.ports.adapter import Mark, NodeState, Operation, PlannedOperation
from nhc.marks.ports.repair import Request, Rung
from nhc.remedy.counting import FleetGroups
from nhc.remedy.node_holds import StandingHolds
from nhc.remedy.repairers import Repairers
from nhc.remedy.trains.settings import Waves
from nhc.remedy.trains.waves import spread
from nhc.store.holds import Hold
from tests.support.growth import LINEAR, growth

NOW = 1_000_000.0
pytestmark = pytest.mark.thorough


def names(count):
    return [f"n{number:06}" for number in range(count)]


def deciding(count):
    """Every node marked for a reboot, and rebooted before."""
    bad = CheckResult("check_x", crit("X", "bad", action=Action.REBOOT))
    reports = {node: Report(node, "boot", NOW, 0.1, (bad,)) for node in names(count)}
    mark = Mark("check_x: bad", Action.REBOOT, NOW - 7200, "nhc")
    states = [NodeState(node, "drain", False, False, mark) for node in names(count)]
    history = [BegunAction(NOW - 90_000, node, "reboot") for node in names(count)]
    policy = Policy(repairs=frozenset({Operation.REBOOT})).with_ceiling(Limit())
    return lambda: reconcile(reports, states, policy, history, NOW)


def folding(count):
    """A sweep on which each node has problems of its own: all have three, and one more makes each group another."""
    found = [("check_a", "", 3, "A", "a", "none"), ("check_b", "", 3, "B", "b", "none")]

    def fold():
        folder = Folder(names(count))
        for index in range(count):
            folder.add(index, Verdict.CRIT, [*found, ("check_c", f"dev{index}", 3, "C", "c", "none")])
        folder.by_node()

    return fold


def judging(count):
    """A round of pairs inside each leaf and one across, each fifth node bad, and its rails alone."""
    nodes = names(count)
    topology = Topology({node: (f"leaf{number // 16}",) for number, node in enumerate(nodes)})
    bad = set(nodes[::5])
    results = []
    for layer, shifts in ((Layer.LEAF, (1, 2, 3)), (Layer.ACROSS, (16, 32, 48))):
        for shift in shifts:
            for number in range(count - shift):
                pair = (nodes[number], nodes[number + shift])
                seen = GroupOutcome.BAD if bad.intersection(pair) else GroupOutcome.GOOD
                results.append(GroupResult(GroupTest(layer, pair), seen))
    results += [GroupResult(GroupTest(Layer.RAILS, (node,), rail="0"), GroupOutcome.BAD) for node in sorted(bad)]
    return lambda: judge_sweep(nodes, topology, results, Rules(cap=1.0))


def making_waves(count):
    """Waves of four nodes, one of a rack at most; the racks' names come in the order of the nodes'."""
    nodes = names(count)
    groups = {node: (("rack", f"r{number // 32}"),) for number, node in enumerate(nodes)}
    waves = Waves(first=1, size=Limit(4), per=(("rack", Limit(1)),))
    return lambda: spread(nodes, waves, groups)


def holding(count):
    """A hold on each node and on each rack, asked for each node."""
    nodes = names(count)
    groups = {node: (("rack", f"r{number // 8}"),) for number, node in enumerate(nodes)}
    fleet = FleetGroups(groups, {}, NodeNames(nodes, ()))
    holds = [Hold(number, "node", node, "ada", "disk", 1.0, None, None) for number, node in enumerate(nodes, 1)]
    holds += [Hold(count + number, "group", f"rack=r{number}", "ada", "power", 1.0, None, None) for number in range(9)]

    def ask():
        held = StandingHolds(holds, fleet)
        assert all(held.why(node) for node in nodes)

    return ask


def bounding(count):
    """May each node be marked, in a fleet of which each is in a rack of its own."""
    nodes = names(count)
    groups = {node: (("rack", f"r-{node}"),) for node in nodes}
    bounds = Bounds(asked=frozenset({"rack"}))

    def ask():
        usage = Usage(groups, bounds_sizes(groups))
        assert not [node for node in nodes if no_such_kind(bounds, usage)]

    return ask


class Asked:
    """A cluster on whose nodes persons ask for repairs."""

    def __init__(self, count):
        self.found = dict.fromkeys(names(count), Request(Rung.REBOOT, "1", "reboot"))

    def requests(self):
        return self.found, []

    def answer(self, node, request, text, returned):
        return ""


def requesting(count):
    """A person asks for a repair of every node."""
    repairers, nodes = Repairers([], others=[Asked(count)]), names(count)

    def ask():
        assert len(repairers.requests(nodes)[0]) == count

    return ask


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (deciding, 700),
        (folding, 700),
        (judging, 300),
        (making_waves, 10_000),
        (holding, 1000),
        (bounding, 1000),
        (requesting, 1000),
    ],
)
def test_work_on_four_times_the_nodes_costs_four_times_as_much(make, size):
    assert growth(make, size) < LINEAR


def test_the_history_of_a_ledger_costs_its_lines(tmp_path):
    def reading(count):
        path = tmp_path / str(count)
        lines = [(f"n{number}", "begun") for number in range(count)]
        lines += [(f"n{number}", "refused") for number in range(count)]
        path.mkdir(exist_ok=True)
        (path / "ledger.jsonl").write_text("".join(
            json.dumps({"when": NOW, "node": node, "deed": "reboot", "effect": effect}) + "\n" for node, effect in lines
        ))  # fmt: skip
        return lambda: Ledger(str(path)).history()

    assert reading(3)() == []
    assert growth(reading, 500) < LINEAR


def test_a_large_ledger_whose_lines_are_young_is_not_read_to_append_to_it(tmp_path, monkeypatch):
    read = []
    line = json.dumps({"when": NOW, "node": "n1", "deed": "reboot", "effect": "begun"}) + "\n"
    (tmp_path / "ledger.jsonl").write_text(line * 1000)
    monkeypatch.setattr(ledger, "TRIM_AT", 10_000)
    real = json.loads
    monkeypatch.setattr(json, "loads", lambda text: read.append(text) or real(text))
    with Ledger(str(tmp_path)) as records:
        for turn in range(20):
            records.begin([PlannedOperation("n2", Operation.REBOOT, "bad")], NOW + turn)
    assert len(read) == 20  # its first line, each time
