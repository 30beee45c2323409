"""A world of jobs over a new store."""

import pytest

from tests.support.job_world import World
from tests.support.new_store import store  # noqa: F401 (a fixture)


@pytest.fixture
def world(store):  # noqa: F811
    return World(store)
