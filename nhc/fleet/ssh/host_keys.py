"""Whether a host's key is the one on record: the same rule for every SSH library."""

from __future__ import annotations

import threading
from typing import Dict, List, Tuple

from nhc.fleet.ssh.config import Route
from nhc.fleet.ssh.known_hosts import Key, KnownHosts
from nhc.fleet.transport import OutOfResources, Trouble, is_scarce


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
