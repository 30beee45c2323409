"""Addresses as settings and command lines have them, whether one answers, and who is at the other end of a socket."""

from __future__ import annotations

import ipaddress

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from typing import Tuple


def host_and_port(text: str) -> Tuple[str, int]:
    """Of `HOST:PORT` or `[::1]:PORT`; the host of `:PORT` is "". Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host; an IPv6 address may stand in brackets."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def peer_user(connection: socket.socket) -> int:
    """The number of the user who connected, as the kernel knows it: unix(7), SO_PEERCRED."""
    import socket
    import struct

    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("3i", credentials)[1]
    return user


def answers(address: str, port: int, seconds: float) -> bool:
    """Whether a TCP connection, which is closed at once, opens within so long or is refused.

    Either way there is a kernel that answered (RFC 9293, 3.5.2).
    """
    import socket

    try:
        socket.create_connection((address, port), seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # no route, no answer in time, no such name
        return False
    return True
