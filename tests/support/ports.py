"""Ports for the servers of tests, which nobody else takes before they are bound, nor while a server is restarted."""

from __future__ import annotations

import secrets
import socket
from typing import List

FIRST, LAST = 10_000, 32_000
"""Below the range that the kernel hands out to clients (ip_local_port_range, from 32768 on)."""

_next = FIRST + secrets.randbelow(LAST - FIRST)  # of this process alone: those beside it begin elsewhere


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> List[int]:
    """So many ports that nobody listens on. None is given twice before all the others have been."""
    global _next
    found: List[int] = []
    for _ in range(LAST - FIRST):
        port, _next = _next, _next + 1 if _next + 1 < LAST else FIRST
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One of them."""
    return free_ports(1, kind)[0]
