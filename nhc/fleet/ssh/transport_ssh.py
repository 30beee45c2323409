"""SSH in this process: libssh for the plain case, which is nearly every node of a cluster, paramiko for the rest."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

from nhc.fleet.ssh import libssh
from nhc.fleet.ssh.config import Route, SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.transport import Node, Session

if TYPE_CHECKING:
    from nhc.fleet.ssh.transport_paramiko import Paramiko


class Ssh:
    """A transport of both. paramiko is imported for the first connection, or key, that libssh does not have."""

    def __init__(self, config: SshConfig, host_keys: HostKeys) -> None:
        self.config, self.host_keys = config, host_keys
        self._other: Optional[Paramiko] = None
        self._lock = threading.Lock()
        self._keys: Dict[str, Any] = {}
        """Private keys by their files, as libssh has them; None where it cannot use one."""
        self._plain: Dict[Tuple[Route, Any], Any] = {}
        """What `_key` found, by all that it depends on: nearly every node of a cluster has the same."""

    def paramiko(self) -> Paramiko:
        """The transport for the rest. What it takes over, it has the keys of an agent for, and the right message."""
        with self._lock:
            if self._other is None:
                from nhc.fleet.ssh.paramiko_import import import_paramiko

                import_paramiko()
                from nhc.fleet.ssh.transport_paramiko import Paramiko

                self._other = Paramiko(self.config, self.host_keys)
            return self._other

    def warm(self, routes: Sequence[Route]) -> None:
        """Before the shards are forked: read the keys that these routes need, import paramiko where one needs it."""
        if any(self._own_key(route) is None for route in routes):  # no agent is asked: shards share no connection
            self.paramiko().warm(routes)

    def connect(self, node: Node, deadline: float) -> Session:
        route = self.config.lookup(node)
        key = self._key_of(route)
        if key is not None:
            try:
                return libssh.connect(route, key, self.host_keys, deadline)
            except libssh.NotPlain:
                pass  # paramiko gets through, or says why not
        return self.paramiko().open(route, deadline, node.password)

    def close(self) -> None:
        if self._other is not None:
            self._other.close()

    def _key_of(self, route: Route) -> Any:
        worked = self._other.keys.worked.get(route.user) if self._other is not None else None
        alike = route._replace(host="", port=0, known_as=""), worked
        if alike not in self._plain:
            self._plain[alike] = self._key(route)
        return self._plain[alike]

    def _key(self, route: Route) -> Any:
        """The key with which libssh can log in there; None where the route asks for what only paramiko does."""
        if _is_special(route):
            return None
        own = self._own_key(route) if self._other is None else None
        if own is not None:
            return own
        path = self.paramiko().keys.first_file(route)
        return self._load(path) if path else None

    def _own_key(self, route: Route) -> Any:
        """The key that goes first there as far as libssh can tell; None where paramiko is to say which one that is.

        Without an agent it is the first file that is there, unless it is of another kind, has a passphrase or a
        certificate, or is no key at all.
        """
        if _is_special(route) or (route.agent != "none" and (route.agent or os.environ.get("SSH_AUTH_SOCK"))):
            return None
        first = next((path for path in route.identities if os.path.exists(path)), "")
        return self._load(first) if first else None

    def _load(self, path: str) -> Any:
        if path not in self._keys:
            certified = os.path.exists(f"{path}-cert.pub")  # paramiko logs in with the certificate then
            self._keys[path] = None if certified else libssh.load(path)
        return self._keys[path]


def _is_special(route: Route) -> bool:
    """Whether a route needs what only paramiko does."""
    return bool(route.jumps or route.proxy_command or _has_patterns(route.kex) or _has_patterns(route.ciphers))


def _has_patterns(algorithms: str) -> bool:
    """Whether a list of ssh_config changes the library's own: `+a`, `-a`, `^a`, or has wildcards."""
    return algorithms[:1] in ("+", "-", "^") or "*" in algorithms or "?" in algorithms
