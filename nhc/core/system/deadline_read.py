"""Read one small file of each of many directories, none of which can hold the reader up.

`/proc/PID/cmdline` lies in the process's own memory: the kernel takes that process's mmap lock to
read it (`get_mm_cmdline` in fs/proc/base.c calls `access_remote_vm`, which waits for `mmap_lock`).
Where a thread of the process sleeps on dead storage with that lock, or with a writer queued behind
it, the read sleeps as well: this is how `ps` hangs on a node with a hung file system. The state in
`/proc/PID/stat` does not tell: it is the main thread's alone, and the holder may be another one; and
most processes in state D can be read without trouble.

So the reads run in a thread, which costs one thread start for the whole scan. Where it stands still
it is left behind, its file counts as held up, and another thread goes on with the next file.
"""

from __future__ import annotations

import _thread  # `threading` costs 3 ms of every start, and this needs a lock and a thread
import os
import time

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

STALL = 0.05
"""Seconds without progress after which the first file counts as held up. An ordinary read takes 10 microseconds."""

SHORT_STALL = 0.005
"""The same once one file was held up: a job that hangs has hundreds of processes."""

STARVED = 2.0
"""Seconds for which a reader may wait for a processor instead, all in all: a busy node is no hung one."""

STUCK_LIMIT = 512
"""Threads that may be left behind; beyond it the remaining files count as held up unread."""


class _ReadingThread:
    """One thread's work and how far it is. Only the thread writes `at`, `read` and `finished`."""

    def __init__(self, directory: str, names: Sequence[str], leaf: str, limit: int) -> None:
        self.directory = directory
        self.names = names
        self.leaf = leaf
        self.limit = limit
        self.at = 0
        self.thread = 0  # the kernel's number of it, 0 before it has begun
        self.read: Dict[str, bytes] = {}
        self.abandoned = False
        self.finished = False
        self.done = _thread.allocate_lock()
        self.done.acquire()

    def run(self) -> None:
        self.thread = _thread.get_native_id()
        try:
            self._read_all()
        except OSError:  # the directory cannot be opened any more: nothing was read
            pass
        finally:
            self.finished = True
            self.done.release()

    def _read_all(self) -> None:
        opener, reader, closer = os.open, os.read, os.close
        leaf, limit, read = self.leaf, self.limit, self.read
        flags = os.O_RDONLY | os.O_CLOEXEC
        base = opener(self.directory, flags | os.O_DIRECTORY)
        try:
            for name in self.names:
                if self.abandoned:
                    break
                try:
                    fd = opener(f"{name}/{leaf}", flags, dir_fd=base)
                except OSError:
                    self.at += 1
                    continue
                try:
                    read[name] = reader(fd, limit)
                except OSError:
                    pass
                finally:
                    closer(fd)
                self.at += 1
        finally:
            closer(base)


_held: Dict[str, _ReadingThread] = {}
"""Directories whose file holds a thread up: not tried again until it lets go."""


def read_each(directory: str, names: Sequence[str], leaf: str, limit: int = 65536) -> Dict[str, Optional[bytes]]:
    """The first `limit` bytes of `directory/NAME/leaf` for each name, in one read(2) each.

    A name is left out where there is no such file or it cannot be read; its value is None where the
    read was held up. Returns within twice STALL seconds more than the reads take, plus 5 ms for
    each file held up for the first time.
    """
    contents: Dict[str, Optional[bytes]] = {}
    left = list(names)
    if _held:
        for name in names:
            reader = _held.get(f"{directory}/{name}/{leaf}")
            if reader is not None and not reader.finished:
                contents[name] = None
        left = [name for name in names if name not in contents]
    stuck: List[_ReadingThread] = []
    while left:
        if len(stuck) == STUCK_LIMIT:
            contents.update(dict.fromkeys(left))
            break
        reader = _ReadingThread(directory, left, leaf, limit)
        try:
            _thread.start_new_thread(reader.run, ())
        except RuntimeError:  # a limit of processes, which counts threads
            raise OSError(11, "no thread can be started", directory) from None
        at = _wait(reader, SHORT_STALL if stuck else STALL)
        contents.update(list(reader.read.items()))
        if at == len(left):
            break
        contents[left[at]] = None
        _held[f"{directory}/{left[at]}/{leaf}"] = reader
        stuck.append(reader)
        left = left[at + 1 :]
    deadline = time.monotonic() + STALL
    for reader in stuck:  # on a busy machine a thread can stand still for a moment for no reason
        if reader.done.acquire(timeout=max(deadline - time.monotonic(), 0)):
            contents.update(reader.read)
    return contents


def _wait(reader: _ReadingThread, stall: float) -> int:
    """Where the reader stands: at the end, or, asked to stop, where it has stood still for `stall` seconds."""
    seen = 0
    until = time.monotonic() + STARVED
    while not reader.done.acquire(timeout=stall):
        if reader.at == seen and not (_starved(reader.thread) and time.monotonic() < until):
            reader.abandoned = True
            return seen
        seen = reader.at
    return len(reader.names)


def _starved(thread: int) -> bool:
    """Whether a thread of this process is ready to run and has no processor (state R), or has not even begun."""
    from nhc.core.system.process_identity import read_stat

    stat = read_stat(os.getpid(), thread) if thread else None
    return not thread if stat is None else stat.state == "R"
