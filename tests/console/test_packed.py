"""What many viewers ask of one snapshot is made, written as JSON and compressed once."""

import gzip
import json
import threading
import urllib.request

import pytest

from nhc.console.routes import takes_gzip
from nhc.console.settings import parse
from nhc.console.sources import StoreSource
from nhc.store import nodes
from tests.console.conftest import Running, settings_text
from tests.support.ports import free_ports
from tests.support.waiting import until

VIEWERS = 20


@pytest.fixture
def large(site):
    """A console of 400 nodes that reads once in a minute."""
    with site.store.write() as connection:
        nodes.describe(connection, [nodes.NodeDescription(f"n{number:04}") for number in range(400)])
    found = parse(settings_text(free_ports(1)[0]).replace('refresh = "0.5s"', 'refresh = "1m"'))
    running = Running(found, StoreSource(site.store, found.stale), site.store)
    until(lambda: running.server.hub.snapshot, what="the first snapshot")
    yield running
    running.stop()


@pytest.mark.thorough
def test_an_answer_is_packed_once_for_all_viewers(large, monkeypatch):
    packed = []
    compress = gzip.compress
    monkeypatch.setattr(
        gzip, "compress", lambda data, *more, **named: packed.append(data) or compress(data, *more, **named)
    )
    found = []

    def view():
        request = urllib.request.Request(f"http://{large.address}/api/layout", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found.append((answer.headers["Content-Encoding"], json.loads(gzip.decompress(answer.read()))["names"]))

    threads = [threading.Thread(target=view) for _viewer in range(VIEWERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == VIEWERS
    assert len(packed) == 1
    assert {coding for coding, _names in found} == {"gzip"}
    assert {len(names) for _coding, names in found} == {408}


@pytest.mark.thorough
def test_who_does_not_take_gzip_gets_the_same_plain(large):
    status, value, headers = large.ask("GET", "/api/layout", Accept_Encoding="identity")
    assert (status, headers["Content-Encoding"], headers["Vary"]) == (200, None, "Accept-Encoding")
    assert len(value["names"]) == 408


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["/api/fleet", "/api/needs"])
def test_trouble_is_told_with_the_old_snapshot(large, path):
    assert large.ask("GET", path)[1]["trouble"] == ""
    large.server.hub.problem = "the store does not answer"
    assert large.ask("GET", path)[1]["trouble"] == "the store does not answer"


@pytest.mark.parametrize(
    ("header", "taken"),
    [("gzip, deflate, br", True), ("br;q=1.0, GZIP ; q=0.5", True), ("", False), ("identity", False),
     ("gzip;q=0", False), ("br", False)],
)  # fmt: skip
def test_gzip_is_sent_to_those_who_take_it(header, taken):
    assert takes_gzip(header) is taken
