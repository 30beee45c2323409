"""The kernel's ring of log records, read and written through /dev/kmsg, and the tails of log files.

`nhc.core.host.System` is the only caller for reading, so that recordings replay.
"""

from __future__ import annotations

import os
import stat

from nhc.core.light import TYPE_CHECKING
from nhc.core.system.bounded_read import open_file

if TYPE_CHECKING:
    from typing import Iterable, Iterator, List, Tuple

KMSG = "/dev/kmsg"
_RECORD = 8192  # more than the kernel's longest record (PRINTK_MESSAGE_MAX, dev-kmsg's own buffer)
_KMSG_DEVICE = (1, 11)  # Documentation/admin-guide/devices.txt
LINE = 1 << 20
"""Bytes of one line; no log has longer ones."""
ENDLESS = 4 << 30
"""Bytes left out after which a source is taken for one without an end."""
TAIL_LIMIT = 64 << 20
"""Bytes read of a log file at once; the next read goes on where this one ended."""


def read(path: str, after: int) -> List[str]:
    """The records numbered above `after`, as the kernel gives them, oldest first. Never waits. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    records: List[str] = []
    try:
        while True:
            try:
                data = os.read(fd, _RECORD)
            except BlockingIOError:
                return records
            except BrokenPipeError:
                continue  # overwritten while we read: the next read goes on with the oldest record there is
            except OSError as error:
                if error.errno == 22:  # EINVAL: a record longer than the buffer; the kernel has not moved on
                    os.lseek(fd, 0, os.SEEK_END)
                    continue
                raise
            if not data:
                return records  # a regular file in place of the device
            number = data.split(b",", 2)[1:2]
            if number and number[0].isdigit() and int(number[0]) <= after:
                continue
            records.append(data.decode(errors="replace"))
    finally:
        os.close(fd)


def number_of(record: str) -> int:
    """The number of a record as the kernel gives it, -1 for what is none: a recording can hold anything."""
    number = record.split(",", 2)[1:2]
    return int(number[0]) if number and number[0].isdecimal() and len(number[0]) < 20 else -1


def write(text: str, level: int, path: str = KMSG) -> None:
    """Put one line into the kernel log, filed as a user's: the kernel lets nobody pose as itself. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"<{8 | level}>{' '.join(text.split())}\n".encode())
    finally:
        os.close(fd)


def tail(path: str, offset: int, limit: int = TAIL_LIMIT) -> Tuple[str, int, int]:
    """The complete lines of a file from `offset` on, at most `limit` bytes, where they end, and what was left out.

    Left out, and counted in bytes, is what can be no line: NUL bytes, as a hole of copytruncate reads; the rest of a
    line that began before `offset`; a piece of `limit` bytes without a line's end. So a read always goes on behind
    it. Raises OSError, also for what is no regular file.
    """
    fd = open_file(path)
    try:
        begin = _behind_hole(fd, offset)
        before = os.pread(fd, 1, begin - 1) if begin else b"\n"
        parts: List[bytes] = []
        at, left = begin, limit
        while left:
            data = os.pread(fd, min(1 << 20, left), at)
            if not data:
                break
            at += len(data)
            left -= len(data)
            if parts or data.strip(b"\0"):
                parts.append(data)
            else:  # the end of a block that a hole follows
                begin = at = _behind_hole(fd, at)
                before = b"\0"
    finally:
        os.close(fd)
    data = b"".join(parts)
    end = data.rfind(b"\n") + 1
    if not end:
        at = begin if left else at
        return "", at, at - offset
    cut = 0 if before in (b"\n", b"\0") else data.index(b"\n") + 1
    kept = data[cut:end].replace(b"\0", b"")
    return kept.decode(errors="replace"), begin + end, begin - offset + end - len(kept)


def _behind_hole(fd: int, offset: int) -> int:
    """Where data begins, at `offset` or behind: a hole of a terabyte is passed in one step."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but a hole from there on, or the file's end; EINVAL: no such question here
        return max(offset, os.fstat(fd).st_size) if _all_hole(fd, offset) else offset


def _all_hole(fd: int, offset: int) -> bool:
    try:
        return os.lseek(fd, offset, os.SEEK_HOLE) == offset and os.fstat(fd).st_size > offset
    except OSError:
        return False


_HOLE = bytes(64)


class Chunks:
    """What can be read from a descriptor, in pieces that end where a line ends.

    A hole (a run of NUL bytes, as copytruncate leaves before the next line) and a line beyond `LINE` bytes are left
    out; `left_out` counts the bytes. Iterate over it once.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.left_out = 0

    def __iter__(self) -> Iterator[str]:
        rest, skipping = b"", False
        while True:
            data = os.read(self.fd, 1 << 20)
            if not data:
                break
            if _HOLE in data:
                whole = len(data)
                data = data.translate(None, b"\0")
                self._leave_out(whole - len(data))
            if skipping:
                at = data.find(b"\n") + 1
                self._leave_out(at or len(data))
                if not at:
                    continue
                data, skipping = data[at:], False
            at = data.rfind(b"\n") + 1
            if at:
                yield (rest + data[:at]).decode(errors="replace")
                rest = data[at:]
            else:
                rest += data
            if len(rest) > LINE:
                self.left_out += len(rest)
                rest, skipping = b"", True
        if rest:
            yield rest.decode(errors="replace")

    def _leave_out(self, count: int) -> None:
        self.left_out += count
        if self.left_out > ENDLESS:
            raise OSError(27, f"{ENDLESS >> 30} GiB without a line that could be read")


def contents(path: str) -> Iterable[str]:
    """A log file in pieces that end where a line ends; /dev/kmsg as far as it goes, without waiting. Raises OSError."""
    info = os.stat(path)
    if stat.S_ISCHR(info.st_mode) and (os.major(info.st_rdev), os.minor(info.st_rdev)) == _KMSG_DEVICE:
        return ["".join(read(path, -1))]
    return _Opened(path)


class _Opened(Chunks):
    """A file's chunks; it is open as long as it is read."""

    def __init__(self, path: str) -> None:
        super().__init__(-1)
        self.path = path

    def __iter__(self) -> Iterator[str]:
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            device = stat.S_ISCHR(os.fstat(self.fd).st_mode) and self.path != os.devnull
            if device and not os.isatty(self.fd):  # /dev/zero and its like have no end
                raise OSError(22, "neither a file nor a pipe", self.path)
            yield from super().__iter__()
        finally:
            os.close(self.fd)
