"""A sweep on a made-up cluster: what the planner orders, what the judge finds, and what other methods would cost.

The faults are bad nodes, nodes that are bad at times, bad links, leaves with bad uplinks, leaves without a path between
them, and chance: a good node whose test is bad, a bad node whose test is good, a test that ends UNKNOWN. One seed makes
everything.
"""

from __future__ import annotations

import random
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Set, Tuple

from nhc.deep.group_test import Culprit, GroupOutcome, GroupResult, GroupTest, Rules, SweepJudgement, Topology
from nhc.deep.node_verdicts import judge_sweep
from nhc.deep.planner import next_round


class Faults(NamedTuple):
    """What is broken, and how often a test lies. Rates are 0 to 1, of one test.

    `rails` are nodes with a rail each, `paths` are pairs of leaves, `flaky` are nodes that are bad every other time.
    """

    nodes: FrozenSet[str] = frozenset()
    links: FrozenSet[Tuple[str, str]] = frozenset()
    rails: FrozenSet[Tuple[str, str]] = frozenset()
    uplinks: FrozenSet[str] = frozenset()
    false_bad: float = 0.0
    false_good: float = 0.0
    unclear: float = 0.0
    paths: FrozenSet[Tuple[str, str]] = frozenset()
    flaky: FrozenSet[str] = frozenset()


class SimulatedSweep(NamedTuple):
    """A sweep to its end. `rounds` and `tests` are what it took; `node_tests` sums the nodes of all tests."""

    judgement: SweepJudgement
    rounds: Tuple[int, ...]
    tests: int
    node_tests: int
    results: Tuple[GroupResult, ...]

    def convicted(self) -> FrozenSet[str]:
        """The nodes that the judge blames."""
        return frozenset(blame.names[0] for blame in self.judgement.blames if blame.culprit is Culprit.NODE)

    def met(self, links: Iterable[Tuple[str, str]]) -> FrozenSet[Tuple[str, str]]:
        """The links of which a pair was tested: a sweep can find these, and no others."""
        tested = {result.test.nodes for result in self.results}
        return frozenset(link for link in links if link in tested)


def cluster(count: int, leaf_size: int) -> Tuple[List[str], Topology]:
    """`count` nodes in leaves of `leaf_size`."""
    width = len(str(count))
    nodes = [f"n{number:0{width}}" for number in range(1, count + 1)]
    return nodes, Topology({node: ("spine", f"leaf{index // leaf_size + 1}") for index, node in enumerate(nodes)})


def break_some(
    nodes: Sequence[str], topology: Topology, bad: int, links: int, uplinks: int, seed: int, paths: int = 0
) -> Faults:  # fmt: skip
    """Faults at random: `bad` nodes, `links` between good nodes of a leaf, `uplinks`, `paths` between leaves."""
    chance = random.Random(f"{seed}:faults")  # noqa: S311 (a simulation)
    broken = frozenset(chance.sample(list(nodes), bad))
    leaves = sorted({topology.leaf(node) for node in nodes})
    down = frozenset(chance.sample(leaves, uplinks))
    sound: Dict[str, List[str]] = {}
    for node in nodes:
        if node not in broken and topology.leaf(node) not in down:
            sound.setdefault(topology.leaf(node), []).append(node)
    room = [members for members in sound.values() if len(members) > 1]
    most = sum(len(members) * (len(members) - 1) // 2 for members in room)
    pairs: Set[Tuple[str, str]] = set()
    while len(pairs) < min(links, most):
        first, second = sorted(chance.sample(chance.choice(room), 2))
        pairs.add((first, second))
    joined = [
        (first, second) for at, first in enumerate(leaves) for second in leaves[at + 1 :] if not {first, second} & down
    ]
    return Faults(
        broken, frozenset(pairs), uplinks=down, paths=frozenset(chance.sample(joined, min(paths, len(joined))))
    )  # fmt: skip


def play(
    nodes: Sequence[str], topology: Topology, faults: Faults, rules: Rules, seed: int, suspects: Sequence[str] = ()
) -> SimulatedSweep:
    """Run a sweep on the made-up cluster until the planner asks no more."""
    chance = random.Random(f"{seed}:noise")  # noqa: S311 (a simulation)
    results: List[GroupResult] = []
    rounds: List[int] = []
    while True:
        step = next_round(nodes, topology, results, rules, suspects)
        if step is None:
            break
        rounds.append(len(step.tests))
        results += [run(test, topology, faults, chance) for test in step.tests]
    return SimulatedSweep(
        judge_sweep(nodes, topology, results, rules), tuple(rounds), len(results),
        sum(len(result.test.nodes) for result in results), tuple(results),
    )  # fmt: skip


FLAKY = 0.5
"""How often a test with a flaky node is bad."""


def run(test: GroupTest, topology: Topology, faults: Faults, chance: random.Random) -> GroupResult:
    """What a test would show."""
    if chance.random() < faults.unclear:
        return GroupResult(test, GroupOutcome.UNKNOWN, why="preempted")
    inside = set(test.nodes)
    leaves = {topology.leaf(node) for node in test.nodes}
    broken = bool(inside & faults.nodes) or (len(leaves) > 1 and bool(leaves & faults.uplinks))
    broken = broken or any(set(path) <= leaves for path in faults.paths)
    broken = broken or any(set(link) <= inside for link in faults.links)
    broken = broken or any(node in inside and test.rail in ("", rail) for node, rail in faults.rails)
    broken = broken or any(chance.random() < FLAKY for _node in inside & faults.flaky)
    lie = chance.random() < (faults.false_good if broken else faults.false_bad)
    bad = broken != lie
    return GroupResult(
        test, GroupOutcome.BAD if bad else GroupOutcome.GOOD, 12.0 if bad else 360.0, (), "slow" if bad else ""
    )


class Cost(NamedTuple):
    """What one way of finding the culprits takes: rounds one after another, tests, and node-minutes."""

    way: str
    rounds: int
    tests: int
    node_minutes: float
    finds: str


def compare(count: int, played: SimulatedSweep, minutes: float) -> List[Cost]:
    """The sweep beside the ways of others, for tests of `minutes` each. Sources: their code, as of 2026.

    Every pair: gcm's `check_nccl --pairwise`. Two passes: cluster-health-scanner, of which the second gives each
    failing node one passer, and so convicts on one pair with a proven partner. Each node alone: Azure's
    distributed_nhc, which tests no link.
    """
    suspects = 2 * sum(result.seen is GroupOutcome.BAD for result in played.results[: count // 2])
    pairs = count // 2
    return [
        Cost("this sweep", len(played.rounds), played.tests, played.node_tests * minutes, "node, link, leaf, path"),
        Cost(
            "every pair", count - 1 + count % 2, count * (count - 1) // 2, count * (count - 1) * minutes, "node, link"
        ),
        Cost("two passes", 2, pairs + suspects, (2 * pairs + 2 * suspects) * minutes, "node, by one pair"),
        Cost("each node alone", 1, count, count * minutes, "what shows inside a node"),
    ]


def table(costs: Sequence[Cost]) -> List[str]:
    """The costs as lines of text."""
    rows: List[Dict[str, str]] = [
        {
            "way": cost.way, "rounds": f"{cost.rounds:,}", "tests": f"{cost.tests:,}",
            "node-minutes": f"{cost.node_minutes:,.0f}", "finds": cost.finds,
        }
        for cost in costs
    ]  # fmt: skip
    heads = list(rows[0])
    width = {head: max(len(head), *(len(row[head]) for row in rows)) for head in heads}
    right = {"rounds", "tests", "node-minutes"}
    lines = []
    for row in [dict(zip(heads, heads)), *rows]:
        cells = [f"{text:>{width[head]}}" if head in right else f"{text:<{width[head]}}" for head, text in row.items()]
        lines.append("  ".join(cells).rstrip())
    return lines
