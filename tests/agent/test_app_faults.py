"""Faults of applications in the kernel log: each one event, however many lines it takes."""

from nhc.agent.app_faults import AGAIN, KEPT, AppFaults
from nhc.node.kernlog.catalogue import Matcher


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
    now[0] += AGAIN
    faults.publish(matches(*KILL))
    assert len(told) == 2


def test_each_device_is_told_of_by_itself_and_memory_is_bounded():
    told = []
    faults = AppFaults(told.append, lambda: 0.0)
    faults.publish(matches(XID31, OTHER31, XID31))
    assert [one["reason"] for one in told] == ["Xid31", "Xid31"]
    many = [one._replace(device=f"d{number}") for number in range(KEPT * 2) for one in matches(XID31)]
    faults.publish(many)
    assert len(faults._published) == KEPT
