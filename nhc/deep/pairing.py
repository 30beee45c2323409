"""The pairs of a round: disjoint ones inside leaves or across them, and proven partners for suspects. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Callable, DefaultDict, Dict, Iterable, Iterator, List, Optional, Sequence

from nhc.deep.evidence import Pair, PairEvidence, path_of
from nhc.deep.group_test import Layer, Rules, Topology

Reaches = Callable[[str, str], bool]
"""Whether a test between two leaves can be good: False where the path between them is known to be bad."""


def inside(names: Iterable[str], topology: Topology) -> List[Pair]:
    """Disjoint pairs, each inside one leaf as far as that goes; who is left over in its leaf meets another such."""
    pairs: List[Pair] = []
    left: List[str] = []
    for _leaf, members in sorted(_by_leaf(names, topology).items()):
        pairs += zip(members[::2], members[1::2])
        left += members[-1:] if len(members) % 2 else []
    return pairs + list(zip(left[::2], left[1::2]))


def outside(names: Iterable[str], topology: Topology) -> List[Pair]:
    """Disjoint pairs of nodes of different leaves: each leaf meets as many others as it can, few nodes stay alone."""
    leaves = {leaf: list(reversed(members)) for leaf, members in _by_leaf(names, topology).items()}
    pairs: List[Pair] = []
    for turn in _circle(sorted(leaves)):
        if sum(map(bool, leaves.values())) < 2:
            break
        for first, second in turn:
            share = max(1, min(len(leaves[first]), len(leaves[second])) // (len(leaves) - 1))
            at_once = min(share, len(leaves[first]), len(leaves[second]))
            pairs += [(leaves[first].pop(), leaves[second].pop()) for _ in range(at_once)]
    # Half the list on: in an order by leaf, the node half the list further stands in the same leaf only where that leaf
    # holds more than half of all nodes.
    order = [node for _leaf, left in sorted(leaves.items(), key=lambda item: (-len(item[1]), item[0])) for node in left]
    half = len(order) // 2
    return pairs + [(a, b) for a, b in zip(order[:half], order[half:]) if topology.leaf(a) != topology.leaf(b)]


def other_pairs(
    names: Sequence[str], topology: Topology, layer: Layer, seen: PairEvidence, rules: Rules
) -> List[Pair]:  # fmt: skip
    """Disjoint pairs of this layer for nodes of which none is proven yet: partners that they have not met.

    Where everybody has met everybody, pairs whose tests were all cut short meet again.
    """
    leaves = _by_leaf(names, topology)
    for again in (False, True):
        pairs = (_others_inside if layer is Layer.LEAF else _others_across)(leaves, topology, _Open(seen, rules, again))
        if pairs:
            return pairs
    return []


class _Open:
    """Which pairs may meet now: those that have not met, or (`again`) those of which no test came to a result."""

    def __init__(self, seen: PairEvidence, rules: Rules, again: bool) -> None:
        self.seen, self._rules, self._again = seen, rules, again

    def of(self, candidates: Iterable[Pair]) -> List[Pair]:
        """The candidates that may meet."""
        return [pair for pair in candidates if self._unmeasured((min(pair), max(pair)))]

    def _unmeasured(self, pair: Pair) -> bool:
        if not self._again:
            return not self.seen.tests_of(pair)
        came = self.seen.good_pairs.get(pair) or self.seen.bad_pairs.get(pair)
        return not came and self.seen.unknown.get(pair, 0) <= self._rules.retries


def _others_inside(leaves: Dict[str, List[str]], _topology: Topology, may: _Open) -> List[Pair]:
    """The next turn of the circle of each leaf; who finds nobody in its leaf meets others of whom that is true."""
    pairs: List[Pair] = []
    left: List[str] = []
    for _leaf, members in sorted(leaves.items()):
        turned = next(filter(None, (may.of(turn) for turn in _circle(members))), [])
        pairs += turned
        met = {node for pair in turned for node in pair}
        left += [node for node in members if node not in met]
    return pairs + next(filter(None, (may.of(turn) for turn in _circle(left))), [])


def _others_across(leaves: Dict[str, List[str]], topology: Topology, may: _Open) -> List[Pair]:
    """A turn of the circle of leaves: first one with leaves between which nothing has been tested yet."""
    seen = may.seen
    tested = {path_of(pair, topology) for pair in (*seen.good_pairs, *seen.bad_pairs, *seen.unknown)}
    best: List[Pair] = []
    for turn in _circle(sorted(leaves)):
        pairs = [pair for first, second in turn for pair in _between(leaves[first], leaves[second], may)]
        if pairs and any((min(path), max(path)) not in tested for path in turn):
            return pairs
        best = best or pairs
    return best


def _between(first: Sequence[str], second: Sequence[str], may: _Open) -> List[Pair]:
    """Disjoint pairs of the nodes of two leaves, turned on until some of them may meet."""
    few, many = sorted((first, second), key=len)
    turns = ([(node, many[(at + shift) % len(many)]) for at, node in enumerate(few)] for shift in range(len(many)))
    return next(filter(None, map(may.of, turns)), [])


def _circle(names: Sequence[str]) -> Iterator[List[Pair]]:
    """The turns of the circle method: disjoint pairs each, and after n - 1 turns everybody has met everybody.

    The circle keeps the first in its place and turns the rest.
    """
    ring: List[Optional[str]] = [*names] + ([None] if len(names) % 2 else [])
    for turn in range(len(ring) - 1):
        rest = ring[1:]
        turned = ring[:1] + rest[turn:] + rest[:turn]
        opposite = zip(turned, reversed(turned[len(turned) // 2 :]))
        yield [(first, second) for first, second in opposite if first is not None and second is not None]


class Partners:
    """Proven nodes by leaf, each handed out once: 100,000 nodes are not gone through for every suspect."""

    def __init__(self, proven: Sequence[str], topology: Topology, reaches: Reaches) -> None:
        self._topology, self._reaches = topology, reaches
        self._leaves: Dict[str, Dict[str, None]] = {}
        for node in proven:
            self._leaves.setdefault(topology.leaf(node), {})[node] = None

    def of(self, node: str, seen: PairEvidence, layer: Layer) -> Optional[str]:
        """One that this node has not met: of its leaf for tests inside leaves, of another for those across.

        A node that asks is not settled, and a proven one is: no node asks for itself or is handed out while it asks.
        """
        met = seen.bad.get(node, frozenset()) | seen.good.get(node, frozenset())
        own = self._topology.leaf(node)
        near = [own] if layer is Layer.LEAF and own in self._leaves else []
        far = [name for name in self._leaves if name != own and self._reaches(own, name)]
        if layer is Layer.ACROSS:  # a leaf that it has not met first: one leaf accuses the path to it as well
            known = {self._topology.leaf(other) for other in met}
            far.sort(key=known.__contains__)
        for leaf in (*near, *far):
            members = self._leaves[leaf]
            for other in members:
                if other not in met:
                    del members[other]
                    return other
        return None


class FreePartners:
    """Sound nodes, each handed out once a round: one of another leaf first, since a leaf may be bad to others only."""

    def __init__(self, sound: Sequence[str], topology: Topology, reaches: Reaches) -> None:
        self._reaches = reaches
        self._leaves: Dict[str, List[str]] = {}
        for node in reversed(sound):
            self._leaves.setdefault(topology.leaf(node), []).append(node)

    def of(self, leaf: str) -> Optional[str]:
        """A partner for a node of this leaf, None where none is free."""
        for name in (*(other for other in self._leaves if other != leaf and self._reaches(leaf, other)), leaf):
            if self._leaves.get(name):
                return self._leaves[name].pop()
        return None


def _by_leaf(names: Iterable[str], topology: Topology) -> Dict[str, List[str]]:
    leaves: DefaultDict[str, List[str]] = defaultdict(list)
    for name in names:
        leaves[topology.leaf(name)].append(name)
    return leaves
