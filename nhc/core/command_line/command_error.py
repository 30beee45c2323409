"""What ends a command of the application before it has done its work: one line for a person, and the exit status."""

from __future__ import annotations

import errno
import os

from nhc.core.exit_status import EXIT_UNKNOWN, ExpectedError
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Tuple


NEEDED = tuple(f"/etc/nhc/{name}.toml" for name in ("gate", "jobs", "notices", "remedy", "serve"))
"""Settings whose defaults alone are of no use, and that the option -s of their commands names."""


class CommandError(ExpectedError):
    """What a command itself refuses, with the exit status of its choice."""

    def __init__(self, why: str, status: int = EXIT_UNKNOWN) -> None:
        super().__init__(why)
        self.status = status


def refusal(error: Exception) -> Optional[Tuple[str, int]]:
    """Why a command ended and its exit status (`nhc.core.exit_status.ExpectedError`); None for an error that nobody
    foresaw.
    """
    if isinstance(error, ExpectedError):
        return _explained(str(error)), error.status
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", EXIT_UNKNOWN
    return None


def _explained(why: str) -> str:
    """The same; of settings that nobody has written, where they are looked for and how to name others."""
    path, _, rest = why.partition(": ")
    if path not in NEEDED or os.path.exists(path):
        return why
    more = "" if rest == os.strerror(errno.ENOENT) else f" ({rest})"
    return f"there is no {path}: name the settings with -s{more}"
