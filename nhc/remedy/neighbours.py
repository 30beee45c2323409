"""The machines beside a silent node as witnesses: if none answers, a switch or a power feed died, not a node.

A scheduler misses nodes one by one and only after minutes (Slurm's SlurmdTimeout, 300 s; a cluster's grace period), so
the first node behind a dead switch looks like a node that died alone. Machines that the scheduler does not count as
silent are tried by a TCP connection. If they do not answer, that proves something only if machines elsewhere do.
"""

from __future__ import annotations

from typing import Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.marks.policy.bounds import Radius

KINDS = ("leaf", "block", "rack", "nvlink_domain")
"""Groups whose nodes lose the network or the power together; the first of these that a node has counts."""

ASKED = 4
"""How many machines are tried beside a silent node, and as many elsewhere."""

GROUPS = 32
"""Groups that are tried in one round; silent nodes of others wait for the next."""

Asks = Callable[[Sequence[str]], Mapping[str, bool]]
"""Which of these nodes answer on the network."""


class Witnesses(NamedTuple):
    """Silent nodes whose neighbours do not answer either, and why that is not their fault; and what
    cannot be observed.
    """

    shared: Mapping[str, str]
    problems: Tuple[str, ...] = ()


def witnesses(
    silent: Iterable[str], heard: Iterable[str], groups: Mapping[str, Sequence[Radius]], asks: Asks
) -> Witnesses:  # fmt: skip
    """Try the neighbours of these silent nodes. `heard` are the nodes that the scheduler hears from."""
    places = {node: place for node in silent for place in [_place(groups.get(node, ()))] if place is not None}
    if not places:
        return Witnesses({})
    others = sorted(heard)
    beside = {place: [node for node in others if place in groups.get(node, ())] for place in set(places.values())}
    todo = sorted(place for place, names in beside.items() if len(names) > 1)
    now = todo[:GROUPS]
    elsewhere = {place: [node for node in others if place not in groups.get(node, ())][:ASKED] for place in now}
    wanted: Set[str] = {node for place in now for node in (*beside[place][:ASKED], *elsewhere[place])}
    answered = asks(sorted(wanted)) if wanted else {}
    whys, problems = dict.fromkeys(todo[GROUPS:], "its neighbours are asked in the next round"), []
    for place in now:
        near = [node for node in beside[place][:ASKED] if answered.get(node)]
        far = [node for node in elsewhere[place] if answered.get(node)]
        if near:
            continue
        if not far:
            problems.append("silence.port: no node answers this host there, so that neighbours cannot be witnesses")
            continue
        whys[place] = (
            f"none of its neighbours in {place[0]} {place[1]} answers, and nodes elsewhere do: look for a common cause "
            "(a switch, power)"
        )
    shared = {node: whys[place] for node, place in places.items() if place in whys}
    return Witnesses(shared, tuple(dict.fromkeys(problems)))


def _place(radii: Sequence[Radius]) -> Optional[Radius]:
    return next((radius for kind in KINDS for radius in radii if radius[0] == kind), None)
