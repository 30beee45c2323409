"""serve.toml (conf/serve.toml.example): which services one process hosts. Each keeps its own settings file."""

from __future__ import annotations

from typing import NamedTuple, Optional

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError, Table

PATH = "/etc/nhc/serve.toml"
LISTEN = "127.0.0.1:9469"
PARTS = ("remedy", "jobs", "notices", "spares", "server")


class SparesPart(NamedTuple):
    """`every` is in seconds. Without `apply` the log says what would be done."""

    settings: str
    every: float
    apply: bool


class HostSettings(NamedTuple):
    """Each service's own settings file, "" for its usual place; None where the service is not hosted.

    `listen` is the address of /metrics and /healthz of all but the server, which has its own. `store` is the file of
    the server's store.
    """

    listen: str = LISTEN
    remedy: Optional[str] = None
    jobs: Optional[str] = None
    notices: Optional[str] = None
    spares: Optional[SparesPart] = None
    server: Optional[str] = None
    store: str = ""


def load(path: str) -> HostSettings:
    """The settings in a file. Raises SettingsError."""
    return _read(settings_file.load(path))


def parse(text: str, path: str = "serve.toml") -> HostSettings:
    """The settings in a text. Raises SettingsError."""
    return _read(settings_file.parse(text, path))


def _read(file: Table) -> HostSettings:
    if not any(part in file for part in PARTS):
        raise SettingsError(f"{file.path}: no service: name one as {', '.join(f'[{part}]' for part in PARTS)}")
    spares, server = file.table("spares"), file.table("server")
    settings = HostSettings(
        file.text("listen", LISTEN),
        remedy=file.table("remedy").text("settings") if "remedy" in file else None,
        jobs=file.table("jobs").text("settings") if "jobs" in file else None,
        notices=file.table("notices").text("settings") if "notices" in file else None,
        spares=SparesPart(
            spares.text("settings"), spares.seconds("every", 60.0, least=1.0), spares.flag("apply")
        ) if "spares" in file else None,
        server=server.text("settings") if "server" in file else None,
        store=server.text("store"),
    )  # fmt: skip
    file.finish()
    return settings
