"""What the server takes, what it refuses, and that no client, however bad, keeps it from the others."""

import gzip
import json
import re
import socket
import time
import zlib
from pathlib import Path

import pytest

from nhc.core.system.bounded_read import unpacked
from nhc.marks import push
from nhc.store import nodes
from nhc.store.intake import Receipt
from nhc.store.server import access
from nhc.store.server.app import INLINE
from tests.support.intake import OK, XID, Server, packed, report
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]


def stands(intake, node="n1"):
    with intake.store() as store, store.read() as connection:
        return nodes.get(connection, node)


def changed(**fields):
    value = json.loads(zlib.decompress(packed(report()), 31))
    value.update(fields)
    return gzip.compress(json.dumps(value).encode())


def test_a_report_is_in_the_store_when_the_answer_comes(intake, token):
    at = time.time()
    status, answer, _ = intake.push(packed(report(at=at, results=(OK, XID))), token)
    assert (status, answer["taken"], answer["refused"]) == (200, 1, [])
    node = stands(intake)
    assert (node.verdict, node.reported_at, node.source) == ("CRIT", at, "agent")


def numbered(one, seq, sent, at=None):
    """A push as an agent sends it: with the milliseconds of its boot."""
    return push.pack("n1", [push.to_text(push.Pushed(one, True, at or one.started, seq=seq))], 0, one.boot_id, sent)


@pytest.mark.parametrize("off", [-3600.0, 3600.0, -86400.0 * 400])
def test_a_node_whose_clock_is_off_is_heard_all_the_same(intake, token, off):
    """It fails after its clock was set: its reports are dated by the server's clock, and both logs say so."""
    boot = f"off{off:.0f}"
    assert intake.push(numbered(report(boot=boot), 10_000, 10_100), token)[0] == 200
    before = time.time()
    status, answer, _ = intake.push(
        numbered(report(at=before + off - 5, results=(OK, XID), boot=boot), 20_000, 25_000), token
    )
    assert (status, answer["taken"], answer["refused"]) == (200, 1, [])
    assert f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the server's" in answer["notes"][0]
    node = stands(intake)
    assert node.verdict == "CRIT"
    assert abs(node.reported_at - (before - 5)) < 20
    assert abs(node.judged_at - (before - 5)) < 20
    until(lambda: "the clock of n1 is" in intake.said())
    assert "nhc_server_clocks_off_total" in intake.get("/metrics")[1]
    assert intake.push(numbered(report(at=before + off + 10, boot=boot), 30_000, 30_100), token)[0] == 200
    assert stands(intake).verdict == "OK"


def test_what_is_late_is_said_to_the_agent_counted_and_logged(intake, token):
    boot = "late"
    assert "notes" not in intake.push(numbered(report(boot=boot), 50_000, 50_000), token)[1]
    status, answer, _ = intake.push(numbered(report(boot=boot, results=(OK, XID)), 40_000, 50_100), token)
    assert (status, answer["taken"]) == (200, 1)
    assert "1 of 1 reports are late: it is older than the newest report of n1" in answer["notes"][0]
    assert stands(intake).verdict == "OK"
    assert re.search(r'nhc_server_reports_total\{receipt="late"\} [1-9]', intake.get("/metrics")[1])


def test_a_double_push_is_taken_and_changes_nothing(intake, token):
    body = packed(report())
    assert [intake.push(body, token)[0] for _ in range(2)] == [200, 200]


def test_a_report_from_the_future_is_refused_and_the_others_of_the_push_are_not(intake, token):
    now = time.time()
    status, answer, _ = intake.push(packed(report(at=now), report(at=now + 4000)), token)
    assert (status, answer["taken"]) == (200, 1)
    assert "ahead of this clock" in answer["refused"][0]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "gzip"),
        (b"\0" * 50, 400, "not gzip"),
        (packed(report())[:-5], 400, "is cut"),
        (packed(report()) + b"x", 400, "after the gzip stream"),
        (gzip.compress(b"[" * 100_000), 400, "nested too deep"),
        (gzip.compress(b'{"nhc": "push", "reports": [' + b"[" * 90_000), 400, "nested too deep"),
        (gzip.compress(b"\xff\xfe"), 400, "not UTF-8"),
        (gzip.compress(b"NaN"), 400, "no push"),
        (gzip.compress(b"\0" * (1 << 26)), 413, "when unpacked"),
        (b"\0" * (65 << 10), 413, "at most"),
        (changed(schema=2), 400, "schema 2"),
        (changed(node=""), 400, "no name"),
        (changed(node=7), 400, "no name"),
        (changed(reports=[]), 400, "no list of 1 to"),
        (changed(reports=[{}] * 101), 400, "no list of 1 to"),
        (changed(reports=[7]), 400, "neither true nor false"),
        (changed(reports=[{"complete": True, "at": True}]), 400, "at is no time"),
        (changed(reports=[{"complete": True, "at": 1e300}]), 400, "at is no time"),
        (changed(reports=[{"complete": True, "at": 1, "report": {"schema": 9}}]), 400, "schema 9"),
        (changed(lost=-1), 400, "lost is no count"),
        (changed(lost=1 << 70), 400, "lost is no count"),
        (changed(seq=-1), 400, "seq is no count"),
        (changed(seq="x"), 400, "seq is no count"),
        (changed(boot=7), 400, "boot is no name"),
        (packed(report("n2"), node="n2"), 403, "the token is for n1, not for n2"),
        (packed(report("n2"), node="n1"), 403, "n1 pushes a report of n2"),
    ],
    ids=range(26),
)  # fmt: skip
def test_a_bad_push_is_refused_in_one_line(intake, token, body, status, said):
    got, answer, _ = intake.push(body, token)
    assert (got, said in answer["error"]) == (status, True), answer
    assert intake.push(packed(report()), token)[0] == 200


def test_numbers_beyond_measure_are_refused(intake, token):
    text = json.dumps(json.loads(zlib.decompress(packed(report()), 31)))
    for bad in ("1e999", "-1e999", "1" * 400, "NaN"):
        body = text.replace('"elapsed": 1.0', f'"elapsed": {bad}', 1)
        assert body != text
        assert intake.push(gzip.compress(body.encode()), token)[0] == 400


def test_other_paths_and_methods(intake):
    assert intake.get("/v1/reports")[0] == 405
    assert intake.get("/etc/passwd")[0] == 404
    assert intake.get("/healthz") == (200, "ok\n")


def test_what_was_refused_is_counted_and_said_once_a_minute(intake, token):
    for _ in range(3):
        intake.push(b"nonsense", token)
    said = intake.said()
    assert said.count("refused a push from 127.0.0.1: 400:") == 1
    assert token not in said
    metrics = intake.get("/metrics")[1]
    assert 'nhc_server_refused_total{why="malformed"}' in metrics
    assert "nhc_server_store_up 1" in metrics


def raw(intake):
    host, _, port = intake.url.rpartition("/")[2].rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def gone(connection):
    """Whether the server ends the connection, and what it said before."""
    connection.settimeout(15)
    said = b""
    try:
        while True:
            data = connection.recv(4096)
            if not data:
                return said.decode()
            said += data
    except ConnectionError:
        return said.decode()


def test_who_connects_and_says_nothing_is_cut_off(intake, token):
    with raw(intake) as silent, raw(intake) as slow:
        slow.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: x\r\n")
        assert gone(silent) == ""
        assert gone(slow) == ""
    assert intake.push(packed(report()), token)[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for(intake, token):
    head = f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n"
    with raw(intake) as connection:
        connection.sendall(head.encode() + b"x" * 10)
        assert "408" in gone(connection).partition("\r\n")[0]


def test_a_body_that_is_cut_off_changes_nothing(intake, token):
    body = packed(report())
    head = (
        f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with raw(intake) as connection:
        connection.sendall(head.encode() + body[:-3])
    assert intake.push(packed(report()), token)[0] == 200


def test_a_chunked_body_without_end_is_bounded(intake, token):
    head = (
        f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with raw(intake) as connection:
        connection.sendall(head.encode())
        try:
            for _ in range(40):
                connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        except ConnectionError:
            pass
        assert "413" in gone(connection).partition("\r\n")[0]


def test_too_many_connections_lock_nobody_out_for_long(intake, token):
    idle = [raw(intake) for _ in range(60)]
    try:
        until = time.monotonic() + 60
        status = 0
        while status != 200 and time.monotonic() < until:
            try:
                status = intake.push(packed(report()), token)[0]
            except Exception:
                time.sleep(0.05)
        assert status == 200
    finally:
        [connection.close() for connection in idle]


def asked(connection, token, body):
    """The head of the answer to a push over a connection that stays open."""
    head = f"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Encoding: gzip\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    connection.settimeout(60)
    said = b""
    while b'"refused": []' not in said or not said.endswith(b"}"):
        data = connection.recv(4096)
        assert data, said
        said += data
    return said.decode().partition("\r\n\r\n")[0]


def test_a_connection_may_rest_longer_than_a_head_may_take(intake, token):
    """Half a head is given one second here, an agent that comes back in a minute is not."""
    with raw(intake) as connection:
        assert asked(connection, token, packed(report())).startswith("HTTP/1.1 200")
        connection.settimeout(2.5)
        with pytest.raises(socket.timeout):
            connection.recv(1)
        assert asked(connection, token, packed(report())).startswith("HTTP/1.1 200")
        began = time.monotonic()
        connection.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: x\r\n")
        assert gone(connection) == ""
        assert time.monotonic() - began < 45


def test_a_crowded_server_ends_connections_once_they_are_answered(tmp_path):
    server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", "[limits]\nconnections = 6\n")
    try:
        token = server.token()
        body = packed(report())
        with raw(server), raw(server), raw(server):  # and the one that asks: four of six

            def crowded():
                with raw(server) as connection:
                    return "connection: close" in asked(connection, token, body).lower()

            until(crowded)
            large = packed(*(report(at=time.time() - 1000 + number, results=(OK,) * 60) for number in range(50)))
            assert len(unpacked(large, 1 << 24)) > INLINE  # one that is read beside the others
            status, answer, _ = server.push(large, token)
            assert (status, answer["taken"], answer["refused"]) == (200, 50, [])
            for _ in range(10):  # more than there is room for, if each stayed
                assert crowded()
        until(lambda: not crowded())
    finally:
        assert server.stop() == 0


def test_a_revoked_token_is_no_token(intake):
    mine = intake.token("n7")
    assert intake.push(packed(report("n7"), node="n7"), mine)[0] == 200
    with intake.store() as store, store.write() as connection:
        access.revoke(connection, "n7", by="t", now=time.time())
    until = time.monotonic() + 60
    while intake.push(packed(report("n7"), node="n7"), mine)[0] == 200 and time.monotonic() < until:
        time.sleep(0.1)
    assert intake.push(packed(report("n7"), node="n7"), mine)[1] == {"error": "the token is not known, or was revoked"}


def test_the_store_keeps_hashes_alone(intake, token):
    assert token.encode() not in (intake.directory / "store.db").read_bytes()
    assert access.digest(token).encode() in (
        (intake.directory / "store.db").read_bytes() + (intake.directory / "store.db-wal").read_bytes()
    )


def test_a_push_is_read_back_as_it_was_written():
    one, other = report(results=(XID,)), report()
    texts = [push.to_text(push.Pushed(one, True, 5.0)), push.to_text(push.Pushed(other, False, 6.0))]
    found = push.parse(unpacked(push.pack("n1", texts, 7), 1 << 20))
    assert found == push.Push("n1", (push.Pushed(one, True, 5.0), push.Pushed(other, False, 6.0)), 7)


def test_each_receipt_has_a_series_before_its_first_report(intake):
    page = intake.get("/metrics")[1]
    for receipt in Receipt:
        assert f'nhc_server_reports_total{{receipt="{receipt.value}"}} ' in page


def test_each_reason_for_a_refusal_has_a_series_before_the_first(intake):
    """All that the server's source refuses for, so that `increase()` sees the first."""
    places = [*(ROOT / "nhc/store/server").glob("*.py"), *(ROOT / "nhc/core/system").glob("web_*.py")]
    calls = re.compile(r'(?:RefusedPush\([^,()]+,|\.refuse\(|refused\[)\s*"([a-z]+)"')
    whys = {why for place in places for why in calls.findall(place.read_text())}
    assert len(whys) > 10
    page = intake.get("/metrics")[1]
    assert [why for why in sorted(whys) if f'nhc_server_refused_total{{why="{why}"}} ' not in page] == []
