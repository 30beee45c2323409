"""How a command over a store ends: its own exit status, or one line on standard error and what that line means."""

from __future__ import annotations

import sys

from nhc.cli.command_error import CommandError
from nhc.exit_status import EXIT_UNKNOWN, EXIT_USAGE
from nhc.light import TYPE_CHECKING
from nhc.model import printable
from nhc.settings.settings_file import SettingsError
from nhc.store.errors import RoundRefused, StoreError

if TYPE_CHECKING:
    from typing import Callable, NoReturn, Optional

    from nhc.store.database import Store


def end(command: str, work: Callable[[], int], explain: Callable[[str], str] = printable) -> NoReturn:
    """Run a command, and end: 2 is for wrong settings, 3 for a store that cannot be used now.

    `explain` makes the line of what went wrong.
    """
    why: Optional[str] = None
    try:
        status = work()
    except CommandError as error:
        why, status = str(error), error.status
    except RoundRefused as error:
        why, status = str(error), EXIT_USAGE if error.wrong_use else EXIT_UNKNOWN
    except SettingsError as error:
        why, status = str(error), EXIT_USAGE
    except StoreError as error:
        why, status = str(error), EXIT_UNKNOWN
    if why is not None:
        print(f"nhc {command}: {explain(why)}", file=sys.stderr)
    raise SystemExit(status)


def tell_stand_in(command: str, store: Store) -> None:
    """Say that a command which only looks has met no store, and takes it as an empty one."""
    if store.stands_in is not None:
        print(f"nhc {command}: {store.name} is not there yet: taken as empty, and not made", file=sys.stderr)
