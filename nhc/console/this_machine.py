"""Whether a visitor without a name is at this machine, or behind a proxy that runs on it.

A connection from loopback alone says nothing: a reverse proxy on the same machine makes one for everybody. Its headers
and its host name tell most proxies. The kernel tells the others: a proxy runs as a service account, a person does not.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Optional, Tuple
from urllib.parse import urlsplit

from aiohttp import web

from nhc.console.settings import ConsoleSettings
from nhc.core.system.addresses import is_loopback
from nhc.core.system.bounded_read import read_text

FORWARDED = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server",
    "X-Forwarded-User", "X-Real-IP", "X-Remote-User", "X-Request-Id", "X-Envoy-Expected-Rq-Timeout-Ms",
)  # fmt: skip
"""Headers that proxies add and browsers do not (RFC 7239; RFC 9110, 7.6.3; the names that nginx, Apache, HAProxy,
Envoy and oauth2-proxy document)."""


def by_a_person(request: web.Request, settings: ConsoleSettings) -> bool:
    """Whether a request from loopback comes from a person at this machine."""
    return not behind_proxy(request, settings) and is_login_account(_uid(request))


def behind_proxy(request: web.Request, settings: ConsoleSettings) -> bool:
    """Whether a request has come through a proxy, or the settings say that visitors do."""
    outside = settings.origin and not is_loopback(urlsplit(settings.origin).hostname or "")
    host = (request.headers.get("Host") or "").rpartition(":")[0]
    return bool(settings.proxy or outside or not is_loopback(host) or is_forwarded(request))


def is_forwarded(request: web.Request) -> bool:
    """Whether a proxy has added its headers."""
    return any(name in request.headers for name in FORWARDED)


def is_login_account(uid: Optional[int]) -> bool:
    """Whether a user ID may be a person's: root's, ours, or none that distributions and systemd keep for services.

    1 to 999: login.defs(5), SYS_UID_MAX. 60000 to 65535: https://systemd.io/UIDS-GIDS/ (DynamicUser=, nobody).
    """
    if uid is None:
        return False
    return uid in (0, os.geteuid()) or 1000 <= uid < 60000 or uid > 65535


def _uid(request: web.Request) -> Optional[int]:
    """Whose socket is at the other end of a connection within this machine; None where the kernel lists none."""
    transport = request.transport
    if transport is None:
        return None
    client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not client or not server:
        return None
    wanted = [_kernel_form(client), _kernel_form(server)]
    try:
        table = read_text("/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp", 256 << 20)
    except (OSError, UnicodeDecodeError):
        return None
    for line in table.splitlines():
        fields = line.split()  # proc_net_tcp.rst: sl local_address rem_address st tx:rx tr:tm retrnsmt uid
        if fields[1:3] == wanted:
            return int(fields[7])
    return None


def _kernel_form(address: Tuple[str, int]) -> str:
    """An address as /proc/net/tcp has it: 32-bit words in this machine's order, in hexadecimal."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, address[0].partition("%")[0])
    parts = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{part:08X}" for part in parts) + f":{address[1]:04X}"
