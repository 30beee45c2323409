"""A disk that is full, for this process: no file grows beyond a size."""

from __future__ import annotations

import contextlib
import resource
from typing import Iterator


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """While it lasts a write beyond `size` bytes fails (EFBIG; Python ignores the signal SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
