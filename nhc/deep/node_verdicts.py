"""The findings of a sweep: what is faulty, and the verdict on each node. Pure.

It distinguishes a bad node, a bad link, a bad leaf or rail, a bad path between leaves, a fault that shows only at
scale, and a launcher that ran nothing. Only a `NODE` finding takes a node out of service; findings about a link, a
leaf, a path or the test do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import DefaultDict, Dict, FrozenSet, Iterable, List, Sequence, Set, Tuple

from nhc.deep.evidence import (
    Pair,
    PairEvidence,
    Path,
    bad_leaves,
    bad_paths,
    convicted,
    gather,
    good_paths,
    none_across,
    path_of,
    settled,
)
from nhc.deep.group_test import (
    Blame,
    Culprit,
    GroupOutcome,
    GroupResult,
    Layer,
    NodeStanding,
    Rules,
    SweepJudgement,
    Topology,
)
from nhc.deep.planner import hopeless


def judge_sweep(
    nodes: Sequence[str], topology: Topology, results: Sequence[GroupResult], rules: Rules
) -> SweepJudgement:
    """What the results say. Asked in the middle of a sweep it says what is certain by then."""
    names = sorted(set(nodes))
    if hopeless(names, results) or (results and all(result.seen is GroupOutcome.UNKNOWN for result in results)):
        return SweepJudgement((_nothing_ran(results),), dict.fromkeys(names, NodeStanding.NOT_TESTED))
    court = _Court(names, topology, results, rules)
    court.pairs(Layer.LEAF, names)
    court.pairs(Layer.ACROSS, [node for node in names if node not in court.guilty])
    court.rails()
    court.scale()
    convictions = sorted(court.guilty)
    if len(convictions) > max(rules.cap_nodes, rules.cap * len(names)):
        court.doubt(convictions)
    standings = court.standings()  # it adds blames
    return SweepJudgement(tuple(court.blames), standings)


def _nothing_ran(results: Sequence[GroupResult]) -> Blame:
    """No test was good: image, library or launcher, never all of the nodes. Tests that were cut short blame nothing."""
    bad = any(result.seen is GroupOutcome.BAD for result in results)
    what = "was good: the launcher, the image or a library" if bad else "came to a result"
    return Blame(
        Culprit.TEST, (), f"not one of {len(results)} tests {what}{_most_frequent_reason(results)}",
        tuple(result.test.name for result in results[:5]),
    )  # fmt: skip


def _most_frequent_reason(results: Iterable[GroupResult]) -> str:
    """What the tests gave as their reason most often."""
    frequent = Counter(result.why for result in results if result.why).most_common(1)
    return f"; most said: {frequent[0][0]}" if frequent else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _rails_shown(tried: Dict[str, bool]) -> str:
    """What the tests of a node's single rails say."""
    bad = sorted(rail for rail, is_bad in tried.items() if is_bad)
    if not bad:
        return f"each of its {len(tried)} rails tested alone is good"
    if len(bad) == len(tried) and len(tried) > 1:
        return f"bad on each of its {len(tried)} rails: the host, not one adapter"
    return f"bad on rail {', '.join(bad)} alone"


class _Court:
    """The findings while they are collected."""

    def __init__(self, names: Sequence[str], topology: Topology, results: Sequence[GroupResult], rules: Rules) -> None:
        self.names, self.topology, self.results, self.rules = names, topology, results, rules
        self.evidence = {layer: gather(results, layer) for layer in (Layer.LEAF, Layer.ACROSS)}
        self.blames: List[Blame] = []
        self._bad: DefaultDict[Tuple[Layer, str], List[int]] = defaultdict(list)
        """The places among the results of the bad tests of each node in each layer."""
        for number, result in enumerate(results):
            if result.seen is GroupOutcome.BAD:
                for node in result.test.nodes:
                    self._bad[result.test.layer, node].append(number)
        self.guilty: Set[str] = set()
        self.spared: Set[str] = set()
        """Nodes whose failures a leaf, a rail or a path explains."""
        self.broken: FrozenSet[Path] = frozenset()
        self.links: Set[Pair] = set()
        self.doubted = False

    def pairs(self, layer: Layer, names: Sequence[str]) -> None:
        """Nodes, leaves and links that the pairs of one layer accuse."""
        seen = self.evidence[layer]
        across = layer is Layer.ACROSS
        if across and none_across(seen, self.guilty, self.topology):
            self._none_across(seen)
            return
        bad = convicted(seen, self.rules, self.topology if across else None)
        accused = bad.intersection(names)
        leaves = bad_leaves(names, accused, self.topology, self.rules)
        sizes = Counter(map(self.topology.leaf, names))
        by_leaf: DefaultDict[str, List[str]] = defaultdict(list)
        for node in sorted(accused):
            by_leaf[self.topology.leaf(node)].append(node)
        by_path: FrozenSet[str] = frozenset()
        if across:
            by_path, self.broken = self._broken_paths(seen, leaves)
        for leaf in sorted(leaves):
            if leaf in by_path:
                self.spared.update(by_leaf.pop(leaf))
            else:
                self._leaf(layer, leaf, by_leaf.pop(leaf), sizes[leaf])
        uplinks = {blame.names[0] for blame in self.blames if blame.culprit is Culprit.LEAF}
        for members in by_leaf.values():
            for node in members:
                accusers = {other for other in seen.accusers(node) - bad if not self._over_broken(node, other)}
                if len(accusers) >= self.rules.failures:
                    self._node(layer, node, sorted(accusers))
                else:
                    self.spared.add(node)
        if across:
            pairs = self._by_path(seen)
            for path in sorted(path for path in self.broken if uplinks.isdisjoint(path)):
                what = f"leaves {path[0]} and {path[1]}: the path between them, not the nodes"
                self._path(path, what, pairs[path], seen)
        for pair in sorted(seen.bad_pairs):
            self._link(layer, pair, seen)

    def _broken_paths(
        self, seen: PairEvidence, leaves: FrozenSet[str]
    ) -> Tuple[FrozenSet[str], FrozenSet[Path]]:  # fmt: skip
        """Of leaves with many bad nodes those that reach some leaf: not their uplinks are bad but paths; the paths."""
        again = bad_paths(seen, self.guilty, self.topology)
        once = bad_paths(seen, self.guilty, self.topology, rounds=1)
        reached = {leaf for path in good_paths(seen, self.topology) for leaf in path}
        by_path = leaves & reached & {leaf for path in once for leaf in path}
        return by_path, again | {path for path in once if by_path.intersection(path)}

    def _over_broken(self, node: str, other: str) -> bool:
        return path_of((node, other), self.topology) in self.broken

    def _none_across(self, seen: PairEvidence) -> None:
        """The path between two leaves, or the spine, where no leaf reaches another."""
        self.broken = frozenset(path for pair in seen.bad_pairs if (path := path_of(pair, self.topology)))
        leaves = tuple(sorted({leaf for path in self.broken for leaf in path}))
        if len(leaves) > 2:
            what = f"none of {len(leaves)} leaves reached another: what joins them (the spine), not the nodes"
        else:
            what = f"leaves {' and '.join(leaves)}: the path between them, not the nodes"
        by_path = self._by_path(seen)
        self._path(leaves, what, sorted(pair for path in self.broken for pair in by_path[path]), seen)

    def _by_path(self, seen: PairEvidence) -> DefaultDict[Path, List[Pair]]:
        """The bad pairs over each path, sorted."""
        pairs: DefaultDict[Path, List[Pair]] = defaultdict(list)
        for pair in sorted(seen.bad_pairs):
            path = path_of(pair, self.topology)
            if path is not None:
                pairs[path].append(pair)
        return pairs

    def _path(self, leaves: Tuple[str, ...], what: str, pairs: Sequence[Pair], seen: PairEvidence) -> None:
        self.spared.update(node for pair in pairs for node in pair if not seen.proven(node))
        tests = sum(seen.bad_pairs[pair] for pair in pairs)
        named = tuple(name for pair in pairs[:3] for name in self._behind(Layer.ACROSS, pair, both=True))
        self.blames.append(Blame(Culprit.PATH, leaves, f"{what}; {tests} tests of {len(pairs)} pairs are bad", named))

    def _leaf(self, layer: Layer, leaf: str, members: Sequence[str], size: int) -> None:
        where = "even inside it" if layer is Layer.LEAF else "to other leaves, while pairs inside it are good"
        self.spared.update(members)
        message = f"leaf {leaf}: {len(members)} of its {size} nodes are bad {where}"
        self.blames.append(Blame(Culprit.LEAF, (leaf,), message, self._behind(layer, members)))

    def _node(self, layer: Layer, node: str, accusers: Sequence[str]) -> None:
        self.guilty.add(node)
        where = "" if layer is Layer.LEAF else " across leaves"
        message = f"{node}: bad{where} with {len(accusers)} proven partners ({', '.join(accusers[:4])})"
        self.blames.append(Blame(Culprit.NODE, (node,), message, self._behind(layer, [node])))

    def _explained(self, pair: Pair) -> bool:
        return not (self.guilty.isdisjoint(pair) and self.spared.isdisjoint(pair))

    def _link(self, layer: Layer, pair: Tuple[str, str], seen: PairEvidence) -> None:
        first, second = pair
        if self._explained(pair) or not (seen.good.get(first) and seen.good.get(second)):
            return
        if layer is Layer.ACROSS and self._over_broken(first, second):
            return
        times = seen.bad_pairs[pair]
        if times > self.rules.repeats and not seen.good_pairs.get(pair):
            self.links.add(pair)
            message = f"{first} and {second}: bad together {times} times, each good with others: the link"
            self.blames.append(Blame(Culprit.LINK, pair, message, self._behind(layer, pair, both=True)))

    def _behind(self, layer: Layer, nodes: Sequence[str], both: bool = False) -> Tuple[str, ...]:
        of_each = [self._bad.get((layer, node), []) for node in sorted(set(nodes))]
        numbers = set.intersection(*map(set, of_each)) if both else set().union(*of_each)
        return tuple(self.results[number].test.name for number in sorted(numbers)[:10])

    def rails(self) -> None:
        """Name the rails on which convicted nodes are bad; where a blamed leaf is bad on one rail alone, that rail."""
        tried: Dict[str, Dict[str, bool]] = {}
        for result in self.results:
            if result.test.layer is Layer.RAILS and result.seen is not GroupOutcome.UNKNOWN:
                for node in result.test.nodes:
                    if node in self.guilty or node in self.spared:
                        tried.setdefault(node, {})[result.test.rail] = result.seen is GroupOutcome.BAD
        by_leaf: DefaultDict[str, Dict[str, Dict[str, bool]]] = defaultdict(dict)
        for node, rails in tried.items():
            by_leaf[self.topology.leaf(node)][node] = rails
        self.blames = [self._with_rails(blame, tried, by_leaf) for blame in self.blames]

    def _with_rails(
        self, blame: Blame, tried: Dict[str, Dict[str, bool]], by_leaf: Dict[str, Dict[str, Dict[str, bool]]]
    ) -> Blame:  # fmt: skip
        if blame.culprit is Culprit.NODE and tried.get(blame.names[0]):
            return blame._replace(message=f"{blame.message}; {_rails_shown(tried[blame.names[0]])}")
        if blame.culprit is Culprit.LEAF:
            leaf = blame.names[0]
            bad = {node: [rail for rail, is_bad in rails.items() if is_bad]
                   for node, rails in by_leaf.get(leaf, {}).items()}  # fmt: skip
            alone = {rails[0] for rails in bad.values() if len(rails) == 1}
            # With one rail tested alone nothing tells it from the whole leaf.
            same = len(bad) > 1 and len(alone) == 1 and all(len(rails) == 1 for rails in bad.values())
            if same and all(len(tried[node]) > 1 for node in bad):
                rail = min(alone)
                message = f"rail {rail} of leaf {leaf} is bad at {len(bad)} nodes: its switch, not the nodes"
                return Blame(Culprit.RAIL, (leaf, rail), message, self._behind(Layer.RAILS, list(bad)))
        return blame

    def scale(self) -> None:
        """The smallest groups that are bad as a whole while their pairs are good."""
        groups = {result.test.nodes: result for result in self.results if result.test.layer is Layer.SCALE}
        for nodes, result in groups.items():
            if result.seen is not GroupOutcome.BAD:
                continue
            half = len(nodes) // 2
            halves = [groups.get(nodes[:half]), groups.get(nodes[half:])]
            if any(part is not None and part.seen is GroupOutcome.BAD for part in halves):
                continue  # a smaller group says it more exactly
            all_good = all(part is not None and part.seen is GroupOutcome.GOOD for part in halves)
            what = "both halves are good" if all_good else "its pairs are good"
            message = f"{len(nodes)} nodes together are bad while {what}: routing, congestion or software; no node is"
            self.blames.append(Blame(Culprit.SCALE, nodes, message, (result.test.name,)))

    def doubt(self, convictions: Sequence[str]) -> None:
        """Convict nobody: so many bad nodes are less likely than a bad test. What other nodes have shown stands."""
        self.blames = [blame for blame in self.blames if blame.culprit is not Culprit.NODE]
        shares = f"{len(convictions)} of {len(self.names)} nodes"
        message = f"{shares} would be convicted: the test itself is doubted, nobody is"
        self.blames.insert(0, Blame(Culprit.TEST, tuple(convictions), message, self._behind(Layer.LEAF, convictions)))
        self.doubted = True

    def standings(self) -> Dict[str, NodeStanding]:
        """What is known of each node."""
        inside, across = self.evidence[Layer.LEAF], self.evidence[Layer.ACROSS]
        bad = convicted(inside, self.rules)
        cut_short: DefaultDict[str, List[GroupResult]] = defaultdict(list)
        for result in self.results:
            if result.seen is GroupOutcome.UNKNOWN:
                for node in result.test.nodes:
                    cut_short[node].append(result)
        standings: Dict[str, NodeStanding] = {}
        for node in self.names:
            if node in self.guilty:
                standings[node] = NodeStanding.SUSPECT if self.doubted else NodeStanding.FAILED
            elif (
                inside.proven(node)
                and settled(inside, node, bad)
                and not (across.bad.get(node) and not across.proven(node))
            ):
                standings[node] = NodeStanding.PASSED
            elif node in inside.bad or node in across.bad:
                standings[node] = NodeStanding.SUSPECT
                if node not in self.spared:
                    self._unclear(node)
            else:
                standings[node] = NodeStanding.NOT_TESTED
                self._silent(node, inside, cut_short[node])
        self._unsteady(standings)
        return standings

    def _unexplained(self) -> Dict[Pair, int]:
        """How often pairs were bad without a faulty node, a link, a leaf or a path that explains it."""
        times_of: DefaultDict[Pair, int] = defaultdict(int)
        for seen in self.evidence.values():
            for pair, times in sorted(seen.bad_pairs.items()):
                path = path_of(pair, self.topology) if seen is self.evidence[Layer.ACROSS] else None
                if not self._explained(pair) and pair not in self.links and path not in self.broken:
                    times_of[pair] += times
        return times_of

    def _unsteady(self, standings: Dict[str, NodeStanding]) -> None:
        """Nodes that passed in spite of bad tests: with as many partners as convict a node, one is suspect."""
        pairs = {pair: times for pair, times in self._unexplained().items()
                 if all(standings[node] is NodeStanding.PASSED for node in pair)}  # fmt: skip
        partners: DefaultDict[str, Set[str]] = defaultdict(set)
        for first, second in pairs:
            partners[first].add(second)
            partners[second].add(first)
        for node, met in sorted(partners.items()):
            if len(met) >= max(2, self.rules.failures):
                standings[node] = NodeStanding.SUSPECT
                good = sum(len(seen.good.get(node, ())) for seen in self.evidence.values())
                message = f"{node}: not steady: bad with {', '.join(sorted(met)[:4])}, good with {good} others"
                self.blames.append(Blame(Culprit.UNCLEAR, (node,), message, self._behind(Layer.LEAF, [node])))
        for (first, second), times in sorted(pairs.items()):
            if NodeStanding.SUSPECT not in (standings[first], standings[second]):
                message = f"{first} and {second}: bad together {_times(times)}, good else: chance, or one is not steady"
                tests = self._behind(Layer.LEAF, (first, second), both=True)
                self.blames.append(Blame(Culprit.UNCLEAR, (first, second), message, tests))

    def _unclear(self, node: str) -> None:
        partners = sorted(self.evidence[Layer.LEAF].bad.get(node, frozenset()))
        with_whom = f" (with {', '.join(partners[:3])})" if partners else ""
        message = f"{node}: was bad{with_whom}, but too few proven partners were there to say who is to blame"
        self.blames.append(Blame(Culprit.UNCLEAR, (node,), message, self._behind(Layer.LEAF, [node])))

    def _silent(self, node: str, seen: PairEvidence, cut_short: Sequence[GroupResult]) -> None:
        """Why a node has no result."""
        if not cut_short:
            return
        waiting = [other for other in seen.missing.get(node, frozenset()) if seen.proven(other)]
        if len(waiting) > 1:
            what = f"sent no result to {len(waiting)} proven partners: look at the node"
        else:
            what = f"{len(cut_short)} tests came to no result"
        message = f"{node}: {what}{_most_frequent_reason(cut_short)}"
        self.blames.append(Blame(Culprit.UNCLEAR, (node,), message, tuple(cut.test.name for cut in cut_short[:5])))
