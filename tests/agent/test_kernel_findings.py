"""What the kernel log tells of waits for no round, and a round that looked before takes nothing back."""

import time
from types import SimpleNamespace

import pytest

from nhc.agent.agent_plan import Checks
from nhc.agent.check_round import key_of
from nhc.agent.kernel_findings import ASKED, KernelLog, Listener
from nhc.agent.problems import Board
from nhc.agent.schedule import CheckTimes, Schedule
from nhc.core.model import CheckResult, Verdict, ok, unknown
from nhc.core.plan import BUILT_IN, Item
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.kernlog.collect import take_in
from nhc.node.kernlog.findings import current

ITEM = Item(BUILT_IN, "check_kmsg", "check_kmsg", "nhc.conf:1", ("check_kmsg",))
KEY = key_of(ITEM)
ROOT = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n"
POD = "90 22 8:16 / /var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdb rw\n"
ABORTED = "EXT4-fs error (device {}): ext4_journal_check_start:83: comm x: Detected aborted journal"
OFF_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, GPU has fallen off the bus."
ROWS = "NVRM: Xid (PCI:0000:3b:00): 64, pid=77, Row Remapper: failed"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (root@host)"


@pytest.fixture
def node(tmp_path):
    """The log's part of an agent, the store of findings in the test's own hands."""
    host = FakeHost({"/proc/self/mountinfo": ROOT + POD, "/proc/swaps": "Filename\n", "/proc/bus/pci/devices": ""})
    state = State(str(tmp_path / "state"))
    host.memory = state
    store, board, schedule, heard = {}, Board(), Schedule("n1"), []
    schedule.set({KEY: CheckTimes(KEY, 60.0, 20.0)}, host.monotonic())
    schedule.begin(schedule.entries.values(), host.monotonic())
    checks = Checks(schedule, board)
    checks.items = {KEY: ITEM}
    listener = Listener(heard.extend, lambda: None, lambda: None)
    kernel = KernelLog(host, state, checks, heard.append, listener, lambda: store)
    kernel.plan_changed()

    def say(*lines):
        take_in(store, [(line, host.time()) for line in lines], host.time())
        kernel.findings_changed()

    def told():
        return {(r.outcome.target, r.outcome.reason): r.verdict for r in board.results([KEY]) if r.verdict > Verdict.OK}

    def judge(*outcomes, began):
        """A round's end, as the agent takes it."""
        results = [CheckResult("check_kmsg", outcome, source=ITEM.source, line=ITEM.line) for outcome in outcomes]
        board.judge(KEY, kernel.judged(ITEM, results, began), host.time(), 1)

    return SimpleNamespace(host=host, store=store, kernel=kernel, schedule=schedule, say=say, told=told, judge=judge,
                           clock=host.system)  # fmt: skip


def test_a_file_system_of_the_node_is_told_of_without_a_round(node):
    node.say(ABORTED.format("sda2"))
    assert list(node.told().values()) == [Verdict.CRIT]


def test_a_pod_s_volume_is_told_of_without_a_round_and_is_no_fault_of_the_node(node):
    node.say(ABORTED.format("sdb"))
    assert list(node.told().values()) == [Verdict.WARN]


def test_hung_tasks_are_told_of_without_a_round(node):
    node.say("INFO: task cp:100 blocked for more than 122 seconds.", "task:cp state:D stack:0 pid:100 tgid:100 ppid:1")
    assert node.told() == {("", "TaskHung"): Verdict.WARN}


def test_a_round_that_looked_before_the_line_takes_nothing_back(node):
    began = node.host.monotonic()
    node.say(OFF_BUS)
    assert node.told() == {("0000:3b:00.0", "Xid79"): Verdict.CRIT}
    node.judge(ok("the kernel log tells of no fault that stands (0 new lines of /dev/kmsg read)"), began=began)
    assert node.told() == {("0000:3b:00.0", "Xid79"): Verdict.CRIT}


def test_a_round_that_looked_before_the_recovery_brings_nothing_back(node):
    node.say(
        OFF_BUS.replace("79, pid=77, GPU has fallen off the bus.", "119, pid=77, Timeout after 6s of waiting for RPC")
    )
    (place,) = node.told()
    began = node.host.monotonic()
    seen = [result.outcome for result in node.kernel._checks.board.results([KEY])]
    node.clock.now += 120.0
    node.say(LOADED)
    assert node.told() == {}
    node.judge(*seen, began=began)
    assert node.told() == {}, place


def test_a_round_that_could_not_tell_leaves_what_the_log_told(node):
    node.say(OFF_BUS)
    node.judge(unknown("CheckTimeout", "it did not end within 20 s"), began=node.host.monotonic())
    assert ("0000:3b:00.0", "Xid79") in node.told()


def test_an_xid_that_its_gpu_must_explain_waits_for_it_a_little_and_no_longer(node):
    """NVML may hang on the very GPU that is sick."""
    node.say(ROWS)
    assert node.told() == {}
    assert node.schedule.entries[KEY].soon == node.host.monotonic()
    node.kernel.look()
    assert node.told() == {}
    node.clock.uptime += ASKED
    node.kernel.look()
    assert node.told() == {("0000:3b:00.0", "Xid64"): Verdict.CRIT}


def test_an_xid_that_its_gpu_has_explained_away_is_not_told_of_until_it_comes_again(node):
    node.say(ROWS)
    node.clock.uptime += 0.1
    node.judge(ok("all is well"), began=node.host.monotonic())
    assert [key for key, _finding in current(node.store)] == ["xid/64/0000:3b:00.0"]  # the round could not drop it
    node.clock.uptime += ASKED * 5
    node.kernel.findings_changed()
    assert node.told() == {}
    node.say(ROWS)
    node.clock.uptime += ASKED
    node.kernel.look()
    assert node.told() == {("0000:3b:00.0", "Xid64"): Verdict.CRIT}


def test_a_store_that_somebody_holds_does_not_hold_up_the_judgement_of_hung_tasks(node, monkeypatch):
    node.host.write("/proc/2/stat", "2 (kthreadd) S 0 0 0")
    node.host.write("/proc/100/stat", "100 (cp) D 1 100 100 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0")
    other = State(node.host.memory.directory)
    lock, held = other._lock("kernel-log-blocked", wait=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    assert lock >= 0
    assert not held
    node.say("INFO: task cp:100 blocked for more than 122 seconds.", "task:cp state:D stack:0 pid:100 tgid:100 ppid:1")
    assert node.told() == {("", "TaskHung"): Verdict.WARN}
