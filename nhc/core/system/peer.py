"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import socket
import struct


def peer_user(connection: socket.socket) -> int:
    """The number of the user who connected, as the kernel knows it: unix(7), SO_PEERCRED."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("3i", credentials)[1]
    return user
