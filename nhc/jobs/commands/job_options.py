"""What the commands of `nhc job` share: the settings, the store, and the job that a person names."""

from __future__ import annotations

import contextlib
import os

from nhc.core.command_line import options
from nhc.core.command_line.command_error import CommandError
from nhc.jobs.settings import PATH, RestartSettings, load
from nhc.store.database import Store
from nhc.store.job_restarts import WatchedJob, find
from nhc.store.settings import fleet_store


class JobOptions(options.CommandOptions):
    """Which settings."""

    settings: str = options.settings_file("jobs.toml", heading="Where")


def settings_of(path: str) -> RestartSettings:
    """The settings of a command line. Raises SettingsError."""
    return load(path or PATH)


def opened(path: str) -> contextlib.closing[Store]:
    """The store that the settings of a command line name, closed at the end. Raises SettingsError, StoreError."""
    store = load(path or PATH).store if path or os.path.exists(PATH) else ""
    return contextlib.closing(fleet_store(store, create=False))


def the_job(store: Store, name: str) -> WatchedJob:
    """The job that a person's word names. Raises CommandError, StoreError."""
    with store.read() as connection:
        rows = find(connection, name)
    standing = [row for row in rows if row.ended is None] or rows[:1]
    if not standing:
        raise CommandError(f"no job is called {name}: `nhc status job` lists them", 1)
    if len(standing) > 1:
        raise CommandError(f"{name} is one of {', '.join(row.text() for row in standing)}: say which", 2)
    return standing[0]
