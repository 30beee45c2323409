"""A store of each kind: in SQLite's file, and in a PostgreSQL server of the tests' own."""

import pytest

from nhc.store.connect import open_store
from tests.support.new_store import new_store
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)

BOTH = ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.slow])]


@pytest.fixture(params=BOTH)
def url(request, tmp_path):
    """Where a new store can be made."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgresql").database()


@pytest.fixture
def store(url, tmp_path):
    """A new store: of SQLite a copy, since test_connect.py has those that are made."""
    is_file = url.startswith("sqlite:")
    made = new_store(str(tmp_path)) if is_file else open_store(url, anchor=str(tmp_path / "anchor"))
    yield made
    made.close()
