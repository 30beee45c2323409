"""Who pushes: the node that a token or a client's certificate identifies. A node reports only itself."""

from __future__ import annotations

import hashlib
import secrets
from typing import Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.store import audit
from nhc.store.database import Store
from nhc.store.schema import tokens

# The tokens that agents report with. The store has only their hashes: reading it does not allow reporting for a node.


PREFIX = "nhc_"
"""The prefix of every token, so that a person who finds one in a log or a repository recognises it."""


class NodeToken(NamedTuple):
    """A token's record, without the token."""

    id: int
    node: str
    by: str
    made: float
    ended: Optional[float]


def make_token(connection: Connection, node: str, *, by: str, now: float) -> str:
    """A new token for a node: it is shown only this once. Its older tokens stay valid until they are revoked."""
    token = PREFIX + secrets.token_urlsafe(32)
    connection.execute(sa.insert(tokens).values(node=node, hash=digest(token), by=by, made=now))
    audit.append(connection, now, by, "token.made", node=node)
    return token


def revoke(connection: Connection, node: str, *, by: str, now: float, keep: str = "") -> int:
    """Revoke all tokens of a node except `keep`; returns how many."""
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
    """The node of each hash that is valid now."""
    asked = sa.select(tokens.c.hash, tokens.c.node).where(tokens.c.ended.is_(None))
    return {str(row[0]): str(row[1]) for row in connection.execute(asked)}


def tokens_version(connection: Connection) -> Tuple[int, int]:
    """A value that changes with every token that is made or revoked."""
    row = connection.execute(sa.select(sa.func.max(tokens.c.id), sa.func.count(tokens.c.ended))).one()
    return int(row[0] or 0), int(row[1] or 0)


def digest(token: str) -> str:
    """A token has 256 random bits: it cannot be guessed from a plain hash."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class KnownTokens:
    """The valid tokens, read again from the store when one was made or revoked."""

    def __init__(self, store: Store, log: Callable[[str], None]) -> None:
        self._store, self._log = store, log
        self._nodes: Dict[str, str] = {}
        self._version: Optional[Tuple[int, int]] = None

    def refresh(self) -> None:
        """Read what has changed. Raises StoreError: then what was known stays valid."""
        with self._store.read() as connection:
            version = tokens_version(connection)
            if version != self._version:
                self._nodes = good(connection)
                self._version = version

    def node(self, token: str) -> str:
        """The node that a token is for, "" if the token is not valid."""
        return self._nodes.get(digest(token), "")


def bearer(header: str) -> str:
    """The token in an Authorization header, "" if there is none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def names(certificate: Optional[Mapping[str, object]]) -> FrozenSet[str]:
    """The names that a client's certificate (as `ssl` gives it) is for: its DNS names, else its common name (RFC 9525).

    A wildcard is no node's name.
    """
    if not certificate:
        return frozenset()
    listed = certificate.get("subjectAltName", ())
    names = {str(pair[1]) for pair in listed if pair[0] == "DNS"} if isinstance(listed, tuple) else set()
    subject = certificate.get("subject", ())
    if not names and isinstance(subject, tuple):
        names = {str(pair[1]) for part in subject for pair in part if pair[0] == "commonName"}
    return frozenset(name for name in names if "*" not in name)


def allowed(node: str, token_node: str, certificate_names: FrozenSet[str]) -> str:
    """Why a sender may not report for a node, "" if it may. If it shows a token and a certificate, both must be the
    node's.
    """
    if not token_node and not certificate_names:
        return "neither a good token nor a client certificate"
    if token_node and token_node != node:
        return f"the token is for {token_node}, not for {node}"
    if certificate_names and node not in certificate_names:
        return f"the certificate is for {', '.join(sorted(certificate_names)[:3])}, not for {node}"
    return ""
