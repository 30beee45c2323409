"""The kubelet's health endpoint, and what takes node-problem-detector's health-checker's place."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.host import Completed, Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.http_server import Handler, serving
from tests.support.judge import judge

NOBODY = "http://127.0.0.1:1/healthz"


class Health(Handler):
    def get(self):
        status = int(self.path.rsplit("/", 1)[-1])
        self.answer(status, "ok" if status == 200 else "[-]syncloop failed: reason withheld")


@pytest.fixture(scope="module")
def health():
    with serving(Health) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def node(tmp_path):
    (tmp_path / "var/lib/kubelet/pki").mkdir(parents=True)
    return Host(str(tmp_path))


def test_a_kubelet_that_is_well_and_one_that_is_not(health, node):
    assert judge(node, f"check_kubelet_healthz -u {health}/200").verdict is Verdict.OK

    found = judge(node, f"check_kubelet_healthz -u {health}/500")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "KubeletUnhealthy")
    assert "syncloop failed" in found.message


def test_silence_is_a_fault_where_there_should_be_a_kubelet(node, tmp_path_factory):
    assert judge(node, f"check_kubelet_healthz -u {NOBODY}").reason == "KubeletSilent"
    assert (
        judge(Host(str(tmp_path_factory.mktemp("bare"))), f"check_kubelet_healthz -u {NOBODY}").verdict is Verdict.SKIP
    )


class Systemd(FakeHost):
    """A node whose kubelet began `up` seconds ago and has logged `lines`; its endpoint is answered for."""

    def __init__(self, status=200, up=3600, lines="", journal=None, kill=None):
        super().__init__(
            {"/proc/uptime": "5000.00 1.00\n"},
            {("systemctl", "show"): f"InactiveExitTimestampMonotonic={(5000 - up) * 1000000}\n",
             ("journalctl",): journal or lines, ("systemctl", "kill"): kill or ""},
        )  # fmt: skip
        for url in ("http://127.0.0.1:10248/healthz", "http://127.0.0.1:10256/livez"):
            self.system.answers[f"http {url}"] = {"status": status, "said": "ok" if status == 200 else "refused"}

    def killed(self):
        return [argv for argv in self.system.ran if argv[:2] == ("systemctl", "kill")]


def test_a_component_that_answers_and_one_that_does_not():
    assert judge(Systemd(), "check_npd_health").verdict is Verdict.OK
    assert judge(Systemd(), "check_npd_health --component=kube-proxy").verdict is Verdict.OK
    found = judge(Systemd(status=0), "check_npd_health --component=kubelet")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "ComponentUnhealthy")


LOG = "Error: connection refused\nCONNECTION REFUSED again\nall is well\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-p 2:'connection refused'", "ComponentComplains"),
        ("-p 3:'connection refused'", ""),
        ("-p 3:'connection refused' -p '1:well$'", "ComponentComplains"),
        ("-p '1:nothing like it'", ""),
    ],
)
def test_what_its_log_holds_counts(options, reason):
    assert judge(Systemd(lines=LOG), f"check_npd_health {options}").reason == reason


@pytest.mark.parametrize(
    ("options", "up", "since"),
    [("", 3600, 3600), ("--loopback-time=10m", 3600, 600), ("--loopback-time=2h", 3600, 3600)],
)
def test_the_log_is_read_from_when_the_unit_began_or_for_the_loopback_time(options, up, since):
    host = Systemd(up=up)
    judge(host, f"check_npd_health -s kubelet-special -p 1:x {options}")
    (argv,) = [argv for argv in host.system.ran if argv[0] == "journalctl"]
    assert f"--since=@{int(host.system.now) - since}" in argv
    assert "--unit=kubelet-special" in argv


def test_a_repair_only_when_asked_for_and_after_the_cooldown():
    for options, up, kills in (("", 3600, 0), ("--enable-repair", 60, 0), ("--enable-repair", 121, 1),
                               ("--enable-repair --cooldown-time=5m", 121, 0)):  # fmt: skip
        host = Systemd(status=0, up=up)
        found = judge(host, f"check_npd_health {options}")
        assert found.verdict is Verdict.CRIT
        assert len(host.killed()) == kills, (options, up)
        assert ("was killed" in found.message) == bool(kills)
    well = Systemd()
    judge(well, "check_npd_health --enable-repair")
    assert well.killed() == []
    failed = Systemd(status=0, kill=Completed(1, "", "Failed to kill unit"))
    assert "could not be killed: Failed to kill unit" in judge(failed, "check_npd_health --enable-repair").message


def test_what_cannot_be_asked_is_unknown():
    assert (
        judge(Systemd(journal=Completed(1, "", "no journal")), "check_npd_health -p 1:x").reason == "JournalUnreadable"
    )
    assert judge(Systemd(up=5000), "check_npd_health -p 1:x").reason == "UptimeUnknown"
    for words in ("--component=nothing", "-p x:y", "-p 0:y", "-p 3", "-p '1:('"):
        with pytest.raises(BadArguments):
            find("check_npd_health").parse(words.replace("'", "").split())
