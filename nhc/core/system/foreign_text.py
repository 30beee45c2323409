"""Read what others wrote in a process of its own, with a deadline and a bound of memory.

A log, a flight record or an answer can be made so that reading it takes hours or all memory, and no reader foresees
every content. What goes wrong there must not reach the process that asks: a loop that dies of a text finds the same
text after its restart.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, TypeVar

from nhc.core.model import printable
from nhc.core.system.children import ask_child

T = TypeVar("T")
SECONDS = 60.0
"""For one reading."""
MEMORY = 1 << 30
"""Bytes that a reading may take beyond what this process has."""


class Unreadable(ValueError):
    """What others wrote cannot be read: one line that says why."""


class _Unread(NamedTuple):
    why: str


def read_apart(read: Callable[[], T], seconds: float = SECONDS, memory: int = MEMORY) -> T:
    """What `read` returns, called in a child process; the value is pickled.

    Raises Unreadable: `read` raised something, whatever its type, or needed more time or memory. Raises OSError where
    no process can be started.
    """

    def answer() -> object:
        try:
            return (read(),)
        except Unreadable as error:
            return _Unread(printable(str(error), 300))
        except MemoryError:
            return _Unread(f"it takes more than {memory >> 20} MiB to read")
        except Exception as error:
            return _Unread(printable(f"cannot be read: {type(error).__name__}: {error}", 300))

    answered = ask_child(answer, seconds, memory)
    if isinstance(answered, tuple) and not isinstance(answered, _Unread):
        value: T = answered[0]
        return value
    raise Unreadable(answered.why if isinstance(answered, _Unread) else f"cannot be read within {seconds:g} s")
