"""`[drill]` of remedy.toml: which faults `nhc drill --real` may put on a node, and how they get there."""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table


@declared.settings
class DrillSettings(NamedTuple):
    """`nhc` is the command on the node. `kernel` is a fault of `nhc inject --list`, `device` what its line names ("":
    the fault's own example). `file_system` is the mount point that is filled ("": none may be), `fill_to` how full (a
    share). `recover` is how long (seconds) the node's reports may take to say that the fault is over.
    """

    nhc: str = declared.text("nhc", "/usr/bin/nhc")
    kernel: str = declared.text("kernel", "md-failed", "a fault of `nhc inject --list` that asks for an inspection")
    device: str = declared.text("device", "", "the device that its line names", shown='"md0"')
    file_system: str = declared.text("file-system", "", "the small file system that may be filled", shown='"/scratch"')
    fill_to: float = declared.share("fill-to", 0.97, "and how full", least=0.01, most=0.99)
    recover: float = declared.seconds(
        "recover", 900.0, "how long the node's reports may take to say that the fault is over", least=1.0
    )

    def checked(self, table: Table) -> DrillSettings:
        """The same. Raises SettingsError where a path is none."""
        for key, path in (("nhc", self.nhc), ("file-system", self.file_system)):
            if path and not path.startswith("/"):
                raise table.wrong(key, "a whole path")
        return self
