"""The logs of services that answer and do not work: the fabric manager's, a container runtime's."""

import time

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost
from tests.support.judge import judge

NOW = 1_700_000_000.0
LOG = "/var/log/fabricmanager.log"


def line(ago, level="ERROR", text="failed to configure NVSwitch 2"):
    stamp = time.strftime("%b %d %Y %H:%M:%S", time.localtime(NOW - ago))
    return f"[{stamp}] [{level}] [tid 2315] {text}\n"


@pytest.mark.parametrize(
    ("log", "verdict", "reason"),
    [
        (line(60, "INFO") + line(30, "WARNING"), Verdict.OK, ""),
        (line(60), Verdict.WARN, "FabricLogError"),
        (line(60, "CRITICAL"), Verdict.WARN, "FabricLogError"),
        (line(7200), Verdict.OK, ""),
        ("[Foo 99 2023 00:00:00] [ERROR] [tid 1] x\n", Verdict.UNKNOWN, "LogStampUnknown"),
        ("no line of that form [ERROR]\n", Verdict.OK, ""),
    ],
)
def test_errors_of_the_fabric_manager(log, verdict, reason):
    found = judge(FakeHost({LOG: log}), "check_fabric_log")
    assert (found.verdict, found.reason) == (verdict, reason)
    if verdict is Verdict.WARN:
        assert found.message.endswith("failed to configure NVSwitch 2")
        assert judge(FakeHost({LOG: log}), "check_fabric_log -c").verdict is Verdict.CRIT


def test_a_log_that_is_not_there_and_one_from_before_this_boot():
    assert judge(FakeHost(), "check_fabric_log").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_fabric_log /var/log/fm.log").reason == "LogUnreadable"
    host = FakeHost({LOG: line(600)})
    host.system.uptime = 300.0
    assert judge(host, "check_fabric_log").verdict is Verdict.OK


@pytest.mark.parametrize("settings", ["/usr/share/nvidia/nvswitch/fabricmanager.cfg", "/etc/nvidia/fabricmanager.cfg"])
def test_the_log_that_the_fabric_manager_was_told_to_write(settings):
    told = "# LOG_FILE_NAME=/var/log/old.log\nLOG_LEVEL=4\nLOG_FILE_NAME=/scratch/fm/fm.log\n"
    host = FakeHost({settings: told, "/scratch/fm/fm.log": line(60)})
    assert judge(host, "check_fabric_log").reason == "FabricLogError"
    assert judge(FakeHost({settings: told}), "check_fabric_log").verdict is Verdict.SKIP


FULL = ('level=error msg="RunPodSandbox for name:\\"a\\" failed, error" error="failed to create containerd task: '
        'failed to create shim task: mkdir /run/containerd/x: no space left on device"\n')  # fmt: skip
GPU = ('Handler for POST /containers/ab/start returned error: failed to create task for container: OCI runtime create '
       "failed: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch\n")  # fmt: skip
POD = 'msg="StartContainer failed" error="failed to create containerd task: OCI runtime create failed: exec: \\"trian\\": executable file not found in $PATH"\n'  # noqa: E501


@pytest.mark.parametrize(
    ("journal", "verdict", "reason"),
    [
        ("", Verdict.OK, ""),
        (FULL * 2, Verdict.OK, ""),
        (FULL * 3, Verdict.WARN, "RuntimeCannotCreate"),
        (GPU * 3, Verdict.WARN, "RuntimeCannotCreate"),
        (POD * 9, Verdict.OK, ""),
        ('level=error msg="PullImage failed" error="context deadline exceeded"\n' * 9, Verdict.OK, ""),
    ],
)
def test_a_runtime_that_answers_and_cannot_create(journal, verdict, reason):
    host = FakeHost({}, {"journalctl": Completed(0, journal)})
    found = judge(host, "check_runtime_log")
    assert (found.verdict, found.reason) == (verdict, reason)


def test_what_the_journal_is_asked_and_what_its_silence_is():
    host = FakeHost({}, {"journalctl": Completed(0, FULL * 2)})
    assert judge(host, "check_runtime_log -c -n 2 -w 1h site.service").verdict is Verdict.CRIT
    asked = " ".join(host.system.ran[-1])
    assert "--unit=site.service" in asked
    assert "containerd" not in asked
    assert f"@{host.time() - 3600:.0f}" in asked
    silent = judge(FakeHost({}, {"journalctl": Completed(1, "", "No journal files were found.")}), "check_runtime_log")
    assert (silent.verdict, silent.reason) == (Verdict.UNKNOWN, "JournalUnreadable")


def test_a_node_without_a_journal():
    assert judge(FakeHost(), "check_runtime_log").verdict is Verdict.SKIP
