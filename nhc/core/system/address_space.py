"""Whether there is room for large imports.

CPython 3.11 spins for ever where memory ends at one certain place. An exception inside a `with` or a `try` has its
instruction's number pushed as an int (Python/ceval.c, `exception_unwind`). Where that int cannot be allocated, the
interpreter goes to the same place again. It was seen in imports of the database's libraries. No code of ours runs then,
so the room is looked for before.
"""

from __future__ import annotations

import mmap


def has_room(size: int) -> bool:
    """Whether so many bytes of address space can be had now. Costs nothing: no page of it is touched."""
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return False
    return True
