"""Where the store is and how long it keeps things, from a TOML file (conf/store.toml.example).

Whoever uses the store reads the same file, and opens the store here: the server, the remedy loop, the console, every
command. So all of them write the same anchor, and to syslog where one of them does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from nhc.core.settings import settings_file
from nhc.core.settings.settings_file import SettingsError
from nhc.store import where
from nhc.store.anchor import Anchor
from nhc.store.connect import open_store, stand_in
from nhc.store.database import Store, connect, same_database
from nhc.store.errors import NoStore, StoreError
from nhc.store.intake import IntakeSettings
from nhc.store.retention import DAY, Keep, PruneSettings


class StoreSettings(NamedTuple):
    """All of it. `url` may hold a password, and is never shown as it is.

    `anchor_of` is the store that the file names, whose anchor it sets; "" for whichever it is.
    """

    url: str = where.DEFAULT
    anchor_of: str = ""
    anchor: str = ""
    syslog: bool = False
    pace: IntakeSettings = IntakeSettings()
    prune: PruneSettings = PruneSettings()


def load(path: str = "", url: str = "") -> StoreSettings:
    """The settings in a file, /etc/nhc/store.toml where none is named, else the defaults.

    `url`, or `$NHC_STORE`, stands for the file's. Raises SettingsError.
    """
    path = path or where.settings_path()
    settings = _read(settings_file.load(path)) if path else StoreSettings()
    url = url or os.environ.get("NHC_STORE", "")
    return settings._replace(url=url) if url else settings


def _read(file: settings_file.Table) -> StoreSettings:
    reports, keep = file.table("reports"), file.table("keep")
    default = PruneSettings()
    settings = StoreSettings(
        url=file.secret("url", where.DEFAULT),
        anchor_of=file.secret("url", ""),
        anchor=file.text("audit-anchor"),
        syslog=file.flag("audit-syslog"),
        pace=IntakeSettings(
            future=reports.seconds("future", 300.0, least=1.0),
            gap=reports.seconds("gap", 600.0, least=1.0),
            refresh=reports.seconds("refresh", 300.0, least=1.0),
            note=reports.seconds("note", DAY, least=1.0),
        ),
        prune=PruneSettings(
            Keep(*(keep.seconds(name, age, least=DAY) for name, age in default.keep._asdict().items())),
            file.text("audit-archive", default.segments),
            keep.seconds("every", default.every, least=0.0),
        ),
    )
    file.finish()
    return settings


def opened(settings: StoreSettings, *, create: bool = True, check: bool = True) -> Store:
    """The store that settings name; with `check` false whatever its schema is. Raises StoreError.

    The anchor of the settings is that of the store that they name. A store under another URL has it where the file
    holds heads of that very store (one database has several addresses), and else an anchor of its own.
    """
    make = open_store if check else connect
    own = not settings.anchor_of or same_database(settings.anchor_of, settings.url)
    store = make(settings.url, anchor=settings.anchor if own else "", create=create)
    if not own and settings.anchor:
        named = Anchor(settings.anchor, store.id)
        with suppress(OSError):
            own = bool(store.id) and any(line.store == store.id for line in named.lines())
        if own:
            store.anchor = named
    store.anchor.syslog = settings.syslog and own
    return store


def fleet_store(url: str = "", *, create: bool = True) -> Store:
    """The store at a URL, "" for where it is by default, with the anchor and syslog of store.toml.

    Every command opens the store so, whatever file its own settings are in. Raises StoreError.
    """
    try:
        return opened(load(url=url), create=create)
    except SettingsError as error:
        raise StoreError(str(error)) from None


def store_to_look_at(url: str = "") -> Store:
    """The same for a command that changes nothing: it makes no store. An empty one stands in for one that is not there.

    Raises StoreError.
    """
    try:
        return fleet_store(url, create=False)
    except NoStore as error:
        try:
            return stand_in(error.name)
        except OSError as unmade:
            raise StoreError(f"{error}; no directory for an empty one: {unmade.strerror or unmade}") from None
