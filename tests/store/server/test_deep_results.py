"""`nhc deep run` brings its results into the store: straight, and through a real server as the agent pushes."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nhc.agent.deep_spool import deep_spool
from nhc.agent.server_push import read_push_settings
from nhc.agent.server_sink import ServerSink
from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Scope, Verdict
from nhc.core.render.json import to_dict
from nhc.core.settings import settings_file
from nhc.core.state import reports
from nhc.core.state.store import State
from nhc.core.system.bounded_read import unpacked
from nhc.deep.commands.deep import push_settings, to_server
from nhc.marks import push
from nhc.marks.ports.sinks import Delivery
from nhc.store import deep, nodes
from nhc.store.intake import Incoming, IntakeSettings, Receipt
from nhc.store.server.counters import ServerCounters
from nhc.store.server.writer import Writer
from tests.support.intake import OK, XID, Server, packed, report
from tests.support.new_store import new_store
from tests.support.waiting import until


@pytest.fixture(scope="module")
def intake(tmp_path_factory, request):
    directory = tmp_path_factory.mktemp("deep-intake")
    server = Server(directory, f"sqlite:///{directory}/store.db", nodes=["n7", "n8"])
    yield server
    server.stop()


def run(place, *words, suite="gate"):
    suite = place / f"{suite}.conf"
    suite.write_text("* |context deep| check_file_test -e /etc/passwd\n* |context deep| check_file_test -e /no/such\n")
    ours = [sys.executable, "-m", "nhc", "deep", "run", str(suite), "--adapter", "none", "--force", "-n", "n7", "-q"]
    return subprocess.run(
        [*ours, *words],
        env={**os.environ, "NHC_DEEP_DIR": str(place / "deep"), "NHC_STATE_DIR": str(place / "state")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def settings(place, server, token):
    (place / "token").write_text(token)
    (place / "agent.toml").write_text(
        f'[sinks.server]\nurl = "{server.url}"\ntoken-file = "{place}/token"\nspool = "{place}/spool"\n'
    )
    return str(place / "agent.toml")


HALF = "\ud800"
HOSTILE = {"half": "\\ud800", "nul": "a\\u0000b"}
"""What a hostile node writes, which nhc's own agent makes printable: as it stands in JSON, by a word in its place."""


def hostile_results():
    """Deep results that a database cannot take as they are: half a character, NUL, a number beyond its integers."""
    metric = Metric("gflops", 1.0, "")
    sound = Outcome(Verdict.OK, metrics=(metric,))
    for place in ("reason", "message", "target"):
        for text in HOSTILE:
            yield CheckResult("check_deep", sound._replace(**{place: text}))
    for text in HOSTILE:
        yield CheckResult(text, sound)
        yield CheckResult("check_deep", sound._replace(metrics=(Metric(text, 1.0, ""),)))
        yield CheckResult("check_deep", sound._replace(metrics=(Metric("gflops", 1.0, text),)))
        yield CheckResult("check_deep", sound._replace(scope=Scope.DEVICE, device=DeviceId(serial=text)))
    yield CheckResult("check_deep", sound._replace(metrics=(Metric("gflops", 1 << 64, ""),)))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_no_database_takes_is_made_printable_or_refused_and_holds_up_no_other_push(kind, tmp_path, request):
    url = f"sqlite:///{tmp_path}/store.db" if kind == "sqlite" else request.getfixturevalue("postgresql").database()
    server = Server(tmp_path, url, "[limits]\npushes-a-node-and-minute = 60000\n", nodes=["n1", "n2"])
    try:
        hostile, good = server.token("n1"), server.token("n2")
        with ThreadPoolExecutor(8) as pool:
            pushes = []
            for number, result in enumerate(hostile_results()):
                for labels, suite in (({}, "gate"), ({"kind": "half"}, "gate"), ({"half": "a"}, "gate"), ({}, "")):
                    one = report("n1", at=time.time() - number - 1, results=(result,))._replace(labels=labels)
                    text = push.to_text(push.Pushed(one, True, one.started, suite=suite))
                    for word, said in HOSTILE.items():
                        text = text.replace(f'"{word}"', f'"{said}"')
                    pushes.append(pool.submit(server.push, push.pack("n1", [text]), hostile))
                assert server.push(packed(report("n2", results=(XID,)), node="n2"), good)[0] == 200
                assert server.get("/healthz")[0] == 200
        assert {one.result()[0] for one in pushes} <= {200, 429}
    finally:
        server.stop()


def test_a_push_that_fails_by_an_exception_that_nobody_foresaw_is_refused_alone(tmp_path):
    async def both():
        store, counters = new_store(tmp_path), ServerCounters()
        writer = Writer(store, IntakeSettings(), counters, 100)
        writer.start()
        now = time.time()
        made = [
            Incoming(report(node, at=now), "agent", now, suite=suite)
            for node, suite in (("n1", ""), ("n2", HALF), ("n3", ""), ("n4", HALF))
        ]
        answers = await asyncio.gather(*(writer.put([one]) for one in made), return_exceptions=True)
        await writer.close(10)
        store.close()
        return answers, writer.problem

    answers, problem = asyncio.run(both())
    assert [getattr(one, "refused", one) if isinstance(one, Exception) else one[0].receipt for one in answers] == [
        Receipt.CHANGED, True, Receipt.CHANGED, True
    ]  # fmt: skip
    assert problem == ""


def test_results_are_pushed_to_the_server_and_kept_once(tmp_path, intake):
    done = run(tmp_path, "--server", settings(tmp_path, intake, intake.token("n7")))
    assert (done.returncode, done.stderr) == (1, "")
    with intake.store() as store, store.read() as connection:
        ((key, last),) = deep.last_conclusive(connection, ["n7"]).items()
        assert key == ("n7", "gate")
        assert last.verdict == "CRIT"
        assert nodes.get(connection, "n7") is None  # it says nothing of how the node is now


def test_the_same_push_twice_is_one_run_and_an_ordinary_report_beside_it_is_ordinary(intake):
    token = intake.token("n8")
    one = report("n8", 1000.0, (OK, XID))
    texts = [push.to_text(push.Pushed(one, True, 1000.0, "burn")), push.to_text(push.Pushed(one, True, 1000.0))]
    for _ in range(2):
        assert intake.push(push.pack("n8", texts), token)[0] == 200
    with intake.store() as store, store.read() as connection:
        assert len(deep.history(connection, "n8")) == 2
        assert nodes.get(connection, "n8").verdict == Verdict.CRIT.name


@pytest.mark.parametrize("suite", [3, "x" * 101, "a\nb", None])
def test_a_suite_that_is_no_name_is_refused(suite):
    text = push.to_text(push.Pushed(report("n9"), True, 1.0)).replace(
        '"complete"', f'"suite":{push.json.dumps(suite)},"complete"'
    )
    with pytest.raises(ValueError, match="suite is no name"):
        push.parse(unpacked(push.pack("n9", [text]), 1 << 20))


def test_what_cannot_be_sent_is_said_and_changes_nothing_of_the_verdict(tmp_path, intake):
    file = settings(tmp_path, intake, intake.token("n7"))
    refused = run(tmp_path, "--server", file, suite="x" * 101)  # a name that the server does not take
    assert refused.returncode == 1  # the verdict's
    (line,) = refused.stderr.splitlines()
    assert "nhc deep run: the server refuses the results: " in line
    slept = []
    wrong = push_settings(settings(tmp_path, intake, "no-token"))
    said = to_server(report("n7"), "gate", wrong, slept.append)
    assert said.endswith(f"the results wait in {tmp_path}/spool/deep for the agent, or the next run, to send them")
    assert slept == [0.0, 2.0, 10.0]  # seen, not slept: a process that waits so long is no better proof


@pytest.mark.parametrize(("text", "said"), [
    ("[sinks.other]\n", "there is no [sinks.server]"), ("[sinks.server]\n", "url: missing"), (None, "No such file"),
])  # fmt: skip
def test_settings_that_cannot_be_used_are_wrong_usage_before_anything_is_tested(tmp_path, text, said):
    file = tmp_path / "agent.toml"
    if text is not None:
        file.write_text(text)
    done = run(tmp_path, "--server", str(file))
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout, said in line) == (2, "", True), done
    assert not (tmp_path / "deep").exists()


class Away:
    """A server that is killed and started again, and runs of a node, by number, whose results are sent to it."""

    times = itertools.count(1)

    def __init__(self, place, server, token):
        self.place, self.server = place, server
        self.file = settings(place, server, token)
        self.begin, self.runs = 1000.0 * next(self.times), 0

    def send(self):
        """What the next run says."""
        self.runs += 1
        found = report("n1", self.begin + self.runs, (OK, XID))
        return to_server(found, "burn", push_settings(self.file), lambda _seconds: None)

    def kept(self):
        return len(list((self.place / "spool/deep").glob("*.report")))

    def arrived(self):
        with self.server.store() as store, store.read() as connection:
            seen = {row.at - self.begin for row in deep.history(connection, "n1", 1000)}
        return sorted(number for number in seen if 0 < number < 1000)

    def sink(self, lines):
        table = settings_file.load(self.file).table("sinks").tables()["server"].raw()
        return ServerSink(read_push_settings(table), "n1", lines.append)


@pytest.fixture(scope="module")
def killable(tmp_path_factory):
    place = tmp_path_factory.mktemp("killable")
    server = Server(place, f"sqlite:///{place}/store.db")
    yield server, server.token("n1")
    server.stop()


@pytest.fixture
def away(tmp_path, killable):
    server, token = killable
    server.stop(signal.SIGKILL)
    return Away(tmp_path, server, token)


def test_results_wait_while_the_server_is_killed_and_go_with_the_next_run(away):
    refused, where = f"{away.server.url}: connection refused: nothing listens there", f"{away.place}/spool/deep"
    waits = f"{refused}: %s in {where} for the agent, or the next run, to send them"
    assert away.send() == waits % "the results wait"
    assert away.send() == waits % "the results of 2 runs wait"
    assert away.kept() == 2
    away.server.start()
    assert away.send() == ""
    assert away.arrived() == [1.0, 2.0, 3.0]
    assert away.kept() == 0
    assert away.send() == ""  # nothing is sent twice
    assert away.arrived() == [1.0, 2.0, 3.0, 4.0]


def test_the_agent_sends_what_a_run_could_not_and_what_the_last_prolog_found(away, monkeypatch):
    monkeypatch.setenv("NHC_STATE_DIR", f"{away.place}/state")
    away.send()
    found = report("n1.site", away.begin + 2, (OK,))._replace(labels={"suite": "/etc/nhc/prejob.conf"})
    reports.store_suite(State(), json.dumps(to_dict(found)))
    lines = []
    sink = away.sink(lines)
    try:
        with deep_spool(f"{away.place}/spool", 1 << 20, 1000.0):  # a run is at it: the agent does not wait for it
            sink.deliver(Delivery(report("n1", boot="b1"), True))
        assert away.kept() == 1
        sink.deliver(Delivery(report("n1", boot="b2"), True))
        assert away.kept() == 0
        away.server.start()
        until(lambda: away.arrived() == [1.0, 2.0], 60)
        assert lines == []
    finally:
        sink.close()


def test_results_that_wait_are_bounded_the_oldest_dropped_and_counted(away):
    with open(away.file, "a") as file:
        file.write("spool-size = 4096\n")
    for _ in range(30):
        away.send()
    kept = away.kept()
    assert 2 <= kept < 25
    away.server.start()
    assert away.send() == ""
    arrived = away.arrived()
    assert arrived[-kept:] == [float(run) for run in range(32 - kept, 32)]
    assert f"{31 - len(arrived)} reports" in away.server.said()


def test_a_disk_that_takes_nothing_loses_results_only_while_the_server_is_away(away):
    (away.place / "spool").write_text("")
    said = away.send()
    assert said.startswith(
        f"{away.server.url}: connection refused: nothing listens there: "
        f"the results are not sent, nor kept ({away.place}/spool"
    )
    away.server.start()
    assert away.send() == ""
    assert away.arrived() == [2.0]


def test_results_are_kept_in_a_store_straight(tmp_path):
    url = f"sqlite:///{tmp_path}/own.db"
    missing = run(tmp_path, "--store", url)
    assert missing.returncode == 1
    assert "the results are not in the store" in missing.stderr
    subprocess.run([sys.executable, "-m", "nhc", "store", "migrate", "--store", url], check=True, capture_output=True)
    assert run(tmp_path, "--store", url).stderr == ""

    late = subprocess.run([sys.executable, "-m", "nhc", "deep", "due", "--store", url, "-w", "n[6-7]"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert late.returncode == 1
    assert late.stdout.splitlines()[0] == "n6 has no deep verdict"
    assert late.stdout.splitlines()[1].startswith("n7 failed gate ")
