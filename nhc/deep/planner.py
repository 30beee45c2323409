"""Which tests a sweep runs next. Pure: nodes, topology and the results so far in, one round of disjoint tests out.

Rounds cost time, not tests: the tests of a round run side by side. So pairs find all that pairs can show: first one
round of disjoint pairs inside each leaf, then suspects with proven partners, then pairs across leaves. Halving is for
faults that show only at scale, while every pair is good. A killed sweep goes on from its results alone.
If suspects are named before the first test, the other nodes are tested first. Then each suspect has a proven partner.
"""

from __future__ import annotations

from collections import defaultdict
from typing import (
    Callable,
    DefaultDict,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from nhc.deep.evidence import (
    Pair,
    PairEvidence,
    Path,
    bad_leaves,
    bad_paths,
    convicted,
    gather,
    none_across,
    path_of,
    settled,
)
from nhc.deep.group_test import GroupOutcome, GroupResult, GroupTest, Layer, Rules, Topology

# The pairs of a round: disjoint ones inside leaves or across them, and proven partners for suspects. Pure.


Reaches = Callable[[str, str], bool]
"""Whether a test between two leaves can be good: False where the path between them is known to be bad."""


def inside(names: Iterable[str], topology: Topology) -> List[Pair]:
    """Disjoint pairs, inside one leaf if possible; nodes left over in their leaves are paired with each other."""
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

    If all nodes have met each other, pairs whose tests were all cut short meet again.
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


class Round(NamedTuple):
    """Tests that run side by side: no node stands in two of them. `why` is one line for the progress shown."""

    tests: Tuple[GroupTest, ...]
    why: str


def next_round(
    nodes: Sequence[str], topology: Topology, results: Sequence[GroupResult], rules: Rules,
    suspects: Sequence[str] = (),
) -> Optional[Round]:  # fmt: skip
    """The tests to run now, None where the sweep is done. The same input gives the same round.

    `suspects` are in the order in which to test them. They change who meets whom and when, never what convicts.
    """
    names = sorted(set(nodes))
    if len(names) < 2 or hopeless(names, results):
        return None
    leaf = gather(results, Layer.LEAF)
    plan = _pairs(names, topology, leaf, rules, Layer.LEAF, suspects)
    if plan:
        return plan
    guilty = in_leaf = convicted(leaf, rules)
    reaches: Reaches = _anywhere
    sound = [node for node in names if leaf.proven(node) and node not in in_leaf]
    if rules.across and len({topology.leaf(node) for node in sound}) > 1:
        across = gather(results, Layer.ACROSS)
        over = convicted(across, rules, topology)
        broken = none_across(across, in_leaf, topology)
        reaches = _nowhere if broken else _around(bad_paths(across, over, topology))
        plan = None if broken else _pairs(sound, topology, across, rules, Layer.ACROSS, reaches=reaches)
        if plan:
            return plan
        blamed = bad_leaves(sound, over, topology, rules)
        sound = [node for node in sound if node not in over and topology.leaf(node) not in blamed]
        guilty = in_leaf | over
    if rules.rails:
        plan = _rails(names, guilty, sound, topology, results, rules, reaches)
        if plan:
            return plan
    return _scale(sound, results, rules) if rules.scale and reaches is not _nowhere else None


def _anywhere(_first: str, _second: str) -> bool:
    return True


def _nowhere(_first: str, _second: str) -> bool:
    return False


def _around(bad: FrozenSet[Path]) -> Reaches:
    return lambda first, second: (min(first, second), max(first, second)) not in bad


def hopeless(nodes: Sequence[str], results: Sequence[GroupResult]) -> bool:
    """Whether the pairs of a whole round were bad and not one test was good: no node is to blame for that.

    A test that was cut short says nothing, and does not count. Of three pairs or fewer each can be bad by the fault of
    one node; then all pairs are tried before.
    """
    if any(result.seen is GroupOutcome.GOOD for result in results):
        return False
    pairs = {result.test.nodes for result in results if result.seen is GroupOutcome.BAD}
    enough = len(nodes) // 2 if len(nodes) // 2 >= FEW else len(nodes) * (len(nodes) - 1) // 2
    return len(nodes) > 2 and len(pairs) >= enough


FEW = 4
"""So many pairs at once that not each of them holds a bad node, save where most nodes are bad."""


# Pairs.


def _pairs(
    names: Sequence[str], topology: Topology, seen: PairEvidence, rules: Rules, layer: Layer,
    suspects: Sequence[str] = (), reaches: Reaches = _anywhere,
) -> Optional[Round]:  # fmt: skip
    """First everybody once; then suspects with proven partners; then pairs that were bad though both are good."""
    waiting = _waiting(names, suspects, seen, rules)
    fresh = [node for node in names if not seen.tried(node) and node not in waiting]
    pairs = (inside if layer is Layer.LEAF else outside)(fresh, topology)
    if pairs:
        return Round(_tests(pairs, layer, seen), f"{len(pairs)} pairs {_WHERE[layer]}")
    guilty = convicted(seen, rules, topology if layer is Layer.ACROSS else None)
    proven = [node for node in names if seen.proven(node) and settled(seen, node, guilty) and node not in guilty]
    open_ones = [node for node in names if not settled(seen, node, guilty) and seen.gave_up(node) <= rules.retries]
    if layer is Layer.ACROSS:
        open_ones = [node for node in open_ones if seen.tried(node)]  # a few nodes of a leaf stand for its uplinks
    if not proven:
        pairs = other_pairs([node for node in open_ones if node not in waiting], topology, layer, seen, rules)
        pairs = pairs or other_pairs(open_ones, topology, layer, seen, rules)
        return Round(_tests(pairs, layer, seen), f"{len(pairs)} other pairs {_WHERE[layer]}") if pairs else None
    place = {node: at for at, node in enumerate(suspects)}
    open_ones.sort(key=lambda node: place.get(node, len(place)))  # stable: where nobody is suspect, by name
    busy: Set[str] = set()
    pairs = []
    partners = Partners(proven, topology, reaches)
    for node in open_ones:
        other = partners.of(node, seen, layer)
        if other is not None:
            pairs.append((node, other))
            busy.update(pairs[-1])
    known = set(proven)
    for pair in sorted(seen.bad_pairs):
        reached = layer is Layer.LEAF or reaches(topology.leaf(pair[0]), topology.leaf(pair[1]))
        if reached and busy.isdisjoint(pair) and known.issuperset(pair) and _link_is_open(pair, seen, rules):
            pairs.append(pair)
            busy.update(pair)
    return (
        Round(_tests(pairs, layer, seen), f"{len(pairs)} pairs with proven partners {_WHERE[layer]}") if pairs else None
    )


def _waiting(
    names: Sequence[str], suspects: Sequence[str], seen: PairEvidence, rules: Rules
) -> FrozenSet[str]:  # fmt: skip
    """The suspects that wait for a proven partner: the first half of all nodes at most, so that there are partners.

    Nobody waits once every other node has been tested and none is proven: then no better partner will come.
    """
    known = set(names)
    first = frozenset([node for node in dict.fromkeys(suspects) if node in known][: len(names) // 2])
    others = [node for node in names if node not in first]
    if len(others) < 2:
        return frozenset()
    decided = all(node in seen.good or node in seen.bad or seen.gave_up(node) > rules.retries for node in others)
    return frozenset() if decided and not any(seen.proven(node) for node in names) else first


def _tests(pairs: Iterable[Tuple[str, str]], layer: Layer, seen: PairEvidence) -> Tuple[GroupTest, ...]:
    ordered = [(min(pair), max(pair)) for pair in pairs]
    return tuple(GroupTest(layer, pair, seen.tests_of(pair)) for pair in ordered)


def _link_is_open(pair: Tuple[str, str], seen: PairEvidence, rules: Rules) -> bool:
    """Whether a bad pair of two good nodes is to be tested again before its link is blamed."""
    if seen.good_pairs.get(pair) or seen.unknown.get(pair, 0) > rules.retries:
        return False
    return seen.bad_pairs[pair] <= rules.repeats


_WHERE = {Layer.LEAF: "inside leaves", Layer.ACROSS: "across leaves"}


# Rails, and the whole.


def _rails(
    names: Sequence[str], guilty: FrozenSet[str], sound: Sequence[str], topology: Topology,
    results: Sequence[GroupResult], rules: Rules, reaches: Reaches,
) -> Optional[Round]:  # fmt: skip
    """The next rail of each convicted node, with a sound partner each: it names the adapter, or the rail of a leaf.

    Of a leaf that is to blame as a whole a few nodes tell enough.
    """
    seen: DefaultDict[Tuple[str, str], List[GroupOutcome]] = defaultdict(list)
    for result in results:
        if result.test.layer is Layer.RAILS:
            for node in result.test.nodes:
                seen[node, result.test.rail].append(result.seen)
    blamed = bad_leaves(names, guilty, topology, rules)
    asked: DefaultDict[str, int] = defaultdict(int)
    free = FreePartners(sound, topology, reaches)
    tests: List[GroupTest] = []
    for node in sorted(guilty):
        leaf = topology.leaf(node)
        asked[leaf] += 1
        rail = next((name for name in rules.rails if _rail_is_open(seen[node, name], rules)), None)
        if rail is None or (leaf in blamed and asked[leaf] > FEW):
            continue
        other = free.of(leaf)
        if other is None:
            break
        pair = (min(node, other), max(node, other))
        tests.append(GroupTest(Layer.RAILS, pair, len(seen[node, rail]), rail))
    return Round(tuple(tests), f"{len(tests)} tests of single rails of convicted nodes") if tests else None


def _rail_is_open(seen: Sequence[GroupOutcome], rules: Rules) -> bool:
    return len(seen) <= rules.retries and all(outcome is GroupOutcome.UNKNOWN for outcome in seen)


def _scale(sound: Sequence[str], results: Sequence[GroupResult], rules: Rules) -> Optional[Round]:
    """All sound nodes at once; where that is bad, its halves side by side, down to the smallest group."""
    if len(sound) <= 2:
        return None
    done = {result.test.nodes: result.seen for result in results if result.test.layer is Layer.SCALE}
    whole = tuple(sound)
    if whole not in done:
        return Round((GroupTest(Layer.SCALE, whole),), f"all {len(whole)} sound nodes at once")
    tests = []
    groups = [whole]
    while groups:
        group = groups.pop()
        if done.get(group) is not GroupOutcome.BAD or len(group) <= rules.smallest_group:
            continue
        for half in (group[: len(group) // 2], group[len(group) // 2 :]):
            if half not in done:
                tests.append(GroupTest(Layer.SCALE, half))
            groups.append(half)
    return Round(tuple(tests), f"{len(tests)} groups, half the size") if tests else None
