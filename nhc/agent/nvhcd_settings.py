"""The table [serve.nvhcd] of the agent's settings."""

from __future__ import annotations

from nhc.core.light import NamedTuple
from nhc.core.model import printable
from nhc.core.settings.settings_file import Table

LONGEST = 600.0
"""Seconds that the agent keeps a question open whose answer is a run of checks."""


class NvhcdSettings(NamedTuple):
    """The table [serve.nvhcd]. `scheduler` is who says whether the node is out of service, "" for nobody.

    `timeout` is how long a caller waits for checks that run now, in seconds; `proof` the suite that `--proof` runs, ""
    for none; `store` the URL of the store that knows whether the node's newest deep checks failed, "" for none.
    """

    path: str
    mode: int
    group: str
    max_age: float
    unknown_fails: bool
    scheduler: str
    timeout: float = 30.0
    proof: str = ""
    store: str = ""


def read_settings(table: Table) -> NvhcdSettings:
    """The settings in the table [serve.nvhcd]. Raises SettingsError."""
    mode = table.text("mode", "0660")
    if not (mode.isdigit() and len(mode) == 4 and set(mode) <= set("01234567")):
        raise table.error("mode", f"{printable(mode, 20)!r} is not four octal digits, as 0660")
    path = table.text("path", "/run/nvhcd/nvhcd.sock")
    if not path.startswith("/") or len(path.encode()) > 100:
        raise table.error("path", f"{printable(path, 120)!r} is not a path from / of at most 100 bytes")
    settings = NvhcdSettings(path, int(mode, 8), table.text("group"), table.seconds("max-age", 900.0, least=1.0),
                             table.flag("unknown-fails", False), table.text("scheduler"),
                             table.seconds("timeout", 30.0, least=1.0, most=LONGEST), table.text("proof"),
                             table.secret("store"))  # fmt: skip
    table.finish()
    return settings
