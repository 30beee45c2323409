"""The keys to offer a host: files, agents, and which goes first."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Iterator, List, Set

import paramiko  # type: ignore[import-not-found,import-untyped,unused-ignore]
from paramiko.ssh_exception import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    PasswordRequiredException,
    SSHException,
)

from nhc.core.system.bounded_read import read_text
from nhc.fleet.ssh.config import Route
from nhc.fleet.transport import OutOfResources, is_scarce

TRIES = 6
"""Keys offered at most: sshd's MaxAuthTries."""


class _Agent(paramiko.Agent):  # type: ignore[misc,unused-ignore]
    """One agent for all threads: a question and its answer are not torn apart."""

    def __init__(self) -> None:
        self.asking = threading.Lock()
        super().__init__()

    def _send_message(self, msg: Any) -> Any:
        with self.asking:
            return super()._send_message(msg)


class Keys:
    """Every key read once, whatever the number of hosts."""

    def __init__(self) -> None:
        self.worked: Dict[str, Any] = {}
        """The key that let each user in last."""
        self._keys: Dict[str, Any] = {}
        self._agents: Dict[str, List[Any]] = {}
        self._lock = threading.Lock()

    def locked(self, route: Route) -> List[str]:
        """Identities that cannot be used as they are: they have a passphrase, or are no keys."""
        return [path for path in route.identities if isinstance(self._keys.get(path), Exception)]

    def candidates(self, route: Route) -> Iterator[Any]:
        """Keys in OpenSSH's order: those on file that the agent holds too, the agent's others, those on file.

        The key that worked last for this user goes first, where it is among them.
        """
        own = [key for key in map(self.load, route.identities) if isinstance(key, paramiko.PKey)]
        agent = [] if route.agent == "none" else self._agent_keys(route.agent)
        blobs = {key.asbytes() for key in own}
        listed = [key for key in agent if key.asbytes() in blobs or _public(key, route)]
        others = [] if route.identities_only else [key for key in agent if key not in listed]
        keys = [*listed, *others, *own]
        last = self.worked.get(route.user)
        if last is not None and any(last is key for key in keys):
            keys = [last, *(key for key in keys if key is not last)]
        seen: Set[bytes] = set()
        for key in keys[: 4 * TRIES]:
            if key.asbytes() not in seen and len(seen) < TRIES:
                seen.add(key.asbytes())
                yield key

    def first_file(self, route: Route) -> str:
        """The file of the key that goes first there, "" where an agent holds that one or there is none."""
        first = next(self.candidates(route), None)
        return next((path for path in route.identities if first is not None and self.load(path) is first), "")

    def load(self, path: str) -> Any:
        """The private key in a file: None where there is none, the exception where it cannot be used."""
        if path not in self._keys:
            try:
                self._keys[path] = paramiko.PKey.from_path(path)
            except OSError as error:
                if is_scarce(error):
                    raise OutOfResources(f"{path}: {error.strerror}") from None
                self._keys[path] = None
            except (PasswordRequiredException, SSHException, ValueError, TypeError) as error:
                self._keys[path] = error
        return self._keys[path]

    def close(self) -> None:
        """End the connections to the agents."""
        for agent in {key.agent for keys in self._agents.values() for key in keys}:
            agent.close()

    def _agent_keys(self, path: str) -> List[Any]:
        with self._lock:
            if path not in self._agents:
                self._agents[path] = _ask_agent(path)
            return self._agents[path]


def _ask_agent(path: str) -> List[Any]:
    try:
        if path:
            before = os.environ.get("SSH_AUTH_SOCK")
            os.environ["SSH_AUTH_SOCK"] = path  # paramiko knows no other way to name a socket
            try:
                return list(_Agent().get_keys())
            finally:
                if before is None:
                    del os.environ["SSH_AUTH_SOCK"]
                else:
                    os.environ["SSH_AUTH_SOCK"] = before
        return list(_Agent().get_keys())
    except (OSError, SSHException) as error:
        if is_scarce(error):
            raise OutOfResources(f"the agent: {error}") from None
        return []


def _public(key: Any, route: Route) -> bool:
    """Whether an agent's key is one of the identities, by the .pub file beside a private key that is not here."""
    for path in route.identities:
        try:
            fields = read_text(path if path.endswith(".pub") else f"{path}.pub", 65536, "replace").split()
        except OSError:
            continue
        if len(fields) > 1 and fields[1] == key.get_base64():
            return True
    return False
