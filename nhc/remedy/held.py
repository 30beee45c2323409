"""Who holds a node: persons' holds on it, on a group of it or on the fleet, and the open breaker."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from sqlalchemy.engine import Connection

from nhc.policy.breaker import NAME
from nhc.remedy.counting import FleetGroups
from nhc.store import holds
from nhc.store.holds import Hold


class StandingHolds:
    """The holds in force, by what they hold: asking for a node costs its groups, however many holds there are."""

    def __init__(self, in_force: Sequence[Hold], fleet: FleetGroups) -> None:
        self._fleet = fleet
        self._by_name: Dict[Tuple[str, str], List[Hold]] = {}
        for hold in in_force:
            name = fleet.names.here(hold.name) if hold.scope == "node" else hold.name
            self._by_name.setdefault((hold.scope, name), []).append(hold)

    def why(self, node: str, own: int = 0) -> str:
        """Who holds a node and why, "" for nobody; of several the first that was set. A hold with the number `own` does
        not count.
        """
        keys = [("fleet", ""), ("node", node)]
        keys += [("group", f"{kind}={name}") for kind, name in self._fleet.groups.get(node, ())]
        others = (next((hold for hold in self._by_name.get(key, ()) if hold.id != own), None) for key in keys)
        hold = min((hold for hold in others if hold is not None), key=lambda hold: hold.id, default=None)
        if hold is None:
            return ""
        where = "" if hold.scope == "node" else f"{hold.name or 'the fleet'} "
        return f"{where}held by {hold.by}: {hold.why}"


def held_now(connection: Connection, node: str, own: int, now: float, fleet: FleetGroups) -> str:
    """Why nothing may be sent to a node at this very moment, "" where it may: a hold that is not `own`, the end of that
    one (0: we have none), or the open breaker. Only the holds that can be on this node are read.
    """
    breaker = holds.breakers(connection).get(NAME)
    if breaker is not None and breaker.state == "open":
        return f"the breaker is open: {breaker.why}"
    groups = sorted({f"{kind}={name}" for kind, name in fleet.groups.get(node, ())})
    standing_holds = holds.in_force_on(connection, node, groups, own, now)
    if own and all(hold.id != own for hold in standing_holds):
        return "a person ended the train's hold on it"
    return StandingHolds(standing_holds, fleet).why(node, own)
