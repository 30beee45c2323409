"""A node that is hostile after its login, and a stranger at the port: neither keeps the server from the others."""

import contextlib
import gzip
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
import urllib3

from nhc.core.system.bounded_read import TooLarge, unpacked
from nhc.core.system.web_listener import group
from nhc.marks import push
from tests.store.server.test_tls import keys  # noqa: F401 (a fixture)
from tests.support.hostile_requests import REQUESTS, sent
from tests.support.intake import OK, Server, packed, report


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A server that nobody else has made say anything."""
    directory = tmp_path_factory.mktemp("alone")
    made = Server(directory, f"sqlite:///{directory}/store.db", '[limits]\nslow = "1s"\n', nodes=["n7"])
    yield made
    made.stop()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_malformed_request_is_a_400_without_a_traceback(alone, name):
    answer = sent(alone.listen, REQUESTS[name])
    # aiohttp before 3.14 ends the connection without an answer where the address cannot be parsed.
    assert (not answer and name == "no address") or answer.split()[1][0] == "4"
    assert re.findall(r"(?im)^server:.*$", answer.replace("\r", "")) in ([], ["Server: nhc"]), "no version of anything"
    assert "Traceback" not in alone.said()


def test_a_thousand_malformed_requests_are_a_few_lines(alone):
    before = len(alone.said())
    for _ in range(70):
        for data in REQUESTS.values():
            sent(alone.listen, data)
    assert len(alone.said()) - before < 600
    refused = [line for line in alone.get("/metrics")[1].splitlines() if 'refused_total{why="malformed"}' in line]
    assert float(refused[0].split()[1]) > 500


def test_a_node_that_says_with_each_push_that_it_lost_reports_fills_no_log(alone):
    token = alone.token("n7")
    before = alone.said().count("n7 lost")
    for _ in range(5):
        assert alone.push(packed(report("n7"), node="n7", lost=3), token)[0] == 200
    assert alone.said().count("n7 lost") - before == 1
    assert "nhc_server_reports_lost_total 15" in alone.get("/metrics")[1]


def bomb():
    """Ten million empty lists in 32 kB: valid JSON that is a push, until it is read."""
    lists = b"[]," * ((32 << 20) // 3 - 100)
    return gzip.compress(b'{"nhc":"push","schema":1,"node":"n1","reports":[' + lists + b"[]]}")


def resident(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.slow
def test_one_nodes_bombs_do_not_delay_another_node(tmp_path):
    limits, nodes = "[limits]\npushes-a-node-and-minute = 6000\n", ["n1", "n2"]
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", limits, nodes=nodes)
    try:
        hostile, good = server.token("n1"), server.token("n2")
        body, before = bomb(), resident(server.process.pid)
        assert len(body) < 64 << 10
        took, statuses, end = [], [], threading.Event()

        def attack():
            statuses.extend(server.push(body, hostile)[0] for _ in range(3))

        def work():
            while not end.is_set():
                began = time.monotonic()
                assert server.push(packed(report("n2"), node="n2"), good)[0] == 200
                took.append(time.monotonic() - began)

        threads = [threading.Thread(target=attack) for _ in range(12)]
        worker = threading.Thread(target=work)
        worker.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        end.set()
        worker.join(60)
        assert set(statuses) <= {413, 429}
        assert 413 in statuses
        assert max(took) < 15.0, max(took)
        assert resident(server.process.pid) - before < 250 << 20
    finally:
        server.stop()


def test_the_rate_is_counted_before_a_push_is_read(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", "[limits]\npushes-a-node-and-minute = 20\n")
    try:
        token = server.token()
        statuses = [server.push(b"no gzip", token)[0] for _ in range(15)]
        assert statuses[-1] == 429
        assert statuses.count(400) <= 10
    finally:
        server.stop()


def test_a_push_of_more_values_than_any_node_has_is_refused():
    body = json.dumps({"nhc": "push", "schema": 1, "node": "n1", "reports": [[]] * (push.VALUES + 1)}).encode()
    with pytest.raises(TooLarge, match="more than 400000 values"):
        push.parse(body)


def test_large_reports_of_a_large_node_are_taken():
    """A hundred results with five metrics each, fifty reports: what an agent's spool sends at once."""
    from nhc.core.model import Metric

    rich = OK._replace(outcome=OK.outcome._replace(metrics=tuple(Metric(f"m{n}", 1.0, "W") for n in range(5))))
    body = unpacked(packed(*[report(results=(rich,) * 100)] * 50), 64 << 20)
    assert len(push.parse(body).reports) == 50


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_silent_connections_of_one_address_leave_room_for_others(tmp_path, keys, secure):  # noqa: F811
    """Before TLS has begun, too: who is silent there is seen by nobody else."""
    tls = f'[tls]\ncertificate = "{keys}/server.crt"\nkey = "{keys}/server.key"\n' if secure else ""
    limits = '[limits]\nconnections = 60\nconnections-an-address = 20\nslow = "60s"\n'
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", tls + limits)
    try:
        host, port = server.listen.split(":")
        trust = {"ca_certs": f"{keys}/ca.crt"} if secure else {}
        token = server.token()
        assert server.push(packed(report()), token, **trust)[0] == 200
        with contextlib.ExitStack() as silent:
            for _ in range(100):
                silent.enter_context(socket.create_connection((host, int(port)), 20, ("127.0.0.2", 0)))
            pool = silent.enter_context(
                urllib3.PoolManager(1, retries=False, timeout=20, source_address=("127.0.0.3", 0), **trust)
            )
            for _ in range(5):
                answer = pool.request(
                    "POST", server.url + push.PATH, body=packed(report()),
                    headers={"Content-Encoding": "gzip", "Authorization": f"Bearer {token}"},
                )  # fmt: skip
                assert answer.status == 200
            lines = [line for line in server.said().splitlines() if "127.0.0.2" in line]
            assert len(lines) == 1
            assert "20 connections of this address are open" in lines[0]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("address", "said"),
    [("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::/64"),
     ("fe80::1%eth0", "fe80::/64"), ("no address", "no address")],
)  # fmt: skip
def test_who_counts_as_one_address(address, said):
    assert group(address) == said
