"""`nhc console run` over a PostgreSQL that stops answering: it says so, and every look and every decision ends."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from nhc.store.connect import open_store
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from tests.console.conftest import report, settings_text
from tests.console.test_kills import ask
from tests.support.ports import free_ports
from tests.support.postgresql import postgresql  # noqa: F401 (a fixture)
from tests.support.waiting import until

HOLD = {"scope": "node", "name": "a1", "why": "a hung disk", "until": "3600", "confirm": "1"}
LOOKS = (("/api/counts", None), ("/api/episodes", None), ("/api/held", None), ("/api/hold", HOLD))


@pytest.mark.slow
def test_a_frozen_postgresql_is_said_and_ends_every_look(postgresql, tmp_path):  # noqa: F811 (the fixture)
    port, url = free_ports(1)[0], postgresql.database()
    address, file = f"127.0.0.1:{port}", tmp_path / "console.toml"
    file.write_text(f'store = "{url}"\n{settings_text(port)}')
    with closing(open_store(url, anchor="")) as store, store.write() as connection:
        receive(connection, [Incoming(report("a1", started=time.time()), "agent", time.time())])
    argv = [sys.executable, "-m", "nhc", "serve", "console", "--settings", file]
    with (tmp_path / "said").open("w") as log:
        process = subprocess.Popen(argv, stderr=log)
    said = (tmp_path / "said").read_text
    try:
        until(lambda: ask(address, "/healthz") == 200, 90, what="the console", said=said)
        with postgresql.frozen(), ThreadPoolExecutor(len(LOOKS)) as persons:
            began = time.monotonic()
            answers = list(persons.map(lambda look: ask(address, *look), LOOKS))
            assert time.monotonic() - began < 60
            assert answers[1:] == [503, 503, 503]
            until(lambda: ask(address, "/healthz") == 503, 60)
        until(lambda: ask(address, "/healthz") == 200, 90)
        until(lambda: ask(address, "/api/hold", HOLD) == 200, 60)
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in said()
