"""The values of a sweep: a test of a group of nodes, its result, and what is asked of a sweep.

A test here is one run of a collective or a bandwidth test over two nodes or more. It has one of three
results: good, bad, or unknown (it did not start, was preempted, or was cut short).
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, Mapping, NamedTuple, Tuple


class Layer(str, Enum):
    """What stands between the nodes of a test, the nearest first."""

    LEAF = "leaf"
    ACROSS = "across"
    RAILS = "rails"
    SCALE = "scale"
    NODE = "node"
    """No other node: a suite of the node's own."""


class GroupOutcome(str, Enum):
    """What came of a test."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class GroupTest(NamedTuple):
    """One test to be run. `nodes` are sorted; `repeat` counts earlier tests of the very same in this layer.

    `rail` is the only one that it may use, "" for all of them.
    """

    layer: Layer
    nodes: Tuple[str, ...]
    repeat: int = 0
    rail: str = ""

    @property
    def name(self) -> str:
        """A key that no other test of the sweep has: what a killed sweep finds its results by."""
        rail = f":{self.rail}" if self.rail else ""
        return f"{self.layer.value}:{'+'.join(self.nodes)}:{self.repeat}{rail}"


class GroupResult(NamedTuple):
    """What came of a test. `value` is the measured figure (GB/s), 0 where there is none.

    `missing` are nodes that gave no result of their own. `why` is one line: how it was bad, or why it could not be
    told.
    """

    test: GroupTest
    seen: GroupOutcome
    value: float = 0.0
    missing: Tuple[str, ...] = ()
    why: str = ""


class Rules(NamedTuple):
    """How much proof a sweep asks for.

    `failures`: a node is faulty after so many bad tests, each with another proven partner. Each further one multiplies
    the rate of false findings by the rate of chance failures. `repeats`: how often a failed pair is tested again before
    its link is blamed. `retries`: how often a test that ended UNKNOWN is run again. `leaf_share` (0 to 1): if so large
    a share of a leaf's nodes fails, and two at least, the leaf is blamed and no node. `cap` (0 to 1) and `cap_nodes`:
    with more convictions than the larger of the two the test is doubted. `smallest_group`: a group of so few nodes is
    not halved any more. `across`, `scale`: whether pairs across leaves and the whole are tested too. `rails` are the
    names of the rails that are tested one by one.
    """

    failures: int = 2
    repeats: int = 2
    retries: int = 3
    leaf_share: float = 0.5
    cap: float = 0.2
    cap_nodes: int = 3
    across: bool = True
    rails: Tuple[str, ...] = ()
    scale: bool = False
    smallest_group: int = 4


class Topology(NamedTuple):
    """Where nodes are: `path` gives a node's switches or domains from the top down, its leaf last.

    A node that is not in it stands in a leaf of its own name "", together with all others that are not.
    """

    path: Mapping[str, Tuple[str, ...]] = {}

    def leaf(self, node: str) -> str:
        """The nearest switch or domain, "" where it is not known."""
        path = self.path.get(node, ())
        return path[-1] if path else ""


# What a sweep says: whom it blames and for what, and the standing of each node.


class Culprit(str, Enum):
    """What is to blame."""

    NODE = "node"
    LINK = "link"
    LEAF = "leaf"
    RAIL = "rail"
    PATH = "path"
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
