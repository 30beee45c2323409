"""One lock for this machine's one kernel log: who writes faults into it, and whose machines read it as their own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from typing import Iterator


@contextlib.contextmanager
def kernel_log_lock() -> Iterator[None]:
    with open(os.path.join(tempfile.gettempdir(), "nhc-test-kmsg.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
