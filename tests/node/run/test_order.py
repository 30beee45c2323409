"""Lines begin and have their effects in the configuration's order, as LBNL NHC has it."""

import mmap
import os
import signal
import subprocess
import sys
import time

import pytest

from nhc.core.host import Host
from nhc.core.language import loader
from nhc.core.model import Verdict
from nhc.core.state.store import State
from nhc.node.run.engine import run
from nhc.node.run.supervisor import Supervisor, Task

NHC = [sys.executable, "-m", "nhc", "check", "local", "--profile", "none", "-a", "-c"]


class Lines:
    """Runs lines in which `{say} WORD SECONDS STATUS` leaves a trace in `{log}`."""

    def __init__(self, place):
        self.place, self.log = place, place / "log"
        self.log.write_text("")
        (place / "say").write_text(f'#!/bin/sh\nsleep "$2"\necho "$1" >> {self.log}\nexit "${{3:-0}}"\n')
        (place / "say").chmod(0o755)

    def run(self, text, **options):
        said = text.format(log=self.log, say=self.place / "say", tmp=self.place)
        plan = loader.load_text(said, "nhc.conf", "n1", {})
        return run(plan, Host(), state=State(str(self.place / "state")), deadline=30.0, **options)

    def trace(self):
        return self.log.read_text().split()


@pytest.fixture
def lines(tmp_path):
    return Lines(tmp_path)


LATE = [
    "* || {say} two 0\n",
    "* || echo two >> {log}\n",
    "* || check_cmd_status -t 5 {say} two 0\n",
    "* || check_cmd_output -t 5 -e '{say} two 0'\n",
    "* || check_ps_service -v -e '{say} two 0' no-such-daemon\n",
    "* || check_net_socket -e '{say} two 0' -s LISTEN -l no-such:1\n",
]


@pytest.mark.thorough
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(
    "slow",
    ["* || {say} one 0.3\n", "* || check_cmd_status -t 5 {say} one 0.3\n", "* || sleep 0.3; echo one >> {log}\n"],
)
def test_what_may_change_something_begins_when_the_line_above_has_ended(lines, slow, late):
    lines.run(slow + late)
    end = time.monotonic() + 60
    while len(lines.trace()) < 2 and time.monotonic() < end:  # check_net_socket does not wait for its command
        time.sleep(0.02)
    assert lines.trace() == ["one", "two"]


@pytest.mark.thorough
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("first", ["* || {say} one 0.2 1\n", "* || check_file_test -f /no/such\n",
                                   "* || check_cmd_status -t 5 {say} one 0.2 1\n",
                                   "* || sleep 0.2; false\n"])  # fmt: skip
def test_after_the_first_failure_nothing_below_has_had_its_effect(lines, first, late):
    report = lines.run(first + late + late, check_all=False)
    assert report.verdict is Verdict.CRIT
    assert report.not_run == 2
    assert "two" not in lines.trace()


def test_a_failure_that_is_only_a_strike_stops_nothing(lines):
    report = lines.run("* |strikes 3| check_file_test -f /no/such\n* || {say} two 0\n", check_all=False)
    assert report.verdict is Verdict.WARN
    assert lines.trace() == ["two"]


@pytest.mark.thorough
def test_a_line_that_looks_sees_what_the_line_above_it_did(lines):
    report = lines.run("* || sh -c 'sleep 0.2; touch {tmp}/there'\n* || check_file_test -f {tmp}/there\n"
                         "* || sleep 0.2; touch {tmp}/too\n* || check_file_test -f {tmp}/too\n")  # fmt: skip
    assert report.verdict is Verdict.OK


@pytest.mark.thorough
def test_a_hung_line_above_is_waited_for_until_its_deadline_and_no_longer():
    def make(_notify, _completed):
        def work(number):
            if number == 0:
                time.sleep(60)
            return (number, time.monotonic())

        return work

    begun = time.monotonic()
    done = Supervisor([Task(0.4), Task(5.0, changes=True), Task(5.0)], make, make, lambda _n, _d: False).run()
    assert [one.how for one in done] == ["timeout", "done", "done"]
    assert done[1].value[1] - begun >= 0.4
    assert done[2].value[1] >= done[1].value[1]


@pytest.mark.thorough
def test_lines_that_only_look_overlap_between_those_that_change():
    begun = mmap.mmap(-1, 5)
    beside = {0: 1, 1: 0, 3: 4, 4: 3}

    def make(_notify, _completed):
        def work(number):
            at = time.monotonic()
            begun[number] = 1
            while number in beside and not begun[beside[number]] and time.monotonic() < at + 10:
                time.sleep(0.005)
            return at, time.monotonic()

        return work

    tasks = [Task(20.0), Task(20.0), Task(20.0, changes=True), Task(20.0), Task(20.0)]
    spans = [one.value for one in Supervisor(tasks, make, make, lambda _n, _d: False).run()]
    assert spans[1][0] < spans[0][1]
    assert spans[2][0] >= max(spans[0][1], spans[1][1])
    assert min(spans[3][0], spans[4][0]) >= spans[2][1]
    assert spans[4][0] < spans[3][1]


@pytest.mark.thorough
def test_lines_in_turn_stay_in_one_worker_however_long_each_takes():
    """What one of them gathered is there for the next; and no process is started only to wait."""

    def make(_notify, _completed):
        def work(number):
            time.sleep(0.15 if number < 2 else 0)  # long after another worker would have been of use
            return os.getpid()

        return work

    done = Supervisor([Task(20.0, changes=True)] * 6, make, make, lambda _n, _d: False).run()
    assert len({one.value for one in done}) == 1


def test_many_lines_that_change_run_in_order():
    make = lambda _notify, _completed: lambda number: (number, time.monotonic())  # noqa: E731
    done = Supervisor([Task(5.0, changes=True)] * 200, make, make, lambda _n, _d: False).run()
    assert [one.value[0] for one in done] == list(range(200))
    assert sorted(one.value[1] for one in done) == [one.value[1] for one in done]


@pytest.mark.thorough
def test_a_worker_killed_while_it_waits_for_its_turn_is_named():
    others = set(_children(os.getpid()))  # daemons of other tests

    def kill_the_other():
        """The relief: it carries out the next task, claims the one after it, and waits until this one has ended."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for other in set(_children(os.getppid())) - others - {str(os.getpid())}:
                # What waits for its turn has claimed its task and said so, and sleeps in between looks
                # (nhc.node.run.order).
                with open(f"/proc/{other}/wchan") as file:
                    if "nanosleep" in file.read():
                        os.kill(int(other), signal.SIGKILL)
                        return "first"
            time.sleep(0.01)
        return "alone"

    def make(_notify, _completed):
        return lambda number: [kill_the_other, *(lambda: "well",) * 3][number]()

    tasks = [Task(20.0), Task(5.0), Task(5.0, changes=True), Task(5.0)]
    done = Supervisor(tasks, make, make, lambda _n, _d: False, 30.0).run()
    assert [one.how for one in done] == ["done", "done", "died", "done"]
    assert done[2].value == "killed by SIGKILL"


@pytest.mark.thorough
def test_a_serial_worker_that_ends_between_its_tasks_is_replaced(tmp_path):
    """Its next order goes to another one, and the run goes on."""

    def serial(_notify, _completed):
        def work(number):
            if number == 0:
                (tmp_path / "pid").write_text(str(os.getpid()))
            return number

        return work

    def end_the_serial_worker():
        """It has said that its first task has ended, or this one would not have begun."""
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while process_state(pid) not in (None, "Z") and time.monotonic() < end:
            time.sleep(0.005)

    make = lambda _notify, _completed: lambda number: end_the_serial_worker()  # noqa: E731
    tasks = [Task(5.0, serial=True), Task(20.0), Task(5.0, serial=True)]
    done = Supervisor(tasks, make, serial, lambda _n, _d: False).run()
    assert [(one.how, one.value) for one in done] == [("done", 0), ("done", None), ("done", 2)]


def process_state(pid):
    """The letter of a process's state; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def test_an_order_that_its_worker_is_not_there_to_read_goes_to_another(monkeypatch):
    """The worker ends after the supervisor has listened and before it writes: no test waits for that by chance."""
    write, struck = os.write, []

    def write_to_the_dead(fd, data):
        if not struck and any(worker.serial and worker.orders == fd for worker in supervisor.workers.values()):
            struck.append(fd)
            worker = next(worker for worker in supervisor.workers.values() if worker.orders == fd)
            os.kill(worker.pid, signal.SIGKILL)
            os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        return write(fd, data)

    make = lambda _notify, _completed: lambda number: number  # noqa: E731
    supervisor = Supervisor([Task(5.0, serial=True), Task(5.0, serial=True)], make, make, lambda _n, _d: False, 20.0)
    monkeypatch.setattr(os, "write", write_to_the_dead)
    assert [one.value for one in supervisor.run()] == [0, 1]
    assert struck


@pytest.mark.thorough
@pytest.mark.parametrize("pair", [(signal.SIGTERM, signal.SIGHUP), (signal.SIGTERM, signal.SIGINT),
                                  (signal.SIGHUP, signal.SIGTERM), (signal.SIGINT, signal.SIGINT),
                                  (signal.SIGINT, signal.SIGTERM)])  # fmt: skip
@pytest.mark.parametrize("gap", [0.0, 0.002, 0.02])
def test_signals_in_pairs_end_a_run_without_a_word(pair, gap, tmp_path):
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_cmd_status -t 60 sleep 60\n* || sleep 60\n")

    def as_in_a_shell():
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    child = subprocess.Popen([*NHC, str(conf)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=as_in_a_shell,
                             env={**os.environ, "NHC_STATE_DIR": str(tmp_path / "state")})  # fmt: skip
    end = time.monotonic() + 60
    while not _children(child.pid) and time.monotonic() < end:
        time.sleep(0.005)
    child.send_signal(pair[0])
    time.sleep(gap)
    child.send_signal(pair[1])
    out, err = child.communicate(timeout=60)
    assert (out, err) == (b"", b"")
    assert child.returncode in {130, *(-number for number in pair)}


def _children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return file.read().split()
    except OSError:
        return []


REAPLESS = """\
import ctypes, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what a run leaves comes to us, who do not reap, as a container's init
child = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
if sys.argv[1] != "0":
    time.sleep(1.0)
    child.send_signal(int(sys.argv[1]))
child.wait()
until = time.monotonic() + 60
while time.monotonic() < until:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        left = file.read().split()
    states = [open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] for pid in left]
    if all(state == "Z" for state in states):
        break
    time.sleep(0.02)
print(len(left), [open(f"/proc/{pid}/stat").read()[:60] for pid in left])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("text", [
    "* || check_file_test -d /\n",
    "* || true; [ -d / ]\n",
    "* || sh -c 'sleep 0.05; true'\n",
    "* |timeout 0.3s| sh -c 'sleep 600 & sleep 600'\n",
    "* |timeout 0.3s| sleep 600; true\n",
    "* || check_cmd_status -t 0.3 sh -c 'sleep 600; true'\n* || check_file_test -d /\n",
])  # fmt: skip
def test_a_run_reaps_all_that_it_started(text, tmp_path):
    (tmp_path / "nhc.conf").write_text(text)
    argv = [*NHC, str(tmp_path / "nhc.conf")]
    done = subprocess.run([sys.executable, "-c", REAPLESS, "0", *argv], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "NHC_STATE_DIR": str(tmp_path / "state")})  # fmt: skip
    assert done.stdout.startswith("0 "), done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_reaps_all_that_it_started(number, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || sh -c 'sleep 600; true'\n")
    argv = [*NHC, str(tmp_path / "nhc.conf")]
    done = subprocess.run([sys.executable, "-c", REAPLESS, str(int(number)), *argv], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "NHC_STATE_DIR": str(tmp_path / "state")})  # fmt: skip
    assert done.stdout.startswith("0 "), done.stdout + done.stderr
