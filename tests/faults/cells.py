"""The columns: each fault, and how a door is started under it."""

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.peers import Peer
from tests.faults.under import NOBODY

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90
"""Within which every door ends under every fault."""
LOCKS = ("run", "strikes", "stuck", "kernel-log", "kernel-log-acks", "ledger", "last", "agent")


class Ended(NamedTuple):
    status: int
    out: str
    err: str


SPACE = ("full", "read-only")
LIMITS = ("memory=4", "memory=24", "descriptors=1", "descriptors=4", "processes=0", "clock=-400")
OUTPUTS = {
    "output closed": ">&-",
    "output full": ">/dev/full",
    "all full": ">/dev/full 2>&1",
    "all closed": "<&- >&- 2>&-",
}
STORED = ("demo", "serve all", "serve job", "serve notices", "serve remedy", "top")
"""Doors that wait and load SQLAlchemy, whatever becomes of them."""
FORKED_OUTPUTS = {
    "output closed": ("closed", ""), "output full": ("full", ""), "all full": ("full", "full"),
    "all closed": ("closed", "closed"),
}  # fmt: skip
PAIRS = {
    "TERM+HUP": (signal.SIGTERM, signal.SIGHUP),
    "TERM+INT": (signal.SIGTERM, signal.SIGINT),
    "INT+TERM": (signal.SIGINT, signal.SIGTERM),
}
PEERS = tuple(f"peer {step}" for step in Peer.STEPS)
COLUMNS = ("none", *SPACE, *LIMITS, *OUTPUTS, "output gone", *PAIRS, "lock held")


def environment(place):
    return {
        "PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "NHC_STATE_DIR": str(place.state),
        "NHC_LEDGER_DIR": str(place.state), "NHC_DEEP_DIR": str(place.state / "deep"),
        "NHC_MUTES": str(place.state / "mutes.json"), "NHC_GATE_FILE": str(place.state / "gate.json"),
        "HOME": str(place.base), "TMPDIR": str(place.state if place.state.name in SPACE else place.base),
        "SLURM_JWT": "a.b.c", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8",
    }  # fmt: skip


def argv(door, place, fault=""):
    return [sys.executable, "-m", "tests.faults.under", fault, door.launcher, *map(str, door.words(place))]


def forks(name, door, column):
    """Whether the door may be a fork of a process that has its libraries loaded (forked.py)."""
    if door.waits and name not in STORED:
        return False  # it handles SIGTERM before it has its libraries
    return column not in PAIRS and (column not in LIMITS or column.startswith("clock="))


class Forks:
    """The process whose forks are doors, for as long as its user needs it."""

    def __init__(self, place):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=ROOT, env=environment(place),
        )  # fmt: skip

    def carry_out(self, door, cells):
        """Knock at a door once for each cell, a place and a column; how each ended."""
        asked = []
        for place, column in cells:
            out, err = {**FORKED_OUTPUTS, "output gone": ("gone", "")}.get(column, ("", ""))
            locks = [str(place.state / f"{name}.lock") for name in LOCKS] if column == "lock held" else []
            fault = column if column in LIMITS else ""
            asked.append((door.launcher, [*map(str, door.words(place))], environment(place), fault, out, err,
                          door.waits, locks, SECONDS))  # fmt: skip
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process of the forks ended with status {self.process.wait(SECONDS)}"
        return [Ended(*one) for one in json.loads(answer)]

    def close(self):
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()


def carry_out(door, place, column):
    """Knock at a door under a fault; how it ended."""
    begun, begins = os.pipe()
    limit = column if column in LIMITS else f"begun={begins}" if column in PAIRS else ""
    words = argv(door, place, limit)
    if column in OUTPUTS:
        words = ["bash", "-c", f'exec "$@" {OUTPUTS[column]}', "sh", *words]
    if column == "processes=0":
        hand_over(place.state)
    reading, writing = os.pipe()
    os.close(reading)
    with held_locks(place) if column == "lock held" else contextlib.nullcontext():
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=writing if column == "output gone" else subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=ROOT, env=environment(place), start_new_session=True,
            pass_fds=(begins,) if column in PAIRS else (),
        )  # fmt: skip
        os.close(writing)
        os.close(begins)
        try:
            if column in PAIRS:
                os.read(begun, 1)
                send(child, PAIRS[column], door.waits)
            elif door.waits:
                wait_ready(child)
                if column == "processes=0":  # it handles SIGTERM before it starts what it cannot
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(2.0)
                child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=SECONDS)
        finally:
            os.close(begun)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            for pipe in filter(None, (child.stdout, child.stderr)):
                pipe.close()
    return Ended(child.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"))


def send(child, pair, waits):
    """Two signals in a row, as systemd sends them, at a moment of the run that is another one each time."""
    time.sleep(random.Random(child.pid).uniform(0, 0.5 if waits else 0.2))
    for number in pair:
        child.send_signal(number)


def wait_ready(child):
    """Until a door that stays handles SIGTERM, or has ended."""
    until = time.monotonic() + SECONDS / 2
    while time.monotonic() < until and child.poll() is None:
        said = Path(f"/proc/{child.pid}/status").read_text()
        caught = int(said.partition("SigCgt:")[2].split(None, 1)[0], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


def hand_over(path):
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY)


@contextlib.contextmanager
def held_locks(place):
    """Somebody, who hangs, has every lock there is."""
    files = []
    for name in LOCKS:
        fd = os.open(place.state / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        files.append(fd)
    try:
        yield
    finally:
        for fd in files:
            os.close(fd)
