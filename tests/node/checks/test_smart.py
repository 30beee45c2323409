"""Disks by smartctl."""

import json

import pytest

from nhc.core.host import Completed
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge, judge_all

SCAN = {"devices": [{"name": "/dev/sda", "type": "sat"}, {"name": "/dev/sdb", "type": "scsi"}]}


def ata(passed=True, status=0, **raw):
    ids = {"reallocated": 5, "reported": 187, "pending": 197, "offline": 198}
    table = [
        {"id": ids[name], "name": f"Attribute_{name}", "value": 100, "worst": 100, "thresh": 10, "when_failed": "",
         "flags": {"prefailure": True}, "raw": {"value": value, "string": str(value)}}
        for name, value in raw.items()
    ]  # fmt: skip
    found = {
        "smartctl": {"exit_status": status},
        "device": {"name": "/dev/sda", "protocol": "ATA"},
        "model_name": "ST4000NM0035",
        "ata_smart_attributes": {"revision": 10, "table": table},
    }
    return {**found, "smart_status": {"passed": passed}} if passed is not None else found


def scsi(**more):
    return {
        "smartctl": {"exit_status": 0},
        "scsi_model_name": "ST600MM0069",
        "smart_status": {"passed": True},
        "scsi_grown_defect_list": 0,
        "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 0}, "write": {"total_uncorrected_errors": 0}},
        **more,
    }


def node(first, second=None):
    answers = [first, scsi() if second is None else second]
    return FakeHost(
        {"/sys/block/sda/removable": "0\n", "/sys/block/sdb/removable": "0\n", "/sys/block/vda/removable": "0\n"},
        {
            "smartctl --json --scan": json.dumps(SCAN),
            "smartctl --json -H -A -d sat": json.dumps(answers[0]),
            "smartctl --json -H -A -d scsi": json.dumps(answers[1]),
        },
    )


def test_healthy_disks():
    assert judge(node(ata(reallocated=2, pending=0)), "check_smart_health").message == "2 disks healthy"


def test_a_disk_that_the_scan_leaves_out_is_not_healthy():
    host = node(ata(reallocated=2, pending=0))
    host.system.commands[("smartctl", "--json", "--scan")] = json.dumps({"devices": SCAN["devices"][:1]})
    assert [(found.verdict, found.target) for found in judge_all(host, "check_smart_health")] == [
        (Verdict.UNKNOWN, "sdb")
    ]


@pytest.mark.parametrize(
    ("disk", "verdict", "reason"),
    [
        (ata(passed=False, status=8), Verdict.CRIT, "DiskFailing"),
        (ata(pending=3), Verdict.WARN, "DiskMediaErrors"),
        (ata(offline=1), Verdict.WARN, "DiskMediaErrors"),
        (ata(reallocated=10), Verdict.WARN, "DiskReallocations"),
        (ata(passed=None, reallocated=0), Verdict.UNKNOWN, "SmartNoStatus"),
    ],
)
def test_sick_disks(disk, verdict, reason):
    found = judge_all(node(disk), "check_smart_health")

    assert [(o.verdict, o.reason, o.target) for o in found] == [(verdict, reason, "sda")]


def test_pre_failure_attribute_at_its_threshold():
    disk = ata(reallocated=900)
    disk["ata_smart_attributes"]["table"][0]["when_failed"] = "now"
    found = judge(node(disk), "check_smart_health")

    assert found.verdict is Verdict.CRIT
    assert found.action is Action.REPLACE
    assert "Attribute_reallocated" in found.message


def test_limits_are_options():
    assert judge(node(ata(reallocated=3)), "check_smart_health -r 3").verdict is Verdict.WARN
    assert judge(node(ata(pending=3)), "check_smart_health -m 0").verdict is Verdict.OK


def test_scsi_defects():
    assert (
        judge(node(ata(pending=0), scsi(scsi_grown_defect_list=40)), "check_smart_health").reason == "DiskReallocations"
    )
    errors = {"read": {"total_uncorrected_errors": 7}}
    assert (
        judge(node(ata(pending=0), scsi(scsi_error_counter_log=errors)), "check_smart_health").reason
        == "DiskMediaErrors"
    )


def test_skips():
    virtual = {"smartctl": {"exit_status": 0}, "smart_support": {"available": False}}

    assert judge(FakeHost({"/sys/block/vda/removable": "0"}), "check_smart_health").reason == "NoDisk"
    assert (
        judge(FakeHost({"/sys/block/sda/removable": "1"}), "check_smart_health").verdict is Verdict.SKIP
    )  # a USB stick
    assert judge(node(virtual, virtual), "check_smart_health").verdict is Verdict.SKIP
    assert judge(node(virtual), "check_smart_health").verdict is Verdict.OK  # the other disk has SMART


def test_unknown():
    disks = {"/sys/block/sda/removable": "0"}
    denied = {"smartctl": {"exit_status": 2, "messages": [{"string": "open failed: Permission denied"}]}}

    assert judge(FakeHost(disks), "check_smart_health").reason == "CommandMissing"
    assert "Permission denied" in judge(node(denied), "check_smart_health").message
    assert judge(FakeHost(disks, {"smartctl": "junk"}), "check_smart_health").verdict is Verdict.UNKNOWN
    host = node(ata(pending=0))
    host.system.commands["smartctl", "--json", "-H", "-A", "-d", "sat"] = Completed(124, "", "", True)
    assert judge(host, "check_smart_health").reason == "SmartTimeout"
