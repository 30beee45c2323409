"""A new store in SQLite: for tests that write one, and are not about the store itself."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from typing import Any, Iterator, Optional

import pytest

from nhc.store.connect import open_store


def new_store(place: str, anchor: Optional[str] = None) -> Any:
    """A store in a directory: a copy of one that was made once, since making its tables takes a third of a second.

    All copies have one id. `anchor` is as `open_store` takes it: PLACE/anchor unless it is given.
    """
    shutil.copyfile(_template(), f"{place}/store.db")
    return open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor" if anchor is None else anchor)


@pytest.fixture
def store() -> Iterator[Any]:
    """A new store, in memory where the system has it."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as place:
        made = new_store(place)
        yield made
        made.close()


@functools.cache
def _template() -> str:
    place = tempfile.mkdtemp(prefix="nhc-store-")
    atexit.register(shutil.rmtree, place, True)
    open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor").close()
    return f"{place}/store.db"
