"""Host keys as known_hosts files have them: plain, hashed, with wildcards, revoked.

paramiko's own reader compares every line with every other, which takes minutes for ten thousand hosts; here a
plain name is one look in a dictionary. Only new keys are ever written, to the user's first file.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import os
import threading
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

from nhc.core.system.bounded_read import read_text
from nhc.fleet.ssh.config import Route
from nhc.fleet.transport import OutOfResources, Trouble, is_scarce

Key = Tuple[str, str]
"""A key's type and its base64."""


class _Pattern(NamedTuple):
    wanted: Tuple[str, ...]
    unwanted: Tuple[str, ...]
    key: Key


class KnownHosts:
    """What some files say; missing files are empty."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.plain: Dict[str, List[Key]] = {}
        self.hashed: List[Tuple[bytes, bytes, Key]] = []
        self.patterns: List[_Pattern] = []
        self.revoked: Set[str] = set()
        self.authorities = False
        self._lock = threading.Lock()
        for path in paths:
            try:
                text = read_text(path, errors="replace")
            except OSError as error:
                if is_scarce(error):  # else every host would look like one that is not known
                    raise OutOfResources(f"{path}: {error.strerror}") from None
                continue
            for line in text.splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            return
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) < 3:
            return
        names, key = fields[0], (fields[1], fields[2])
        if marker == "@revoked":
            self.revoked.add(key[1])
        elif marker == "@cert-authority":
            self.authorities = True
        elif marker:
            return
        elif names.startswith("|1|"):
            try:
                salt, digest = (base64.b64decode(part) for part in names[3:].split("|"))
            except ValueError:
                return
            self.hashed.append((salt, digest, key))
        elif any(char in names for char in "*?!"):
            parts = names.lower().split(",")
            self.patterns.append(
                _Pattern(tuple(p for p in parts if p[0] != "!"), tuple(p[1:] for p in parts if p[0] == "!"), key)
            )
        else:
            for name in names.lower().split(","):
                self.plain.setdefault(name, []).append(key)

    def keys(self, name: str) -> List[Key]:
        """The keys on record for a name."""
        name = name.lower()
        keys = list(self.plain.get(name, ()))
        for salt, digest, key in self.hashed:
            if hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest):
                keys.append(key)
        for pattern in self.patterns:
            wanted = any(_match(name, wildcard) for wildcard in pattern.wanted)
            if wanted and not any(_match(name, wildcard) for wildcard in pattern.unwanted):
                keys.append(pattern.key)
        return keys

    def add(self, name: str, key: Key, path: str) -> None:
        """Write a new host's key to a file. Raises OSError."""
        with self._lock:
            if key in self.plain.get(name.lower(), ()):
                return
            self.plain.setdefault(name.lower(), []).append(key)
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
            # One write of one short line: shards append to the same file.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, f"{name} {key[0]} {key[1]}\n".encode())
            finally:
                os.close(fd)


def _match(name: str, pattern: str) -> bool:
    # Brackets are part of a name with a port here, not a set of characters.
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


# Whether a host's key is the one on record: the same rule for every SSH library.


class HostKeys:
    """The known_hosts files of all routes, each read once. A host key is verified, always.

    With `accept_new`, the key of a host that has none on record is written to the user's first file.
    """

    def __init__(self, accept_new: bool = False) -> None:
        self.accept_new = accept_new
        self._files: Dict[Tuple[str, ...], KnownHosts] = {}
        self._lock = threading.Lock()

    def files(self, route: Route) -> KnownHosts:
        """What the route's known_hosts files say."""
        paths = (*route.user_known_hosts, *route.global_known_hosts)
        known_hosts = self._files.get(paths)
        if known_hosts is None:
            with self._lock:
                known_hosts = self._files.get(paths) or KnownHosts(paths)
                self._files[paths] = known_hosts
        return known_hosts

    def known(self, route: Route) -> List[Key]:
        """The keys on record for the route's host."""
        return self.files(route).keys(route.known_as)

    def verify(self, key: Key, known: List[Key], route: Route) -> None:
        """Compare the key that the host has proved with those on record. Raises Trouble with the reason HostKey."""
        kind, text = key
        files = self.files(route)
        if text in files.revoked:
            raise Trouble("HostKey", f"{route.known_as}: its {kind} host key is revoked")
        if any(text == recorded for _kind, recorded in known):
            return
        if known:
            raise Trouble("HostKey", f"{route.known_as}: its {kind} host key is not the one in known_hosts")
        if not (self.accept_new or route.accept_new):
            hint = "; certificates need transport=openssh" if files.authorities else ""
            raise Trouble("HostKey", f"{route.known_as}: its {kind} host key is not in known_hosts (accept-new){hint}")
        if route.user_known_hosts:
            try:
                files.add(route.known_as, key, route.user_known_hosts[0])
            except OSError as error:
                if is_scarce(error):  # not the host's fault: it is tried again when there are descriptors
                    raise OutOfResources(f"{route.user_known_hosts[0]}: {error.strerror}") from None
                raise Trouble("HostKey", f"{route.user_known_hosts[0]}: {error.strerror}") from None
