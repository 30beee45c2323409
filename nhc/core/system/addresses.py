"""Addresses to listen on, as settings and command lines have them."""

from __future__ import annotations

import ipaddress

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
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
