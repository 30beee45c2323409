"""The TCP connection to a host, and what it means when there is none."""

from __future__ import annotations

import errno
import os
import socket

from nhc.core.model import printable
from nhc.fleet.transport import OutOfResources, Trouble, is_scarce, left, no_descriptors


def connect(host: str, port: int, deadline: float) -> socket.socket:
    """A socket to the host, without Nagle's delay. Raises Trouble."""
    where = f"{host} port {port}"
    try:
        sock = socket.create_connection((host, port), left(deadline))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except socket.gaierror as error:
        if no_descriptors():
            raise OutOfResources(f"{where}: {os.strerror(errno.EMFILE)}") from None
        passing = error.errno == socket.EAI_AGAIN
        raise Trouble("NoAddress", f"{host}: {error.strerror}", passing) from None
    except UnicodeError:
        raise Trouble("NoAddress", f"{printable(host)!r} is not a host name") from None
    except socket.timeout:
        raise Trouble("ConnectTimeout", f"{where}: no answer") from None
    except OSError as error:
        if is_scarce(error):
            raise OutOfResources(f"{where}: {error.strerror}") from None
        if error.errno == errno.ECONNREFUSED:
            raise Trouble("Refused", f"{where}: connection refused") from None
        if error.errno == errno.ETIMEDOUT:
            raise Trouble("ConnectTimeout", f"{where}: no answer") from None
        if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            raise Trouble("Unreachable", f"{where}: {error.strerror}") from None
        raise Trouble("ConnectFailed", f"{where}: {error.strerror}", passing=True) from None
