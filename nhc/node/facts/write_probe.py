"""One file written, forced to the server, read back past the cache, and removed."""

from __future__ import annotations

import errno
import os
import time

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

BLOCK = 4096


def content(name: str, size: int) -> bytes:
    """The content to write: different for every probe, so that an older file is not taken for this one."""
    seed = f"nhc write probe {name}\n".encode()
    return (seed * (size // len(seed) + 1))[:size]


def probe(directory: str, name: str, size: int) -> Dict[str, Any]:
    """Seconds of each step, or which one failed, as plain values for a recording.

    {"steps": {"create": s, "write": s, "sync": s, "read": s, "remove": s}, "direct": BOOL} and with a failure
    {"failed": STEP, "errno": N, "error": TEXT}; "differs" where other bytes came back.
    """
    path = f"{directory}/{name}"
    wanted = content(name, size)
    steps: Dict[str, float] = {}
    answer: Dict[str, Any] = {"steps": steps, "direct": False}

    def step(what: str, act: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        answer["failed"] = what
        value = act()
        steps[what] = time.monotonic() - begin
        return value

    created = False
    try:
        fd = step(
            "create", lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        )
        created = True
        try:
            step("write", lambda: _write(fd, wanted))
            step("sync", lambda: os.fsync(fd))
            _forget(fd)
        except OSError:
            _quiet(lambda: os.close(fd))
            raise
        step("close", lambda: os.close(fd))  # NFS reports a full quota only here
        read_back = step("read", lambda: _read(path, size, answer))
        answer["differs"] = read_back != wanted
        answer.pop("failed")
    except OSError as error:
        answer.update(errno=error.errno, error=error.strerror or str(error))
    if created:
        begin = time.monotonic()
        try:
            os.unlink(path)
            steps["remove"] = time.monotonic() - begin
        except OSError as error:
            if "failed" not in answer:
                answer.update(failed="remove", errno=error.errno, error=error.strerror or str(error))
    return answer


def _write(fd: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.write(fd, data[at:])


def _forget(fd: int) -> None:
    """Drop the file from the page cache, if the kernel supports that."""
    _quiet(lambda: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED))


def _read(path: str, size: int, answer: Dict[str, Any]) -> bytes:
    """The file's bytes, past the cache (O_DIRECT) where the file system allows it."""
    import mmap

    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_DIRECT)
        answer["direct"] = True
    except OSError:
        fd = os.open(path, flags)
    try:
        with mmap.mmap(-1, size) as memory:  # aligned, as O_DIRECT wants it
            try:
                got = os.readv(fd, [memory])
            except OSError:
                if not answer["direct"]:
                    raise
                os.close(fd)
                fd, answer["direct"] = os.open(path, flags), False
                got = os.readv(fd, [memory])
            parts: List[bytes] = [memory[:got]]
            while 0 < got < size and sum(map(len, parts)) < size:
                more = os.pread(fd, size, sum(map(len, parts)))
                if not more:
                    break
                parts.append(more)
            return b"".join(parts)
    finally:
        os.close(fd)


def read_block(path: str) -> int:
    """Read the first block of a disk past the cache. 0, or the number of the error."""
    try:
        return 0 if _read(path, BLOCK, {"direct": False}) else errno.EIO
    except OSError as error:
        return error.errno or errno.EIO


def remove(directory: str, name: str) -> bool:
    """Remove what an earlier probe left behind. Its own name alone, never a pattern."""
    try:
        os.unlink(f"{directory}/{name}")
    except OSError:
        return False
    return True


def _quiet(act: Callable[[], Any]) -> None:
    try:
        act()
    except OSError:
        pass
