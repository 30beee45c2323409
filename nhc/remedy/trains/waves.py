"""Which nodes a train takes, and in which waves. Pure.

Nodes of one blast radius are spread over the waves as the plan says; the order is by name, so that the same plan over
the same fleet gives the same waves.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.matching.node_ranges import expand
from nhc.core.matching.nodeset import BadRange
from nhc.marks.policy.bounds import Bounds, Radius, protected
from nhc.remedy.trains.settings import TrainPlan, Waves


class BadTrain(ValueError):
    """The plan cannot be carried out on this fleet: one line for a person."""


class Taken(NamedTuple):
    """The nodes of a train in waves, and the nodes that it leaves out, with the reason."""

    waves: Tuple[Tuple[str, ...], ...]
    left_out: Mapping[str, str]


def take(plan: TrainPlan, groups: Mapping[str, Sequence[Radius]], bounds: Bounds) -> Taken:
    """The waves of a plan over a fleet: `groups` has each node with its radii. Raises BadTrain."""
    left_out: Dict[str, str] = {}
    chosen = _chosen(plan, groups, left_out)
    refused = {node: held.why for node in chosen if (held := protected(bounds, node)) is not None}
    chosen = [node for node in chosen if node not in refused]
    left_out.update(refused)
    if not chosen:
        why = f": {next(iter(left_out.values()))}" if left_out else ""
        raise BadTrain(f"{plan.path}: no node of the cluster is left for this train{why}")
    return Taken(spread(chosen, plan.waves, groups), left_out)


def _chosen(plan: TrainPlan, groups: Mapping[str, Sequence[Radius]], left_out: Dict[str, str]) -> List[str]:
    chosen: Dict[str, None] = {}
    for text in plan.nodes:
        for name in _names(plan, text, groups):
            if name in groups:
                chosen[name] = None
            else:
                left_out[name] = "the cluster does not know it"
    for group in plan.groups:
        kind, _, name = group.partition("=")
        members = [node for node, radii in groups.items() if (kind, name) in radii]
        if not members:
            raise BadTrain(f"{plan.path}: groups: no node is in {group}")
        chosen.update(dict.fromkeys(members))
    without = {name for text in plan.without for name in _names(plan, text, groups)}
    return sorted((name for name in chosen if name not in without), key=natural)


def _names(plan: TrainPlan, text: str, groups: Mapping[str, Sequence[Radius]]) -> List[str]:
    """Names of a nodeset (`gpu[001-128]`), or the cluster's nodes that match a pattern (`gpu*`)."""
    if "*" in text or "?" in text:
        matching = [name for name in groups if fnmatchcase(name, text)]
        if not matching:
            raise BadTrain(f"{plan.path}: nodes: no node of the cluster matches {text!r}")
        return matching
    try:
        return expand(text)
    except BadRange as error:
        raise BadTrain(f"{plan.path}: nodes: {text!r}: {error}") from None


def natural(name: str) -> Tuple[Tuple[int, int, str], ...]:
    """A key by which n2 comes before n10."""
    parts = enumerate(re.split("([0-9]+)", name))  # every second one is a number
    return tuple((0, int(part), part) if place % 2 else (1, 0, part) for place, part in parts)


def spread(nodes: Sequence[str], waves: Waves, groups: Mapping[str, Sequence[Radius]]) -> Tuple[Tuple[str, ...], ...]:
    """Put nodes in waves: the first small, no later one larger than its size, none with too many of one radius.

    Each wave takes the first nodes for which there is room. Nodes of the same radii are in one queue: if its first node
    has no room in a wave, the others have none either, so a wave goes over the queues, not over each node.
    """
    most = max(waves.size.of(len(nodes)), 1)
    kinds = dict(waves.per)
    sizes: Dict[Radius, int] = {}
    lines: Dict[Tuple[Radius, ...], List[int]] = {}
    for place, node in enumerate(nodes):
        for radius in groups.get(node, ()):
            sizes[radius] = sizes.get(radius, 0) + 1
        lines.setdefault(tuple(radius for radius in groups.get(node, ()) if radius[0] in kinds), []).append(place)
    limits = {radius: max(kinds[radius[0]].of(size), 1) for radius, size in sizes.items() if radius[0] in kinds}
    # Each queue with the place of its first node, and how many of its nodes are in waves already.
    heads = [(places[0], 0, radii) for radii, places in lines.items()]
    heapify(heads)
    filled: List[Tuple[str, ...]] = []
    while heads:
        room = min(waves.first, most) if not filled and waves.first else most
        wave: List[str] = []
        counts: Dict[Radius, int] = {}
        full: List[Tuple[int, int, Tuple[Radius, ...]]] = []
        while heads and len(wave) < room:
            head = heappop(heads)
            place, taken, radii = head
            if any(counts.get(radius, 0) >= limits[radius] for radius in radii):
                full.append(head)
                continue
            for radius in radii:
                counts[radius] = counts.get(radius, 0) + 1
            wave.append(nodes[place])
            if taken + 1 < len(lines[radii]):
                heappush(heads, (lines[radii][taken + 1], taken + 1, radii))
        for head in full:
            heappush(heads, head)
        filled.append(tuple(wave))
    return tuple(filled)
