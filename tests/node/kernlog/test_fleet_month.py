"""The budget of false drains: in a month of a fleet's kernel logs no healthy node is marked, every faulty one is."""

from collections import Counter

import pytest

from nhc.core.model import CheckResult, Report, Verdict, ok
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.marks.policy.mark_decision import Policy, reconcile
from nhc.marks.ports.adapter import NodeState, Operation
from nhc.node.checks.kmsg import beside, outcome
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current, enter_boot
from tests.support.fleet_month import BOOTED, MOUNTED, TICK, UNMOUNTED, faulty, month

BEGAN = 1_700_000_000.0
ROOT = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n23 22 8:3 / /scratch rw - xfs /dev/sda3 rw\n"
POD = "90 22 8:16 / /var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdb rw\n"
DISKS = {
    "/proc/bus/pci/devices": "", "/proc/swaps": "Filename\n",
    "/sys/dev/block/8:2": Symlink("../../ata1/block/sda/sda2"),
    "/sys/dev/block/8:3": Symlink("../../ata1/block/sda/sda3"), "/sys/dev/block/8:16": Symlink("../../host6/block/sdb"),
}  # fmt: skip


class Fleet:
    """Nodes that judge each line as it comes, and the policy that marks them."""

    def __init__(self, nodes):
        gone = {**DISKS, "/proc/self/mountinfo": ROOT}
        there = {
            **gone,
            "/sys/class/block/sdb/removable": "0\n",
            "/sys/class/scsi_device/6:0:0:0/device/block/sdb/dev": "",
            "/proc/self/mountinfo": ROOT + POD,
        }
        self.hosts = {MOUNTED: FakeHost(there), UNMOUNTED: FakeHost(gone)}
        self.volume = [MOUNTED] * nodes
        self.logs = [{"boot": "boot-0"} for _ in range(nodes)]
        self.states = [NodeState(f"n{number}", "idle", True) for number in range(nodes)]
        self.marks = []
        self.warned = set()
        self.boots = 0

    def take(self, when, node, line):
        state, now = self.logs[node], BEGAN + when
        before = bool(state.get("findings"))
        if line == BOOTED:
            self.boots += 1
            enter_boot(state, f"boot-{self.boots}", lambda finding: True)
        elif line in (MOUNTED, UNMOUNTED):
            self.volume[node] = line
        elif line != TICK:
            take_in(state, [(line, now)], now)
        if before or state.get("findings"):
            self.judge(node, state, now)

    def judge(self, node, state, now):
        standing, gone = beside(self.hosts[self.volume[node]], state, current(state, (), now))
        for key, _finding in gone:
            state["findings"].pop(key, None)
        outcomes = [outcome(finding) for _key, finding in standing]
        verdict = max((one.verdict for one in outcomes), default=Verdict.OK)
        if verdict is Verdict.WARN:
            self.warned.add(node)
        marked = self.states[node].mark is not None
        if marked is (verdict is Verdict.CRIT):
            return
        name = self.states[node].name
        results = tuple(CheckResult("check_kmsg", one) for one in outcomes or [ok("no fault that stands")])
        decision = reconcile({name: Report(name, "b", now, 0.1, results)}, self.states, Policy(), (), now)
        for planned in decision.operations:
            self.states[node] = NodeState(name, "drain", False, mark=planned.mark) if planned.mark else NodeState(
                name, "idle", True)  # fmt: skip
            if planned.operation is Operation.MARK:
                self.marks.append((now - BEGAN, node, planned.because))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20261122])
def test_in_a_month_no_healthy_node_is_marked_and_every_faulty_one_is(seed, capsys):
    nodes = 1000
    logs = month(seed, nodes)
    fleet = Fleet(nodes)
    for event in logs.events:
        fleet.take(event.when, event.node, event.line)
    false = [mark for mark in fleet.marks if faulty(logs.faults, mark[1], mark[0]) is None]
    found = {faulty(logs.faults, node, when) for when, node, _because in fleet.marks}
    missed = [fault for fault in logs.faults if fault not in found]
    late = [when - fault.when for fault in logs.faults for when, node, _ in fleet.marks if node == fault.node]
    with capsys.disabled():
        print(
            f"\n{nodes} nodes, 30 days, seed {seed}: {len(logs.events)} lines; {len(logs.faults)} faults, "
            f"{len(logs.faults) - len(missed)} marked ({sorted(late)[len(late) // 2]:.0f} s after its first line), "
            f"{len(false)} healthy nodes marked, {len(fleet.warned)} warned of"
        )
    assert false == []
    assert missed == []
    assert all(state.mark is None for state in fleet.states), "and every one is back when it is repaired"
    assert len(logs.faults) >= nodes / 20
    assert min(Counter(fault.kind for fault in logs.faults).values()) >= 3


@pytest.mark.thorough
def test_the_month_is_written_from_its_seed():
    one, other = month(7, 40), month(7, 40)
    assert one == other
    assert one != month(8, 40)
