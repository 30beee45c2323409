"""What a sweep was begun with, as the store keeps it: nodes, topology, rules, the tool and its limits."""

from __future__ import annotations

import hashlib
import json
from statistics import median
from typing import Collection, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.deep.group_output import AskedMeasurement
from nhc.deep.group_test import GroupOutcome, GroupResult, GroupTest, Layer, Rules, Topology
from nhc.store.deep import PLANNED, SweepTest


class BadPlan(ValueError):
    """A plan in the store that this nhc cannot read."""


class SweepPlan(NamedTuple):
    """`token` is its name at the launcher. `argv` is the tool.

    `floor` in GB/s, 0 for `share` (0 to 1) of the median of all figures of a layer. `seconds` limits one test,
    `patience` is how long a test waits for its nodes. `most` (0 to 1) is the largest share of the nodes under test at
    once. `rail_by` is a way of `nhc.deep.group_output`, `rail_floor` in GB/s for one rail, 0 for its part of what
    pairs have.
    `watts` are what nodes draw under test; with `power` above 0 no more than that is drawn at once.
    `continuous`: it is one pass of many. `suspects` are nodes in the order in which to test them. With a `suite` each
    node is tested alone: `argv` runs that on the node `{node}` and prints its report.
    """

    token: str
    nodes: Tuple[str, ...]
    topology: Topology
    rules: Rules
    argv: Tuple[str, ...]
    asked: AskedMeasurement
    floor: float = 0.0
    share: float = 0.8
    seconds: float = 600.0
    patience: float = 300.0
    most: float = 1.0
    settings: Tuple[Tuple[str, str], ...] = ()
    rail_by: str = "hca"
    rail_floor: float = 0.0
    watts: Tuple[Tuple[str, float], ...] = ()
    power: float = 0.0
    continuous: bool = False
    suspects: Tuple[str, ...] = ()
    suite: str = ""

    @property
    def at_once(self) -> int:
        """So many nodes at most are under test at once: as many as one test has at least."""
        return max(1 if self.suite else 2, int(self.most * len(self.nodes)))


def write(plan: SweepPlan) -> str:
    """The plan as JSON."""
    value: Dict[str, object] = {
        **plan._asdict(), "topology": {node: list(path) for node, path in plan.topology.path.items()},
        "rules": plan.rules._asdict(), "asked": plan.asked._asdict(), "settings": dict(plan.settings),
        "watts": dict(plan.watts),
    }  # fmt: skip
    return json.dumps(value)


def read(text: str) -> SweepPlan:
    """The plan again. Raises BadPlan."""
    try:
        value = json.loads(text)
        rules = value["rules"]
        rails = tuple(rules.get("rails") or ())  # sweeps of an older nhc have false there
        value.update(
            nodes=tuple(value["nodes"]), argv=tuple(value["argv"]), rules=Rules(**{**rules, "rails": rails}),
            topology=Topology({node: tuple(path) for node, path in value["topology"].items()}),
            asked=AskedMeasurement(**value["asked"]), settings=tuple(sorted(value["settings"].items())),
            suspects=tuple(value.get("suspects") or ()),
            watts=tuple(sorted((node, float(watts)) for node, watts in dict(value.get("watts") or {}).items())),
        )  # fmt: skip
        return SweepPlan(**value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadPlan(f"the sweep's plan cannot be read: {error}") from None


def limit_broken(plan: SweepPlan, busy: Collection[str], more: Sequence[str]) -> bool:
    """Whether a test of these nodes beside those would be more than may be under test, or draw more, at once.

    One test alone is always let in, whatever it draws: else a sweep would wait for ever.
    """
    if not busy:
        return False
    watts = dict(plan.watts)
    drawn = sum(watts.get(node, 0.0) for node in (*busy, *more))
    return len(busy) + len(more) > plan.at_once or (plan.power > 0 and drawn > plan.power)


def floor_of(plan: SweepPlan, layer: str, figures: Mapping[str, Sequence[float]]) -> float:
    """The least figure that is good in a layer, 0 where the median of the layer itself says it.

    A rail alone has its part of what a pair has with all rails: too few rails are tested for a median of their own.
    """
    if layer != Layer.RAILS.value:
        return plan.floor
    whole = plan.floor
    if not whole and figures.get(Layer.LEAF.value):
        whole = plan.share * median(figures[Layer.LEAF.value])
    return plan.rail_floor or whole / max(1, len(plan.rules.rails))


def key(test: GroupTest) -> str:
    """A short name for a test, however many nodes it has."""
    return hashlib.sha256(test.name.encode()).hexdigest()[:24]


def row_of(sweep: int, turn: int, test: GroupTest) -> SweepTest:
    """A test that is planned."""
    return SweepTest(sweep, test.name, turn, test.layer.value, " ".join(test.nodes), test.repeat, PLANNED,
                     rails=test.rail)  # fmt: skip


def planned_test(row: SweepTest) -> GroupTest:
    """The test of a row. Raises BadPlan."""
    try:
        return GroupTest(Layer(row.layer), tuple(row.nodes.split()), row.repeat, row.rails)
    except ValueError as error:
        raise BadPlan(f"sweep {row.sweep}: {row.name}: {error}") from None


def results(rows: List[SweepTest]) -> List[GroupResult]:
    """What was seen so far. Tests without a result are left out."""
    outcomes = {seen.value for seen in GroupOutcome}
    return [
        GroupResult(
            planned_test(row), GroupOutcome(row.state), row.value or 0.0, tuple(row.missing.split()), why=row.why
        )
        for row in rows
        if row.state in outcomes
    ]
