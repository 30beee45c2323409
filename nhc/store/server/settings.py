"""The server's settings, from a TOML file (conf/server.toml.example). Where the store is, store.toml says."""

from __future__ import annotations

import os
from typing import NamedTuple

from nhc.core.settings import settings_file
from nhc.core.system.addresses import host_and_port, is_loopback

PATH = "/etc/nhc/server.toml"
LISTEN = "127.0.0.1:20259"


class ServerSettings(NamedTuple):
    """All of it. Sizes in bytes, times in seconds; a rate of 0 is none.

    `body` and `unpacked` bound one push, `node_rate` the pushes of one node a minute, `rate` the reports a second of
    all, `waiting` the reports that wait to be written, `connections` how many may be open, `connections_each` from one
    address, `slow` how long one push may take to arrive.
    """

    listen: str = LISTEN
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    body: int = 4 << 20
    unpacked: int = 32 << 20
    node_rate: int = 30
    rate: int = 0
    waiting: int = 5000
    connections: int = 5000
    connections_each: int = 500
    slow: float = 20.0

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        return host_and_port(self.listen)

    @property
    def tls(self) -> bool:
        """Whether it speaks HTTPS."""
        return bool(self.certificate)


def load(path: str = "") -> ServerSettings:
    """The settings in a file, /etc/nhc/server.toml where none is named, else the defaults. Raises SettingsError."""
    if not path and not os.path.exists(PATH):
        return ServerSettings()
    return _read(settings_file.load(path or PATH))


def _read(file: settings_file.Table) -> ServerSettings:
    tls, limits = file.table("tls"), file.table("limits")
    standard = ServerSettings()
    settings = ServerSettings(
        listen=file.converted("listen", _address, LISTEN),
        certificate=tls.text("certificate"),
        key=tls.text("key"),
        client_ca=tls.text("client-ca"),
        body=limits.size("body", standard.body, least=1024, most=256 << 20),
        unpacked=limits.size("unpacked", standard.unpacked, least=1024, most=1 << 30),
        node_rate=limits.count("pushes-a-node-and-minute", standard.node_rate, least=1),
        rate=limits.count("reports-a-second", standard.rate),
        waiting=limits.count("waiting", standard.waiting, least=1),
        connections=limits.count("connections", standard.connections, least=1),
        connections_each=limits.count("connections-an-address", standard.connections_each, least=1),
        slow=limits.seconds("slow", standard.slow, least=0.1, most=600.0),
    )
    file.finish()
    if settings.client_ca and not settings.certificate:
        raise tls.error("client-ca", "asks for client certificates, which takes tls.certificate as well")
    if settings.key and not settings.certificate:
        raise tls.error("key", "is a key without tls.certificate")
    if not settings.tls and not is_loopback(settings.address[0]):
        raise file.error("listen", f"{settings.listen} is not on loopback: that takes HTTPS (tls.certificate, tls.key)")
    return settings


def _address(text: str) -> str:
    if not host_and_port(text)[0]:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return text
