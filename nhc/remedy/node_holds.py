"""Who holds a node: persons' holds on it, on one of its groups or on the fleet, and the open breaker."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.marks.policy.breaker import NAME
from nhc.remedy.counting import FleetGroups
from nhc.store import holds
from nhc.store.holds import Hold


class StandingHolds:
    """The holds in force, by their target: a look-up for a node takes one step for each of its groups, for any number
    of holds.
    """

    def __init__(self, in_force: Sequence[Hold], fleet: FleetGroups) -> None:
        self._fleet = fleet
        self._by_name: Dict[Tuple[str, str], List[Hold]] = {}
        for hold in in_force:
            name = fleet.names.scheduler_name(hold.name) if hold.scope == "node" else hold.name
            self._by_name.setdefault((hold.scope, name), []).append(hold)

    def why(self, node: str, own: int = 0) -> str:
        """Who holds a node and why, "" if it is not held; of several holds the first that was set. A hold with the
        number `own` does not count.
        """
        keys = [("fleet", ""), ("node", node)]
        keys += [("group", f"{kind}={name}") for kind, name in self._fleet.groups.get(node, ())]
        others = (next((hold for hold in self._by_name.get(key, ()) if hold.id != own), None) for key in keys)
        hold = min((hold for hold in others if hold is not None), key=lambda hold: hold.id, default=None)
        if hold is None:
            return ""
        where = "" if hold.scope == "node" else f"{hold.name or 'the fleet'} "
        return f"{where}held by {hold.by}: {hold.why}"


FEW = 8
"""For at most this number of nodes, holds are read node by node; for more, all holds in force are read once."""


def held_now(connection: Connection, asked: Sequence[Tuple[str, int]], now: float, fleet: FleetGroups) -> List[str]:
    """For each node, why nothing may be sent to it now, "" if it may: a hold that is not our own, the end of our own
    hold, or the open breaker. `asked` are nodes, each with the number of our own hold on it (0: none).
    """
    breaker = holds.breaker_of(connection, NAME)
    if breaker.is_open:
        return [f"the breaker is open: {breaker.why}"] * len(asked)
    if len(asked) <= FEW:
        return [_held(_on(connection, node, own, now, fleet), fleet, node, own) for node, own in asked]
    every = holds.in_force(connection, now)
    standing_holds, numbers = StandingHolds(every, fleet), {hold.id for hold in every}
    return [ENDED if own and own not in numbers else standing_holds.why(node, own) for node, own in asked]


ENDED = "a person ended the train's hold on it"


def _on(connection: Connection, node: str, own: int, now: float, fleet: FleetGroups) -> List[Hold]:
    """Only the holds that can be on this node."""
    groups = sorted({f"{kind}={name}" for kind, name in fleet.groups.get(node, ())})
    return holds.in_force_on(connection, node, groups, own, now)


def _held(in_force: Sequence[Hold], fleet: FleetGroups, node: str, own: int) -> str:
    return ENDED if own and all(hold.id != own for hold in in_force) else StandingHolds(in_force, fleet).why(node, own)
