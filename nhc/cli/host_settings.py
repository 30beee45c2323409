"""serve.toml (conf/serve.toml.example): which services one process hosts. Each keeps its own settings file."""

from __future__ import annotations

from typing import NamedTuple, Optional

from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table

PATH = "/etc/nhc/serve.toml"
LISTEN = "127.0.0.1:9469"
PARTS = ("remedy", "jobs", "notices", "spares", "server")
HEAD = """
/etc/nhc/serve.toml, read by `nhc serve`: one process for the services of a small site. A section that is there is
hosted. Each service keeps its own settings file, which its other commands read as well (nhc approve episode, nhc status
job).
"""


@declared.settings
class HostedService(NamedTuple):
    """A service's own settings file, "" for its usual place."""

    settings: str = declared.text("settings", "", "default: its usual file")


@declared.settings
class SparesPart(NamedTuple):
    """`every` is in seconds. Without `apply` the log only says what would be done."""

    settings: str = declared.text("settings", "", "default: /etc/nhc/spares.toml")
    every: float = declared.seconds("every", 60.0, least=1.0)
    apply: bool = declared.flag("apply", False, "without it the log says what would be done")


@declared.settings
class ServerPart(NamedTuple):
    """`store` is the settings file of the server's store."""

    settings: str = declared.text("settings", "", "default: /etc/nhc/server.toml")
    store: str = declared.text("store", "", "the settings file of its store; default: /etc/nhc/store.toml")


@declared.settings
class HostSettings(NamedTuple):
    """None for each service that is not hosted. `listen` is the address of /metrics and /healthz for all but the
    server, which has its own.
    """

    listen: str = declared.text(
        "listen", LISTEN, "/metrics and /healthz of all but the server, which has its own (server.toml)"
    )
    remedy: Optional[HostedService] = declared.part(
        "remedy", HostedService, "As `nhc serve remedy`.", optional=True, live=True
    )
    jobs: Optional[HostedService] = declared.part("jobs", HostedService, "As `nhc serve job`.", optional=True)
    notices: Optional[HostedService] = declared.part(
        "notices", HostedService, "As `nhc serve notices`.", optional=True, live=True
    )
    spares: Optional[SparesPart] = declared.part(
        "spares", SparesPart,
        "As `nhc spares swap`, every so often; the store and the adapter are those of [remedy].", optional=True,
    )  # fmt: skip
    server: Optional[ServerPart] = declared.part(
        "server", ServerPart, "As `nhc serve server`.", optional=True, live=True
    )

    def checked(self, table: Table) -> HostSettings:
        """The same. Raises SettingsError if nothing is hosted."""
        if not any(part in table for part in PARTS):
            raise SettingsError(f"{table.path}: no service: name one as {', '.join(f'[{part}]' for part in PARTS)}")
        return self


FILE = declared.SettingsFile(HostSettings, PATH, HEAD)
load, parse = FILE.load, FILE.parse
