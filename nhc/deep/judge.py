"""The findings of a sweep: what is faulty, and the verdict on each node. Pure.

It distinguishes a bad node, a bad link, a bad leaf or rail, a fault that shows only at scale, and a launcher that ran
nothing. Only a `NODE` finding takes a node out of service; findings about a link, a leaf or the test do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum
from typing import DefaultDict, Dict, List, NamedTuple, Sequence, Set, Tuple

from nhc.deep.evidence import PairEvidence, bad_leaves, convicted, gather, settled
from nhc.deep.group_test import GroupOutcome, GroupResult, Layer, Rules, Topology
from nhc.deep.planner import hopeless


class Culprit(str, Enum):
    """What is to blame."""

    NODE = "node"
    LINK = "link"
    LEAF = "leaf"
    RAIL = "rail"
    SCALE = "scale"
    TEST = "test"
    UNCLEAR = "unclear"


class NodeStanding(str, Enum):
    """What a sweep says of one node. NOT_TESTED says nothing about it: no result, or the sweep itself was bad."""

    PASSED = "passed"
    FAILED = "failed"
    SUSPECT = "suspect"
    NOT_TESTED = "not tested"


class Blame(NamedTuple):
    """One finding. `names` are the nodes, the leaf, or the pair it is about; `tests` are named that speak for it."""

    culprit: Culprit
    names: Tuple[str, ...]
    message: str
    tests: Tuple[str, ...] = ()


class SweepJudgement(NamedTuple):
    """The findings, worst first, and the standing of each node of the sweep."""

    blames: Tuple[Blame, ...]
    nodes: Dict[str, NodeStanding]


def judge(nodes: Sequence[str], topology: Topology, results: Sequence[GroupResult], rules: Rules) -> SweepJudgement:
    """What the results say. Asked in the middle of a sweep it says what is certain by then."""
    names = sorted(set(nodes))
    if hopeless(names, results):
        return _nobody(names, _nothing_ran(results))
    court = _Court(names, topology, results, rules)
    court.pairs(Layer.LEAF, names)
    court.pairs(Layer.ACROSS, [node for node in names if node not in court.guilty])
    court.rails()
    court.scale()
    convictions = sorted(court.guilty)
    if len(convictions) > max(rules.cap_nodes, rules.cap * len(names)):
        return _nobody(names, Blame(
            Culprit.TEST, tuple(convictions),
            f"{len(convictions)} of {len(names)} nodes would be convicted: the test itself is doubted, nobody is",
        ))  # fmt: skip
    standings = court.standings()
    return SweepJudgement(tuple(court.blames), standings)


def _nobody(names: Sequence[str], blame: Blame) -> SweepJudgement:
    return SweepJudgement((blame,), dict.fromkeys(names, NodeStanding.NOT_TESTED))


def _nothing_ran(results: Sequence[GroupResult]) -> Blame:
    """All tests of a first round were bad or UNKNOWN: image, library or launcher, never all of the nodes."""
    said = Counter(result.why for result in results if result.why).most_common(1)
    most = f"; most said: {said[0][0]}" if said else ""
    return Blame(
        Culprit.TEST, (), f"not one of {len(results)} tests was good: the launcher, the image or a library{most}",
        tuple(result.test.name for result in results[:5]),
    )  # fmt: skip


def _rails_said(tried: Dict[str, bool]) -> str:
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
        self.guilty: Set[str] = set()
        self.spared: Set[str] = set()
        """Nodes whose failures a leaf, a rail or a link explains."""

    def pairs(self, layer: Layer, names: Sequence[str]) -> None:
        """Nodes, leaves and links that the pairs of one layer accuse."""
        seen = self.evidence[layer]
        bad = convicted(seen, self.rules)
        accused = bad.intersection(names)
        leaves = bad_leaves(names, accused, self.topology, self.rules)
        by_leaf: DefaultDict[str, List[str]] = defaultdict(list)
        for node in sorted(accused):
            by_leaf[self.topology.leaf(node)].append(node)
        for leaf in sorted(leaves):
            self._leaf(layer, leaf, by_leaf.pop(leaf), names)
        for members in by_leaf.values():
            for node in members:
                self._node(layer, node, sorted(seen.accusers(node) - bad))
        for pair in sorted(seen.bad_pairs):
            self._link(layer, pair, seen)

    def _leaf(self, layer: Layer, leaf: str, members: Sequence[str], names: Sequence[str]) -> None:
        size = sum(self.topology.leaf(node) == leaf for node in names)
        where = "even inside it" if layer is Layer.LEAF else "to other leaves, while pairs inside it are good"
        self.spared.update(members)
        self.blames.append(Blame(
            Culprit.LEAF, (leaf,), f"leaf {leaf}: {len(members)} of its {size} nodes are bad {where}",
            self._behind(layer, members),
        ))  # fmt: skip

    def _node(self, layer: Layer, node: str, accusers: Sequence[str]) -> None:
        self.guilty.add(node)
        where = "" if layer is Layer.LEAF else " across leaves"
        shown = ", ".join(accusers[:4])
        self.blames.append(Blame(
            Culprit.NODE, (node,), f"{node}: bad{where} with {len(accusers)} proven partners ({shown})",
            self._behind(layer, [node]),
        ))  # fmt: skip

    def _link(self, layer: Layer, pair: Tuple[str, str], seen: PairEvidence) -> None:
        one, two = pair
        if {one, two} & (self.guilty | self.spared) or not (seen.good.get(one) and seen.good.get(two)):
            return
        times = seen.bad_pairs[pair]
        if times > self.rules.repeats and not seen.good_pairs.get(pair):
            self.blames.append(Blame(
                Culprit.LINK, pair, f"{one} and {two}: bad together {times} times, each good with others: the link",
                self._behind(layer, pair, both=True),
            ))  # fmt: skip

    def _behind(self, layer: Layer, nodes: Sequence[str], both: bool = False) -> Tuple[str, ...]:
        wanted = set(nodes)
        return tuple(
            result.test.name
            for result in self.results
            if result.test.layer is layer
            and result.seen is GroupOutcome.BAD
            and (wanted <= set(result.test.nodes) if both else wanted & set(result.test.nodes))
        )[:10]

    def rails(self) -> None:
        """Name the rails on which convicted nodes are bad; where a blamed leaf is bad on one rail alone, that rail."""
        tried: Dict[str, Dict[str, bool]] = {}
        for result in self.results:
            if result.test.layer is Layer.RAILS and result.seen is not GroupOutcome.UNKNOWN:
                for node in (self.guilty | self.spared).intersection(result.test.nodes):
                    tried.setdefault(node, {})[result.test.rail] = result.seen is GroupOutcome.BAD
        self.blames = [self._with_rails(blame, tried) for blame in self.blames]

    def _with_rails(self, blame: Blame, tried: Dict[str, Dict[str, bool]]) -> Blame:
        if blame.culprit is Culprit.NODE and tried.get(blame.names[0]):
            return blame._replace(message=f"{blame.message}; {_rails_said(tried[blame.names[0]])}")
        if blame.culprit is Culprit.LEAF:
            leaf = blame.names[0]
            bad = {node: [rail for rail, is_bad in rails.items() if is_bad]
                   for node, rails in tried.items() if self.topology.leaf(node) == leaf}  # fmt: skip
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
            self.blames.append(Blame(
                Culprit.SCALE, nodes,
                f"{len(nodes)} nodes together are bad while {what}: routing, congestion or software; no node is",
                (result.test.name,),
            ))  # fmt: skip

    def standings(self) -> Dict[str, NodeStanding]:
        """What is known of each node."""
        inside, across = self.evidence[Layer.LEAF], self.evidence[Layer.ACROSS]
        bad = convicted(inside, self.rules)
        found: Dict[str, NodeStanding] = {}
        for node in self.names:
            if node in self.guilty:
                found[node] = NodeStanding.FAILED
            elif (
                inside.proven(node)
                and settled(inside, node, bad)
                and not (across.bad.get(node) and not across.proven(node))
            ):
                found[node] = NodeStanding.PASSED
            elif node in inside.bad or node in across.bad:
                found[node] = NodeStanding.SUSPECT
                if node not in self.spared:
                    self._unclear(node)
            else:
                found[node] = NodeStanding.NOT_TESTED
                self._silent(node, inside)
        return found

    def _unclear(self, node: str) -> None:
        partners = sorted(self.evidence[Layer.LEAF].bad.get(node, frozenset()))
        with_whom = f" (with {', '.join(partners[:3])})" if partners else ""
        message = f"{node}: was bad{with_whom}, but too few proven partners were there to say who is to blame"
        self.blames.append(Blame(Culprit.UNCLEAR, (node,), message, self._behind(Layer.LEAF, [node])))

    def _silent(self, node: str, seen: PairEvidence) -> None:
        waiting = [other for other in seen.missing.get(node, frozenset()) if seen.proven(other)]
        if len(waiting) > 1:
            self.blames.append(Blame(
                Culprit.UNCLEAR, (node,), f"{node}: sent no result to {len(waiting)} proven partners: look at the node",
            ))  # fmt: skip
