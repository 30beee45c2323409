"""Where the store is and how long it keeps things, from a TOML file (conf/store.toml.example).

Whoever uses the store reads the same file: the server, the remedy loop, the console, `nhc store`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from nhc import settings_file
from nhc.store.connect import DEFAULT, open_store
from nhc.store.database import Store, connect
from nhc.store.intake import IntakeSettings
from nhc.store.pruning import PruneSettings
from nhc.store.retention import DAY, Keep

PATH = "/etc/nhc/store.toml"
SEGMENTS = "/var/lib/nhc/audit"


class StoreSettings(NamedTuple):
    """All of it. `url` may hold a password, and is never shown as it is."""

    url: str = DEFAULT
    anchor: str = ""
    syslog: bool = False
    segments: str = SEGMENTS
    pace: IntakeSettings = IntakeSettings()
    keep: Keep = Keep()
    every: float = DAY

    def pruning(self) -> PruneSettings:
        """What prunes by itself goes by this."""
        return PruneSettings(self.keep, self.segments, self.every)


def load(path: str = "", url: str = "") -> StoreSettings:
    """The settings in a file, /etc/nhc/store.toml where none is named, else the defaults.

    `url`, or `$NHC_STORE`, stands for the file's. Raises SettingsError.
    """
    url = url or os.environ.get("NHC_STORE", "")
    found = StoreSettings()
    if path or os.path.exists(PATH):
        found = _read(settings_file.load(path or PATH))
    return found._replace(url=url) if url else found


def _read(file: settings_file.Table) -> StoreSettings:
    reports, keep = file.table("reports"), file.table("keep")
    found = StoreSettings(
        url=file.secret("url", DEFAULT),
        anchor=file.text("audit-anchor"),
        syslog=file.flag("audit-syslog"),
        segments=file.text("audit-archive", SEGMENTS),
        pace=IntakeSettings(
            future=reports.seconds("future", 300.0, least=1.0),
            gap=reports.seconds("gap", 600.0, least=1.0),
            refresh=reports.seconds("refresh", 300.0, least=1.0),
            note=reports.seconds("note", DAY, least=1.0),
        ),
        keep=Keep(
            history=keep.seconds("history", 90 * DAY, least=DAY),
            problems=keep.seconds("problems", 365 * DAY, least=DAY),
            audit=keep.seconds("audit", 365 * DAY, least=DAY),
            tokens=keep.seconds("tokens", 365 * DAY, least=DAY),
            deep=keep.seconds("deep", 180 * DAY, least=DAY),
            trains=keep.seconds("trains", 365 * DAY, least=DAY),
            jobs=keep.seconds("jobs", 365 * DAY, least=DAY),
        ),
        every=keep.seconds("every", DAY, least=0.0),
    )
    file.finish()
    return found


def opened(settings: StoreSettings, *, create: bool = True, check: bool = True, pool: int = 5) -> Store:
    """The store that settings name; with `check` false whatever its schema is. Raises StoreError."""
    make = open_store if check else connect
    store = make(settings.url, anchor=settings.anchor, create=create, pool=pool)
    store.anchor.syslog = settings.syslog
    return store
