"""A run with a grace period ends its commands in the commands' own way: SIGTERM, time to clean up, then SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

RUN = """
import sys
from nhc.core.host import Host
from nhc.core.plan import COMMAND, Item, Plan
from nhc.node.run.engine import run
from nhc.core.state.store import State
timeout, deadline, grace, *argv = sys.argv[1:]
item = Item(COMMAND, "tool", " ".join(argv), argv=tuple(argv), timeout=float(timeout))
report = run(Plan((item,)), Host(), state=State(), deadline=float(deadline), grace=float(grace), in_turn=True)
print(report.results[0].outcome.reason, flush=True)
"""

TIDY = """#!/bin/bash
trap 'sleep 0.4; echo tidy > {place}/end; exit 0' TERM
echo $$ > {place}/pid.new; mv {place}/pid.new {place}/pid
while :; do sleep 0.05; done
"""

STUBBORN = """#!/bin/bash
trap '' TERM
echo $$ > {place}/pid.new; mv {place}/pid.new {place}/pid
while :; do sleep 0.05; done
"""

LEAVES = """#!/bin/bash
sleep 300 </dev/null >/dev/null 2>&1 &
echo $! > {place}/pid.new; mv {place}/pid.new {place}/pid
"""


def start(place, script, timeout=60.0, deadline=0.0, grace=20.0):
    tool = place / "tool"
    tool.write_text(script.format(place=place))
    tool.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NHC_STATE_DIR": str(place / "state"),
           "NHC_MUTES": "/no/such/file"}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, (timeout, deadline, grace, tool))],
        env=env, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def appears(path, within=60.0):
    until = time.monotonic() + within
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.01)
    return path.read_text().strip()


def gone(pid, within=60.0):
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"timeout": 1.0}, {"deadline": 1.0}])
def test_a_deadline_lets_the_tool_clean_up(tmp_path, limits):
    run = start(tmp_path, TIDY, **limits)
    pid = int(appears(tmp_path / "pid"))

    assert run.communicate(timeout=60)[0].split() == ["CheckTimeout"]
    assert (tmp_path / "end").read_text() == "tidy\n"
    assert gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.thorough
def test_a_signal_lets_the_tool_clean_up(tmp_path, number):
    run = start(tmp_path, TIDY)
    pid = int(appears(tmp_path / "pid"))
    run.send_signal(number)
    run.communicate(timeout=60)

    assert appears(tmp_path / "end") == "tidy"
    assert gone(pid)


@pytest.mark.thorough
def test_the_tool_of_a_killed_run_is_ended_as_well(tmp_path):
    run = start(tmp_path, TIDY)
    pid = int(appears(tmp_path / "pid"))
    run.kill()
    run.communicate(timeout=60)

    assert appears(tmp_path / "end") == "tidy"
    assert gone(pid)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["deadline", "signal"])
def test_a_tool_that_will_not_end_is_killed(tmp_path, end):
    run = start(tmp_path, STUBBORN, timeout=1.0 if end == "deadline" else 60.0, grace=1.0)
    pid = int(appears(tmp_path / "pid"))
    if end == "signal":
        run.send_signal(signal.SIGTERM)
    run.communicate(timeout=60)

    assert gone(pid)


def test_what_a_tool_leaves_behind_is_ended(tmp_path):
    run = start(tmp_path, LEAVES)
    run.communicate(timeout=60)

    assert gone(int(appears(tmp_path / "pid")))
