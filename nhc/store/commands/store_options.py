"""What commands over the fleet's store share: which store it is, and what is said where it is not there yet."""

from __future__ import annotations

import contextlib
import sys

from nhc.core.command_line import options
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from nhc.store.database import Store


class StoreOptions(options.CommandOptions):
    """Which store."""

    url: str = options.text(
        "--store", "URL", "sqlite:///FILE or postgresql://USER@HOST/DATABASE. Default: $NHC_STORE, else "
        "/etc/nhc/store.toml's ($NHC_STORE_SETTINGS names another file).", heading="Which store",
    )  # fmt: skip


# What the services of rounds share.
ONCE = options.flag("--once", "One round, then end: for cron.", heading="What is done")
DRY_RUN = options.flag("--dry-run", "Show what would be done; write and change nothing.")
METRICS_FILE = options.text("--metrics-file", "FILE", "Write metrics for a textfile collector.")


def metrics_address(port: int) -> Any:
    """The option for the address of /metrics and /healthz; `port` is the usual one of this service."""
    return options.text(
        "--listen", "ADDRESS", f"Serve /metrics and /healthz: 127.0.0.1:{port}.", heading="What is shown"
    )


def opened(url: str, *, create: bool = False, check: bool = True) -> contextlib.closing[Store]:
    """The store of a command line, closed at the end; with `check` false whatever its schema is.

    Raises SettingsError, StoreError.
    """
    from nhc.store.settings import load, opened

    return contextlib.closing(opened(load(url=url), create=create, check=check))


def note_stand_in(command: str, store: Store) -> None:
    """Say that a command which only looks has met no store, and takes it as an empty one."""
    if store.stands_in is not None:
        print(f"nhc {command}: {store.name} is not there yet: taken as empty, and not made", file=sys.stderr)
