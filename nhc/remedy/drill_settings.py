"""`[drill]` of remedy.toml: which faults `nhc drill --real` may put on a node, and how they get there."""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.settings.settings_file import Table


class DrillSettings(NamedTuple):
    """`nhc` is the command on the node. `kernel` is a fault of `nhc inject --list`, `device` what its line names ("":
    the fault's own example). `file_system` is the mount point that is filled ("": none may be), `fill_to` how full (a
    share). `recover` is how long (seconds) the node's reports may take to say that the fault is over.
    """

    nhc: str = "/usr/bin/nhc"
    kernel: str = "md-failed"
    device: str = ""
    file_system: str = ""
    fill_to: float = 0.97
    recover: float = 900.0


def read(table: Table) -> DrillSettings:
    """Raises SettingsError."""
    default = DrillSettings()
    settings = DrillSettings(
        table.text("nhc", default.nhc),
        table.text("kernel", default.kernel),
        table.text("device"),
        table.text("file-system"),
        table.share("fill-to", default.fill_to, least=0.01, most=0.99),
        table.seconds("recover", default.recover, least=1.0),
    )
    for key, path in (("nhc", settings.nhc), ("file-system", settings.file_system)):
        if path and not path.startswith("/"):
            raise table.wrong(key, "a whole path")
    return settings
