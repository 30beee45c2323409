"""Who may do what in the console. Pure: identities in, a yes or a no out. Anything that is not granted here is
denied.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum
from fnmatch import fnmatchcase
from typing import Dict, FrozenSet, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple


class Grant(str, Enum):
    """What a route needs. OPEN is for the page's own files and the login alone."""

    OPEN = "open"
    METRICS = "metrics"
    STATE = "state"
    EVIDENCE = "evidence"
    ACT = "act"
    APPROVE = "approve"
    AUDIT = "audit"
    ADMIN = "admin"


class Role(str, Enum):
    """What a person is here. No role includes another one's rights without saying so."""

    METRICS = "metrics"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AUDITOR = "auditor"


GRANTS: Dict[Role, FrozenSet[Grant]] = {
    Role.METRICS: frozenset({Grant.METRICS}),
    Role.VIEWER: frozenset({Grant.METRICS, Grant.STATE}),
    Role.OPERATOR: frozenset({Grant.METRICS, Grant.STATE, Grant.EVIDENCE, Grant.ACT, Grant.APPROVE}),
    Role.ADMIN: frozenset(
        {Grant.METRICS, Grant.STATE, Grant.EVIDENCE, Grant.ACT, Grant.APPROVE, Grant.AUDIT, Grant.ADMIN}
    ),
    Role.AUDITOR: frozenset({Grant.METRICS, Grant.STATE, Grant.AUDIT}),
}


class Person(NamedTuple):
    """A person who was recognised. `name` is the same for every way of logging in; `door` is the way used.

    `nodes` are patterns of the nodes on which they may act.
    """

    name: str
    roles: FrozenSet[Role]
    door: str
    nodes: Tuple[str, ...] = ("*",)

    def may(self, scope: Grant) -> bool:
        """Whether one of the roles grants it."""
        return scope is Grant.OPEN or any(scope in GRANTS[role] for role in self.roles)

    def may_touch(self, node: str) -> bool:
        """Whether they may act on this node."""
        return any(fnmatchcase(node, pattern) for pattern in self.nodes)


NOBODY = Person("", frozenset(), "none", ())


class PersonToken(NamedTuple):
    """A bearer token of a person: only its SHA-256 is kept. `ends` is Unix time."""

    person: str
    sha256: str
    ends: Optional[float] = None


class Register(NamedTuple):
    """The persons of the settings, and how each is recognised.

    `people` have an empty `door`. `users` and `groups` are names of this machine (for a Unix socket), `certificates`
    common names of client certificates, `anyone` the roles of a person at this machine who gives no name.
    """

    people: Mapping[str, Person] = {}
    users: Mapping[str, str] = {}
    groups: Mapping[str, FrozenSet[Role]] = {}
    certificates: Mapping[str, str] = {}
    tokens: Tuple[PersonToken, ...] = ()
    anyone: FrozenSet[Role] = frozenset({Role.VIEWER})

    def by_socket(self, user: str, groups: Iterable[str]) -> Person:
        """Who is at the other end of a Unix socket. root is an administrator of the machine, and of this page."""
        person = self._known(self.users.get(user, user), f"socket, user {user}")
        roles = self._roles(person, groups) | ({Role.ADMIN} if user == "root" else frozenset())
        return person._replace(name=person.name or user, roles=roles, nodes=person.nodes or ("*",))

    def by_token(self, token: str, now: float) -> Optional[Person]:
        """The owner of a token, None if there is none. Every stored token is compared, each in the same time."""
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
        mine = [candidate for candidate in self.tokens if hmac.compare_digest(candidate.sha256.lower(), digest)]
        if not mine or (mine[0].ends is not None and mine[0].ends <= now):
            return None
        return self._known(mine[0].person, "token")

    def by_certificate(self, common_name: str) -> Optional[Person]:
        """Who a client certificate, which the listener has verified, belongs to."""
        person = self.certificates.get(common_name)
        return self._known(person, "certificate") if person else None

    def by_proxy(self, name: str, groups: Sequence[str]) -> Person:
        """Who a trusted proxy says it is."""
        person = self._known(name, "proxy")
        return person._replace(name=name, roles=self._roles(person, groups), nodes=person.nodes or ("*",))

    def by_loopback(self, *, person: bool) -> Person:
        """A visitor from this machine who gives no name: a person, or a service, which may only read the metrics.

        Prometheus scrapes as a service account. A reverse proxy runs as one too, and forwards requests from the whole
        network.
        """
        roles = self.anyone if person else frozenset({Role.METRICS} if self.anyone else ())
        return Person("", roles, "loopback" if person else "loopback, a service or a proxy", ())

    def _roles(self, person: Person, groups: Iterable[str]) -> FrozenSet[Role]:
        """A person's own roles, and those of their groups."""
        return person.roles.union(*(self.groups.get(group, frozenset()) for group in groups))

    def _known(self, name: str, door: str) -> Person:
        return self.people.get(name, NOBODY._replace(name=name))._replace(door=door)
