"""The tokens that agents report with. The store has their hashes alone: who reads it can report for nobody."""

from __future__ import annotations

import hashlib
import secrets
from typing import Dict, List, NamedTuple, Optional, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store import audit
from nhc.store.schema import tokens

PREFIX = "nhc_"
"""What every token begins with, so that one who finds it in a log or a repository sees what it is."""


class NodeToken(NamedTuple):
    """One token, without itself."""

    id: int
    node: str
    by: str
    made: float
    ended: Optional[float]


def make(connection: Connection, node: str, *, by: str, now: float) -> str:
    """A new token for a node: shown this once. Those it has stay good until they are revoked."""
    token = PREFIX + secrets.token_urlsafe(32)
    connection.execute(sa.insert(tokens).values(node=node, hash=digest(token), by=by, made=now))
    audit.append(connection, now, by, "token.made", node=node)
    return token


def revoke(connection: Connection, node: str, *, by: str, now: float, keep: str = "") -> int:
    """End all tokens of a node, but for the one `keep`; how many."""
    mine = sa.and_(tokens.c.node == node, tokens.c.ended.is_(None), tokens.c.hash != (digest(keep) if keep else ""))
    count = int(connection.execute(sa.update(tokens).where(mine).values(ended=now)).rowcount)
    if count:
        audit.append(connection, now, by, "token.revoked", node=node, detail={"count": count})
    return count


def list_tokens(connection: Connection, node: str = "") -> List[NodeToken]:
    """The tokens, of one node or of all, by node and time."""
    asked = sa.select(*(tokens.c[name] for name in NodeToken._fields)).order_by(tokens.c.node, tokens.c.id)
    return [NodeToken._make(row) for row in connection.execute(asked.where(tokens.c.node == node) if node else asked)]


def good(connection: Connection) -> Dict[str, str]:
    """The node of each hash that is good now."""
    asked = sa.select(tokens.c.hash, tokens.c.node).where(tokens.c.ended.is_(None))
    return {str(row[0]): str(row[1]) for row in connection.execute(asked)}


def version(connection: Connection) -> Tuple[int, int]:
    """Changes with every token that is made or ended."""
    row = connection.execute(sa.select(sa.func.max(tokens.c.id), sa.func.count(tokens.c.ended))).one()
    return int(row[0] or 0), int(row[1] or 0)


def digest(token: str) -> str:
    """A token has 256 random bits: a plain hash of it cannot be guessed back."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
