"""A world over a new store, in memory where the system has it."""

import os
import tempfile

import pytest

from nhc.store.connect import open_store
from tests.support.remedy_world import World


@pytest.fixture
def store():
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as place:
        made = open_store(f"sqlite:///{place}/store.db", anchor=f"{place}/anchor")
        yield made
        made.close()


@pytest.fixture
def world(store):
    return World(store)
