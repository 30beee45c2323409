"""The doors of many cells in forks of one process: `python -m tests.faults.forked`, which answers each line of cells
with a line of their endings, both JSON.

A door spends most of its time on importing what is not nhc's (SQLAlchemy takes 0.2 s). This process has that loaded,
and nothing of nhc's; each fork sets its fault, and carries out the launcher to the interpreter's own end. Faults that
may strike while a library is imported (limits, signals) are not for it.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import sys
import time
from typing import NamedTuple, Optional

from tests.faults import under

LIBRARIES = (
    "alembic", "asyncio", "click", "concurrent.futures", "importlib.metadata", "json", "logging", "sqlalchemy",
    "sqlalchemy.dialects.sqlite", "ssl", "urllib3",
)  # fmt: skip
SIDE_BY_SIDE = 2


class Cell(NamedTuple):
    """One door under one fault. `out` and `err` are what is done to the two: "", full, gone, closed.

    `seconds` is how long it may take, `waits` says that it is told to end once it handles SIGTERM, `locks` are the
    files that somebody else holds.
    """

    launcher: str
    words: list[str]
    environ: dict[str, str]
    fault: str
    out: str
    err: str
    waits: bool
    locks: list[str]
    seconds: float


class Running(NamedTuple):
    number: int
    cell: Cell
    out: int
    err: int
    locks: list[int]
    until: float


def outlet(kind: str) -> int:
    """A descriptor for what a door says; -1 for none."""
    if kind == "closed":
        return -1
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        return writing
    return os.memfd_create("said")


def become(cell: Cell, out: int, err: int) -> Cell:
    """In the fork: what a shell would have set up before the interpreter began."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if cell.out == cell.err == "closed":  # all are
        os.close(0)
        sys.stdin = sys.__stdin__ = None
    for number, given, name in ((1, out, "stdout"), (2, err, "stderr")):
        if given >= 0:
            os.dup2(given, number)
        else:  # as the interpreter has it where it begins without
            os.close(number)
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(cell.environ)
    return cell


def begin(number: int, cell: Cell) -> tuple[int, Optional[Running]]:
    """The process and what is kept of it here; 0 and nothing in the fork itself."""
    locks = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in cell.locks]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    out = outlet(cell.out)
    err = out if cell.out == cell.err and cell.out else outlet(cell.err)
    pid = os.fork()
    if pid == 0:
        become(cell, out, err)
        return 0, None
    return pid, Running(number, cell, out, err, locks, time.monotonic() + cell.seconds)


def ready(pid: int) -> bool:
    """Whether it handles SIGTERM."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = int(file.read().partition("SigCgt:")[2].split(None, 1)[0], 16)
    except (OSError, IndexError, ValueError):
        return False
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def ended(pid: int, one: Running, status: int) -> tuple[int, str, str]:
    """The status and what was said; whatever it left behind in its session has ended."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    said = []
    for kind, fd in ((one.cell.out, one.out), (one.cell.err, one.err)):
        said.append("" if kind else os.pread(fd, 1 << 20, 0).decode(errors="replace"))
    for fd in {one.out, one.err, *one.locks} - {-1}:
        os.close(fd)
    return os.waitstatus_to_exitcode(status), said[0], said[1]


def carry_out(cells: list[Cell]) -> Optional[Cell]:
    """All cells, their endings to standard output; in a fork, the cell that it is to be."""
    endings: list[object] = [None] * len(cells)
    left, running = list(enumerate(cells)), {}
    while left or running:
        while left and len(running) < SIDE_BY_SIDE:
            pid, made = begin(*left[0])
            if made is None:
                return left[0][1]
            running[pid] = made
            left.pop(0)
        time.sleep(0.005)
        for pid, one in list(running.items()):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                endings[one.number] = ended(pid, running.pop(pid), status)
            elif time.monotonic() > one.until:
                os.killpg(pid, signal.SIGKILL)
            elif one.cell.waits and ready(pid):
                os.kill(pid, signal.SIGTERM)
                running[pid] = one._replace(cell=one.cell._replace(waits=False))
    print(json.dumps(endings), flush=True)
    return None


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        cell = carry_out([Cell(*each) for each in json.loads(line)])
        if cell is not None:
            sys.argv = ["under", cell.fault, cell.launcher, *cell.words]
            under.main()
            return


if __name__ == "__main__":
    main()
