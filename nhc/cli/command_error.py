"""What ends a command of the application before it has done its work: one line for a person, and the exit status."""

from __future__ import annotations

import errno
import os

from nhc.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional, Tuple


NEEDED = tuple(f"/etc/nhc/{name}.toml" for name in ("gate", "jobs", "notices", "remedy", "serve"))
"""Settings whose defaults alone are of no use, and that the option -s of their commands names."""


class CommandError(Exception):
    """Its text is for a person; `status` is the exit status, 3 where it cannot be done now."""

    def __init__(self, why: str, status: int = EXIT_UNKNOWN) -> None:
        super().__init__(why)
        self.status = status


def refusal(error: Exception) -> Optional[Tuple[str, int]]:
    """Why a command ended and its exit status; None for an error that nobody foresaw.

    2 is for settings, and for what they and the command line name; 3 for a store, an adapter or a file that cannot be
    used now.
    """
    from nhc.language.problems import ConfigError
    from nhc.plugins import NoAdapter
    from nhc.ports.adapter import AdapterError, SettingError
    from nhc.settings.settings_file import SettingsError
    from nhc.store.errors import RequestRefused, RoundRefused, StoreError

    if isinstance(error, CommandError):
        return _explained(str(error)), error.status
    if isinstance(error, RoundRefused):
        return str(error), EXIT_USAGE if error.wrong_use else EXIT_UNKNOWN
    if isinstance(error, (ConfigError, SettingsError, NoAdapter, SettingError, RequestRefused)):
        return _explained(str(error)), EXIT_USAGE
    if isinstance(error, (StoreError, AdapterError)):
        return str(error), EXIT_UNKNOWN
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
