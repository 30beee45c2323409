"""The tutorial's Slurm part, as somebody who follows it: hook and loop together on one real Slurm."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

import pytest

from tests.adapters.kubernetes.test_tutorial import Reader, alike, part
from tests.support.require import need
from tests.support.run import ROOT
from tests.support.slurm import missing
from tests.support.waiting import until

PAGE = ROOT / "docs/tutorial-slurm.md"

pytestmark = pytest.mark.slow  # a Slurm of its own


@pytest.fixture
def reader(tmp_path) -> Iterator[Reader]:
    """With a `make slurm` of the reader's own, in a place with a short path: a munge socket's is limited."""
    need("slurm", not missing(), ", ".join(missing()))
    reader = Reader(tmp_path)
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="nhc-st-") as place:
        up = reader.start(f"{sys.executable} -m tests.support.slurm_up {place}/c")
        started.append(up)
        assert up.stdout is not None
        said = ""
        while "Ctrl-C ends it" not in said:
            line = up.stdout.readline()
            assert line, f"make slurm ended: {said}"
            said += line
        for name, value in re.findall(r"export (\w+)=(\S+)", said):
            reader.env[name] = value
        reader.started = started
        yield reader
        for process in reversed(started):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=90)
        assert Path(place).is_dir()


def shown(line: str) -> str:
    return re.sub(r"since [-\dT:]+Z", "since then", alike(line))


def test_the_node_is_drained_rebooted_proved_and_returned_beside_its_own_health_check(reader):
    followed = []
    for command, output in part(PAGE, "## A Slurm on this machine", "## On your cluster"):
        if command.startswith(("make slurm", "export ")):
            continue  # the fixture has done so
        followed.append(command)
        if command.startswith("nhc serve remedy"):
            reader.started.append(reader.start(f"{command} >loop.log 2>&1"))
            continue

        def as_shown(command=command, output=output) -> bool:
            done = reader.type(command)
            assert "Traceback" not in done.stderr
            lines = [shown(line) for line in done.stdout.splitlines()]
            return done.returncode == 0 and all(shown(line) in lines for line in output)

        if command.startswith(("nhc list episodes", "nhc show episode", "sinfo")):
            until(as_shown, 120, what=command, said=lambda command=command: reader.type(f"{command}; cat loop.log"))
        else:
            assert as_shown(), reader.type(command)
    assert [one.split()[0] for one in followed][-1] == "sinfo"
