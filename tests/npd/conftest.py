"""node-problem-detector itself: built by tests/npd/build.py, or what NHC_NPD_BIN names."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import pytest

from tests.kube.build import Unavailable
from tests.npd.build import build
from tests.support.kube import kube, plane
from tests.support.ports import free_port
from tests.support.require import missing

__all__ = ["kube", "plane"]

Series = Dict[Tuple[str, str], float]
"""(type, reason) to a number; type is "" for problem_counter."""


def binary() -> Path:
    try:
        return build()
    except Unavailable as error:
        missing("node-problem-detector", str(error))


def series(text: str, name: str) -> Series:
    """problem_counter or problem_gauge out of a Prometheus page."""
    found: Series = {}
    for labels, value in re.findall(rf"^{name}\{{(.*?)\}} (\S+)$", text, re.MULTILINE):
        words = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[words.get("type", ""), words["reason"]] = float(value)
    return found


class Detector:
    """A running node-problem-detector."""

    def __init__(self, directory: Path) -> None:
        self.binary, self.directory = binary(), directory
        self.port, self.health = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, name: str, value: Mapping[str, Any]) -> str:
        path = self.directory / name
        path.write_text(json.dumps(value))
        return str(path)

    def start(self, *words: str) -> None:
        with (self.directory / "npd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary), f"--prometheus-port={self.port}", f"--port={self.health}", "--logtostderr", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
            )  # fmt: skip

    def said(self) -> str:
        return (self.directory / "npd.log").read_text()

    def page(self, path: str = "/metrics", health: bool = False) -> str:
        try:
            port = self.health if health else self.port
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def conditions(self) -> List[Any]:
        said = self.page("/conditions", health=True)
        return list(json.loads(said)) if said else []

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def npd(tmp_path: Path) -> Iterator[Detector]:
    directory = tmp_path / "npd"
    directory.mkdir()
    made = Detector(directory)
    yield made
    made.stop()
