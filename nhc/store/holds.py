"""What blocks the remedy loop: holds that operators set, and breakers; and the settings under which it ran."""

from __future__ import annotations

import hashlib
from typing import Dict, List, NamedTuple, Optional, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.model import printable
from nhc.core.timestamps import LATEST
from nhc.store import audit
from nhc.store.episodes import MESSAGE_LIMIT
from nhc.store.errors import RequestRefused
from nhc.store.schema import breaker, holds, settings_seen

SCOPES = ("node", "group", "fleet")


class Hold(NamedTuple):
    """Nothing is done to the nodes that it names, until its time or until it is ended. A group is `rack=r12`; a fleet
    has no name.
    """

    id: int
    scope: str
    name: str
    by: str
    why: str
    made: float
    until: Optional[float]
    ended: Optional[float]


class Breaker(NamedTuple):
    """A breaker: `closed` lets marks and repairs through, `open` blocks them; it never blocks clearing a mark."""

    name: str
    state: str
    since: float
    why: str
    by: str

    @property
    def is_open(self) -> bool:
        return self.state == "open"


def hold(
    connection: Connection, scope: str, name: str, *, by: str, why: str, now: float, until: Optional[float] = None
) -> Hold:
    """Set a hold. Raises ValueError for an unknown scope, RequestRefused for an end that is no valid date."""
    if until is not None and until > LATEST:
        raise RequestRefused("a hold ends by the year 9999: one without an end stands until it is released")
    if scope not in SCOPES or bool(name) == (scope == "fleet"):
        raise ValueError(f"{scope} {name!r}: a hold is for a node or a group by name, or for the fleet")
    values = {"scope": scope, "name": name, "by": by, "why": printable(why, MESSAGE_LIMIT), "made": now, "until": until}
    made = Hold._make(connection.execute(sa.insert(holds).values(values).returning(holds)).one())
    recorded = {"scope": scope, "name": name, "why": values["why"], "until": until}
    audit.append(connection, now, by, "hold.set", node=name if scope == "node" else "", detail=recorded)
    return made


def release(connection: Connection, scope: str, name: str, *, by: str, now: float, why: str = "") -> List[Hold]:
    """End the holds on a node, a group or the fleet; returns those that were ended now."""
    return _end(connection, sa.and_(holds.c.scope == scope, holds.c.name == name), by, now, why)


def end(connection: Connection, number: int, *, by: str, now: float, why: str = "") -> bool:
    """End one hold by its number; returns whether it was in force. Other holds on the same node stay."""
    return bool(_end(connection, holds.c.id == number, by, now, why))


def _end(connection: Connection, which: sa.ColumnElement[bool], by: str, now: float, why: str) -> List[Hold]:
    """End those holds of one scope and name that are not ended yet, with one row of the audit log."""
    mine = sa.and_(which, holds.c.ended.is_(None))
    standing = [Hold._make(row) for row in connection.execute(sa.select(holds).where(mine).order_by(holds.c.id))]
    if standing:
        connection.execute(sa.update(holds).where(mine).values(ended=now))
        scope, name = standing[0].scope, standing[0].name
        recorded = {"scope": scope, "name": name, "why": printable(why, MESSAGE_LIMIT), "ended": len(standing)}
        audit.append(connection, now, by, "hold.released", node=name if scope == "node" else "", detail=recorded)
    return [hold._replace(ended=now) for hold in standing]


def in_force(connection: Connection, now: float) -> List[Hold]:
    """The holds that are in force now."""
    return [Hold._make(row) for row in connection.execute(sa.select(holds).where(_standing(now)).order_by(holds.c.id))]


def in_force_on(connection: Connection, node: str, groups: Sequence[str], own: int, now: float) -> List[Hold]:
    """Those of them that can be on a node: on its name, with a domain too, on its groups, on the fleet; and `own`."""
    name = holds.c.name
    mine = sa.or_(
        holds.c.scope == "fleet", holds.c.id == own, sa.and_(holds.c.scope == "group", name.in_(groups)),
        sa.and_(holds.c.scope == "node", sa.or_(name == node, name.startswith(f"{node}.", autoescape=True))),
    )  # fmt: skip
    asked = sa.select(holds).where(_standing(now), mine).order_by(holds.c.id)
    return [Hold._make(row) for row in connection.execute(asked)]


def _standing(now: float) -> sa.ColumnElement[bool]:
    return sa.and_(holds.c.ended.is_(None), sa.or_(holds.c.until.is_(None), holds.c.until > now))


def breakers(connection: Connection) -> Dict[str, Breaker]:
    """Every breaker that was ever set, by name."""
    return {row.name: Breaker._make(row) for row in connection.execute(sa.select(breaker))}


def breaker_of(connection: Connection, name: str) -> Breaker:
    """A breaker by its name; one that was never set is closed."""
    row = connection.execute(sa.select(breaker).where(breaker.c.name == name)).first()
    return Breaker(name, "closed", 0.0, "", "") if row is None else Breaker._make(row)


def set_breaker(connection: Connection, name: str, state: str, *, by: str, why: str, now: float) -> Breaker:
    """Open or close a breaker; setting its present state changes nothing."""
    row = connection.execute(sa.select(breaker).where(breaker.c.name == name).with_for_update()).first()
    if row is not None and row.state == state:
        return Breaker._make(row)
    values = {"state": state, "since": now, "why": printable(why, MESSAGE_LIMIT), "by": by}
    if row is None:
        connection.execute(sa.insert(breaker).values(name=name, **values))
    else:
        connection.execute(sa.update(breaker).where(breaker.c.name == name).values(values))
    audit.append(connection, now, by, f"breaker.{state}", detail={"name": name, "why": values["why"]})
    return Breaker(name, state, now, str(values["why"]), by)


def saw_settings(connection: Connection, name: str, content: str, now: float, by: str) -> bool:
    """Store the settings that are in force (without secrets); returns whether they were never in force before."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    same = sa.and_(settings_seen.c.name == name, settings_seen.c.sha256 == digest)
    if connection.execute(sa.update(settings_seen).where(same).values(last=now)).rowcount:
        return False
    values = {"name": name, "sha256": digest, "first": now, "last": now, "content": content}
    connection.execute(sa.insert(settings_seen).values(values))
    audit.append(connection, now, by, "settings.changed", detail={"name": name, "sha256": digest})
    return True


def first_seen(connection: Connection, name: str) -> Optional[float]:
    """When settings of that name were first in force, None for never."""
    asked = sa.select(sa.func.min(settings_seen.c.first)).where(settings_seen.c.name == name)
    first: Optional[float] = connection.scalar(asked)
    return first
