"""The kernel's ring of log records, read and written through /dev/kmsg, and the tails of log files.

`nhc.host.System` is the only caller for reading, so that recordings replay.
"""

from __future__ import annotations

import os
import stat

from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

KMSG = "/dev/kmsg"
_RECORD = 8192  # more than the kernel's longest record (PRINTK_MESSAGE_MAX, dev-kmsg's own buffer)
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


def write(text: str, level: int, path: str = KMSG) -> None:
    """Put one line into the kernel log, filed as a user's: the kernel lets nobody pose as itself. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, f"<{8 | level}>{' '.join(text.split())}\n".encode())
    finally:
        os.close(fd)


def tail(path: str, offset: int, limit: int = TAIL_LIMIT) -> Tuple[str, int]:
    """The complete lines of a file from `offset` on, at most `limit` bytes, and where they end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        parts, size = [], 0
        while size < limit:
            data = os.read(fd, min(1 << 20, limit - size))
            if not data:
                break
            parts.append(data)
            size += len(data)
    finally:
        os.close(fd)
    data = b"".join(parts)
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace"), offset + end


def chunks(fd: int, size: int = 1 << 20) -> Iterator[str]:
    """What can be read from a descriptor, in pieces that end where a line ends."""
    rest = b""
    while True:
        data = os.read(fd, size)
        if not data:
            break
        at = data.rfind(b"\n") + 1
        if at:
            yield (rest + data[:at]).decode(errors="replace")
            rest = data[at:]
        else:
            rest += data
    if rest:
        yield rest.decode(errors="replace")


def contents(path: str) -> Iterator[str]:
    """A log file in pieces that end where a line ends; /dev/kmsg as far as it goes, without waiting. Raises OSError."""
    if stat.S_ISCHR(os.stat(path).st_mode):
        yield "".join(read(path, -1))
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from chunks(fd)
    finally:
        os.close(fd)
