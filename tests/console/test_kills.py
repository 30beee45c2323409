"""`nhc serve console` is killed again and again while a person sets holds: what was answered is kept, and once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from nhc.store import holds
from tests.console.conftest import TOKENS, Site, settings_text
from tests.support.ports import free_ports
from tests.support.run import nhc
from tests.support.waiting import until

KILLS = int(os.environ.get("NHC_KILLS", "6"))
"""50 take some minutes."""


def ask(address, path, body=None):
    """The answer's status, 0 for none."""
    request = urllib.request.Request(f"http://{address}{path}", method="POST" if body is not None else "GET")
    request.add_header("Authorization", f"Bearer {TOKENS['olga']}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.mark.slow
def test_kills_lose_no_answered_hold_and_make_none_twice(tmp_path):
    site = Site(tmp_path)
    port = free_ports(1)[0]
    address = f"127.0.0.1:{port}"
    file = tmp_path / "console.toml"
    file.write_text(f'store = "{site.store.name}"\n{settings_text(port)}')
    chance = random.Random(1)
    answered, asked = [], []
    for number in range(KILLS):
        process = subprocess.Popen([sys.executable, "-m", "nhc", "serve", "console", "--settings", file])
        until(lambda: ask(address, "/healthz") == 200, what="the console")
        stop = threading.Event()

        def person(number=number, stop=stop):
            count = 0
            while not stop.is_set():
                name = f"why {number}.{count}"
                asked.append(name)
                body = {"scope": "node", "name": "a1", "why": name, "until": "3600", "confirm": "1"}
                if ask(address, "/api/hold", body) == 200:
                    answered.append(name)
                count += 1

        thread = threading.Thread(target=person)
        thread.start()
        time.sleep(chance.uniform(0.1, 0.8))  # where in its work it dies is left to chance
        process.kill()
        process.wait(60)
        stop.set()
        thread.join(60)
    with site.store.read() as connection:
        kept = [one.why for one in holds.in_force(connection, time.time())]
    assert answered, "some were answered"
    assert set(answered) <= set(kept) <= set(asked)
    assert len(kept) == len(set(kept))
    site.store.close()
    assert nhc("store", "verify", "--store", site.store.name).returncode == 0
