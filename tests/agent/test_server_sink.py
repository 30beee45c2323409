"""An agent's reports reach the server whatever happens in between: away, restarted, refusing, out of disk."""

import json
import os
import resource
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nhc.agent.server_push import read_push_settings
from nhc.agent.server_sink import ServerSink
from nhc.agent.spool import Spool
from nhc.core.system.bounded_read import unpacked
from nhc.marks import push
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery
from nhc.store import nodes
from tests.support.http_server import Reply, answering, serving
from tests.support.intake import XID, Server, report
from tests.support.waiting import until

SETTINGS = "[limits]\npushes-a-node-and-minute = 60000\n"


class Place:
    """A server, and the settings of a sink that pushes to it."""

    def __init__(self, tmp_path):
        self.path = tmp_path
        self.server = Server(tmp_path, f"sqlite:///{tmp_path}/store.db", SETTINGS)
        self.token = tmp_path / "token"
        self.token.write_text(self.server.token() + "\n")
        self.lines = []
        self.sinks = []

    def sink(self, **more):
        table = {
            "url": self.server.url, "token-file": str(self.token), "spool": str(self.path / "spool"), "timeout": "5s",
            **more,
        }  # fmt: skip
        self.sinks.append(ServerSink(read_push_settings(table), "n1", self.lines.append))
        return self.sinks[-1]

    def boots(self):
        """Every boot id in the history of n1, oldest first: the tests' reports differ in it."""
        with self.server.store() as store, store.read() as connection:
            return [row.boot_id for row in nodes.history(connection, "n1")]

    def waiting(self):
        return sorted(name for name in os.listdir(self.path / "spool") if name.endswith(".report"))


@pytest.fixture
def pushed_to(tmp_path, monkeypatch):
    monkeypatch.setattr("nhc.agent.server_sink.BACKOFF", (0.05, 0.3))
    made = Place(tmp_path)
    yield made
    [sink.close() for sink in made.sinks]
    made.server.stop()


def deliver(sink, boot):
    sink.deliver(Delivery(report(boot=boot), True))


def test_a_report_is_pushed_at_once_and_leaves_nothing_on_the_disk(pushed_to):
    sink = pushed_to.sink()
    deliver(sink, "b1")
    until(lambda: pushed_to.boots() == ["b1"])
    assert sink.problem() == ""
    until(lambda: pushed_to.waiting() == [])


def test_a_node_whose_clock_goes_back_is_heard_and_told(pushed_to):
    sink = pushed_to.sink()
    now = time.time()
    sink._clock = lambda: now
    sink.deliver(Delivery(report(at=now), True))
    until(lambda: pushed_to.boots() == ["b1"])
    sink._clock = lambda: now - 3600
    sink.deliver(Delivery(report(at=now - 3600, results=(XID,)), True))

    def verdict():
        with pushed_to.server.store() as store, store.read() as connection:
            return nodes.get(connection, "n1").verdict

    until(lambda: verdict() == "CRIT")
    until(lambda: any("the server notes: the clock of n1 is" in line for line in pushed_to.lines))


def test_what_says_the_same_is_pushed_once_in_a_while(pushed_to):
    sink = pushed_to.sink(every="1h")
    for _ in range(5):
        deliver(sink, "b1")
    deliver(sink, "b2")
    until(lambda: pushed_to.boots() == ["b1", "b2"])
    assert 'receipt="same"} 0' in pushed_to.server.get("/metrics")[1]


def test_reports_wait_for_a_server_that_is_away_and_come_in_their_order(pushed_to):
    pushed_to.server.stop()
    sink = pushed_to.sink()
    for number in range(5):
        deliver(sink, f"b{number}")
        time.sleep(0.01)
    until(lambda: "connection refused" in sink.problem())
    until(lambda: len(pushed_to.waiting()) == 5)
    sink.close()  # the agent is restarted meanwhile
    again = pushed_to.sink()
    deliver(again, "b5")
    pushed_to.server.start()
    until(lambda: pushed_to.boots() == [f"b{number}" for number in range(6)])
    until(lambda: again.problem() == "")
    until(lambda: pushed_to.waiting() == [])


def test_a_server_that_is_restarted_while_agents_push_loses_nothing(pushed_to):
    sink = pushed_to.sink()
    sent = []
    for number in range(60):
        sent.append(f"b{number}")
        deliver(sink, sent[-1])
        time.sleep(0.02)
        if number == 20:
            pushed_to.server.stop()
        if number == 40:
            pushed_to.server.start()
    until(lambda: pushed_to.boots() == sent)


def test_a_wrong_token_is_said_and_taken_up_when_it_is_right(pushed_to):
    good = pushed_to.token.read_text()
    pushed_to.token.write_text("nhc_wrong")
    sink = pushed_to.sink()
    deliver(sink, "b1")
    until(lambda: "HTTP 401: the token is not known" in sink.problem())
    assert "nhc_wrong" not in sink.problem() + "".join(pushed_to.lines)
    pushed_to.token.unlink()
    until(lambda: "token: No such file" in sink.problem())
    pushed_to.token.write_text(good)
    until(lambda: pushed_to.boots() == ["b1"])


def test_what_the_server_never_takes_does_not_hold_up_the_rest(pushed_to):
    pushed_to.server.stop()
    sink = pushed_to.sink()
    deliver(sink, "b1")
    until(lambda: pushed_to.waiting())
    sink.close()
    spool = Spool(str(pushed_to.path / "spool"), 1 << 20, 1e9)
    spool.add('{"at": 1, "complete": "perhaps", "report": 7}', time.time())
    again = pushed_to.sink()
    deliver(again, "b2")
    pushed_to.server.start()
    until(lambda: pushed_to.boots() == ["b1", "b2"])
    until(lambda: any("complete is neither true nor false" in line for line in pushed_to.lines))
    until(lambda: pushed_to.waiting() == [])


def test_a_full_spool_drops_the_oldest_and_the_server_hears_how_many(pushed_to):
    pushed_to.server.stop()
    sink = pushed_to.sink(**{"spool-size": 4096})
    for number in range(30):
        deliver(sink, f"b{number}")
    until(lambda: sink.problem())
    sink.close()
    kept = len(pushed_to.waiting())
    assert 0 < kept < 30
    again = pushed_to.sink(**{"spool-size": 4096})
    pushed_to.server.start()
    until(lambda: f"n1 lost {30 - kept} reports" in pushed_to.server.said())
    assert pushed_to.boots() == [f"b{number}" for number in range(30 - kept, 30)]
    deliver(again, "last")
    until(lambda: pushed_to.boots()[-1] == "last")
    assert pushed_to.server.said().count(" lost ") == 1


def test_a_disk_that_takes_nothing_leaves_the_newest_in_memory(pushed_to):
    (pushed_to.path / "file").write_text("")
    pushed_to.server.stop()
    sink = pushed_to.sink(spool=str(pushed_to.path / "file" / "spool"))
    for number in range(25):
        deliver(sink, f"b{number}")
    assert any("no report outlasts a restart" in line for line in pushed_to.lines)
    pushed_to.server.start()
    until(lambda: pushed_to.boots() == [f"b{number}" for number in range(5, 25)])
    until(lambda: "n1 lost 5 reports" in pushed_to.server.said())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b"<html>a proxy's own page"), "no answer of nhc's server"),
        ((200, {}, b"[" * 100_000), "the answer has more than 65536 bytes"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "HTTP 302"),
        ((500, {}, b"\0\x1b[2J"), "HTTP 500"),
        ((503, {"Retry-After": "1"}, b'{"error": "busy"}'), "HTTP 503: busy"),
        ((429, {"Retry-After": "-5"}, b'{"error": 7}'), "HTTP 429: 7"),
    ],
)
def test_any_other_answer_is_no_answer_and_the_report_stays(pushed_to, answer, said):
    asked = []

    def reply(_request):
        asked.append(time.monotonic())
        status, headers, body = answer
        return Reply(status, body, headers)

    with serving(answering(reply)) as peer:
        sink = pushed_to.sink(url=f"http://127.0.0.1:{peer.server_port}")
        deliver(sink, "b1")
        until(lambda: said in sink.problem())
        until(lambda: len(pushed_to.waiting()) == 1)
        until(lambda: len(asked) > 1)
        if answer[1].get("Retry-After") == "1":
            assert asked[1] - asked[0] >= 1.0
        sink.close()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "sinks.server.url: missing"),
        ({"url": "http://example.org:1", "token-file": "x"}, "expected https"),
        ({"url": "ftp://x", "token-file": "x"}, "expected https://HOST:PORT"),
        ({"url": "https://u:sekrit@x", "token-file": "x"}, "expected https://HOST:PORT"),
        ({"url": "https://x"}, "token-file: missing"),
        ({"url": "https://x", "token-file": "t", "spool-size": "1"}, "too small"),
        ({"url": "https://x", "token-file": "t", "evry": "1s"}, "did you mean 'every'?"),
    ],
)
def test_settings_that_cannot_be_are_one_line(table, said):
    with pytest.raises(AdapterError) as raised:
        read_push_settings(table)
    assert said in str(raised.value)


def test_a_spool_with_rubbish_in_it_gives_what_is_whole(tmp_path):
    spool = Spool(str(tmp_path), 1 << 20, 1000.0)
    for number in range(3):
        spool.add(f'{{"n": {number}}}', 100.0 + number)
    names = sorted(name for name in os.listdir(tmp_path) if name.endswith(".report"))
    (tmp_path / names[1]).write_bytes(b"damaged")
    (tmp_path / "000-1.report.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("a person's")
    (tmp_path / "2026-november.report").write_text("a person's as well")
    again = Spool(str(tmp_path), 1 << 20, 1000.0)
    assert again.oldest(10)[1] == ['{"n": 0}', '{"n": 2}']
    assert again.lost == 1
    assert (tmp_path / "notes.txt").exists()
    assert Spool(str(tmp_path), 1 << 20, 1000.0).lost == 1


def test_a_process_without_descriptors_loses_no_report(tmp_path):
    spool = Spool(str(tmp_path), 1 << 20, 1000.0)
    spool.add("{}", 100.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            spool.oldest(10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (spool.oldest(10)[1], spool.lost) == (["{}"], 0)


@pytest.mark.thorough
@given(
    steps=st.lists(st.tuples(st.sampled_from(["add", "take", "restart", "wait"]), st.integers(1, 400)), max_size=40),
    size=st.integers(4096, 20_000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_every_report_is_taken_once_in_order_or_counted_as_lost(tmp_path_factory, steps, size):
    directory = tmp_path_factory.mktemp("spool")
    spool, now, added, taken = Spool(str(directory), size, 500.0), 1000.0, 0, []
    for step, number in steps:
        if step == "add":
            spool.add(json.dumps({"n": added, "noise": os.urandom(number).hex()}), now)
            added += 1
            assert sum(path.stat().st_size for path in directory.glob("*.report")) <= size
        elif step == "take":
            files, texts = spool.oldest(number % 5)
            taken += [json.loads(text)["n"] for text in texts]
            spool.remove(files)
        elif step == "restart":
            spool = Spool(str(directory), size, 500.0)
        else:
            now += number
            spool.trim(now)
    rest = [json.loads(text)["n"] for text in spool.oldest(1000)[1]]
    assert taken + rest == sorted({*taken, *rest})
    assert len(taken) + len(rest) + spool.lost == added


def test_a_real_agent_pushes_what_its_checks_found(pushed_to):
    (pushed_to.path / "nhc.conf").write_text("* |every 1s| check_file_test -e /no/such/file\n")
    (pushed_to.path / "agent.toml").write_text(f"""
[agent]
node = "n1"
config = ["{pushed_to.path}/nhc.conf"]
state = "{pushed_to.path}/agent-state"
socket = "{pushed_to.path}/agent.sock"
kernel-log = false
listen = []
[events]
path = ""
[sinks.server]
url = "{pushed_to.server.url}"
token-file = "{pushed_to.token}"
spool = "{pushed_to.path}/spool"
every = "1s"
""")
    agent = subprocess.Popen(
        [sys.executable, "-m", "nhc", "serve", "agent", "-s", str(pushed_to.path / "agent.toml")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NHC_STATE_DIR": str(pushed_to.path / "agent-state"), "NHC_MUTES": "/no/such"},
    )  # fmt: skip
    try:

        def node():
            with pushed_to.server.store() as store, store.read() as connection:
                return nodes.get(connection, "n1")

        until(lambda: node() is not None and node().verdict == "CRIT")
        first = node().reported_at
        until(lambda: node().reported_at > first)
        assert node().judged_at <= node().reported_at
    finally:
        agent.terminate()
        said = agent.communicate(timeout=60)[1]
    assert "Traceback" not in said


def test_push_text_is_one_line():
    assert "\n" not in push.to_text(push.Pushed(report(), True, 1.0))


def pushes_of(server):
    """How many reports the server counted, by what they came to; what was never counted is left out."""
    lines = server.get("/metrics")[1].splitlines()
    named = [line.partition('receipt="')[2].split('"} ') for line in lines if "reports_total{" in line]
    return {name: int(count) for name, count in named if int(count)}


def bodies_to(sink):
    """The reports of each push that a sink sends, as they travel."""
    seen, send = [], sink._pusher.push

    def watched(body):
        seen.append(json.loads(unpacked(body, 1 << 20))["reports"])
        return send(body)

    sink._pusher.push = watched
    return seen


def delivered(sink, at, results=(XID,), boot="b1"):
    """Deliver at a time of the sink's clock, and wait until it is pushed."""
    sink._clock = lambda: at
    sink.deliver(Delivery(report(at=at, results=results, boot=boot), True))
    until(lambda: not sink._pending)


def test_what_did_not_change_is_sent_as_such_until_something_does(pushed_to):
    sink, now = pushed_to.sink(), time.time()
    seen = bodies_to(sink)
    for minute in range(4):
        delivered(sink, now + minute * 60)
    delivered(sink, now + 241, boot="b2")
    delivered(sink, now + 302, boot="b2")
    assert [["report" in one for one in sent] for sent in seen] == [[True], [False], [False], [False], [True], [False]]
    assert pushes_of(pushed_to.server) == {"changed": 2, "same": 4}
    assert pushed_to.waiting() == []


def test_a_row_that_is_lost_is_whole_again_with_the_next_push(pushed_to):
    sink, now = pushed_to.sink(every="1s"), time.time()
    seen = bodies_to(sink)
    delivered(sink, now)
    with pushed_to.server.store() as store, store.write() as connection:
        connection.execute(sa.text("DELETE FROM nodes"))
    delivered(sink, now + 2)
    assert ["report" in sent[0] for sent in seen] == [True, False, True]
    with pushed_to.server.store() as store, store.read() as connection:
        assert nodes.get(connection, "n1").verdict == "CRIT"
    assert not sink.problem()
    assert not pushed_to.lines


def test_a_server_that_is_started_again_takes_what_did_not_change(pushed_to):
    sink, now = pushed_to.sink(), time.time()
    seen = bodies_to(sink)
    delivered(sink, now)
    pushed_to.server.stop()
    pushed_to.server.start()
    delivered(sink, now + 60)
    assert "unchanged" in seen[-1][0]
    assert pushes_of(pushed_to.server) == {"same": 1}


def test_a_whole_report_comes_once_in_a_while(pushed_to):
    sink, now = pushed_to.sink(whole="1s"), time.time()
    seen = bodies_to(sink)
    delivered(sink, now)
    time.sleep(1.1)  # the bound itself is what is tested
    delivered(sink, now + 60)
    assert ["report" in sent[0] for sent in seen] == [True, True]


def test_what_waits_on_the_disk_is_whole(pushed_to):
    sink, now = pushed_to.sink(), time.time()
    delivered(sink, now)
    pushed_to.server.stop()
    for minute in (1, 2, 3):
        sink._clock = lambda minute=minute: now + minute * 60
        sink.deliver(Delivery(report(at=now + minute * 60, results=(XID,)), True))
    until(lambda: len(pushed_to.waiting()) == 3)
    texts = sink._spool.oldest(10)[1]
    assert len(texts) == 3
    assert all("report" in json.loads(text) for text in texts)
    pushed_to.server.start()
    until(lambda: pushed_to.waiting() == [])
    assert pushes_of(pushed_to.server) == {"same": 3}


@pytest.mark.parametrize("balanced", [False, True], ids=["older", "one-newer-before"])
def test_an_older_server_gets_whole_reports_and_none_is_lost(pushed_to, balanced):
    """It answers without a digest, and takes a report without `report` for malformed, as releases before did."""
    bodies = []

    def reply(request):
        sent = json.loads(unpacked(request.body, 1 << 20))
        bodies.append(["report" in one for one in sent["reports"]])
        if not all(bodies[-1]):
            return Reply(400, b'{"error": "not a report: not a JSON object"}')
        first = balanced and len(bodies) == 1
        return Reply(200, json.dumps({"taken": 1, "refused": [], **({"digest": "d"} if first else {})}).encode())

    with serving(answering(reply)) as peer:
        sink, now = pushed_to.sink(url=f"http://127.0.0.1:{peer.server_port}"), time.time()
        for minute in range(3):
            delivered(sink, now + minute * 60)
        sink.close()
    assert bodies == ([[True], [False], [True], [True]] if balanced else [[True]] * 3)
    assert sink._lost == 0
    assert not pushed_to.lines
