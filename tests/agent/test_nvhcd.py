"""The service that NVRx asks before a rendezvous: what is answered, to how many, and to whom it is not."""

import contextlib
import grp
import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.agent.nvhcd import answer_request, asked_for, read_request
from nhc.agent.settings import NvhcdSettings
from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, parse
from nhc.store import deep
from tests.support.new_store import new_store
from tests.support.require import need
from tests.support.waiting import until

GPU = CheckResult("check_gpu_count", Outcome(Verdict.CRIT, "GpuLost", "GPU 3 is gone", "gpu3"))
DISK = CheckResult("check_fs_free", Outcome(Verdict.CRIT, "Full", "/tmp is full"))
BLIND = CheckResult("check_gpu_ecc", Outcome(Verdict.UNKNOWN, "Timeout", "NVML does not answer"))


def said(words, *results, **more):
    report = Report("n1", "b", 0.0, 1.0, results)
    found = answer_request(asked_for(words), report, **{"complete": True, "age": 3.0, **more})
    assert found.success
    return found.exit_code, json.loads(found.output)


def test_a_critical_check_fails_the_node_and_is_named():
    status, found = said(["--no-slurm"], GPU, DISK, CheckResult("check_uptime", Outcome(Verdict.WARN, "Old", "old")))
    assert (status, found["fail_count"]) == (1, 2)
    assert "GPU 3 is gone" in found["failed_checks"][0]


def test_what_could_not_be_found_out_fails_no_node_unless_the_site_says_so():
    status, found = said([], BLIND)
    assert (status, found["fail_count"], len(found["unknown"])) == (0, 0, 1)
    assert said([], BLIND, unknown_fails=True)[1]["fail_count"] == 1


def test_a_node_that_is_out_of_service_fails_whatever_the_checks_say():
    status, found = said(["--group", "gpu"], out=["drained: power supply"])
    assert (status, found["failed_checks"]) == (1, ["out of service: drained: power supply"])


@pytest.mark.parametrize(
    ("words", "groups", "failed"),
    [
        (["--no-slurm", "--group", "prolog", "epilog", "logs", "gpu"], ["prolog", "epilog", "logs", "gpu"], 2),
        (["--group", "gpu"], ["gpu"], 1),
        (["--group=logs"], ["logs"], 0),
        ([], ["prolog", "epilog", "logs", "gpu"], 2),
    ],
)
def test_groups_choose_checks(words, groups, failed):
    _status, found = said(words, GPU, DISK)
    assert (found["groups"], found["fail_count"]) == (groups, failed)


def test_words_that_mean_nothing_are_said_and_change_nothing():
    assert asked_for(["--frobnicate", "x", "--group", "gpu", "moon"])[:2] == (("gpu",), ("--frobnicate", "x", "moon"))


def test_prolog_and_epilog_are_the_lines_that_are_meant_for_them():
    before, after, watched = (
        CheckResult(f"check_{name}", Outcome(Verdict.CRIT, "Bad", name), 0.0, "nhc.conf:1", f"check_{name}")
        for name in ("before", "after", "watched")
    )
    contexts = {"nhc.conf:1 check_before": ("prolog", "agent"), "nhc.conf:1 check_after": ("epilog", "agent"),
                "nhc.conf:1 check_watched": ("agent",)}  # fmt: skip

    def failed(*groups):
        found = said(["--group", *groups], before, after, watched, DISK, contexts=contexts)[1]["failed_checks"]
        return [line.split(":")[0] for line in found]

    assert failed("prolog") == ["check_before", "check_fs_free"]
    assert failed("epilog") == ["check_after", "check_fs_free"]
    assert failed("prolog", "epilog", "logs") == ["check_before", "check_after", "check_fs_free"]
    assert len(failed("prolog", "epilog", "logs", "gpu")) == 4, "all groups: NVRx's own default"


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_breaks_the_reader(data):
    with contextlib.suppress(ValueError):
        assert all(isinstance(word, str) for word in read_request(data))


@pytest.mark.thorough
@given(st.lists(st.text(max_size=300), max_size=5))
def test_a_request_is_read_as_protocol_buffers_write_it(words):
    other = b"\x10\x96\x01" + b"\x1a\x02hi" + b"\x25\0\0\0\0"  # fields that a later version may add
    assert read_request(other + b"".join(b"\x0a" + _sized(word) for word in words)) == words


def _sized(word):
    data, count = word.encode(), len(word.encode())
    size = bytes([count]) if count < 128 else bytes([count & 0x7F | 0x80, count >> 7])
    return size + data


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('mode = "rw"', "four octal digits"),
        ('path = "nvhcd.sock"', "is not a path from /"),
        ('max-age = "0s"', "max-age"),
        ("colour = 1", "there is no such key"),
    ],
)
def test_wrong_settings_are_refused(text, complaint):
    with pytest.raises(SettingsError, match=complaint):
        declared.whole(NvhcdSettings, parse(text, "agent.toml"))


# A running agent.

CHECKS = "* || check_file_test -e {flag}\n"


@pytest.fixture
def place():
    """A directory whose path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory(prefix="nhc-nvhcd-") as directory:
        yield Path(directory)


@pytest.fixture
def served(agent, tmp_path, place):
    """An agent that serves. The node is healthy while `flag` is there."""
    pytest.importorskip("grpc")
    agent.flag, agent.path = tmp_path / "flag", place / "s" / "nvhcd.sock"
    agent.flag.touch()
    agent.configure(CHECKS.format(flag=agent.flag).replace("* ||", "* |every 1s|"),
                    f'[serve.nvhcd]\npath = "{agent.path}"\nmode = "0620"\ngroup = "nogroup"\n')  # fmt: skip
    agent.start()
    until(agent.path.exists, what="the socket")
    yield agent
    agent.stop()


def call(path, words=(), timeout=20.0):
    import grpc

    with grpc.insecure_channel(f"unix:{path}") as channel:
        ask = channel.unary_unary("/nvhcd.HealthCheckService/RunHealthCheck")
        data = ask(b"".join(b"\x0a" + _sized(word) for word in words), timeout=timeout)
    return json.loads(data[data.index(b"{") : data.rindex(b"}") + 1])


@pytest.mark.slow
def test_the_agents_verdict_is_answered_to_64_callers_at_once(served):
    until(lambda: call(served.path)["unknown"] == [], what="the first verdict")
    served.flag.unlink()
    until(lambda: call(served.path)["fail_count"] == 1, 60, what="the verdict to turn")

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(lambda _at: call(served.path)["fail_count"], range(64)))

    assert found == [1] * 64
    mode = served.path.stat()
    assert (stat.S_IMODE(mode.st_mode), grp.getgrgid(mode.st_gid).gr_name) == (0o620, "nogroup")


@pytest.mark.slow
def test_garbage_ends_its_own_call_and_nothing_else(served):
    import grpc

    with grpc.insecure_channel(f"unix:{served.path}") as channel:
        ask = channel.unary_unary("/nvhcd.HealthCheckService/RunHealthCheck")
        for data in (b"\x0a\xff", b"\xff" * 100, b"\x0a" * (1 << 20)):
            with pytest.raises(grpc.RpcError):
                ask(data, timeout=20)

    assert call(served.path, ["--group", "moon", "x" * 5000])["fail_count"] == 0
    assert served.get("/healthz")[0] == 200


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """Asks with NVRx's own NodeHealthCheck, of release 0.7.0's wheel: its Python runs on any version."""
    for name in ("grpc", "google", "httpx", "defusedxml"):
        need("nvrx", importlib.util.find_spec(name), f"its client imports {name}")
    place = tmp_path_factory.mktemp("nvrx")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12",
         "--platform", "manylinux_2_39_x86_64", "-d", str(place), "nvidia-resiliency-ext==0.7.0"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    need("nvrx", done.returncode == 0, done.stderr[-300:])
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        wheel.extractall(place / "unpacked")
    code = ("import sys; from nvidia_resiliency_ext.shared_utils.health_check import NodeHealthCheck; "
            "print(NodeHealthCheck(endpoint=sys.argv[1], request_timeout_sec=5)())")  # fmt: skip

    def ask(path):
        done = subprocess.run(
            [sys.executable, "-c", code, f"unix://{path}"], env={**os.environ, "PYTHONPATH": str(place / "unpacked")},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout.strip() in ("True", "False"), done.stderr[-500:]
        return done.stdout.strip() == "True", done.stderr

    return ask


@pytest.mark.slow
def test_nvrxs_own_client_hears_of_a_healthy_and_of_a_bad_node(served, client):
    until(lambda: call(served.path)["unknown"] == [], what="the first verdict")
    assert client(served.path)[0]

    served.flag.unlink()
    until(lambda: call(served.path)["fail_count"] == 1, 60, what="the verdict to turn")

    healthy, logged = client(served.path)
    assert not healthy
    assert "fail_count=1" in logged
    assert str(served.flag) in logged


@pytest.mark.slow
def test_nvrxs_own_client_goes_on_where_nobody_serves_and_where_the_service_hangs(served, client):
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    serving = [int(child) for child in children if threads_of(int(child)) > 2]
    assert serving, "the process of the service"
    for pid in serving:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert client(served.path)[0], "no answer within its time is no verdict"
    finally:
        for pid in serving:
            os.kill(pid, signal.SIGCONT)
    assert client(served.path.with_name("none.sock"))[0]


def threads_of(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.thorough
def test_one_look_at_the_scheduler_serves_all_who_ask(tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    from nhc.agent.nvhcd import NvhcdServer
    from nhc.marks import plugins
    from nhc.marks.ports.adapter import NodeState

    looked = []

    class Source:
        """A scheduler of another package, at the boundary where nhc loads one."""

        def __init__(self, settings, environ, timeout):
            pass

        def nodes(self, names):
            looked.append(threading.get_ident())
            return [NodeState("n1", "drained", False)]

    monkeypatch.setitem(plugins.ADAPTERS.ours, "made-up", f"{__name__}:MadeUp")
    globals()["MadeUp"] = Source
    settings = NvhcdSettings(f"{tempfile.mkdtemp()}/s", 0o600, "", 900.0, False, "made-up")
    server = NvhcdServer(settings, "n1", print)
    try:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _at: call(settings.path)["failed_checks"], range(16)))
    finally:
        server.close()

    assert found == [["out of service: drained"]] * 16
    assert len(looked) == 1


# Checks that run because somebody asks, and proofs.


def serve(agent, place, settings, checks, environ=None):
    """Start an agent that serves with these settings; its checks run at its start, and then for hours no more."""
    pytest.importorskip("grpc")
    agent.path = place / "nvhcd.sock"
    agent.configure(checks, f'[serve.nvhcd]\npath = "{agent.path}"\n{settings}\n')
    agent.env.update(environ or {})
    agent.start()
    until(agent.path.exists, what="the socket")
    return agent


@pytest.mark.slow
def test_a_verdict_that_is_too_old_is_made_anew_once_for_all_who_ask(agent, tmp_path, place):
    ran, flag = tmp_path / "ran", tmp_path / "flag"
    flag.touch()
    counts = tmp_path / "counts"
    counts.write_text(f"#!/bin/sh\necho x >> {ran}\nsleep 0.5\ntest -e {flag}\n")
    counts.chmod(0o755)
    serve(agent, place, 'max-age = "2s"', f"* |every 6h| check_cmd_status -r 0 {counts}\n")
    until(lambda: ran.exists() and agent.status()["complete"], what="the first verdict")
    flag.unlink()
    until(lambda: call(agent.path)["fail_count"] == 1, 60, what="a run that somebody asked for")
    before = len(ran.read_text().split())
    until_old(agent, 3.0)

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda _at: call(agent.path), range(32)))

    assert {one["fail_count"] for one in found} == {1}
    assert {bool(one["unknown"]) for one in found} == {False}
    assert len(ran.read_text().split()) == before + 1, "one run for all"


def until_old(agent, age):
    """Wait until no check has been judged for so many seconds."""
    until(lambda: min(one["age"] for one in agent.status()["checks"]) > age, what="an old verdict")


@pytest.mark.slow
def test_an_agent_that_does_not_answer_makes_the_verdict_unknown_in_time(agent, tmp_path, place):
    serve(agent, place, 'max-age = "1s"\ntimeout = "2s"', f"* |every 6h| check_file_test -e {tmp_path}\n")
    until(lambda: call(agent.path)["unknown"] == [], what="the first verdict")
    until_old(agent, 2.0)
    os.kill(agent.process.pid, signal.SIGSTOP)
    try:
        found = call(agent.path)
        soon = call(agent.path, timeout=1.5)  # who waits for less gets its answer in its own time
    finally:
        os.kill(agent.process.pid, signal.SIGCONT)

    assert (found["fail_count"], len(found["unknown"])) == (0, 2)
    assert "s old, more than 1 s" in found["unknown"][0]
    assert "did not end within 2 s" in found["unknown"][1] or "have not ended yet" in found["unknown"][1]
    assert soon["fail_count"] == 0
    until(lambda: call(agent.path)["unknown"] == [], what="the agent to answer again")


@pytest.mark.slow
def test_a_paused_agent_says_so_and_fails_nothing(agent, tmp_path, place):
    serve(agent, place, 'max-age = "1s"', f"* |every 6h| check_file_test -e {tmp_path}\n")
    until(lambda: call(agent.path)["unknown"] == [], what="the first verdict")
    assert agent.nhc("hold", "agent", "--for", "1h").returncode == 0
    until_old(agent, 2.0)

    found = call(agent.path)

    assert (found["fail_count"], "paused" in found["unknown"][-1]) == (0, True), found


@pytest.mark.slow
def test_a_proof_runs_its_suite_once_and_only_where_it_is_asked_for(agent, tmp_path, place):
    suite, ran = tmp_path / "proof.conf", tmp_path / "ran"
    program = tmp_path / "prove"
    program.write_text(f"#!/bin/sh\necho x >> {ran}\nexit 1\n")
    program.chmod(0o755)
    suite.write_text(f"# context deep\n* || check_cmd_status -r 0 {program}\n")
    serve(agent, place, f'proof = "{suite}"', f"* || check_file_test -e {tmp_path}\n")
    until(lambda: call(agent.path)["unknown"] == [], what="the first verdict")
    assert not ran.exists()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _at: call(agent.path, ["--proof"], 120.0), range(8)))

    assert [one["fail_count"] for one in found] == [1] * 8
    assert str(program) in found[0]["failed_checks"][0]
    assert ran.read_text() == "x\n"
    assert call(agent.path)["fail_count"] == 0, "what nobody asked for"


def test_without_a_suite_nothing_is_proved(tmp_path):
    pytest.importorskip("grpc")
    found = serving(tmp_path, ["--proof"])
    assert found["fail_count"] == 0
    assert any("names no suite" in line for line in found["unknown"])


def serving(tmp_path, words=(), **settings):
    """The answer of a service that has a healthy verdict."""
    from nhc.agent.nvhcd import NvhcdServer
    from nhc.marks.ports.sinks import Delivery

    table = "\n".join(f'{name} = "{value}"' for name, value in settings.items())
    log = []
    with tempfile.TemporaryDirectory(prefix="nhc-nvhcd-") as place:
        server = NvhcdServer(
            declared.whole(NvhcdSettings, parse(f'path = "{place}/s"\n{table}', "agent.toml")), "n1", log.append
        )
        try:
            server.deliver(Delivery(Report("n1", "b", 0.0, 1.0, ()), True))
            return {**call(f"{place}/s", words), "log": log}
        finally:
            server.close()


def test_a_node_whose_newest_proof_failed_is_not_taken_again(tmp_path):
    pytest.importorskip("grpc")
    store = new_store(str(tmp_path))
    bad = Report("n1", "b", 1000.0, 1.0, (GPU,))
    try:
        with store.write() as connection:
            deep.add_report(connection, bad, "quick")
        [reason] = serving(tmp_path, store=store_url(tmp_path))["failed_checks"]
        assert reason.startswith("out of service: its newest quick found it bad, ")

        good = CheckResult("check_gpu_count", Outcome(Verdict.OK, "", "8 GPUs"))
        with store.write() as connection:
            deep.add_report(connection, bad._replace(started=2000.0, results=(good,)), "quick")
        assert serving(tmp_path, store=store_url(tmp_path))["fail_count"] == 0
    finally:
        store.close()


def store_url(place):
    return f"sqlite:///{place}/store.db"


def test_a_store_that_does_not_answer_fails_no_node(tmp_path):
    pytest.importorskip("grpc")
    found = serving(tmp_path, store=f"sqlite:///{tmp_path}/none.db")
    assert found["fail_count"] == 0
    assert "whether the node's proof failed is not known" in found["log"][0]
