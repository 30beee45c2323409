"""Deadlines hold against every kind of hang, and no other result is touched."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import chain, repeat

import pytest

from nhc.core.system import process
from nhc.core.system.process_identity import identify, is_alive
from nhc.node.run.supervisor import Supervisor, Task, TaskResult, followers


def supervise(works, timeouts=None, *, serial=(), deadline=0.0, stop=lambda number, done: False):
    """Run one function a task; return the Dones and the wall time."""
    tasks = [Task((timeouts or {}).get(number, 5.0), number in serial) for number in range(len(works))]
    begin = time.monotonic()

    def make(notify, _completed):
        def work(number):
            process_watch[0] = notify
            return works[number]()

        return work

    process_watch = [None]
    done = Supervisor(tasks, make, make, stop, deadline).run()
    return done, time.monotonic() - begin


def values(done):
    return [one.value if one.how == "done" else one.how for one in done]


def numbered(count):
    return [lambda number=number: number for number in range(count)]


def test_results_keep_their_places():
    done, _ = supervise(numbered(200))
    assert values(done) == list(range(200))


@pytest.mark.slow
def test_more_tasks_than_a_pipe_holds():
    """A pipe holds 16,384 tokens; a token once had two bytes."""
    done, _ = supervise(numbered(70_000), deadline=120)
    assert values(done) == list(range(70_000))


@pytest.mark.thorough
def test_a_stop_takes_back_what_the_pipe_does_not_hold_yet():
    begun = []

    def note(number):
        begun.append(number)
        return number

    done, wall = supervise([lambda number=number: note(number) for number in range(70_000)],
                           stop=lambda number, _done: number == 5)  # fmt: skip
    assert values(done[:6]) == list(range(6))
    assert {one.how for one in done[6:]} <= {"done", "not-run"}
    assert done[-1].how == "not-run"
    assert wall < 60


def test_a_big_value_survives_the_pipe():
    done, _ = supervise([lambda: "x" * 3_000_000, lambda: 1])
    assert [len(done[0].value), done[1].value] == [3_000_000, 1]


@pytest.mark.thorough
def test_a_task_that_is_claimed_and_not_yet_announced_is_waited_for():
    """A worker tells its result and its next task at once. Others that find nothing left to claim are no failures."""
    for _ in range(10):
        works = [lambda: "x" * 3_000_000, lambda: 1]

        def make(_notify, _completed, works=works):
            return lambda number: works[number]()

        late = Supervisor(
            [Task(30.0, False)] * 2, make, make, lambda number, done: False, meanwhile=lambda: time.sleep(0.2)
        )
        assert [one.how for one in late.run()] == ["done", "done"]


def hang_fifo(path):
    def work():
        with open(path) as file:
            return file.read()

    return work


@pytest.mark.thorough
def test_a_hung_open_is_cut_at_its_deadline_and_the_rest_is_intact(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    works = numbered(20)
    works[3] = hang_fifo(tmp_path / "fifo")
    done, wall = supervise(works, {3: 0.4})
    assert values(done) == [0, 1, 2, "timeout", *range(4, 20)]
    assert 0.4 <= wall < 30, "nobody ever writes to it"
    assert done[3].stuck is None


@pytest.mark.thorough
def test_several_hangs_cost_one_deadline_not_their_sum(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    works = [hang_fifo(tmp_path / "fifo") for _ in range(5)] + numbered(3)
    done, wall = supervise(works, dict.fromkeys(range(5), 1.0))
    assert values(done) == ["timeout"] * 5 + [0, 1, 2]
    assert wall < 4.5, "five seconds one after the other"


@pytest.mark.thorough
def test_a_deadlock_in_native_code_that_holds_the_interpreter_lock():
    def deadlock():
        libc = ctypes.PyDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)

    done, wall = supervise([lambda: 0, deadlock, lambda: 2], {1: 0.4})
    assert values(done) == [0, "timeout", 2]
    assert wall < 30


@pytest.mark.thorough
def test_a_worker_that_ignores_signals_and_stops_itself():
    def stop():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGSTOP)

    done, wall = supervise([stop, lambda: 1], {0: 0.4})
    assert values(done) == ["timeout", 1]
    assert wall < 30


def test_a_crash_is_named():
    done, _ = supervise([lambda: os.kill(os.getpid(), signal.SIGSEGV), lambda: 1])
    assert done[0] == TaskResult("died", "killed by SIGSEGV", done[0].elapsed)
    assert done[1].value == 1


@pytest.mark.thorough
def test_the_run_deadline_ends_everything(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    works = [hang_fifo(tmp_path / "fifo"), *numbered(2), hang_fifo(tmp_path / "fifo")]
    done, wall = supervise(works, {0: 60.0, 3: 60.0}, deadline=0.5)
    assert values(done) == ["timeout", 0, 1, "timeout"]
    assert wall < 30, "each may take a minute"


@pytest.mark.thorough
def test_serial_tasks_run_in_one_process_after_all_that_stand_before_them(tmp_path):
    log = tmp_path / "log"

    def note(text, wait=0.0):
        def work():
            time.sleep(wait)
            with open(log, "a") as file:
                file.write(f"{text} ")
            return os.getpid()

        return work

    done, _ = supervise([note("a", 0.2), note("B"), note("c"), note("D")], serial={1, 3})
    order = log.read_text().split()
    assert order.index("a") < order.index("B") < order.index("D")
    assert order.index("c") < order.index("D")
    assert done[1].value == done[3].value


@pytest.mark.thorough
def test_a_hung_serial_task_does_not_take_the_next_one_along(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    done, wall = supervise([lambda: 0, hang_fifo(tmp_path / "fifo"), lambda: 2], {1: 0.3}, serial={0, 1, 2})
    assert values(done) == [0, "timeout", 2]
    assert wall < 30


@pytest.mark.thorough
def test_stop_keeps_earlier_results_and_starts_nothing_later(tmp_path):
    started = tmp_path / "started"

    def late():
        started.write_text("yes")

    works = [lambda: time.sleep(0.2) or "early", lambda: "bad", lambda: "x", late]
    done, _ = supervise(works, serial={3}, stop=lambda number, one: one.value == "bad")
    assert values(done)[:2] == ["early", "bad"]
    assert values(done)[3] == "not-run"
    assert not started.exists()


@pytest.mark.thorough
def test_commands_overlap(tmp_path):
    def command():
        """It ends when all six have begun."""
        script = "mktemp -p . >/dev/null; until [ $(ls | wc -l) -ge 6 ]; do sleep 0.02; done"
        argv = ["sh", "-c", f"cd {tmp_path} && {script}"]
        return process.run(argv, timeout=60, env={"PATH": process.PATH}, watch=watcher[0]).status

    watcher = [None]
    tasks = [Task(60.0)] * 6

    def make(notify, _completed):
        watcher[0] = notify
        return lambda number: command()

    done = Supervisor(tasks, make, make, lambda number, one: False).run()
    assert values(done) == [0] * 6


@pytest.mark.thorough
def test_killing_a_worker_kills_its_commands(tmp_path):
    pidfile = tmp_path / "pid"

    def make(notify, _completed):
        def work(number):
            env = {"PATH": process.PATH}
            process.run(
                ["sh", "-c", f"trap '' TERM; echo $$ > {pidfile}; sleep 600"], timeout=60, env=env, watch=notify
            )

        return work

    done = Supervisor([Task(0.5)], make, make, lambda number, one: False).run()
    assert done[0].how == "timeout"
    pid = int(pidfile.read_text())
    until = time.monotonic() + 60
    while identify(pid) is not None and time.monotonic() < until:
        time.sleep(0.01)
    assert identify(pid) is None


def test_identity_survives_neither_death_nor_reuse():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identify(child.pid)
    assert known is not None
    assert is_alive(known)
    assert not is_alive(known._replace(start=known.start + 1))
    child.kill()
    child.communicate()
    assert not is_alive(known)


@pytest.mark.parametrize("count", [0, 1])
def test_few_tasks(count):
    done, _ = supervise(numbered(count))
    assert values(done) == list(range(count))


def test_a_node_without_processes_to_spare_is_told_task_by_task(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = len(os.listdir("/proc/self/fd"))
    done, elapsed = supervise(numbered(3), serial=[1])
    assert [(one.how, one.value) for one in done] == [("no-worker", "Resource temporarily unavailable")] * 3
    assert elapsed < 30
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.thorough
def test_a_relief_that_cannot_be_forked_only_costs_time(monkeypatch):
    forks = iter([os.fork])

    def once():
        fork = next(forks, None)
        if fork is None:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", once)
    done, _elapsed = supervise([lambda: time.sleep(0.3), lambda: "second"])
    assert values(done) == [None, "second"]


def test_a_run_without_descriptors_to_spare_is_told_task_by_task(monkeypatch):
    def refuse():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    done, _elapsed = supervise(numbered(2), serial=[1])
    assert [(one.how, one.value) for one in done] == [("no-worker", "Too many open files")] * 2


@pytest.mark.thorough
def test_workers_that_end_at_once_are_not_forked_for_ever(monkeypatch):
    monkeypatch.setattr("nhc.node.run.supervisor.quiet", lambda *_: os._exit(1))
    done, elapsed = supervise(numbered(2), serial=[1])
    assert done[0].how == "no-worker"
    assert done[1].how in ("no-worker", "died")
    assert elapsed < 30


@pytest.mark.thorough
def test_a_command_that_dies_a_moment_after_its_worker_is_not_called_stuck(monkeypatch):
    alive = chain([True] * 4, repeat(False))
    monkeypatch.setattr("nhc.core.system.process_identity.is_alive", lambda _process: next(alive))

    def make(notify, _completed):
        return lambda _number: process.run(["sleep", "60"], timeout=60, env={}, watch=notify)

    (done,) = Supervisor([Task(0.3)], make, make, lambda _number, _done: False).run()
    assert (done.how, done.stuck) == ("timeout", None)


@pytest.mark.thorough
def test_what_cannot_be_killed_costs_one_last_breath_however_many_there_are(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr("nhc.core.system.process_identity.is_alive", lambda _process: True)
    done, wall = supervise([hang_fifo(tmp_path / "fifo") for _ in range(6)], deadline=3.0)
    assert values(done) == ["timeout"] * 6
    assert wall < 3.0 + 1.6, "six times the third of a second for the last look is two"


@contextmanager
def a_busy_processor():
    """One processor with a process on it that never rests."""
    processor = min(os.sched_getaffinity(0))
    hog = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{processor}])\nwhile 1: pass"])
    try:
        until = time.monotonic() + 60
        while os.sched_getaffinity(hog.pid) != {processor} and time.monotonic() < until:
            time.sleep(0.01)
        yield processor
    finally:
        hog.kill()
        hog.wait()


@pytest.mark.thorough
def test_what_waits_for_a_processor_is_not_called_unkillable():
    """On a node with a load of 50, as here, a killed process may take seconds to be given the time to end."""
    with a_busy_processor() as processor:

        def starve():
            os.sched_setaffinity(0, [processor])
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            while True:
                pass

        done, wall = supervise([starve, lambda: 1], {0: 0.4})
    assert values(done) == ["timeout", 1]
    assert wall < 30
    assert done[0].stuck is None or not done[0].stuck.unkillable


def in_turn(works, sources, timeouts=None, **more):
    """Run one function a task, each of the source that is named for it, "" for none; each is told what it may note."""
    tasks = [Task((timeouts or {}).get(number, 5.0), source=source) for number, source in enumerate(sources)]
    make = lambda _notify, _completed: lambda number: works[number]()  # noqa: E731
    return Supervisor(tasks, make, make, more.get("stop", lambda number, done: False), more.get("deadline", 0.0)).run()


def slow_start(opened=[]):  # noqa: B006 (the process's own: what a library that is loaded once remembers)
    """A library that takes long to begin with in each process: its pid, and whether it was begun here just now."""
    first = not opened
    if first:
        opened.append(True)
        time.sleep(0.2)
    return os.getpid(), first


@pytest.mark.thorough
def test_tasks_of_one_source_are_done_by_one_worker_and_hold_up_no_others():
    works = [slow_start, slow_start, os.getpid, slow_start, os.getpid]
    done = values(in_turn(works, ["gpu", "gpu", "", "gpu", ""]))

    assert {done[0][0], done[1][0], done[3][0]} == {done[0][0]}
    assert [done[number][1] for number in (0, 1, 3)] == [True, False, False]
    assert done[2] != done[0][0]
    assert done[4] != done[0][0]


def test_a_line_that_changes_something_ends_a_row_of_one_source():
    tasks = [Task(5.0, source="gpu"), Task(5.0, changes=True), Task(5.0, source="gpu"), Task(5.0, source="gpu")]
    assert followers(tasks) == {2: 3}


@pytest.mark.thorough
def test_where_a_source_never_answers_its_other_tasks_are_not_tried_one_after_the_other(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    pipe = hang_fifo(tmp_path / "fifo")
    begin = time.monotonic()
    done = in_turn([pipe, *numbered(3), lambda: "other"], ["gpu"] * 4 + [""], {0: 0.3})

    assert [one.how for one in done] == ["timeout", "source-hung", "source-hung", "source-hung", "done"]
    assert time.monotonic() - begin < 30


@pytest.mark.thorough
def test_a_task_that_hangs_once_the_source_has_answered_costs_itself_alone(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    done = in_turn([os.getpid, hang_fifo(tmp_path / "fifo"), os.getpid, os.getpid], ["gpu"] * 4, {1: 0.3})

    assert [one.how for one in done] == ["done", "timeout", "done", "done"]
    assert done[2].value == done[3].value != done[0].value


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_crash_among_the_tasks_of_a_source_costs_itself_alone(place):
    works = [os.getpid] * 4
    works[place] = lambda: os.kill(os.getpid(), signal.SIGSEGV)
    done = in_turn(works, ["gpu"] * 4)

    assert [number for number, one in enumerate(done) if one.how != "done"] == [place]
    assert done[place].how == "died"


def test_a_stop_at_a_task_of_a_source_leaves_out_what_follows_it():
    begun = []
    done = in_turn(
        [lambda number=number: number for number in range(6)], ["gpu", "", "gpu", "", "gpu", ""],
        stop=lambda number, _done: begun.append(number) or number == 2,
    )  # fmt: skip

    assert [one.value for one in done[:3]] == [0, 1, 2]
