"""Sinks in processes of their own: what they are told, and what happens when they do not take it."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from nhc.agent import sink_handle, sink_process
from nhc.agent.event_loop import Loop
from nhc.agent.sink_handle import SinkHandle
from nhc.agent.sink_process import MOST_EVENTS
from nhc.core.model import CheckResult, Report, ok
from nhc.core.render.json import to_dict
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import NotYetDelivered, Standing
from tests.support.require import need

REPORT = Report("n1", "b", 1.7e9, 0.1, (CheckResult("check_x", ok()),))


class Written:
    """A sink that writes what it is told into a file, and does as another file says."""

    def __init__(self, directory):
        self.directory = directory

    def standing(self):
        if (self.directory / "unreachable").exists():
            raise AdapterError("unreachable")
        return [Standing("T", "Xid79", "m", 5.0)]

    def deliver(self, delivery):
        order = (self.directory / "order").read_text() if (self.directory / "order").exists() else ""
        if order == "fail":
            raise AdapterError("away")
        if order == "no thread":
            raise RuntimeError("can't start new thread")
        if order == "break":
            raise ValueError("a mistake of the sink's own")
        if order == "die":
            os._exit(9)
        if order == "hang":
            while (self.directory / "order").read_text() == "hang":
                time.sleep(0.01)
        said = {
            "host": delivery.report.host,
            "complete": delivery.complete,
            "events": [n["n"] for n in delivery.events],
            "lost": delivery.lost,
        }
        with open(self.directory / "told", "a") as file:
            file.write(json.dumps(said) + "\n")
        if order == "keep":
            raise NotYetDelivered("kept")

    def close(self):
        (self.directory / "closed").write_text("")


@pytest.fixture
def sink(request, tmp_path, monkeypatch):
    monkeypatch.setattr(sink_handle, "BACKOFF", (0.05, 0.2))
    monkeypatch.setattr(sink_process, "RETRY", (0.05, 0.2))

    class Sink:
        def __init__(self):
            self.loop = Loop(complain=self.log)
            self.logged, self.stood = [], []
            self.complete = True
            self.asked = 0
            self.handle = SinkHandle("test", lambda log: Written(tmp_path), self.loop, self.state, self.log,
                                 lambda name, standing: self.stood.append(standing))  # fmt: skip
            self.loop.signals({})

        def log(self, line):
            self.logged.append(line)

        def state(self):
            self.asked += 1
            return json.dumps(
                {"report": to_dict(REPORT), "complete": self.complete, "conditions": [], "contexts": {}}
            ).encode()

        def order(self, word):
            (tmp_path / "order.new").write_text(word)
            os.replace(tmp_path / "order.new", tmp_path / "order")

        def told(self):
            path = tmp_path / "told"
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

        def events(self):
            return [n for told in self.told() for n in told["events"]]

        def tell(self, *numbers):
            self.handle.publish([{"event": "e", "n": number} for number in numbers])

        def until(self, what, within=60.0):
            deadline = time.monotonic() + within
            while not what():
                assert time.monotonic() < deadline, (self.told(), self.logged)
                self.loop.once(0.02)

    made = Sink()
    if "unreachable" not in request.fixturenames:
        made.handle.start()
    yield made
    made.handle.close()
    made.handle.wait(time.monotonic() + 20)


@pytest.fixture
def unreachable(tmp_path):
    path = tmp_path / "unreachable"
    path.write_text("")
    return path


@pytest.mark.thorough
def test_a_sink_says_first_what_stood_before_us(unreachable, sink):
    sink.handle.start()
    sink.tell(1)
    sink.until(lambda: sink.handle.problem == "unreachable")
    assert sink.told() == []
    assert sink.asked == 0  # what is so may be another once it is known what stood
    unreachable.unlink()
    sink.until(sink.events)
    assert sink.stood == [[Standing("T", "Xid79", "m", 5.0)]]
    assert sink.told()[0]["host"] == "n1"


def test_news_come_once_in_order(sink):
    for number in range(20):
        sink.tell(number)
    sink.until(lambda: len(sink.events()) == 20)
    assert sink.events() == list(range(20))


@pytest.mark.thorough
def test_what_could_not_be_delivered_is_delivered_when_it_can(sink):
    sink.order("fail")
    sink.tell(1)
    sink.until(lambda: sink.handle.problem == "away")
    sink.tell(2)
    sink.order("")
    sink.until(lambda: sink.events() == [1, 2])
    sink.until(lambda: sink.handle.problem == "")


@pytest.mark.thorough
def test_what_a_sink_keeps_itself_is_not_told_again(sink):
    sink.order("keep")
    sink.tell(1)
    sink.until(lambda: sink.handle.problem == "kept")
    sink.order("")
    sink.tell(2)
    sink.until(lambda: 2 in sink.events())
    assert sink.events() == [1, 2]


@pytest.mark.thorough
def test_a_sink_that_dies_is_started_anew_and_told_what_is_so(sink):
    sink.until(sink.told)
    sink.order("die")
    sink.tell(1)
    sink.until(lambda: sink.handle.restarts)
    sink.order("")
    before = len(sink.told())
    sink.until(lambda: len(sink.told()) > before)
    assert sink.told()[-1]["host"] == "n1"
    assert "status 9" in sink.logged[0]


@pytest.mark.thorough
def test_a_sink_that_hangs_costs_a_bounded_memory_and_gets_the_newest(sink):
    sink.until(sink.told)
    sink.order("hang")
    sink.tell(-1)
    for number in range(0, 20 * MOST_EVENTS, 100):
        sink.tell(*range(number, number + 100))
        sink.handle.changed()
        sink.loop.once(0.0)
    assert sink.handle.waiting <= MOST_EVENTS
    assert sink.handle.lost > 0
    sink.order("")
    sink.until(lambda: sink.events()[-1:] == [20 * MOST_EVENTS - 1])
    assert sink.told()[-1]["lost"] > 0
    assert sink.events() == sorted(sink.events())


@pytest.mark.thorough
def test_a_sink_that_does_not_end_is_ended(sink):
    sink.until(sink.told)
    sink.order("hang")
    sink.tell(1)
    sink.loop.once(0.1)
    sink.handle.close()
    began = time.monotonic()
    sink.handle.wait(began + 0.3)
    assert time.monotonic() - began < 30
    assert sink.handle.pid == 0


@pytest.mark.thorough
def test_a_sink_that_finds_no_descriptor_is_started_when_there_is_one_again(sink, tmp_path):
    """The descriptors run out for real; the sink's process has died meanwhile."""
    sink.until(sink.told)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        os.kill(sink.handle.pid, signal.SIGKILL)
        sink.until(lambda: not sink.handle.pid)  # what it had open is free, and taken at once
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        sink.until(lambda: sink.handle.dead)
        assert "cannot be started: Too many open files" in sink.handle.dead
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    sink.tell(7)
    sink.until(lambda: 7 in sink.events())
    sink.until(lambda: not sink.handle.dead)


@pytest.mark.thorough
def test_a_sink_that_gets_no_process_is_started_when_it_gets_one(sink):
    """The limit is a real one: a cgroup's pids.max would end in the same error of the same call."""
    need("root", os.geteuid() == 0, "to be another user, whom limits hold")
    done = subprocess.run([sys.executable, "-c", NO_PROCESS], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert done.stdout.split() == ["dead", "alive"], done.stderr


NO_PROCESS = """\
import os, resource, time
from tests.support.other_user import become
from nhc.agent import sink_handle as handle
from nhc.agent.event_loop import Loop

class Silent:
    def standing(self):
        return []
    def deliver(self, delivery):
        pass
    def close(self):
        pass

handle.BACKOFF = (0.05, 0.1)
become(64178)
loop = Loop(complain=print)
loop.signals({})
one = handle.SinkHandle("test", lambda log: Silent(), loop, lambda: b"", lambda line: None)
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
one.start()
until = time.monotonic() + 60
while not one.dead and time.monotonic() < until:
    loop.once(0.02)
print("dead" if "cannot be started" in one.dead else one.problem)
resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
while (not one.pid or one._outgoing._held) and time.monotonic() < until:
    loop.once(0.02)
print("alive" if one.pid and not one.dead else one.problem)
one.close()
one.wait(time.monotonic() + 2)
"""


@pytest.mark.thorough
def test_a_sink_that_can_start_no_thread_tries_again(sink):
    sink.until(sink.told)
    sink.order("no thread")
    sink.tell(1)
    sink.until(lambda: "can't start new thread" in sink.handle.problem)
    assert sink.handle.restarts == 0
    sink.order("")
    sink.until(lambda: sink.events() == [1])


@pytest.fixture
def shared(sink, tmp_path):
    """Two more sinks that share a process; what each is given lies in a directory of its own."""
    together, handles = [], {}
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        handles[name] = SinkHandle(
            name, lambda log, place=tmp_path / name: Written(place), sink.loop, sink.state, sink.log, together=together
        )
    for handle in handles.values():
        handle.start()
    yield handles["left"], handles["right"]
    for handle in handles.values():
        handle.close()
    for handle in handles.values():
        handle.wait(time.monotonic() + 20)


def test_sinks_that_share_a_process_do_not_wait_for_one_another(shared, sink, tmp_path):
    left, right = shared
    assert left.pid == right.pid != sink.handle.pid
    sink.until(lambda: not left.problem and not right.problem)
    (tmp_path / "left" / "order").write_text("hang")
    left.publish([{"event": "e", "n": 1}])
    right.publish([{"event": "e", "n": 2}])
    sink.until(lambda: '"events": [2]' in (tmp_path / "right" / "told").read_text())
    assert "[1]" not in (tmp_path / "left" / "told").read_text()
    (tmp_path / "left" / "order").write_text("")
    sink.until(lambda: "[1]" in (tmp_path / "left" / "told").read_text())


def test_a_sink_that_breaks_leaves_the_others_of_its_process_alone(shared, sink, tmp_path):
    left, right = shared
    sink.until(lambda: not left.problem and not right.problem)
    both = right.pid
    (tmp_path / "left" / "order").write_text("break")
    left.publish([{"event": "e", "n": 1}])
    sink.until(lambda: left.restarts)
    (tmp_path / "left" / "order").write_text("")
    sink.until(lambda: left.pid and not left.problem)
    assert (left.pid != both, right.pid, right.restarts) == (True, both, 0)
    os.kill(both, signal.SIGKILL)
    sink.until(lambda: right.restarts and right.pid and not right.problem)
    assert (left.restarts, right.restarts) == (1, 1)


def test_sinks_whose_process_dies_share_the_next(shared, sink):
    left, right = shared
    sink.until(lambda: not left.problem and not right.problem)
    os.kill(left.pid, signal.SIGKILL)
    sink.until(lambda: left.restarts and right.restarts)
    sink.until(lambda: left.pid and not left.problem and not right.problem)
    assert left.pid == right.pid
    assert (left.restarts, right.restarts) == (1, 1)


def test_a_message_of_its_end_that_is_read_when_the_process_is_reaped_ends_a_sink_once(shared, sink, tmp_path):
    left, right = shared
    sink.until(lambda: not left.problem and not right.problem)
    for handle in shared:
        (tmp_path / handle.name / "order").write_text("break")
        handle.publish([{"event": "e", "n": 1}])
    os.waitid(os.P_PID, left.pid, os.WEXITED | os.WNOWAIT)
    sink.loop.reap()
    assert [line for line in sink.logged if "a bug" in line] == []
    assert (left.restarts, right.restarts) == (1, 1)
