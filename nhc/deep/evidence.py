"""The evidence about each node, pair and leaf in a sweep's results so far. Pure. The planner and the judge read it.

A good test of a pair proves both nodes healthy. A bad test makes both suspects. A suspect is found faulty after
`failures` bad tests, each with a different partner that another test has proven healthy. One bad test is not enough.
"""

from __future__ import annotations

from collections import defaultdict
from typing import AbstractSet, Callable, DefaultDict, Iterable, NamedTuple, Optional, Sequence, Tuple

from nhc.deep.group_test import GroupOutcome, GroupResult, Layer, Rules, Topology

Pair = Tuple[str, str]


class PairEvidence(NamedTuple):
    """The results of one layer's pairs.

    `good` and `bad` give the partners of each node by what came of the pair; `unknown` counts tests of a pair that
    could not be told, `unclear` the same of a node; `bad_pairs` counts bad tests of a pair, `good_pairs` good ones;
    `missing` gives, for a node that sent no result of its own, the partners that it left waiting.
    """

    good: dict[str, frozenset[str]]
    bad: dict[str, frozenset[str]]
    bad_pairs: dict[Pair, int]
    good_pairs: dict[Pair, int]
    unknown: dict[Pair, int]
    unclear: dict[str, int]
    missing: dict[str, frozenset[str]]

    def proven(self, node: str) -> bool:
        """Whether the node has been in a good pair."""
        return bool(self.good.get(node))

    def tried(self, node: str) -> bool:
        """Whether a test with this node has been run, whatever came of it."""
        return node in self.good or node in self.bad or self.gave_up(node) > 0

    def gave_up(self, node: str) -> int:
        """How many tests with this node could not be told."""
        return self.unclear.get(node, 0)

    def tests_of(self, pair: Pair) -> int:
        """How many tests of this pair have been run."""
        return self.bad_pairs.get(pair, 0) + self.good_pairs.get(pair, 0) + self.unknown.get(pair, 0)

    def accusers(self, node: str) -> frozenset[str]:
        """The proven partners with which the node was bad every time.

        A partner with which it was good another time accuses no node: that was chance.
        """
        partners = self.bad.get(node, frozenset()) - self.good.get(node, frozenset())
        return frozenset(partner for partner in partners if self.good.get(partner, frozenset()) - {node})


def gather(results: Iterable[GroupResult], layer: Layer) -> PairEvidence:
    """The evidence of all pairs tested in a layer."""
    good: DefaultDict[str, set[str]] = defaultdict(set)
    bad: DefaultDict[str, set[str]] = defaultdict(set)
    missing: DefaultDict[str, set[str]] = defaultdict(set)
    unclear: DefaultDict[str, int] = defaultdict(int)
    counts: dict[GroupOutcome, DefaultDict[Pair, int]] = {seen: defaultdict(int) for seen in GroupOutcome}
    for result in results:
        if result.test.layer is not layer or len(result.test.nodes) != 2:
            continue
        first, second = result.test.nodes
        counts[result.seen][first, second] += 1
        if result.seen is GroupOutcome.UNKNOWN:
            unclear[first] += 1
            unclear[second] += 1
            for node in result.missing:
                missing[node].add(second if node == first else first)
            continue
        partners = good if result.seen is GroupOutcome.GOOD else bad
        partners[first].add(second)
        partners[second].add(first)
    return PairEvidence(
        _frozen(good),
        _frozen(bad),
        dict(counts[GroupOutcome.BAD]),
        dict(counts[GroupOutcome.GOOD]),
        dict(counts[GroupOutcome.UNKNOWN]),
        dict(unclear),
        _frozen(missing),
    )


def _frozen(sets: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(members) for name, members in sets.items()}


def convicted(evidence: PairEvidence, rules: Rules, topology: Optional[Topology] = None) -> frozenset[str]:
    """The nodes that enough proven partners accuse, and that no later pair has shown to be good more often.

    A partner with as many bad tests is not proven any more, although one of its pairs was good: a bad node that
    sometimes passes must not make its partners look faulty. With a `topology`, for pairs across more than two leaves,
    the partners must be of as many leaves: partners of one leaf may accuse the path to it.
    """
    accused = {node: evidence.accusers(node) for node in evidence.bad}
    leaf = _leaf_of(evidence, topology)
    doubted = frozenset(node for node, by in accused.items() if _enough(evidence, node, by, rules, leaf))
    return frozenset(node for node in doubted if _enough(evidence, node, accused[node] - doubted, rules, leaf))


def _leaf_of(evidence: PairEvidence, topology: Optional[Topology]) -> Optional[Callable[[str], str]]:
    """What tells the leaf of a node, where its leaf counts."""
    if topology is None:
        return None
    leaves = {topology.leaf(node) for node in {**evidence.good, **evidence.bad}}
    return topology.leaf if len(leaves) > 2 else None


def _enough(
    evidence: PairEvidence, node: str, accusers: frozenset[str], rules: Rules, leaf: Optional[Callable[[str], str]]
) -> bool:  # fmt: skip
    independent = len(accusers if leaf is None else set(map(leaf, accusers)))
    return independent >= rules.failures and len(accusers) > len(evidence.good.get(node, ()))


def settled(evidence: PairEvidence, node: str, guilty: frozenset[str]) -> bool:
    """Whether nothing more is to be asked of a node in this layer: it is convicted, or good outweighs bad."""
    if node in guilty:
        return True
    good = evidence.good.get(node, frozenset())
    return bool(good) and len(good) > len(evidence.accusers(node) - guilty)


def bad_leaves(nodes: Sequence[str], guilty: frozenset[str], topology: Topology, rules: Rules) -> frozenset[str]:
    """Leaves with so many bad nodes that the leaf is faulty, not its nodes."""
    members: DefaultDict[str, list[str]] = defaultdict(list)
    for node in nodes:
        members[topology.leaf(node)].append(node)
    if len(members) < 2:
        return frozenset()  # with one leaf, or no topology at all, nothing tells a leaf from the whole
    return frozenset(
        leaf
        for leaf, names in members.items()
        if leaf and sum(name in guilty for name in names) >= max(2, rules.leaf_share * len(names))
    )


Path = Tuple[str, str]
"""The names of two leaves, sorted: what stands between them."""

PATH_TESTS = 3
"""Bad tests of a path at least before it is to blame, in two rounds at least."""
PATH_CHANCE = 0.1
"""A path that is bad for nine tests in ten is bad, though a test was good by chance."""


def path_of(pair: Pair, topology: Topology) -> Optional[Path]:
    """The path between the leaves of a pair, None where both nodes are in the same leaf."""
    first, second = sorted(topology.leaf(node) for node in pair)
    return (first, second) if first != second else None


class _PathEvidence:
    """The tests between leaves: how many were bad and good, and how many of the bad ones each node was in."""

    def __init__(self) -> None:
        self.bad, self.good = 0, 0
        self.of_node: DefaultDict[str, int] = defaultdict(int)

    def add(self, pair: Pair, bad: int, good: int) -> None:
        self.bad, self.good = self.bad + bad, self.good + good
        for node in pair:
            self.of_node[node] += bad

    def broken(self, rounds: int = 2) -> bool:
        """Whether so many rounds were bad. A node is in one test a round: its bad tests count the rounds."""
        again = max(self.of_node.values(), default=0) >= rounds
        return again and self.bad >= PATH_TESTS and self.good <= PATH_CHANCE * self.bad

    def fewest(self, topology: Topology) -> int:
        """How many nodes of the leaf with the fewest were in a bad test."""
        leaves: DefaultDict[str, int] = defaultdict(int)
        for node, times in self.of_node.items():
            leaves[topology.leaf(node)] += times > 0
        return min(leaves.values(), default=0)


def bad_paths(
    across: PairEvidence, guilty: AbstractSet[str], topology: Topology, rounds: int = 2
) -> frozenset[Path]:  # fmt: skip
    """Paths between two leaves over which hardly a test is good in so many rounds, tests of guilty nodes left out.

    Two nodes of each leaf at least are bad over it: else it may be the one node.
    """
    paths: DefaultDict[Path, _PathEvidence] = defaultdict(_PathEvidence)
    for pair, bad, good in _of_paths(across, guilty):
        path = path_of(pair, topology)
        if path is not None:
            paths[path].add(pair, bad, good)
    return frozenset(path for path, seen in paths.items() if seen.broken(rounds) and seen.fewest(topology) > 1)


def good_paths(across: PairEvidence, topology: Topology) -> frozenset[Path]:
    """Paths between two leaves of which more tests are good than bad."""
    paths: DefaultDict[Path, int] = defaultdict(int)
    for pair, bad, good in _of_paths(across, frozenset()):
        path = path_of(pair, topology)
        if path is not None:
            paths[path] += good - bad
    return frozenset(path for path, more in paths.items() if more > 0)


def none_across(across: PairEvidence, guilty: AbstractSet[str], topology: Topology) -> bool:
    """Whether hardly a test across leaves is good, whichever leaves: no working path is left between any of them.

    With more than two leaves a third round meets leaves that the first two did not.
    """
    whole = _PathEvidence()
    leaves: set[str] = set()
    for pair, bad, good in _of_paths(across, guilty):
        whole.add(pair, bad, good)
        leaves.update(map(topology.leaf, pair))
    return whole.broken(rounds=2 if len(leaves) == 2 else 3)


def _of_paths(across: PairEvidence, guilty: AbstractSet[str]) -> Iterable[Tuple[Pair, int, int]]:
    for pair in {**across.bad_pairs, **across.good_pairs}:
        if guilty.isdisjoint(pair):
            yield pair, across.bad_pairs.get(pair, 0), across.good_pairs.get(pair, 0)
