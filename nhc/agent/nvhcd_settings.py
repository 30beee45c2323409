"""The table [serve.nvhcd] of the agent's settings."""

from __future__ import annotations

from nhc.core.light import NamedTuple
from nhc.core.model import printable
from nhc.core.settings import declared

LONGEST = 600.0
"""Seconds that the agent keeps a question open whose answer is a run of checks."""


def _mode(text: str) -> int:
    """A file's mode. Raises ValueError."""
    if not (text.isdigit() and len(text) == 4 and set(text) <= set("01234567")):
        raise ValueError(f"{printable(text, 20)!r} is not four octal digits, as 0660")
    return int(text, 8)


def _path(text: str) -> str:
    """A socket's path. Raises ValueError."""
    if not text.startswith("/") or len(text.encode()) > 100:
        raise ValueError(f"{printable(text, 120)!r} is not a path from / of at most 100 bytes")
    return text


@declared.settings
class NvhcdSettings(NamedTuple):
    """The table [serve.nvhcd]. `scheduler` is who says whether the node is out of service, "" for nobody.

    `timeout` is how long a caller waits for checks that run now, in seconds; `proof` the suite that `--proof` runs, ""
    for none; `store` the URL of the store that knows whether the node's newest deep checks failed, "" for none.
    """

    path: str = declared.converted("path", _path, "/run/nvhcd/nvhcd.sock")
    mode: int = declared.converted("mode", _mode, 0o660, show=lambda mode: f"{mode:04o}")
    group: str = declared.text("group", "", "default: root's", shown='"users"')
    max_age: float = declared.seconds("max-age", 900.0, "an older verdict is no verdict", least=1.0)
    unknown_fails: bool = declared.flag("unknown-fails")
    scheduler: str = declared.text(
        "scheduler", "", "who says whether the node is drained; default: nobody is asked", shown='"slurm"'
    )
    timeout: float = declared.seconds(
        "timeout", 30.0, "how long a caller waits for checks that run because the verdict is too old", least=1.0,
        most=LONGEST,
    )  # fmt: skip
    proof: str = declared.text(
        "proof", "", "the suite of deep checks that --proof runs; default: none", shown='"prejob"'
    )
    store: str = declared.secret(
        "store", "", "who knows whether the newest deep checks failed; default: nobody is asked",
        shown='"postgresql://nhc@db/nhc"',
    )  # fmt: skip
