"""A world over a new store, in memory where the system has it."""

import pytest

from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import World


@pytest.fixture
def world(store):  # noqa: F811
    return World(store, 8)
