"""NamedTuple for the path that runs before every job: typing's costs 0.15 ms a class, this one a quarter.

typing's compiles every annotation; thirty classes made that 5 ms of each start (docs/performance.md). To
a type checker this is typing's own.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's constant of this name, which checkers know, without importing typing
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Named(type):
        """Makes `class Point(NamedTuple): x: int` the tuple that collections.namedtuple makes, with its methods."""

        def __new__(cls, name, bases, space):
            if not bases:
                return super().__new__(cls, name, bases, space)
            fields = tuple(space["__annotations__"])
            defaults = [space.pop(field) for field in fields if field in space]
            made = namedtuple(name, fields, defaults=defaults, module=space.get("__module__"))
            for key, value in space.items():
                if key not in ("__module__", "__qualname__", "__dict__", "__weakref__"):
                    setattr(made, key, value)
            made.__qualname__ = space.get("__qualname__", name)
            return made

    class NamedTuple(metaclass=_Named):
        """The base to inherit from. Fields without a default come first."""
