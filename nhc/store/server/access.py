"""Who pushes: the node that a token or a client's certificate stands for. A node reports itself alone."""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, Mapping, Optional, Tuple

from nhc.store import tokens
from nhc.store.database import Store


class KnownTokens:
    """The good tokens, read again from the store when one was made or revoked."""

    def __init__(self, store: Store, log: Callable[[str], None]) -> None:
        self._store, self._log = store, log
        self._nodes: Dict[str, str] = {}
        self._version: Optional[Tuple[int, int]] = None

    def refresh(self) -> None:
        """Read what has changed. Raises StoreError: what was known stays good."""
        with self._store.read() as connection:
            version = tokens.version(connection)
            if version != self._version:
                self._nodes = tokens.good(connection)
                self._version = version

    def node(self, token: str) -> str:
        """The node that a token is for, "" where it is none."""
        return self._nodes.get(tokens.digest(token), "")


def bearer(header: str) -> str:
    """The token in an Authorization header, "" where there is none."""
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
    """Why a sender may not report for a node, "" where it may. One that shows a token and a certificate must be the
    node of each.
    """
    if not token_node and not certificate_names:
        return "neither a good token nor a client certificate"
    if token_node and token_node != node:
        return f"the token is for {token_node}, not for {node}"
    if certificate_names and node not in certificate_names:
        return f"the certificate is for {', '.join(sorted(certificate_names)[:3])}, not for {node}"
    return ""
