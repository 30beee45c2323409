"""What a sweep says: whom it blames and for what, and the standing of each node."""

from __future__ import annotations

from enum import Enum
from typing import Dict, NamedTuple, Tuple


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
