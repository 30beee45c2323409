"""The tutorial, followed to the letter on a real control plane: its commands in its order, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

from tests.support.documents import blocks
from tests.support.kube import REPOSITORY, load
from tests.support.waiting import until

pytestmark = pytest.mark.slow
FIRST = REPOSITORY / "docs/tutorial.md"
PAGE = REPOSITORY / "docs/tutorial-kubernetes.md"
SETTINGS = "-s examples/tutorial/remedy.toml"


class Step(NamedTuple):
    """A command of the tutorial, and the lines below it in its block."""

    command: str
    output: list[str]


def part(page: Path, heading: str, until_heading: str) -> list[Step]:
    lines = page.read_text().splitlines()
    first, last = lines.index(heading) + 1, lines.index(until_heading) + 1
    steps: list[Step] = []
    for block in blocks(page):
        if first < block.line < last:
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    steps.append(Step(line[2:], []))
                else:
                    steps[-1].output.append(line)
    return steps


class Reader:
    """Somebody who follows the tutorial, in a directory that has what a checkout has."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "bin").mkdir()
        self.env = {
            "PATH": f"{place}/bin:{os.environ['PATH']}", "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/adapters",
            "HOME": str(place), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "USER": "reader",
        }  # fmt: skip
        self.program("nhc", f'exec {sys.executable} -m nhc "$@"')
        for name in ("examples", "tests"):
            (place / name).symlink_to(REPOSITORY / name)

    def program(self, name: str, line: str) -> None:
        (self.place / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (self.place / "bin" / name).chmod(0o755)

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.place, env=self.env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", command], cwd=self.place, env=self.env, text=True,
                              capture_output=True, timeout=120, check=False)  # fmt: skip


@pytest.fixture(scope="module")
def reader(plane, tmp_path_factory) -> Iterator[Reader]:
    """With a `make kube` of the reader's own. `plane` says whether a control plane can be had here."""
    place = tmp_path_factory.mktemp("tutorial")
    reader = Reader(place)
    reader.env["NHC_KUBE_BIN"] = str(load("build").build(print))
    up = reader.start(f"{sys.executable} {REPOSITORY}/tests/kube/up.py --directory {place}/plane")
    assert up.stdout is not None
    said = ""
    while "Ctrl-C ends it" not in said:
        line = up.stdout.readline()
        assert line, f"make kube ended: {said}"
        said += line
    found = re.search(r"export KUBECONFIG=(\S+)\n *alias kubectl='(.+)'", said)
    assert found is not None
    reader.env["KUBECONFIG"] = found[1]
    reader.program("kubectl", f'exec {found[2]} "$@"')
    yield reader
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=60)
    assert up.returncode == 0


def alike(line: str) -> str:
    """A line without what differs from run to run: ages, and the width of columns."""
    return re.sub(r"\b[\dsmhd]+ ago\b", "N ago", " ".join(line.split()))


@pytest.fixture
def loop(reader) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_the_cluster_is_drained_repaired_and_returned(reader, loop):
    steps = part(PAGE, "## A small cluster", "## What it does not do")
    healthy = next(number for number, (command, _) in enumerate(steps) if "h100-healthy" in command)
    followed = []
    for command, output in steps:
        if command.startswith(("make kube", "export ", "alias ")):
            continue  # the fixture has done so
        followed.append(command)
        if command.startswith("nhc serve remedy"):
            loop.append(reader.start(command))
            continue

        def as_shown(command=command, output=output) -> bool:
            done = reader.type(command)
            assert "Traceback" not in done.stderr
            lines = [alike(line) for line in done.stdout.splitlines()]
            return done.returncode == 0 and all(alike(line) in lines for line in output)

        def reported(command=command, shown=as_shown) -> bool:
            """As the page says: the healthy report is given again where the loop had not seen the boot before it."""
            return "nhc show episode" in command and not reader.type(steps[healthy][0]).returncode and shown()

        # A line that the tutorial shows comes when the loop has got so far; a command that acts is given once.
        if command.startswith(("nhc list episodes", "nhc show episode", "kubectl get")):
            until(
                lambda: as_shown() or reported(),
                90,
                every=1.0,
                what=command,
                said=lambda command=command: reader.type(command).stdout,
            )
        else:
            assert as_shown(), reader.type(command)
        if "approve episode" in command:
            until(lambda: "watching" in reader.type(f"nhc list episodes {SETTINGS}").stdout, 60)
        if command.startswith("kubectl get pods"):
            assert "train-" not in reader.type(command).stdout
    assert len(followed) == len(steps) - 4
    node = reader.type("kubectl get node gpu-007").stdout
    assert "SchedulingDisabled" not in node
    assert "Ready" in node


def test_a_sick_and_a_healthy_node_are_told_apart(reader):
    status = {}
    for command, _output in part(FIRST, "## 2. A sick node", "## 3. A fleet that is made up"):
        done = reader.type(command)
        status[command] = done.returncode
        if "xid79" in command:
            (shown,) = re.findall(r"says `(.+?)`", FIRST.read_text().replace("\n", " "))
            assert shown in done.stdout
    assert list(status.values()) == [0, 1, 0]
