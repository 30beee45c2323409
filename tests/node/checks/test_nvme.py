"""NVMe drives by sysfs, smartctl and nvme-cli."""

import json

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.nvme import check_nvme_count
from tests.support.judge import judge, judge_all


def controller(state="live", transport="pcie", name="nvme0"):
    base = f"/sys/class/nvme/{name}"
    return {f"{base}/state": f"{state}\n", f"{base}/transport": transport, f"{base}/model": "SAMSUNG MZQL23T8\n"}


def log(**more):
    health = {"critical_warning": 0, "temperature": 35, "available_spare": 100, "available_spare_threshold": 10,
              "percentage_used": 2, "media_errors": 0, **more}  # fmt: skip
    return json.dumps({"smartctl": {"exit_status": 0}, "nvme_smart_health_information_log": health})


def node(state="live", **more):
    return FakeHost(controller(state), {"smartctl": log(**more)})


def test_healthy():
    found = judge(node(), "check_nvme_health")

    assert (found.verdict, [tuple(metric)[:3] for metric in found.metrics]) == (
        Verdict.OK,
        [("percentage_used", 2, "%")],
    )


@pytest.mark.parametrize(
    ("warning", "verdict", "reason"),
    [
        (0x01, Verdict.WARN, "DriveSpareLow"),
        (0x02, Verdict.WARN, "DriveTemperature"),
        (0x04, Verdict.CRIT, "DriveDegraded"),
        (0x08, Verdict.CRIT, "DriveReadOnly"),
        (0x10, Verdict.CRIT, "DriveBackupFailed"),
        (0x40, Verdict.WARN, "DriveWarning"),
    ],
)
def test_critical_warnings(warning, verdict, reason):
    found = judge(node(critical_warning=warning), "check_nvme_health")

    assert (found.verdict, found.reason, found.target) == (verdict, reason, "nvme0")


def test_several_warnings_are_several_outcomes():
    assert [o.reason for o in judge_all(node(critical_warning=0x0C), "check_nvme_health")] == [
        "DriveDegraded",
        "DriveReadOnly",
    ]


def test_endurance():
    assert judge(node(percentage_used=90), "check_nvme_health").verdict is Verdict.WARN
    assert judge(node(percentage_used=90), "check_nvme_health -U 90").verdict is Verdict.CRIT
    assert judge(node(percentage_used=130), "check_nvme_health -u 0").verdict is Verdict.OK


def test_media_errors_count_only_while_they_grow():
    host = node(media_errors=500)
    assert judge(host, "check_nvme_health").verdict is Verdict.OK

    host.system.uptime += 600
    host.system.commands["smartctl",] = log(media_errors=502)
    found = judge(host, "check_nvme_health")
    assert (found.verdict, found.reason) == (Verdict.WARN, "DriveMediaErrors")
    assert "2 new media errors" in found.message


@pytest.mark.parametrize(
    ("state", "verdict"), [("dead", Verdict.CRIT), ("deleting", Verdict.CRIT), ("resetting", Verdict.WARN)]
)
def test_controller_that_is_not_live(state, verdict):
    assert judge(node(state), "check_nvme_health").verdict is verdict


def test_nvme_cli_where_there_is_no_smartctl():
    answer = json.dumps({"critical_warning": 4, "temperature": 301, "avail_spare": 100, "spare_thresh": 5,
                         "percent_used": 1, "media_errors": 0})  # fmt: skip
    host = FakeHost(controller(), {"nvme smart-log -o json /dev/nvme0": answer})

    assert judge(host, "check_nvme_health").reason == "DriveDegraded"


def test_a_fabric_controller_is_judged_by_its_state_alone():
    assert judge(FakeHost(controller(transport="tcp")), "check_nvme_health").verdict is Verdict.OK
    assert judge(FakeHost(controller("connecting", "tcp")), "check_nvme_health").verdict is Verdict.WARN


def test_skip_and_unknown():
    assert judge(FakeHost(), "check_nvme_health").verdict is Verdict.SKIP
    assert judge(FakeHost(controller()), "check_nvme_health").reason == "CommandMissing"
    assert judge(FakeHost(controller(), {"smartctl": "junk"}), "check_nvme_health").reason == "NvmeUnreadable"
    denied = Completed(1, "", "/dev/nvme0: Permission denied\n")
    assert "Permission denied" in judge(FakeHost(controller(), {"nvme": denied}), "check_nvme_health").message
    partial = json.dumps({"smartctl": {"exit_status": 0}, "nvme_smart_health_information_log": {"critical_warning": 0}})
    assert judge(FakeHost(controller(), {"smartctl": partial}), "check_nvme_health").verdict is Verdict.UNKNOWN


NAMES = ("nvme0n1", "nvme0n1p1", "nvme1n1", "nvme0c0n1", "nvme1n2", "sda", "nvme10n1")


def host():
    return FakeHost({f"/sys/class/block/{name}/": "" for name in NAMES})


def test_first_namespaces_are_counted_partitions_and_paths_are_not():
    assert check_nvme_count(host(), 3).verdict is Verdict.OK


def test_a_missing_drive():
    outcome = check_nvme_count(host(), 8)

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "NvmeCountMismatch")
    assert outcome.message == "Expected to see 8 NVMe drives but found 3"
    assert outcome.evidence == ("nvme0n1", "nvme10n1", "nvme1n1")


def test_unreadable_is_unknown():
    assert check_nvme_count(FakeHost(), 8).verdict is Verdict.UNKNOWN
