"""The sequences of test_sequences.py on the kernel's own /dev/kmsg, with a restart of the watcher in the middle.

Records, their numbers and their stamps are the kernel's. Only the wall clock is set forward from line to line, since a
crash loop takes a day. A restart of the node cannot be had here: it would empty the ring.
"""

import fcntl
import os
import tempfile
import time
import uuid

import pytest

from nhc.agent.event_loop import Loop
from nhc.agent.kmsg_follower import Follower
from nhc.core.host import BOOT_ID
from nhc.core.model import Verdict
from nhc.core.state.store import State
from nhc.core.system import kernel_ring
from nhc.lab.testing.fake_host import FakeHost, FakeSystem, Symlink
from nhc.node.facts.kernel_lines import parse_record
from nhc.node.kernlog.collect import OF_THE_LOAD
from nhc.node.kernlog.source import STORE
from tests.support.judge import judge_all
from tests.support.kernel_sequences import (
    BANNER,
    BOOT,
    FILES,
    NFS_BACK,
    OST,
    PORT,
    SCENARIOS,
    SEVERITY,
    SLOT,
    repair,
)
from tests.support.require import need

pytestmark = pytest.mark.slow
FIRST = "driver reload that fails"
"""A banner ends its finding from ten seconds on: it runs first, and the others are that time."""
REAL = {name: scenario for name, scenario in SCENARIOS.items() if all(line != BOOT for _at, line in scenario[0])}
ENDS = (
    repair("0x0 (None)"), repair("0x0 (None)", "5e"), BANNER, NFS_BACK, OST.format("restored to", ""),
    f"{PORT}AER: device recovery successful", f"{SLOT}Link Up", "nvme nvme0: 8/0/0 default/read/poll queues",
    "EXT4-fs (sda2): mounted filesystem", "EXT4-fs (sdb): mounted filesystem", "XFS (sda2): Mounting V5 Filesystem",
    "mlx5_core 0000:5e:00.0 eth2: Link up",
)  # fmt: skip
"""Written after each scenario, so that whoever reads this machine's log later finds no fault that stands."""


ALL, WRITTEN = set(), {}
"""Every line written, and when each scenario was over."""


class RingSystem(FakeSystem):
    """A machine of made-up files whose kernel log is the real one."""

    def kernel_log(self, after):
        return kernel_ring.read(kernel_ring.KMSG, after)


class RingHost(FakeHost):
    def __init__(self, files):
        super().__init__({**files, kernel_ring.KMSG: Symlink(kernel_ring.KMSG)})
        self.tree = self.system  # the files last as long as it does
        self.system = RingSystem(self.root)


class RealNode:
    """A node whose files are a scenario's, whose kernel log is this machine's, and the process that watches it."""

    def __init__(self, directory):
        self.state_directory = os.path.join(str(directory), "state")
        self.zero = 1_700_000_000.0
        self.host = RingHost({**FILES, BOOT_ID: "boot-0\n"})
        self.written, self.read = set(), set()
        mark = f"nhc-test {uuid.uuid4()}"
        self.write(mark)
        first = next(one for one in map(parse_record, kernel_ring.read(kernel_ring.KMSG, -1)) if mark in one.text)
        self.ahead = first.since_boot - time.monotonic()  # the clock that stamps records, before the one of Python
        self.clock(1)
        State(self.state_directory).save(STORE, {"boot": "boot-0", "cursor": first.number})
        self.start()

    def write(self, line):
        with open(
            kernel_ring.KMSG, "wb", buffering=0
        ) as file:  # opened anew for each: the kernel limits an opener's rate
            file.write(f"<3>{line}\n".encode())
        self.written.add(line)

    def start(self):
        self.state = State(self.state_directory)
        self.host.memory = self.state
        self.loop = Loop(complain=lambda line: pytest.fail(line))
        self.follower = Follower(self.loop, self.host, self.state, lambda: None, lambda line: pytest.fail(line))
        assert self.follower.start()
        self.follower.tell_every_record(lambda records: self.read.update(record.text for record in records))
        self.judge()

    def stop(self):
        self.follower.close()

    def clock(self, at):
        self.host.system.uptime, self.host.system.now = time.monotonic() + self.ahead, self.zero + at

    def says(self, at, line):
        """The kernel says a line, and the watcher has read it."""
        self.clock(at)
        self.read.clear()
        self.write(line)
        deadline = time.monotonic() + 60
        while line not in self.read:
            assert time.monotonic() < deadline, f"not read: {line}"
            self.loop.once(0.2)

    def judge(self):
        """What stands of our own lines: others may write to the log of this machine at the same time."""
        self.host.forget()
        return {
            f"{one.reason} {one.target}": (SEVERITY[one.verdict], one.action.value)
            for one in judge_all(self.host, "check_kmsg")
            if one.verdict is not Verdict.OK and self.written.intersection(one.evidence)
        }


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory):
    """One run of these tests at a time: two would repair each other's GPUs. No fault is left behind."""
    allowed = os.geteuid() == 0 and os.access(kernel_ring.KMSG, os.R_OK | os.W_OK)
    need("/dev/kmsg", allowed, "it needs root")
    with open(os.path.join(tempfile.gettempdir(), "nhc-test-kmsg.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = tmp_path_factory.mktemp("late")
        late = RealNode(directory)
        late.stop()
        yield
        while time.monotonic() < WRITTEN.get(FIRST, 0.0) + OF_THE_LOAD + 0.5:
            time.sleep(0.05)
        for line in ENDS:
            late.write(line)
        late.zero = time.time()
        late.clock(0)
        late.written = ALL
        left = [key for key, (severity, _action) in late.judge().items() if severity == "fatal"]
        assert left == [], "whoever reads this machine's log from now on finds no fault that stands"


def test_all_but_a_restart_of_the_node_can_be_had_here():
    assert set(SCENARIOS) - set(REAL) == {"reboot", "reboot without the device"}


@pytest.mark.parametrize("name", sorted(REAL, key=lambda name: name != FIRST))
def test_on_the_real_log_with_a_restart_in_the_middle(name, tmp_path):
    lines, expected, files = REAL[name]
    node = RealNode(tmp_path)
    middle = len(lines) // 2
    try:
        for at, line in lines[:middle]:
            node.says(at, line)
        node.stop()
        at, line = lines[middle]
        node.clock(at)
        node.write(line)  # nobody watches: the check that comes with the next start reads it
        node.start()
        for at, line in lines[middle + 1 :]:
            node.says(at, line)
        for path, content in files.items():
            node.host.write(path, content)
        node.clock(lines[-1][0] + 300)
        assert node.judge() == expected
    finally:
        node.stop()
        WRITTEN[name] = time.monotonic()
        for line in ENDS:
            node.write(line)
        ALL.update(node.written)
    node.clock(lines[-1][0] + 400)
    late = {key for key, (severity, _action) in node.judge().items() if severity == "fatal"}
    assert late <= OUTLASTS.get(name, set())


#: What no line of the log ends: new hardware is asked for, or only /proc can tell that the tasks are gone.
OUTLASTS = {"replacement pending": {"Xid95 0000:3b:00.0"}, "the node's own disk hangs": {"TaskHung "}}
