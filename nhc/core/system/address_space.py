"""How much address space this process may have: whether there is room for large imports, and a bound for a child.

CPython 3.11 spins for ever where memory ends at one certain place. An exception inside a `with` or a `try` has its
instruction's number pushed as an int (Python/ceval.c, `exception_unwind`). Where that int cannot be allocated, the
interpreter goes to the same place again. It was seen in imports of the database's libraries. No code of ours runs then,
so the room is looked for before.
"""

from __future__ import annotations

import mmap
import os


def has_room(size: int) -> bool:
    """Whether so many bytes of address space can be had now. Costs nothing: no page of it is touched."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True


def allow_only(more: int) -> None:
    """Bound this process to so many bytes beyond the address space that it has now (RLIMIT_AS).

    What asks for more gets MemoryError. A lower bound that stands already stays. Raises OSError where the process
    cannot say how much it has.
    """
    import resource

    with open("/proc/self/statm", "rb") as file:
        has = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([has + more, *bounds]), hard))
