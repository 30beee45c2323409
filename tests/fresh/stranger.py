#!/usr/bin/env python3
"""Types the commands of pages, as somebody who follows them would, and says where they do not lead on.

    python3 tests/fresh/stranger.py [PAGE...]

A page's commands are typed into terminals in its order, in this directory. What a page shows below a command has to
come. A command that goes on until Ctrl-C keeps its terminal; the next one is typed into another, after the lines that
the page gave for terminals (`export`, `alias`). At the end of a page everything is ended with Ctrl-C.

Changes the machine as the pages do: `make stranger` runs it in a minimal root. Standard library only: it runs before
anything is installed. Exit status: 0 every page led on, 1 one did not.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import threading
import time
import urllib.request
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

PAGES = ("README.md", "docs/tutorial.md", "docs/tutorial-slurm.md", "docs/tutorial-kubernetes.md")
WITHIN = 180.0
"""Seconds for a command, and for what a page shows to come."""
SET_UP = 1800.0
"""Seconds for make: it installs and builds what there is not yet."""

SERVICES = {
    "nhc demo": "http://127.0.0.1:9810",
    "make slurm": "Ctrl-C ends it",
    "make kube": "Ctrl-C ends it",
    "nhc serve remedy": "",
}
"""Commands that go on until Ctrl-C, by how they begin, and what they print (an address: what answers) once they run."""

NOT_TYPED = {
    "make test": "every test: `make fresh` does so",
    "journalctl": "reads what the hooks have logged in some days",
    "nhc doctor kubernetes": "asks the reader's own cluster, with nhc installed",
    "nhc status kubernetes": "asks the reader's own cluster, with nhc installed",
    "kubectl -n nhc-system logs": "asks the reader's own cluster, with nhc installed",
}
"""Commands that are left out, by how they begin, and why."""

JUDGES = frozenset([0, 1, 3])
STATUSES = {
    "nhc check local": JUDGES,  # as the machine is
    "nhc fleet check": JUDGES,
    "nhc replay tests/nodes/h100-xid79": frozenset([1]),
}
"""How commands may end that do not end with 0, by how they begin; one with a pipe ends with 0."""

LOOKS = ("nhc list", "nhc show", "sinfo", "kubectl get")
"""Commands that change nothing. They are typed again until they show what the page shows."""

AGAIN = {"nhc show episode 1 -s examples/tutorial/remedy.toml": "nhc replay tests/nodes/h100-healthy "
         "--format json | nhc kubernetes publish --node gpu-007"}  # fmt: skip
"""What a page says to give again while a command does not show what it should."""

PROMPT = re.compile(r"\[\[status (\d+)\]\]\r?\n$")
LINES = re.compile(r"^ *(?:\$ )?((?:export|alias) (\w+)=.*?)\r?$", re.MULTILINE)
PLACEHOLDER = re.compile(r"\b(?:DIRECTORY|BINARIES)\b")


class Step(NamedTuple):
    """A command of a page, the heading that it stands under, and the lines below it in its block."""

    page: str
    line: int
    heading: str
    command: str
    output: List[str]

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


class Stumbled(Exception):
    """A page does not lead on. The message names its line and what came instead."""


def steps(page: Path) -> List[Step]:
    """The commands of a page's blocks."""
    found: List[Step] = []
    heading, fence, first = "", None, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        mark = re.fullmatch(r"( *)```(\w*)", line)
        if fence is not None and mark and not mark[2]:
            fence = None
        elif fence is not None:
            shown = line[fence:]
            if shown.startswith("$ "):
                command = re.sub(r"\s+# .*", "", shown[2:])
                found.append(Step(page.name, number, heading, command, []))
                first = False
            elif not first:
                found[-1].output.append(shown)
        elif mark and mark[2] == "console":
            fence, first = len(mark[1]), True
        elif line.startswith("## "):
            heading = line[3:]
    return found


def rule(table: Iterable[str], command: str) -> str:
    """How the command begins, in the longest words that the table has; "" for none."""
    return max((one for one in table if command.startswith(one)), key=len, default="")


def alike(line: str) -> str:
    """A line without what differs from run to run: ages, times, and the width of columns."""
    line = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", line)
    line = re.sub(r"\b[\dsmhd]+ ago\b", "N ago", " ".join(line.split()))
    return re.sub(r"since [-\dT:]+Z", "since then", line)


def absent(wanted: Iterable[str], printed: str) -> List[str]:
    """The lines that a page shows and that were not printed. One that ends with ... begins a printed one."""
    lines = [alike(line) for line in printed.splitlines()]
    found = []
    for line in map(alike, wanted):
        begun = line[:-3].rstrip() if line.endswith("...") else None
        if not (line in lines if begun is None else any(one.startswith(begun) for one in lines)):
            found.append(line)
    return found


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, place: Path, env: Dict[str, str]) -> None:
        self.text, self.read_to, self.running = "", 0, ""
        whole = {**env, "PS1": "[[status $?]]\n", "PS2": "", "TERM": "dumb", "HISTFILE": ""}
        self.pid, self.tty = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe("bash", ["bash", "--noprofile", "--norc", "--noediting", "-i"], whole)
        fcntl.ioctl(self.tty, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 220, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()
        self._until(lambda text: PROMPT.search(text) is not None, 30)
        self.type("stty -echo", 30)

    def _read(self) -> None:
        """Always: a program whose terminal nobody reads stands still."""
        while True:
            try:
                got = os.read(self.tty, 65536)
            except OSError:  # the shell has ended
                return
            self.text += got.decode(errors="replace")

    def _until(self, seen: Callable[[str], bool], within: float) -> str:
        """What is printed from now on, once it is as wanted. Raises TimeoutError with what came."""
        deadline = time.monotonic() + within
        while not seen(self.text[self.read_to :]):
            if time.monotonic() > deadline:
                raise TimeoutError(self.text[self.read_to :])
            time.sleep(0.02)
        new = self.text[self.read_to :]
        self.read_to += len(new)
        return new

    def type(self, command: str, within: float = WITHIN) -> Tuple[int, str]:
        """The status and the output of a command. Raises TimeoutError with what it has printed."""
        os.write(self.tty, f"{command}\n".encode())
        return self._ended(within)

    def _ended(self, within: float) -> Tuple[int, str]:
        new = self._until(lambda text: PROMPT.search(text) is not None, within)
        prompt = PROMPT.search(new)
        assert prompt is not None
        self.running = ""
        return int(prompt[1]), new[: prompt.start()]

    def start(self, command: str, ready: str, within: float) -> Optional[Tuple[int, str]]:
        """Type a command that goes on; None once it runs, its status and output if it has ended."""
        os.write(self.tty, f"{command}\n".encode())
        self.running = command
        new = self._until(lambda text: ready in text or PROMPT.search(text) is not None, within) if ready else ""
        prompt = PROMPT.search(new)
        return (int(prompt[1]), new) if prompt else None

    def interrupt(self, within: float = 90) -> Tuple[int, str]:
        """End what runs here with Ctrl-C."""
        os.write(self.tty, b"\x03")
        return self._ended(within)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.tty)
        os.waitpid(self.pid, 0)


class Stranger:
    """Somebody who follows pages, in a directory. `log` gets each command as it is typed."""

    def __init__(self, place: Path, env: Dict[str, str], log: Callable[[str], object] = print) -> None:
        self.place, self.env, self.log = place, env, log
        self.terminals: List[Terminal] = []
        self.for_terminals: List[str] = []

    def __enter__(self) -> Stranger:  # noqa: PYI034  # typing.Self came with Python 3.11
        return self

    def __exit__(self, *_raised: object) -> None:
        """Nothing of it goes on, however it ended."""
        for terminal in reversed(self.terminals):
            try:
                if terminal.running:
                    terminal.interrupt()
            except TimeoutError as error:
                self.log(f"Ctrl-C does not end {terminal.running}: {error}")
            terminal.close()
        self.terminals = []

    def follow(self, all_steps: Iterable[Step]) -> List[str]:
        """Type the commands; those that were typed. Raises Stumbled."""
        typed = []
        for step in all_steps:
            if rule(NOT_TYPED, step.command):
                continue
            self.log(step.name)
            try:
                self._step(step)
            except TimeoutError as error:
                raise Stumbled(f"{step.name}\ndoes not end, or shows not what the page shows:\n{error}") from None
            typed.append(step.command)
        return typed

    def end(self) -> None:
        """End with Ctrl-C what goes on, the newest first. Raises Stumbled."""
        for terminal in reversed(self.terminals):
            if terminal.running:
                command = terminal.running
                status, text = terminal.interrupt()
                if status not in (0, 130) or "Traceback" in text:
                    raise Stumbled(f"{command}\nends with {status} after Ctrl-C:\n{text[-2000:]}")

    def terminal(self) -> Terminal:
        """One in which nothing runs: the newest, or another, after what a page gave for it."""
        for terminal in reversed(self.terminals):
            if not terminal.running:
                return terminal
        self.terminals.append(Terminal(self.place, self.env))
        for line in self.for_terminals:
            self.terminals[-1].type(line)
        return self.terminals[-1]

    def _step(self, step: Step) -> None:
        command = self._filled_in(step)
        within = SET_UP if command.startswith(("make", "pip")) else WITHIN
        terminal = self.terminal()
        service = rule(SERVICES, command)
        if service:
            address = SERVICES[service].startswith("http")
            ended = terminal.start(command, SERVICES[service], within)
            if ended is not None:
                raise Stumbled(f"{step.name}\nends with {ended[0]}:\n{ended[1][-2000:]}")
            if address:
                with urllib.request.urlopen(SERVICES[service], timeout=60) as answer:
                    assert answer.status == 200
            return
        deadline = time.monotonic() + within
        while True:
            status, text = terminal.type(command, within)
            missing = absent(step.output, text)
            if "Traceback" in text or "Usage: " in text:
                raise Stumbled(f"{step.name}\nprints:\n{text[-2000:]}")
            usual = frozenset([0]) if " | " in command else STATUSES.get(rule(STATUSES, command), frozenset([0]))
            if status in usual and not missing:
                break
            if not (step.output and command.startswith(LOOKS)) or time.monotonic() > deadline:
                raise Stumbled(f"{step.name}\nends with {status}, without {missing}:\n{text[-2000:]}")
            time.sleep(1)
            if command in AGAIN:
                terminal.type(AGAIN[command])
        if command.startswith(("export ", "alias ")):
            self.for_terminals.append(command)

    def _filled_in(self, step: Step) -> str:
        """The command as it was printed elsewhere, where the page has it with a placeholder."""
        named = LINES.match(step.command)
        if not named or not PLACEHOLDER.search(step.command):
            return step.command
        for terminal in self.terminals:
            for line, name in LINES.findall(terminal.text):
                if name == named[2]:
                    return str(line)
        raise Stumbled(f"{step.name}\nnobody has printed this line")


def main(pages: List[str]) -> int:
    place = Path(__file__).resolve().parents[2]
    began = time.monotonic()
    env = {name: os.environ[name] for name in os.environ if name not in ("PS1", "PROMPT_COMMAND")}
    for page in pages or PAGES:
        with Stranger(place, env, lambda line: print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)) as one:
            try:
                one.follow(steps(place / page))
                one.end()
            except Stumbled as error:
                print(f"\n{error}", file=sys.stderr)
                return 1
    print(f"{len(pages or PAGES)} pages lead on")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
