"""Open the store, make its tables if there are none, and refuse a schema that is not this nhc's.

store = open_store("sqlite:////var/lib/nhc-server/store.db")
with store.write() as connection:
    episodes.save_step(connection, ...)      # what is done in one `with` is kept whole or not at all
"""

from __future__ import annotations

import shutil
import tempfile
import time

import sqlalchemy as sa

from nhc.store import schema
from nhc.store.database import Store, connect, revision
from nhc.store.errors import NoStore, StoreError
from nhc.store.location import DEFAULT
from nhc.store.migrate import upgrade


def open_store(url: str = DEFAULT, *, anchor: str = "", create: bool = True) -> Store:
    """The store at a URL (`sqlite:///FILE`, `postgresql://...`) or in a file. Raises StoreError.

    An empty database gets its tables if `create` is true. An older schema is left for `nhc store migrate`, a newer one
    is refused. `anchor` is the file in which the audit's head is anchored: next to SQLite's file unless it is named.
    """
    store = connect(url, anchor=anchor, create=create)
    try:
        with store.read() as connection:
            number = revision(connection, store.name)
        if not number:
            if not create:
                raise NoStore(store.name, "holds no tables yet")
            upgrade(store, time.time())
        elif number < schema.REVISION:
            raise StoreError(
                f"{store.name}: has schema {number}, this nhc needs {schema.REVISION}: run nhc store migrate"
            )
        with store.read() as connection:
            store.identify(str(connection.scalar(sa.select(schema.store.c.id)) or ""))
    except BaseException:
        store.close()
        raise
    return store


def stand_in(name: str) -> Store:
    """An empty store of that name, for a caller that reads one that does not exist yet. Closing it deletes it.

    Raises StoreError, OSError.
    """
    place = tempfile.mkdtemp(prefix="nhc-store-")
    try:
        store = open_store(f"sqlite:///{place}/store.db")
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    store.stand_in_for(name, place)
    return store
