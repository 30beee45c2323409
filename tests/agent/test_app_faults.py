"""Faults of applications in the kernel log: each one event, however many lines it takes."""

import pytest

from nhc.agent.kernel_sources import FAULT_AGAIN, FAULTS, AppFaults
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.kernlog.catalogue import Matcher
from nhc.node.kernlog.node_context import leaves_no_finding


def matches(*lines):
    found = [Matcher().judge(line) for line in lines]
    assert all(found)
    return found


KILL = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,cpuset=c,mems_allowed=0,oom_memcg=/kubepods/pod1,task=train,pid=42,uid=0",
    "Memory cgroup out of memory: Killed process 42 (train) total-vm:1kB, anon-rss:1kB",
)
XID31 = "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python, Ch 00000008, intr 00000000. MMU Fault"
OTHER31 = XID31.replace("3b", "4b")


def test_a_kill_is_one_event_and_the_next_one_a_minute_later_another():
    now, told = [1000.0], []
    faults = AppFaults(told.append, lambda: now[0])
    faults.publish(matches(*KILL))
    faults.publish(matches(*KILL))
    assert [(one["reason"], one["severity"]) for one in told] == [("ContainerOom", "warn")]
    assert "train" in told[0]["message"]
    now[0] += FAULT_AGAIN
    faults.publish(matches(*KILL))
    assert len(told) == 2


def test_each_device_is_told_of_by_itself_and_memory_is_bounded():
    told = []
    faults = AppFaults(told.append, lambda: 0.0)
    faults.publish(matches(XID31, OTHER31, XID31))
    assert [one["reason"] for one in told] == ["Xid31", "Xid31"]
    many = [one._replace(device=f"d{number}") for number in range(FAULTS * 2) for one in matches(XID31)]
    faults.publish(many)
    assert len(faults._published) == FAULTS


ROOT = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("EXT4-fs (sdx): Remounting filesystem read-only", True), ("XFS (sdx): Filesystem has been shut down", True),
        ("EXT4-fs (sda2): Remounting filesystem read-only", False), (XID31, True),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1463)", False),
    ],
)  # fmt: skip
def test_what_leaves_no_finding_is_an_event(line, told):
    host = FakeHost({
        "/proc/self/mountinfo": ROOT, "/proc/swaps": "Filename\n",
        "/sys/dev/block/8:2": Symlink("../../devices/ata1/block/sda/sda2"),
    })  # fmt: skip
    (match,) = matches(line)
    assert leaves_no_finding(host, match) is told
    host.remove("/proc/self/mountinfo")
    assert leaves_no_finding(host, match) is (match.severity == "app"), "then the finding stands"
