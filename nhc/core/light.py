"""NamedTuple, TYPE_CHECKING and regular expressions for the path that runs before every job.

typing's NamedTuple compiles every annotation: 0.15 ms a class, this one a quarter. Importing typing costs 4 ms
with what it brings, and `re` half of that (docs/performance.md). To a type checker these are the originals.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's constant of this name, which checkers know, without importing typing
if TYPE_CHECKING:
    from re import Pattern
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 (for others to import)

    def regex(pattern: str) -> Pattern[str]: ...

else:
    from collections import namedtuple

    class _Named(type):
        """Makes `class Point(NamedTuple): x: int` the tuple that collections.namedtuple makes, with its methods."""

        def __new__(cls, name, bases, space):
            if not bases:
                return super().__new__(cls, name, bases, space)
            fields = tuple(space["__annotations__"])
            defaults = [space.pop(field) for field in fields if field in space]
            made = namedtuple(name, fields, defaults=defaults, module=space.get("__module__"))  # noqa: PYI024
            for key, value in space.items():
                if key not in ("__module__", "__qualname__", "__dict__", "__weakref__"):
                    setattr(made, key, value)
            made.__qualname__ = space.get("__qualname__", name)
            return made

    class NamedTuple(metaclass=_Named):
        """The base to inherit from. Fields without a default come first."""

    class regex:  # noqa: N801 (used as a function)
        """A regular expression that is compiled when it is first used; flags are written into it, as `(?a)`."""

        def __init__(self, pattern):
            self._pattern = pattern

        def __getattr__(self, name):
            import re

            method = getattr(re.compile(self._pattern), name)
            setattr(self, name, method)
            return method
