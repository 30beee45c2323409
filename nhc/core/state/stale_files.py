"""Files that nobody comes back for.

Half written by a process that was killed: `NAME.PID.tmp`, beside the file that they were to replace. And caches of
questions that nobody asks again.
"""

from __future__ import annotations

import os
import time

OLD = 3600.0
"""Seconds after which such a file is nobody's, whoever has its pid now. Writing one takes milliseconds."""


def remove_stale(directory: str) -> None:
    """Remove those of processes that are gone. Raises OSError where the directory cannot be listed."""
    for name in os.listdir(directory):
        if not name.endswith(".tmp"):
            continue
        pid = name[: -len(".tmp")].rpartition(".")[2]
        path = f"{directory}/{name}"
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            if not os.path.exists(f"/proc/{pid}") or time.time() - os.lstat(path).st_mtime > OLD:
                os.unlink(path)
        except OSError:
            continue


def keep_newest(directory: str, prefix: str, most: int) -> None:
    """Of the files whose name begins so, keep those written last. Raises OSError where DIRECTORY cannot be listed."""
    names = [name for name in os.listdir(directory) if name.startswith(prefix)]
    if len(names) <= most:
        return
    dated = []
    for name in names:
        try:
            dated.append((os.lstat(f"{directory}/{name}").st_mtime_ns, name))
        except OSError:  # another run has removed it
            continue
    for _written, name in sorted(dated)[:-most]:
        try:
            os.unlink(f"{directory}/{name}")
        except OSError:
            continue
