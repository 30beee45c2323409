"""A second copy of the audit log's head, outside the database.

It has one line for each commit: the store's id, the number and the hash of the newest row, and the time. Someone who
can change the database can hide a change of the log only by changing this file too: keep it on another file system, or
send it away (the same line goes to syslog's authpriv if that is switched on).
"""

from __future__ import annotations

import fcntl
import os
import threading
from typing import Iterator, NamedTuple

from nhc.core.system import written_files
from nhc.core.system.bounded_read import open_file
from nhc.store.errors import StoreError

LINE_LIMIT = 1024
"""Characters of a line: an id, a number, a hash and a time have fewer than 200."""


class Head(NamedTuple):
    """The newest row of the audit log."""

    seq: int
    hash: str
    at: float


class Anchored(NamedTuple):
    """One line of the anchor. `line` is its number in the file; a damaged one has `seq` 0."""

    line: int
    store: str
    seq: int
    hash: str


class Anchor:
    """The file. Several processes may add to it."""

    def __init__(self, path: str, store: str = "") -> None:
        self.path, self.store, self.syslog = path, store, False
        self.problem = ""
        """Why the newest head is not in the file, "" if it is."""
        self._owed: Head | None = None
        self._lock = threading.Lock()

    def belong_to(self, store: str) -> None:
        """Set the store to which the following heads belong."""
        self.store = store

    def ready(self) -> None:
        """Check that a line can be added, and add the one that could not be added before. Raises StoreError."""
        with self._lock:
            try:
                if self._owed is not None:
                    self._append(self._owed)
                    self._owed = None
                else:
                    os.close(self._open())
            except OSError as error:
                self.problem = self._problem_of(error)
                raise StoreError(f"{self.problem}: nothing was written") from None
            self.problem = ""

    def add(self, head: Head) -> None:
        """Anchor a head that was committed. A failure is stored in `problem`; `ready` tries again."""
        with self._lock:
            try:
                self._append(head)
            except OSError as error:
                self._owed, self.problem = head, self._problem_of(error)
        if self.syslog:
            import syslog

            syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_AUTHPRIV)
            syslog.syslog(syslog.LOG_NOTICE, f"audit head {self.store} {head.seq} {head.hash}")

    def lines(self) -> Iterator[Anchored]:
        """All that was anchored, in the file's order. Raises OSError."""
        with os.fdopen(open_file(self.path), encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT), ""), 1):
                fields = line.split()
                if len(fields) == 4 and line.endswith("\n") and fields[1].isascii() and fields[1].isdigit():
                    yield Anchored(number, fields[0], int(fields[1]), fields[2])
                elif fields:
                    yield Anchored(number, "", 0, "")

    def _problem_of(self, error: OSError) -> str:
        return f"the audit's anchor {self.path}: {error.strerror or error}"

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags)
        except FileNotFoundError:
            directory = os.path.dirname(self.path) or "."
            written_files.make_directories(directory, 0o700)
            fd = written_files.open_or_make(self.path, flags, 0o600)
            at = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(at)  # the file's name must survive a power loss, too
            finally:
                os.close(at)
            return fd

    def _append(self, head: Head) -> None:
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            line = f"{self.store} {head.seq} {head.hash} {head.at:.3f}\n".encode()
            data = b"\n" + line if torn else line
            if os.write(fd, data) != len(data):
                raise OSError(28, os.strerror(28))
            os.fsync(fd)
        finally:
            os.close(fd)
