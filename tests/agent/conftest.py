"""A running agent for tests: a process of its own, in a state directory of its own, on free ports."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Sequence

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


class Running:
    """An agent and what is asked of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.state = directory / "state"
        self.events_path = directory / "events.jsonl"
        self.config = directory / "nhc.conf"
        self.settings = directory / "agent.toml"
        self.process = None
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}",
            "NHC_STATE_DIR": str(self.state),
            "PYTHONWARNINGS": "error",
        }

    def configure(self, checks: str, settings: str = "", agent: str = "kernel-log = false") -> None:
        self.config.write_text(checks)
        self.settings.write_text(
            f'[agent]\nnode = "n1"\nconfig = ["{self.config}"]\nstate = "{self.state}"\nretry = "200ms"\n'
            f'listen = ["127.0.0.1:{self.port}"]\nboot-window = "0"\n{agent}\n'
            f'[events]\npath = "{self.events_path}"\n{settings}'
        )

    def start(self, wait: bool = True, inside: Sequence[str] = ()) -> None:
        """Start it; `inside` is a command that puts it into another place and execs the rest of its arguments."""
        self.log = open(self.directory / "log", "ab")  # noqa: SIM115 (as long as the agent runs)
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-m", "nhc", "serve", "agent", "-s", str(self.settings)],
            env=self.env, stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip
        if wait:
            until(lambda: self.get("/healthz")[0] == 200 or self.process.poll() is not None)
            assert self.process.poll() is None, self.said()

    def stop(self, number=signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(60)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.log.close()
            self.process = None
        return status

    def said(self) -> str:
        return (self.directory / "log").read_text()

    def get(self, path: str):
        """Status and text of a page; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def nhc(self, *words: str):
        return subprocess.run([sys.executable, "-m", "nhc", *words], env=self.env, capture_output=True, text=True,
                              timeout=60)  # fmt: skip

    def status(self):
        return json.loads(self.nhc("status", "agent", "-f", "json").stdout)

    def report(self):
        return json.loads(self.get("/report")[1])

    def events(self, what: str = ""):
        if not self.events_path.exists():
            return []
        found = [json.loads(line) for line in self.events_path.read_text().splitlines()]
        return [piece for piece in found if piece["event"].startswith(what)]

    def children(self):
        """Processes of the agent's session that are not the agent."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != self.process.pid:
                try:
                    fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(name))
        return found


@pytest.fixture
def agent(tmp_path):
    running = Running(tmp_path)
    yield running
    running.stop()
