"""Arrays of software RAID."""

import pytest

from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all


def array(name="md0", state="clean", level="raid1", disks=2, degraded="0", action="idle", **more):
    base = f"/sys/block/{name}/md"
    files = {f"{base}/array_state": f"{state}\n", f"{base}/level": f"{level}\n", f"{base}/raid_disks": f"{disks}\n"}
    if degraded is not None:
        files.update({f"{base}/degraded": f"{degraded}\n", f"{base}/sync_action": f"{action}\n"})
    return {**files, **{f"{base}/{leaf}": text for leaf, text in more.items()}}


@pytest.mark.parametrize("files", [
    array(), array(state="active"), array(state="read-auto"), array(state="write-pending"),
    array(level="raid0", degraded=None), array(action="check", sync_completed="5 / 10\n"),
])  # fmt: skip
def test_an_array_that_serves(files):
    assert judge(FakeHost(files), "check_md").message == "1 array of software RAID whole"


@pytest.mark.parametrize(
    ("files", "verdict", "reason"),
    [
        (array(degraded="1"), Verdict.WARN, "MdDegraded"),
        (array(degraded="1", action="recover"), Verdict.WARN, "MdDegraded"),
        (array(level="raid6", disks=8, degraded="2"), Verdict.WARN, "MdDegraded"),
        (array(level="raid5", disks=4, degraded="2"), Verdict.CRIT, "MdFailed"),
        (array(level="raid10", disks=4, degraded="2"), Verdict.WARN, "MdDegraded"),
        (array(degraded="2"), Verdict.CRIT, "MdFailed"),
        (array(level="raid1c9", disks=9, degraded="3"), Verdict.WARN, "MdDegraded"),
        (array(level="raid1c9", disks=9, degraded="9"), Verdict.CRIT, "MdFailed"),
        (array(state="broken", level="raid0", degraded=None), Verdict.CRIT, "MdFailed"),
        (array(state="inactive", level="raid0", degraded=None), Verdict.CRIT, "MdInactive"),
        (array(state="readonly"), Verdict.CRIT, "MdReadOnly"),
        (array(action="resync"), Verdict.WARN, "MdResync"),
        (array(action="reshape"), Verdict.WARN, "MdResync"),
        (array(state="hovering"), Verdict.UNKNOWN, "MdUnreadable"),
        ({"/sys/block/md0/md/array_state": Symlink("/proc/self/mem")}, Verdict.UNKNOWN, "MdUnreadable"),
        (array(degraded=None, level="raid6", **{"degraded/x": ""}), Verdict.UNKNOWN, "MdUnreadable"),
        (array(state="readonly", degraded=None, **{"degraded/x": ""}), Verdict.CRIT, "MdReadOnly"),
    ],
)
def test_what_is_wrong_with_an_array(files, verdict, reason):
    found = judge(FakeHost(files), "check_md")
    assert (found.verdict, found.reason, found.target) == (verdict, reason, "md0")


def test_what_a_degraded_array_lost_and_how_far_it_is():
    base = "/sys/block/md0/md"
    host = FakeHost({**array(degraded="1", action="recover", sync_completed="25 / 100\n"),
                     f"{base}/dev-nvme1n1/state": "faulty\n", f"{base}/dev-nvme0n1/state": "in_sync\n"})  # fmt: skip
    found = judge(host, "check_md")
    assert found.message == "md0 (raid1) lacks 1 of 2 members: without nvme1n1; recover, 25 % done"
    assert found.action is Action.REPLACE


def test_the_nodes_of_the_field_case():
    """A raid1 without a member, and a raid0 that was never assembled."""
    host = FakeHost({**array(degraded="1"), **array("md127", state="inactive", level="raid0", degraded=None)})
    assert [(o.reason, o.target) for o in judge_all(host, "check_md")] == [
        ("MdDegraded", "md0"), ("MdInactive", "md127")]  # fmt: skip


def test_arrays_that_must_be_there():
    host = FakeHost(array())
    assert judge(host, "check_md md0").verdict is Verdict.OK
    found = judge(host, "check_md md0 md1")
    assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "MdMissing", "md1")
    assert judge(FakeHost(), "check_md md1").verdict is Verdict.CRIT
    assert judge(FakeHost(), "check_md").verdict is Verdict.SKIP


def test_what_mdadm_conf_names_is_a_warning():
    text = "HOMEHOST <system>\nARRAY /dev/md/scratch metadata=1.2 UUID=1\nARRAY <ignore> UUID=2\nARRAY UUID=3\n"
    host = FakeHost({**array(), "/etc/mdadm/mdadm.conf": text})
    found = judge(host, "check_md")
    assert (found.verdict, found.reason, found.target) == (Verdict.WARN, "MdMissing", "/dev/md/scratch")
    host.write("/dev/md0", "")
    host.write("/dev/md/scratch", Symlink("../md0"))
    host.forget()
    assert judge(host, "check_md").verdict is Verdict.OK


def test_the_container_of_a_firmware_raid_is_no_array():
    container = array("md127", state="inactive", level="container", degraded=None, metadata_version="external:imsm\n")
    member = array("md126", metadata_version="external:/md127/0\n")
    assert judge(FakeHost({**container, **member}), "check_md").verdict is Verdict.OK


def test_other_disks_are_no_arrays():
    assert judge(FakeHost({"/sys/block/sda/size": "1\n"}), "check_md").verdict is Verdict.SKIP
