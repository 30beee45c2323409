"""Whether a machine's kernel answers on the network: one TCP connection, within a limit, that is closed at once."""

from __future__ import annotations

import socket


def answers(address: str, port: int, seconds: float) -> bool:
    """Whether a connection opens or is refused: either way there is a kernel that answered (RFC 9293, 3.5.2)."""
    try:
        socket.create_connection((address, port), seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # no route, no answer in time, no such name
        return False
    return True
