"""A store of each kind, as the tests of the store have it."""

from tests.store.conftest import postgresql, store, url  # noqa: F401 (fixtures)
