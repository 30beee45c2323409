"""A store, and a world of jobs over it."""

import pytest

from nhc.store.connect import open_store
from tests.support.job_world import World


@pytest.fixture
def store(tmp_path):
    made = open_store(f"sqlite:///{tmp_path}/store.db")
    yield made
    made.close()


@pytest.fixture
def world(store):
    return World(store)
