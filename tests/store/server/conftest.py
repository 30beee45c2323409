"""A server over SQLite for the tests of a module, and a token for n1."""

import pytest

from tests.support.intake import Server
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def intake(tmp_path_factory):
    directory = tmp_path_factory.mktemp("intake")
    made = Server(
        directory, f"sqlite:///{directory}/store.db",
        '[limits]\nbody = "64k"\nunpacked = "256k"\nslow = "1s"\npushes-a-node-and-minute = 6000\nconnections = 40\n',
    )  # fmt: skip
    yield made
    made.stop()


@pytest.fixture(scope="module")
def token(intake):
    return intake.token()
