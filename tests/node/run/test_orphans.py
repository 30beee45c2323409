"""A supervisor that is ended, however that happens, leaves nothing running behind it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.system import process
from nhc.core.system.process_identity import identify, is_alive
from nhc.node.run import worker
from nhc.node.run.supervisor import Supervisor, Task
from tests.support.waiting import until

NHC = [sys.executable, "-m", "nhc", "check", "local", "--profile", "none", "--all"]


def sleepers(marks):
    """The processes that sleep for one of the given numbers of seconds: mark enough to know them by."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if words[0] == "sleep" and words[1] in marks:
            found[words[1]] = int(name)
    return found


def signals_as_in_a_shell():
    """Tests may run in the background or under nohup, where these are ignored, and children inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("lines", [["sleep {0}"], ["check_cmd_status -t 600 sleep {0}"], ["true; sleep {0} | cat"]])
def test_commands_end_with_the_run(number, lines, tmp_path):
    marks = [f"{os.getpid()}{int(number)}.{offset}" for offset in range(len(lines))]
    config = tmp_path / "nhc.conf"
    config.write_text("".join(f"* || {line.format(*marks)}\n" for line in lines))
    run = subprocess.Popen([*NHC, "-t", "60", "-c", config], stdout=subprocess.DEVNULL,
                           preexec_fn=signals_as_in_a_shell,
                           env={**os.environ, "NHC_STATE_DIR": str(tmp_path / "state")})  # fmt: skip
    until(lambda: len(sleepers(marks)) == len(marks))
    run.send_signal(number)
    assert run.wait(60) == (130 if number == signal.SIGINT else -number)
    until(lambda: not sleepers(marks))


@pytest.mark.thorough
def test_a_command_that_begins_as_the_supervisor_ends_is_ended_too(tmp_path):
    mark, told = f"{os.getpid()}.5", tmp_path / "pid"

    def make(notify, _completed):
        def work(_number):
            parent = os.getppid()
            told.write_text(str(os.getpid()))
            os.kill(parent, signal.SIGKILL)
            until(lambda: os.getppid() != parent)
            process.run(["sleep", mark], timeout=60, env={}, watch=notify)

        return work

    supervisor = os.fork()
    if supervisor == 0:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as a caller may have left it
            Supervisor([Task(60)], make, make, lambda _number, _done: False).run()
        finally:
            os._exit(0)
    os.waitpid(supervisor, 0)
    until(lambda: identify(int(told.read_text())) is None)
    until(lambda: not sleepers([mark]))


@pytest.mark.thorough
def test_a_worker_that_hangs_by_itself_does_not_outlive_its_supervisor_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "ORPHAN", 0.2)
    fifo, told = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)

    def hang(_number):
        told.write_text(str(os.getpid()))
        os.rename(told, f"{told}.whole")
        os.open(fifo, os.O_RDONLY)  # nobody ever writes

    supervisor = os.fork()
    if supervisor == 0:
        try:
            make = lambda _notify, _completed: hang  # noqa: E731
            Supervisor([Task(0.5)], make, make, lambda _number, _done: False).run()
        finally:
            os._exit(0)
    whole = tmp_path / "pid.whole"
    until(whole.exists)
    orphan = identify(int(whole.read_text()))
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    until(lambda: not is_alive(orphan))


@pytest.mark.thorough
def test_a_shell_that_waits_for_its_turn_is_not_cut_off(monkeypatch):
    """The alarm is for a task, not for the time until the next one."""
    monkeypatch.setattr(worker, "ORPHAN", 0.0)
    works = [lambda: "first", lambda: time.sleep(1.3) or "slow", lambda: "last"]
    make = lambda _notify, _completed: lambda number: works[number]()  # noqa: E731
    tasks = [Task(1.0, serial=True), Task(60.0), Task(1.0, serial=True)]
    done = Supervisor(tasks, make, make, lambda _number, _done: False).run()
    assert [one.value for one in done] == ["first", "slow", "last"]


def test_a_handler_of_the_caller_stays_in_force():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        make = lambda _notify, _completed: lambda _number: os.kill(os.getppid(), signal.SIGTERM)  # noqa: E731
        Supervisor([Task(5.0)], make, make, lambda _number, _done: False).run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
