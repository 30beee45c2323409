"""The evidence about each node, pair and leaf in a sweep's results so far. Pure. The planner and the judge read it.

A good test of a pair proves both nodes healthy. A bad test makes both suspects. A suspect is found faulty after
`failures` bad tests, each with a different partner that another test has proven healthy. One bad test is not enough.
"""

from __future__ import annotations

from collections import defaultdict
from typing import DefaultDict, Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Set, Tuple

from nhc.deep.group_test import GroupOutcome, GroupResult, Layer, Rules, Topology

Pair = Tuple[str, str]


class PairEvidence(NamedTuple):
    """The results of one layer's pairs.

    `good` and `bad` give the partners of each node by what came of the pair; `unknown` counts tests of a pair that
    could not be told, `unclear` the same of a node; `bad_pairs` counts bad tests of a pair, `good_pairs` good ones;
    `missing` gives, for a node that sent no result of its own, the partners that it left waiting.
    """

    good: Dict[str, FrozenSet[str]]
    bad: Dict[str, FrozenSet[str]]
    bad_pairs: Dict[Pair, int]
    good_pairs: Dict[Pair, int]
    unknown: Dict[Pair, int]
    unclear: Dict[str, int]
    missing: Dict[str, FrozenSet[str]]

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

    def accusers(self, node: str) -> FrozenSet[str]:
        """The proven partners with which the node was bad every time.

        A partner with which it was good another time accuses nobody: that was chance.
        """
        partners = self.bad.get(node, frozenset()) - self.good.get(node, frozenset())
        return frozenset(partner for partner in partners if self.good.get(partner, frozenset()) - {node})


def gather(results: Iterable[GroupResult], layer: Layer) -> PairEvidence:
    """The evidence of all pairs tested in a layer."""
    good: DefaultDict[str, Set[str]] = defaultdict(set)
    bad: DefaultDict[str, Set[str]] = defaultdict(set)
    missing: DefaultDict[str, Set[str]] = defaultdict(set)
    unclear: DefaultDict[str, int] = defaultdict(int)
    counts: Dict[GroupOutcome, DefaultDict[Pair, int]] = {seen: defaultdict(int) for seen in GroupOutcome}
    for result in results:
        if result.test.layer is not layer or len(result.test.nodes) != 2:
            continue
        one, two = result.test.nodes
        counts[result.seen][one, two] += 1
        if result.seen is GroupOutcome.UNKNOWN:
            unclear[one] += 1
            unclear[two] += 1
            for node in result.missing:
                missing[node].add(two if node == one else one)
            continue
        partners = good if result.seen is GroupOutcome.GOOD else bad
        partners[one].add(two)
        partners[two].add(one)
    return PairEvidence(
        _frozen(good),
        _frozen(bad),
        dict(counts[GroupOutcome.BAD]),
        dict(counts[GroupOutcome.GOOD]),
        dict(counts[GroupOutcome.UNKNOWN]),
        dict(unclear),
        _frozen(missing),
    )


def _frozen(sets: Dict[str, Set[str]]) -> Dict[str, FrozenSet[str]]:
    return {name: frozenset(members) for name, members in sets.items()}


def convicted(evidence: PairEvidence, rules: Rules) -> FrozenSet[str]:
    """The nodes that enough proven partners accuse, and that no later pair has shown to be good more often.

    A partner with as many bad tests is not proven any more, although one of its pairs was good: a bad node that
    sometimes passes must not make its partners look faulty.
    """
    accused = {node: evidence.accusers(node) for node in evidence.bad}
    doubted = frozenset(node for node, by in accused.items() if _enough(evidence, node, by, rules))
    return frozenset(node for node in doubted if _enough(evidence, node, accused[node] - doubted, rules))


def _enough(evidence: PairEvidence, node: str, accusers: FrozenSet[str], rules: Rules) -> bool:
    return len(accusers) >= rules.failures and len(accusers) > len(evidence.good.get(node, ()))


def settled(evidence: PairEvidence, node: str, guilty: FrozenSet[str]) -> bool:
    """Whether nothing more is to be asked of a node in this layer: it is convicted, or good outweighs bad."""
    if node in guilty:
        return True
    good = evidence.good.get(node, frozenset())
    return bool(good) and len(good) > len(evidence.accusers(node) - guilty)


def bad_leaves(nodes: Sequence[str], guilty: FrozenSet[str], topology: Topology, rules: Rules) -> FrozenSet[str]:
    """Leaves with so many bad nodes that the leaf is faulty, not its nodes."""
    members: DefaultDict[str, List[str]] = defaultdict(list)
    for node in nodes:
        members[topology.leaf(node)].append(node)
    if len(members) < 2:
        return frozenset()  # with one leaf, or no topology at all, nothing tells a leaf from the whole
    return frozenset(
        leaf
        for leaf, names in members.items()
        if leaf and sum(name in guilty for name in names) >= max(2, rules.leaf_share * len(names))
    )
