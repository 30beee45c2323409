"""Programs that this node runs for others: one directory a run, named by its key and on the disk before it begins.

Each run has a watcher. It stores the output up to a limit, and ends all processes of the run: at the program's own end,
on request, or at the limit. It holds the run's lock. If a run has no end and its lock is free, it was killed with its
watcher, and the next request ends the rest of it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import select
import shutil
import signal
import time
import zlib
from typing import AbstractSet, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

from nhc.core.system import process, written_files
from nhc.core.system.bounded_read import read_head, read_text
from nhc_adapters.node.hand.journal import is_held
from nhc_adapters.node.hand.values import AskedRun, NotPossible

DIRECTORY = "/var/lib/nhc/runs"
MARK = "NHC_RUN"
"""In the environment of all processes of a run, with its key: they are known by it after their watcher has gone."""
STOPPED = "it was stopped"
GRACE, KILLED = 10.0, 5.0
"""Seconds between SIGTERM and SIGKILL, and after SIGKILL."""
LOOK = 0.1
"""Seconds between two looks of the watcher at what it is to do."""
KEPT = 7 * 86400.0
"""Seconds for which a run that has ended is remembered: for so long it cannot be started again."""
OUTPUT = 64 << 20
"""The most bytes of output that are read back, even if a run asked to keep more."""
HANDED = 6 << 20
"""Bytes of packed output that are handed over in one answer, which may have 16 MiB with base64 and all."""


class RunEnd(NamedTuple):
    """How a run ended. `status` is None if it did not end by itself; `left` are processes that do not end."""

    status: Optional[int]
    why: str = ""
    cut: bool = False
    left: Tuple[int, ...] = ()


class NodeRuns:
    """The directory of one node's runs."""

    def __init__(self, root: str = "") -> None:
        self.directory = root + DIRECTORY

    def place(self, key: str) -> str:
        """The directory of a run. Raises NotPossible for what is no key."""
        if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}", key):
            raise NotPossible(f"{key[:80]!r} is no key of a run")
        return f"{self.directory}/{key}"

    def begin(self, key: str) -> Optional[int]:
        """Its lock, held, in a directory that is created completely or not at all; None if the run was begun before.

        Raises OSError.
        """
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._forget()
        place, new = self.place(key), f"{self.directory}/.{key}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new, 0o700)
        lock = os.open(f"{new}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            os.rename(new, place)  # what is there is not empty: then this fails
        except OSError:
            os.close(lock)
            shutil.rmtree(new, ignore_errors=True)
            if os.path.isdir(place):
                return None
            raise
        return lock

    def _forget(self) -> None:
        for name in os.listdir(self.directory):
            try:
                if time.time() - os.stat(f"{self.directory}/{name}/end").st_mtime > KEPT:
                    shutil.rmtree(f"{self.directory}/{name}", ignore_errors=True)
            except OSError:
                continue

    def alive(self, key: str) -> bool:
        """Whether its watcher is there. Raises OSError."""
        return is_held(f"{self.place(key)}/lock")

    def end_of(self, key: str) -> Optional[RunEnd]:
        """How it ended, None before. Raises OSError."""
        try:
            value = json.loads(read_text(f"{self.place(key)}/end"))
            return RunEnd(**{**value, "left": tuple(value["left"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise NotPossible(f"{self.place(key)}/end: {error}") from None

    def save_end(self, key: str, end: RunEnd) -> None:
        """Raises OSError."""
        written_files.write_whole(f"{self.place(key)}/end", json.dumps(end._asdict()).encode(), 0o600, durable=True)

    def state(self, key: str) -> Optional[Tuple[Optional[RunEnd], bytes]]:
        """How it ended and what it printed; no end while it runs; None if there is no such run. Raises OSError."""
        if not os.path.isdir(self.place(key)):
            return None
        end = self.end_of(key)
        if end is None and not self.alive(key):
            end = self.end_of(key)  # it may have ended between the two looks
            if end is None:
                end = RunEnd(None, "its watcher was killed, or the node has booted", left=tuple(end_all({key})))
                self.save_end(key, end)
        if end is None:
            return None, b""
        try:
            return end, read_head(f"{self.place(key)}/output", OUTPUT)
        except FileNotFoundError:
            return end, b""

    def shown(self, key: str) -> Mapping[str, object]:
        """A run as the answer to `poll`. Raises OSError."""
        found = self.state(key)
        if found is None:
            return {"phase": "absent", "why": "this node knows no such run"}
        end, output = found
        if end is None:
            return {"phase": "running"}
        if end.status is None or end.left:
            phase = "stopped" if end.why == STOPPED else "lost"
            pids = f"; processes {' '.join(map(str, end.left))} do not end" if end.left else ""
            return {"phase": phase, "why": f"{end.why}{pids}"}
        packed, cut = zlib.compress(output), end.cut
        while len(packed) > HANDED:
            output, cut = output[: len(output) // 2], True
            packed = zlib.compress(output)
        return {"phase": "ended", "status": end.status, "cut": cut, "output": base64.b64encode(packed).decode()}

    def stop(self, key: str) -> Mapping[str, object]:
        """Have the watcher end it, and wait until it has. Raises OSError."""
        if os.path.isdir(self.place(key)):
            with open(f"{self.place(key)}/stop", "w"):
                pass
            until = time.monotonic() + GRACE + 2 * KILLED
            while self.end_of(key) is None and self.alive(key) and time.monotonic() < until:
                time.sleep(LOOK)
        return self.shown(key)


class RunWatch:
    """Runs one program to its end, and writes that down."""

    def __init__(self, runs: NodeRuns, asked: AskedRun) -> None:
        self.runs, self.asked, self.place = runs, asked, runs.place(asked.key)
        self._why = ""
        self._room, self._cut = asked.output, False

    def carry_out(self) -> None:
        """Raises OSError where the end cannot be written down."""
        process.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        status: Optional[int] = None
        try:
            status = self._run()
        except OSError as error:
            self._why = self._why or f"{error.filename or 'it'}: {error.strerror}"
        left = end_all({self.asked.key}, {os.getpid()})
        end = RunEnd(None if self._why else status, self._why, self._cut, tuple(left))
        self.runs.save_end(self.asked.key, end)

    def _signalled(self, number: int, _frame: object) -> None:
        self._why = self._why or f"its watcher got signal {number}"

    def _run(self) -> Optional[int]:
        """The program's status, None if it was ended. Raises OSError."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self._become(writing)
        os.close(writing)
        os.set_blocking(reading, False)
        until, status = time.monotonic() + self.asked.seconds, None
        with open(f"{self.place}/output", "wb", buffering=0) as file:
            while status is None and not self._why:
                self._copy(reading, file.fileno(), LOOK)
                if os.path.exists(f"{self.place}/stop"):
                    self._why = STOPPED
                elif time.monotonic() > until:
                    self._why = f"it ran past its limit of {self.asked.seconds:g} s"
                done, raw = os.waitpid(child, os.WNOHANG)
                if done:
                    status = os.WEXITSTATUS(raw) if os.WIFEXITED(raw) else 128 + os.WTERMSIG(raw)
            while self._copy(reading, file.fileno(), 0.0):
                pass
        os.close(reading)
        return status

    def _become(self, output: int) -> None:
        """The program, in a session of its own. Does not return."""
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDONLY)
            for fd, own in ((null, 0), (output, 1), (output, 2)):
                os.dup2(fd, own)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.chdir("/")
            path = process.extended(self.asked.path or os.environ.get("PATH", ""))
            env = {**os.environ, "PATH": path, MARK: self.asked.key}
            os.execvpe(self.asked.argv[0], list(self.asked.argv), env)  # noqa: S606 (that is what a run is)
        except OSError as error:
            os.write(output, f"{self.asked.argv[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _copy(self, reading: int, output: int, seconds: float) -> bool:
        """What it printed by now, waited for so long; whether there may be more."""
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(reading, 65536)
        except BlockingIOError:
            return False
        kept = data[: self._room]
        self._room -= len(kept)
        self._cut = self._cut or len(kept) < len(data)
        if kept:
            os.write(output, kept)
        if not data:
            time.sleep(seconds)  # it has closed its output, and goes on
        return bool(data)


def processes_of(keys: AbstractSet[str], above: AbstractSet[int]) -> List[int]:
    """The processes that have one of these keys in their environment, and all below those of `above`."""
    marks = {f"{MARK}={key}".encode() for key in keys}
    parents: Dict[int, int] = {}
    found: Set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in above | {os.getpid()}:
            continue
        try:
            fields = read_head(f"/proc/{name}/stat", 4096).rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            parents[int(name)] = int(fields[1])
            if not marks.isdisjoint(read_head(f"/proc/{name}/environ", 1 << 20).split(b"\0")):
                found.add(int(name))
        except (OSError, IndexError, ValueError):
            continue
    more = found | above
    while True:
        below = {pid for pid, parent in parents.items() if parent in more} - more
        if not below:
            return sorted(more - above)
        more |= below


def end_all(keys: AbstractSet[str], above: AbstractSet[int] = frozenset()) -> List[int]:
    """SIGTERM, time, SIGKILL for all processes of these runs; those that are there still."""
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, KILLED)):
        until = time.monotonic() + seconds
        signalled: Set[int] = set()
        while True:
            pids = processes_of(keys, above)
            if not pids:
                return []
            for pid in set(pids) - signalled:
                signalled.add(pid)
                try:
                    os.kill(pid, number)
                except OSError:
                    continue
            if time.monotonic() > until:
                break
            process.reaped(-1)
            time.sleep(LOOK / 2)
    return processes_of(keys, above)
