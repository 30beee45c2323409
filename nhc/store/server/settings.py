"""The server's settings, from a TOML file (conf/server.toml.example, which is made from here)."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.addresses import host_and_port, is_loopback

HEAD = """
The server that agents push their reports to: /etc/nhc/server.toml. Where the store is, store.toml says. See
docs/store.md. What stands here behind # is the default.
"""


def _address(text: str) -> str:
    if not host_and_port(text)[0]:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return text


@declared.settings
class ServerSettings(NamedTuple):
    """All of it. Sizes in bytes, times in seconds; a rate of 0 is none."""

    listen: str = declared.converted(
        "listen", _address, "127.0.0.1:20259", "any other address than loopback takes [tls]"
    )
    certificate: str = declared.text(
        "tls.certificate", "", "with its chain; read again on SIGHUP", shown='"/etc/nhc/server.crt"'
    )
    key: str = declared.text("tls.key", shown='"/etc/nhc/server.key"')
    client_ca: str = declared.text(
        "tls.client-ca", "", "then a node may show a certificate of this authority in place of a token",
        shown='"/etc/nhc/nodes-ca.crt"',
    )  # fmt: skip
    body: int = declared.size("limits.body", 4 << 20, "of one push, packed", least=1024, most=256 << 20)
    unpacked: int = declared.size("limits.unpacked", 32 << 20, least=1024, most=1 << 30)
    slow: float = declared.seconds("limits.slow", 20.0, "within which a push has to arrive", least=0.1, most=600.0)
    node_rate: int = declared.count(
        "limits.pushes-a-node-and-minute", 30,
        "and with it 10 reports, 12 problems and 256 kB a push, at least those of 30", least=1,
    )  # fmt: skip
    rate: int = declared.count("limits.reports-a-second", 0, "of all nodes; 0 is no bound")
    waiting: int = declared.count("limits.waiting", 5000, "reports that wait for the database", least=1)
    connections: int = declared.count("limits.connections", 5000, least=1)
    connections_each: int = declared.count(
        "limits.connections-an-address", 500, "more where agents come through a proxy or NAT", least=1
    )

    @property
    def address(self) -> Tuple[str, int]:
        """The host and port to listen on."""
        return host_and_port(self.listen)

    @property
    def tls(self) -> bool:
        """Whether it speaks HTTPS."""
        return bool(self.certificate)

    def checked(self, table: Table) -> ServerSettings:
        """The same settings, after a check that they fit together. Raises SettingsError."""
        tls = table.table("tls")
        if self.client_ca and not self.certificate:
            raise tls.error("client-ca", "asks for client certificates, which takes tls.certificate as well")
        if self.key and not self.certificate:
            raise tls.error("key", "is a key without tls.certificate")
        if not self.tls and not is_loopback(self.address[0]):
            raise table.error(
                "listen", f"{self.listen} is not on loopback: that takes HTTPS (tls.certificate, tls.key)"
            )
        return self


FILE = declared.SettingsFile(ServerSettings, "/etc/nhc/server.toml", HEAD, optional=True)
load = FILE.load
