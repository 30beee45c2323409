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

from nhc.agent.nvhcd_answer import answer, asked_for, read_request
from nhc.agent.nvhcd_settings import read_settings
from nhc.model import CheckResult, Outcome, Report, Verdict
from nhc.settings.settings_file import SettingsError, parse
from tests.support.require import need
from tests.support.waiting import until

GPU = CheckResult("check_gpu_count", Outcome(Verdict.CRIT, "GpuLost", "GPU 3 is gone", "gpu3"))
DISK = CheckResult("check_fs_free", Outcome(Verdict.CRIT, "Full", "/tmp is full"))
BLIND = CheckResult("check_gpu_ecc", Outcome(Verdict.UNKNOWN, "Timeout", "NVML does not answer"))


def said(words, *results, **more):
    report = Report("n1", "b", 0.0, 1.0, results)
    found = answer(words, report, **{"complete": True, "age": 3.0, "most": 900.0, **more})
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


def test_a_verdict_that_is_too_old_says_nothing():
    status, found = said([], GPU, age=901.0)
    assert (status, found["fail_count"]) == (0, 0)
    assert "901 s old" in found["unknown"][0]


def test_a_node_that_is_out_of_service_fails_whatever_the_checks_say():
    status, found = said(["--group", "gpu"], out="drained: power supply")
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
    assert asked_for(["--frobnicate", "x", "--group", "gpu", "moon"]) == (("gpu",), ("--frobnicate", "x", "moon"))


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_breaks_the_reader(data):
    with contextlib.suppress(ValueError):
        assert all(isinstance(word, str) for word in read_request(data))


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
        read_settings(parse(text, "agent.toml"))


# A running agent.

CHECKS = "* || check_file_test -e {flag}\n"


@pytest.fixture
def served(agent, tmp_path):
    """An agent that serves; its socket's path is short. The node is healthy while `flag` is there."""
    pytest.importorskip("grpc")
    place = Path(tempfile.mkdtemp(prefix="nhc-nvhcd-"))
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


def test_one_look_at_the_scheduler_serves_all_who_ask(tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    from nhc import plugins
    from nhc.agent.nvhcd import NvhcdServer
    from nhc.agent.nvhcd_settings import NvhcdSettings
    from nhc.ports.adapter import NodeState

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
