"""Whether SQLite's file is still the one that was opened: it may be replaced, deleted or overwritten below us.

SQLite itself goes on then: with the file that has no name any more, or with pages of two files. What is written so is
lost, or damages the copy that somebody has put there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from urllib.parse import quote

from nhc.store.errors import StoreError

EVERY = 1.0
"""Seconds between two looks into the file; whether it is the same file is asked each time."""


class FileIdentity:
    """The file of one store. `store` is the store's own id, which stands in it."""

    def __init__(self, path: str, name: str, store: str) -> None:
        self._path, self._name, self._store = path, name, store
        self._looked = time.monotonic()  # it has just been opened: a command that ends soon looks at nothing more
        self._newest = 0
        status = os.stat(path)
        self._place = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raises StoreError where it is another file, or has another store's content, or an older one's."""
        try:
            status = os.stat(self._path)
            if (status.st_dev, status.st_ino) != self._place:
                raise self._changed("the file was replaced by another")
            now = time.monotonic()
            if now - self._looked < EVERY:
                return
        except OSError as error:
            raise self._changed(f"the file is gone: {error.strerror}") from None
        try:
            # By SQLite alone: whoever else closes the file takes this process's locks on it (howtocorrupt.html, 2.2).
            # And by a connection of its own: those that are open have pages of before in memory.
            with contextlib.closing(sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True, timeout=1.0)) as own:
                [store] = own.execute("SELECT id FROM store").fetchone()
                [newest] = own.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):  # a table or a column of ours
                return  # somebody writes just now, or there is no descriptor or memory left: no sign of anything
            raise self._changed(f"the file was overwritten: {error}") from None
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise self._changed(f"the file was overwritten: {error}") from None
        if store != self._store:
            raise self._changed("the file was overwritten by another store")
        if newest < self._newest:
            raise self._changed("the file was overwritten by an older copy")
        self._looked, self._newest = now, newest

    def _changed(self, why: str) -> StoreError:
        self._looked = float("-inf")
        return StoreError(f"{self._name}: {why} while it was open: restart what uses it")
