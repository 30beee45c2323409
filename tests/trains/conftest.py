"""A world over a new store, in memory where the system has it."""

import os
import tempfile

import pytest

from tests.support.remedy_world import World, new_store


@pytest.fixture
def store():
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as place:
        made = new_store(place)
        yield made
        made.close()


@pytest.fixture
def world(store):
    return World(store, 8)
