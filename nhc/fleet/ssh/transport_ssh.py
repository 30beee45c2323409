"""SSH in this process: libssh for the plain case, which is nearly every node of a cluster, paramiko for the rest."""

from __future__ import annotations

import os
from typing import Any, Dict, Tuple

from nhc.fleet.ssh import libssh
from nhc.fleet.ssh.config import Route
from nhc.fleet.ssh.transport_paramiko import Paramiko
from nhc.fleet.transport import Node, Session


class Ssh:
    """A transport of both. What ssh_config, keys and known_hosts mean is paramiko's side's business, for both alike."""

    def __init__(self, paramiko: Paramiko) -> None:
        self.paramiko = paramiko
        self._keys: Dict[str, Any] = {}
        """Private keys by their files, as libssh has them; None where it cannot use one."""
        self._plain: Dict[Tuple[Route, Any], Any] = {}
        """What `_key` found, by all that it depends on: nearly every node of a cluster has the same."""

    def connect(self, node: Node, deadline: float) -> Session:
        route = self.paramiko.config.lookup(node)
        alike = route._replace(host="", port=0, known_as=""), self.paramiko.keys.worked.get(route.user)
        if alike not in self._plain:
            self._plain[alike] = self._key(route)
        key = self._plain[alike]
        if key is not None:
            try:
                return libssh.connect(route, key, self.paramiko.host_keys, deadline)
            except libssh.NotPlain:
                pass  # paramiko gets through, or says why not
        return self.paramiko.open(route, deadline, node.password)

    def close(self) -> None:
        self.paramiko.close()

    def _key(self, route: Route) -> Any:
        """The key with which libssh can log in there; None where the route asks for what only paramiko does."""
        if route.jumps or route.proxy_command or _has_patterns(route.kex) or _has_patterns(route.ciphers):
            return None
        path = self.paramiko.keys.first_file(route)
        if not path:
            return None
        if path not in self._keys:
            certified = os.path.exists(f"{path}-cert.pub")  # paramiko logs in with the certificate then
            self._keys[path] = None if certified else libssh.load(path)
        return self._keys[path]


def _has_patterns(algorithms: str) -> bool:
    """Whether a list of ssh_config changes the library's own: `+a`, `-a`, `^a`, or has wildcards."""
    return algorithms[:1] in ("+", "-", "^") or "*" in algorithms or "?" in algorithms
