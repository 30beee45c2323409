import os
import socket

import pytest

from nhc.agent.event_loop import Loop
from nhc.agent.kmsg_follower import ALIKE, Follower
from nhc.core.host import Host
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.kernlog.read import followed, read_log
from nhc.node.kernlog.source import STORE, LogSource

BOOT = "11111111-2222-3333-4444-555555555555"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, GPU has fallen off the bus."


def raw(number, text=XID, level=3):
    return f"{level},{number},{number * 1000},-;{text}"


@pytest.fixture
def log(tmp_path):
    """A kernel log in which records can be put, read by a follower and by checks."""

    class Log:
        def __init__(self):
            self.host = FakeHost({"/proc/sys/kernel/random/boot_id": f"{BOOT}\n"})
            self.state = State(str(tmp_path / "state"))
            self.host.memory = self.state
            self.host.system.kernel = [raw(0, "Linux version")]
            self.loop = Loop(complain=self.complain)
            self.found = 0
            self.follower = Follower(self.loop, self.host, self.state, self.hear, self.complain)
            self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.setblocking(False)
            self.follower.follow(theirs.detach())

        def complain(self, line):
            raise AssertionError(line)

        def hear(self):
            self.found += 1

        def say(self, *records):
            for record in records:
                self.host.system.kernel.append(record)
                self.ours.send(record.encode() + b"\n")

        def turn(self, times=3):
            for _ in range(times):
                self.loop.once(0.0)

        def check(self):
            return read_log(self.host, LogSource())

        def findings(self):
            return self.state.load(STORE).get("findings", {})

    made = Log()
    yield made
    made.ours.close()
    made.follower.close()


@pytest.mark.service
def test_a_fault_is_in_the_store_as_soon_as_it_is_logged(log):
    log.check()
    log.say(raw(1))
    log.turn()
    assert list(log.findings()) == ["xid/79/0000:3b:00.0"]
    assert log.found == 1


def test_what_a_check_has_read_first_is_not_filed_again_but_told_at_once(log):
    """The check's own word comes with the end of its round, which may be long in coming."""
    log.check()
    log.say(raw(1))
    log.check()
    log.turn()
    assert log.findings()["xid/79/0000:3b:00.0"]["count"] == 1
    assert log.found == 1
    log.turn()
    assert log.found == 1


def test_what_the_follower_has_filed_a_check_does_not_file_again(log):
    log.check()
    log.say(raw(1))
    log.turn()
    seen = log.check()
    assert log.findings()["xid/79/0000:3b:00.0"]["count"] == 1
    assert seen.lost == 0


def test_before_the_first_check_of_a_boot_nothing_is_filed_for_it_reads_everything(log):
    log.say(raw(1, "before"), raw(2))
    log.turn()
    assert log.findings() == {}
    assert log.follower.findings.standing()["findings"]["xid/79/0000:3b:00.0"]["count"] == 1
    assert log.follower.hand_over() is None
    log.check()
    assert log.findings()["xid/79/0000:3b:00.0"]["count"] == 1


def test_lines_that_a_check_has_still_to_read_are_not_jumped_over(log):
    log.check()
    log.host.system.kernel += [raw(1, "quiet"), raw(2)]  # logged while no agent followed
    log.say(raw(3, XID.replace("3b", "4c")))
    log.turn()
    log.check()
    assert set(log.findings()) == {"xid/79/0000:3b:00.0", "xid/79/0000:4c:00.0"}


def test_a_store_that_a_check_has_locked_is_waited_for_without_waiting(log, monkeypatch):
    log.check()
    locked = [True]
    real = State.try_update
    monkeypatch.setattr(State, "try_update", lambda self, *a: False if locked[0] else real(self, *a))
    log.say(raw(1))
    log.turn()
    assert log.findings() == {}
    assert log.found == 1
    assert list(log.follower.findings.standing()["findings"]) == ["xid/79/0000:3b:00.0"]
    locked[0] = False
    for _ in range(20):
        log.loop.once(0.05)
        if log.findings():
            break
    assert list(log.findings()) == ["xid/79/0000:3b:00.0"]


def test_quiet_records_cost_no_write_and_are_not_called_lost(log):
    log.check()
    log.say(*[raw(number, f"usb {number}: new device") for number in range(1, 51)])
    log.turn(10)
    assert log.state.load(STORE)["cursor"] == 0
    assert log.follower.hand_over() == (50, 0)
    assert log.state.load(STORE)["cursor"] == 50
    log.host.system.kernel = log.host.system.kernel[-1:]  # the ring has gone round
    log.say(raw(51, "more"))
    assert log.check().lost == 0


def test_one_line_repeated_without_end_is_counted_a_few_times_a_batch(log):
    log.check()
    for number in range(1, 15):
        log.say(raw(number))
    log.turn()
    assert log.findings()["xid/79/0000:3b:00.0"]["count"] == ALIKE


def test_overwritten_records_are_counted(log):
    log.follower.findings.last = 10
    log.follower._count_gap([])
    log.follower._close_gap(raw(15).encode())
    assert log.follower.lost == 4


def test_a_round_is_handed_what_was_read_and_does_not_read_the_log_itself(log):
    log.check()
    log.say(raw(1), raw(2, "quiet"))
    log.turn()
    read = log.follower.hand_over()
    assert read == (2, 0)
    log.follower.lost += 3
    assert log.follower.hand_over() == (0, 3)
    log.host.system.kernel = None  # whoever asks for it fails
    log.host.know(followed, {STORE: read})
    seen = log.check()
    assert (seen.lines, seen.lost, list(seen.state["findings"])) == (2, 0, ["xid/79/0000:3b:00.0"])


def test_a_store_that_lacks_lines_from_before_the_follower_is_brought_up_to_date_by_the_next_check(log):
    log.check()
    log.host.system.kernel += [raw(1, "quiet"), raw(2)]  # logged while no agent followed
    log.say(raw(3, "more"))
    log.turn()
    assert log.follower.hand_over() is None
    log.check()
    assert log.follower.hand_over() == (1, 0)


@pytest.fixture
def ring(tmp_path):
    """A FIFO in the place of /dev/kmsg, with a descriptor that keeps it open for writing."""
    path = tmp_path / "dev" / "kmsg"
    path.parent.mkdir()

    def make():
        os.mkfifo(path)
        return os.open(path, os.O_RDWR)

    def end(writer):
        path.unlink()
        os.close(writer)

    return make, end


def test_a_log_that_failed_is_opened_again_unless_it_is_not_to_be_followed_any_more(ring, tmp_path):
    make, end = ring
    now, starts = [0.0], []
    loop = Loop(clock=lambda: now[0])
    follower = Follower(loop, Host(str(tmp_path)), State(str(tmp_path / "s")), lambda: starts.append(now[0]), str)

    def turn():
        now[0] += 5.0
        loop.once(0.0)
        return follower.live

    writer = make()
    assert follower.start()
    end(writer)
    assert [turn(), turn(), turn()] == [False, False, False]
    writer = make()
    assert turn()
    assert starts == [20.0]
    end(writer)
    loop.once(0.0)
    follower.close()
    os.close(make())
    assert not turn()
