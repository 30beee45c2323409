"""What answers in place of a guard, or prints without end, takes a bounded amount of memory and disk here.

`ssh` is a program of this test that runs what it is given on this machine; the node's Python is another that answers.
"""

from __future__ import annotations

import time

import pytest

from nhc.deep.ssh_launch import OUTPUT_LIMIT, GuardSession, SshLauncher, SshSettings
from nhc.fleet.ssh.transport_openssh import OpenSSH
from nhc.fleet.transport import Trouble
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.runner import RunPhase
from tests.support.group_runs import at_work, group_run, look, result
from tests.support.waiting import until

pytestmark = pytest.mark.thorough

SSH = '#!/bin/sh\nfor word; do :; done\nexec /bin/sh -c "$word"\n'
ENDLESS = (
    "#!/usr/bin/env python3\nimport sys, time\nsys.stdout.write('x' * (4 << 20))\nsys.stdout.flush()\ntime.sleep(60)\n"
)
"""Four MB without a line's end, and no more for a minute."""
TALKER = """#!/usr/bin/env python3
import json, sys
out = sys.stdout.buffer
def say(ascii, **what):
    out.write(json.dumps(what, ensure_ascii=ascii).encode() + b"\\n")
    out.flush()
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
say(True, ready=True)
for line in sys.stdin.buffer:
    order = json.loads(line)
    if order.get("go"):
        say(True, out="begin \\ud800\\n")
        for _ in range(40):  # of 300,000 bytes that are no UTF-8 each, as the guard sends them
            say(False, out="\\ufffd" * 300000)
        say(True, end=0)
    if order.get("quit"):
        say(True, left=[], why="it was told to end")
        break
"""

TAKEN = """#!/usr/bin/env python3
import json, sys
def say(**what):
    print(json.dumps(what), flush=True)
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
say(ready=True)
say(taken="process 17 (train) is work")
for line in sys.stdin.buffer:
    if json.loads(line).get("quit"):
        say(left=[12, 34], why="process 17 (train) is work")
        break
"""

LIMITED = """#!/usr/bin/env python3
import json, sys
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
print(json.dumps({"ready": True}), json.dumps({"left": [12, 34], "why": "the limit of 90 s has passed"}), sep="\\n")
"""
"""A guard that ends the test by itself: nobody told it to."""


RUN = group_run("s", ["n1"], ["true"])


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def ssh(tmp_path):
    return OpenSSH(program=str(program(tmp_path / "ssh", SSH)))


def test_a_line_without_an_end_is_refused(tmp_path, ssh):
    settings = SshSettings(python=str(program(tmp_path / "python", ENDLESS)))
    session = GuardSession(ssh, settings, "n1", "t", 60)
    try:
        with pytest.raises(Trouble, match="no guard: a line of more than 1") as refused:
            until(lambda: session.answer(5) is not None, 60)
        assert "\n" not in str(refused.value)
    finally:
        session.close()


def test_a_node_whose_line_has_no_end_is_not_idle(tmp_path, ssh):
    began = time.monotonic()
    launcher = SshLauncher({"python": str(program(tmp_path / "python", ENDLESS)), "grace": "10m"}, ssh)
    assert launcher.idle(["n1"]) == frozenset()
    assert time.monotonic() - began < 60  # at once, and not when the time for an answer is over


def test_the_output_that_is_written_is_bounded_and_can_be_read(tmp_path, ssh):
    settings = {"python": str(program(tmp_path / "python", TALKER)), "state": str(tmp_path / "state")}
    launcher = SshLauncher(settings, ssh)
    launcher.start(RUN)
    try:
        until(lambda: result(launcher, RUN), 60)
        assert (tmp_path / "state/s/k1/output").stat().st_size == OUTPUT_LIMIT
        done = look(launcher, RUN)
        assert (done.status, done.output[:8]) == (0, "begin ?\n")
    finally:
        launcher.finish("s")


@pytest.mark.parametrize(
    ("guard", "why"),
    [(TAKEN, "process 17 (train) is work"), (LIMITED, "the limit of 90 s has passed")],
    ids=["taken", "limit"],
)
def test_why_a_test_ended_and_what_it_left_is_told(tmp_path, ssh, guard, why):
    settings = {"python": str(program(tmp_path / "python", guard)), "state": str(tmp_path / "state")}
    launcher = SshLauncher(settings, ssh)
    launcher.start(RUN)
    until(lambda: not at_work(launcher, RUN), 60)
    assert look(launcher, RUN)[:5] == (RunPhase.LOST, None, "", False, f"n1: {why}")
    assert look(launcher, RUN._replace(key="k2")).phase is RunPhase.ABSENT
    with pytest.raises(AdapterError, match=r"^n1: processes 12 34 do not end$"):
        launcher.finish("s")


def test_a_result_that_cannot_be_written_is_the_reason(tmp_path, ssh):
    settings = {"python": str(program(tmp_path / "python", TALKER)), "state": str(tmp_path / "state")}
    launcher = SshLauncher(settings, ssh)
    (tmp_path / "state/s/k1/output").mkdir(parents=True)  # what stands in the way of the file
    launcher.start(RUN)
    until(lambda: not at_work(launcher, RUN), 60)
    state = look(launcher, RUN)
    assert (state.phase, state.why.rpartition("/state")[2]) == (RunPhase.LOST, "/s/k1: Is a directory")
