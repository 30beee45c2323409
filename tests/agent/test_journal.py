"""The supervised journalctl, with a shell in its place. With the real one: tests/machines/test_journald.py."""

import os
import time

import pytest

from nhc.agent.event_loop import Loop
from nhc.agent.journal_follower import APART, LINE, Journalctl, KernelJournal
from nhc.lab.testing.fake_host import FakeHost

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, GPU has fallen off the bus."


class Played:
    """A host whose journalctl is a shell script, and a loop to watch it from."""

    def __init__(self, script):
        self.host = FakeHost({}, {"journalctl": ""})
        self.host.environ = {}
        self.started = []
        self.script = script
        self.host.system.started = self.begin
        self.clock = 0.0
        self.loop = Loop(clock=lambda: time.monotonic() + self.clock, complain=self.complain)
        self.loop.signals({})
        self.told, self.lines = [], []

    def complain(self, line):
        raise AssertionError(line)

    def begin(self, _program, argv):
        self.started.append(argv)
        return "/bin/sh", ["sh", "-c", self.script]

    def child(self):
        return Journalctl(self.loop, self.host, lambda: (), self.lines.extend, self.told.append)

    def until(self, what, within=60.0):
        deadline = time.monotonic() + within
        while not what():
            assert time.monotonic() < deadline, (self.told, self.lines[:5])
            self.loop.once(0.05)


@pytest.fixture
def ended():
    """What a test has started ends with it."""
    found = []
    yield found.append
    for one in found:
        one.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_what_it_wrote_last_is_read_and_it_is_started_again_ever_more_slowly(ended):
    played = Played("echo one; echo two; exit 1")
    child = played.child()
    ended(child)
    child.start()
    waits = []
    for turn in range(1, 9):
        played.until(lambda turn=turn: len(played.started) == turn and child.pid == 0)
        waits.append(child._timer.when - played.loop.clock())
        played.clock += 61
    assert played.lines[:2] == [b"one", b"two"]
    assert played.told[-1] == "journalctl ended"
    assert [round(wait) for wait in waits[:6]] == [1, 2, 4, 8, 16, 32]
    assert max(waits) <= 60


@pytest.mark.thorough
def test_a_line_without_an_end_takes_no_more_memory(ended):
    played = Played(f"head -c {5 * LINE} /dev/zero; echo; echo after; exec sleep 60")
    child = played.child()
    ended(child)
    child.start()
    most = 0

    def arrived():
        nonlocal most
        most = max(most, len(child._rest))
        return b"after" in played.lines

    played.until(arrived, within=60)
    assert most <= LINE


def test_it_ends_with_the_agent():
    played = Played("echo one; exec sleep 60")
    child = played.child()
    child.start()
    played.until(lambda: played.lines)
    pid = child.pid
    child.close()
    played.until(lambda: gone(pid))
    assert len(played.started) == 1


@pytest.mark.thorough
def test_a_line_that_may_mean_something_wakes_a_check_and_others_do_not(ended):
    played = Played("echo the newest; sleep 0.2; echo usb 1-1: new device; sleep 0.2; echo a frob broke; exec sleep 60")
    woken = []
    journal = KernelJournal(played.loop, played.host, lambda: woken.append(played.loop.clock()), played.complain)
    ended(journal)
    journal.follow(("frob",))
    played.until(lambda: len(woken) == 2)
    assert woken[1] - woken[0] >= 0.35, "the line between is nothing to a check"


@pytest.mark.thorough
def test_a_storm_of_faults_asks_for_few_rounds(ended):
    played = Played(f"i=0; while [ $i -lt 3000 ]; do echo '{XID}'; i=$((i+1)); done; exec sleep 60")
    woken = []
    journal = KernelJournal(played.loop, played.host, lambda: woken.append(played.loop.clock()), played.complain)
    ended(journal)
    journal.follow()
    played.until(lambda: len(woken) >= 1)
    began = time.monotonic()
    played.until(lambda: time.monotonic() - began > APART * 1.5)
    assert len(woken) <= 3


@pytest.mark.thorough
def test_faults_of_applications_are_told_as_they_come_and_not_what_stood_there_before(ended):
    """They leave no finding: a check that is woken has nothing to say of them."""
    oom = "Nov 22 05:35:16 n1 kernel: Memory cgroup out of memory: Killed process {} (train) total-vm:1kB"
    forged = oom.format(3).replace("kernel:", "train[3]:")
    played = Played(f"echo '{oom.format(1)}'; sleep 0.2; echo '{oom.format(2)}'; echo '{forged}'; echo '{XID}'; "
                    "exec sleep 60")  # fmt: skip
    told = []
    journal = KernelJournal(played.loop, played.host, lambda: None, played.complain)
    journal.call_for_apps(told.extend)
    ended(journal)
    journal.follow()
    played.until(lambda: told)
    played.until(lambda: journal._timer is None)
    assert [(match.kind, match.line) for match in told] == [("oom", oom.format(2).partition(" kernel: ")[2])]
