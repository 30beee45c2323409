"""Rates hold whatever the clock and the callers do; a node that pushes too often is told when it may."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.system.addresses import is_loopback
from nhc.store import problems
from nhc.store.server.app import BucketRate, Buckets
from nhc.store.server.counters import ServerCounters
from nhc.store.server.settings import load
from tests.support.intake import OK, XID, Server, packed, report


@given(steps=st.lists(st.floats(-5, 20), max_size=60))
def test_no_more_than_the_burst_and_the_rate(steps):
    buckets, now, taken = Buckets(BucketRate(5, 2)), 100.0, 0
    newest = now
    for step in steps:
        now += step
        newest = max(newest, now)
        taken += buckets.take("a", now) == 0.0
    passed = sum(max(0.0, step) for step in steps)
    assert taken <= 5 + 2 * passed + 1


def test_who_was_refused_may_after_the_time_that_was_said():
    buckets = Buckets(BucketRate(2, 0.5))
    assert [buckets.take("a", 0.0) for _ in range(2)] == [0.0, 0.0]
    wait = buckets.take("a", 0.0)
    assert wait == 2.0
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", wait) == 0.0


def test_names_without_end_need_no_memory_without_end():
    buckets = Buckets(BucketRate(1, 1), most=100)
    for number in range(1000):
        buckets.take(str(number), 0.0)
    assert len(buckets._levels) == 100


def test_a_refusal_is_said_again_after_a_while_only(capsys):
    counters = ServerCounters()
    for now in (0.0, 30.0, 80.0, 200.0):
        counters.refuse("rate", "10.0.0.1", "too often", now)
    counters.refuse("rate", "10.0.0.2", "too often", 200.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "nhc server: refused a push from 10.0.0.1: too often"
    assert len(lines) == 3
    assert counters.refused["rate"] == 5


def too_much(kind, number):
    """Pushes each of which is allowed, and six of which fill a store."""
    if kind == "problems":
        results = [XID._replace(outcome=XID.outcome._replace(target=f"gpu{number}-{each}")) for each in range(100)]
        return [report(results=results)]
    if kind == "bytes":
        evidence = (f"{number} " + "x" * 900,) * 50
        return [report(results=[OK._replace(outcome=OK.outcome._replace(evidence=evidence))] * 60)]
    return [report(at=time.time() - 200 + each, boot=f"b{number}") for each in range(100)]


@pytest.mark.parametrize("kind", ["problems", "bytes", "reports"])
def test_one_nodes_token_does_not_fill_the_store_and_that_is_said(tmp_path, kind):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", nodes=["n1", "n2"])
    try:
        token, other = server.token(), server.token("n2")
        answers = [server.push(packed(*too_much(kind, number)), token) for number in range(6)]
        statuses = [status for status, *_ in answers]
        assert statuses[:2] == [200, 200]
        assert statuses[-1] == 429
        assert int(answers[-1][2]) >= 1
        assert f"too many {kind}" in server.said()
        assert server.push(packed(report("n2"), node="n2"), other)[0] == 200
        with server.store() as store, store.read() as connection:
            assert len(problems.list_problems(connection)) <= 360
    finally:
        server.stop()


def test_a_node_that_pushes_too_often_is_told_when_it_may(tmp_path):
    limits = "[limits]\npushes-a-node-and-minute = 1\n"
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", limits, nodes=["n1", "n2"])
    try:
        token, other = server.token(), server.token("n2")
        answers = [server.push(packed(report()), token) for _ in range(15)]
        assert [status for status, *_ in answers] == [200] * 10 + [429] * 5
        assert 1 <= int(answers[-1][2]) <= 60
        assert server.push(packed(report("n2"), node="n2"), other)[0] == 200
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('listen = "0.0.0.0:20259"', "server.toml:1: listen: 0.0.0.0:20259 is not on loopback: that takes HTTPS"),
        ('listen = "x"', "server.toml:1: listen: 'x' is not HOST:PORT"),
        ("[tls]\nclient-ca = '/x'", "server.toml:2: tls.client-ca: asks for client certificates"),
        ("[tls]\nkey = '/x'", "server.toml:2: tls.key: is a key without"),
        ("[limits]\nbody = '1'", "server.toml:2: limits.body: '1' is too small"),
        ("[limits]\nslowly = 1", "server.toml:2: limits.slowly: there is no such key: did you mean 'slow'?"),
    ],
)
def test_settings_that_cannot_be_are_one_line(tmp_path, text, said):
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(ValueError, match=r"server\.toml") as raised:
        load(str(tmp_path / "server.toml"))
    assert said in str(raised.value)


def test_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))
