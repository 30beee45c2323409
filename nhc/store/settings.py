"""The store's address and how long it keeps data, from a TOML file (conf/store.toml.example).

All users of the store read the same file and open the store here: the server, the remedy loop, the console, every
command. So all of them write the same anchor, and either all or none write to syslog.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.store import location
from nhc.store.anchor import Anchor
from nhc.store.connect import open_store, stand_in
from nhc.store.database import Store, connect, same_database
from nhc.store.errors import NoStore, StoreError
from nhc.store.intake import IntakeSettings
from nhc.store.retention import PruneSettings

HEAD = """
Where the store is and how long it keeps things: /etc/nhc/store.toml, or the file that $NHC_STORE_SETTINGS names. Read
by every command that opens the store. See docs/store.md. What stands here behind # is the default.
"""


@declared.settings
class StoreSettings(NamedTuple):
    """All of it. `url` may hold a password, and is never shown as it is.

    `anchor_of` is the store that the file names, whose anchor it sets; "" for any store.
    """

    url: str = declared.secret(
        "url", location.DEFAULT,
        "One file, or a PostgreSQL that several servers share: postgresql://nhc@db.example.org/nhc, whose password is "
        "better kept in ~/.pgpass. $NHC_STORE stands for it where it is set.",
    )  # fmt: skip
    anchor_of: str = ""
    anchor: str = declared.text(
        "audit-anchor", "",
        "Where the newest row of the audit log is written down outside the database. Default: beside SQLite's file; "
        "for PostgreSQL /var/lib/nhc-server/DATABASE.anchor.",
        shown='"/var/lib/nhc-server/store.db.anchor"',
    )  # fmt: skip
    syslog: bool = declared.flag("audit-syslog", False, "and to syslog (authpriv)")
    pace: IntakeSettings = declared.part("reports", IntakeSettings)
    prune: PruneSettings = declared.part("", PruneSettings)

    def checked(self, table: Table) -> StoreSettings:
        """The same with the store whose anchor the file sets."""
        return self._replace(anchor_of=self.url) if "url" in table else self


FILE = declared.SettingsFile(StoreSettings, location.PATH, HEAD)


def load(path: str = "", url: str = "") -> StoreSettings:
    """The settings in a file, /etc/nhc/store.toml if none is named, otherwise the defaults.

    `url`, or `$NHC_STORE`, replaces the file's. Raises SettingsError.
    """
    path = path or location.settings_path()
    settings = FILE.load(path) if path else StoreSettings()
    url = url or os.environ.get("NHC_STORE", "")
    return settings._replace(url=url) if url else settings


def opened(settings: StoreSettings, *, create: bool = True, check: bool = True) -> Store:
    """The store that settings name; with `check` false, with any schema. Raises StoreError.

    The anchor of the settings belongs to the store that they name. A store under another URL uses it if the file has
    heads of that same store (one database may have several addresses); otherwise it has its own anchor.
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
    """The store at a URL, "" for the default, with the anchor and syslog of store.toml.

    Every command opens the store in this way, wherever its own settings are. Raises StoreError.
    """
    try:
        return opened(load(url=url), create=create)
    except SettingsError as error:
        raise StoreError(str(error)) from None


def store_to_read(url: str = "") -> Store:
    """The same for a command that changes nothing: it makes no store. An empty one is used if the store does not exist.

    Raises StoreError.
    """
    try:
        return fleet_store(url, create=False)
    except NoStore as error:
        try:
            return stand_in(error.name)
        except OSError as unmade:
            raise StoreError(f"{error}; no directory for an empty one: {unmade.strerror or unmade}") from None
