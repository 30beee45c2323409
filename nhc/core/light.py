"""NamedTuple, Enum, TYPE_CHECKING and regular expressions for the path that runs before every job.

Importing typing costs 4 ms with what it brings, enum and re half of that each, and collections 1
(docs/decisions/0001-start-up.md). To a type checker these are the originals.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's constant of this name, which checkers know, without importing typing
if TYPE_CHECKING:
    from enum import Enum as Enum  # noqa: PLC0414 (for others to import)
    from enum import IntEnum as IntEnum  # noqa: PLC0414
    from re import Pattern
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414

    def regex(pattern: str) -> Pattern[str]: ...

else:
    try:
        from _collections import _tuplegetter
    except ImportError:  # another interpreter than CPython
        from collections import _tuplegetter

    class _Named(type):
        """Makes `class Point(NamedTuple): x: int` a tuple with named fields, which typing.NamedTuple would make."""

        def __new__(cls, name, bases, space):
            if bases == (_Tuple,) or bases != (NamedTuple,):
                return super().__new__(cls, name, bases, space)
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space.pop(field) for field in fields if field in space}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name}: fields without a default come first")
            words = ", ".join(f"{field}=_of[{field!r}]" if field in defaults else field for field in fields)
            new = eval(  # noqa: S307 (as collections.namedtuple does it: keywords, at the speed of a plain function)
                f"lambda _cls, {words}: _new(_cls, ({''.join(f'{field},' for field in fields)}))",
                {"_new": tuple.__new__, "_of": defaults, "__builtins__": {}, "__name__": space.get("__module__")},
            )
            for number, field in enumerate(fields):
                space[field] = _tuplegetter(number, "")
            space.setdefault("__slots__", ())
            space["_fields"] = space["__match_args__"] = fields
            space["_field_defaults"] = defaults
            space.setdefault("__new__", new)
            return super().__new__(cls, name, bases, space)

    class _Tuple(tuple):
        """What collections.namedtuple gives each of its classes, once for all of ours."""

        __slots__ = ()

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {list(changes)!r}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"

        def __getnewargs__(self):  # for copy and pickle
            return tuple(self)

    class NamedTuple(_Tuple, metaclass=_Named):
        """The base to inherit from. Fields without a default come first."""

        __slots__ = ()

    class _Members(type):
        """Makes `class Colour(str, Enum): RED = "red"` what enum makes of it: its constants are its only instances."""

        def __new__(cls, name, bases, space):
            values = {key: value for key, value in space.items() if key[0] != "_" and type(value) in (int, str)}
            rest = {key: space[key] for key in space if key not in values}
            own = {"__repr__": cls._show, "_members": {}, "_of_value": {}}
            made = super().__new__(cls, name, bases, {**own, **rest})
            base = int if issubclass(made, int) else str
            for key, value in values.items():
                member = made._of_value.get(value)
                if member is None:
                    member = made._of_value[value] = base.__new__(made, value)
                    vars(member).update(name=key, value=value)
                made._members[key] = member
                type.__setattr__(made, key, member)
            return made

        @staticmethod
        def _show(member):
            return f"<{type(member).__name__}.{member.name}: {member.value!r}>"

        def __call__(cls, value):
            try:
                return cls._of_value[value]
            except (KeyError, TypeError):  # TypeError: what cannot be hashed
                raise ValueError(f"{value!r} is not a valid {cls.__name__}") from None

        def __getitem__(cls, name):
            return cls._members[name]

        @property
        def __members__(cls):
            return cls._members

        def __iter__(cls):
            return iter(cls._of_value.values())

        def __reversed__(cls):
            return reversed(list(cls))

        def __len__(cls):
            return len(cls._of_value)

        def __contains__(cls, value):
            try:
                return value in cls._of_value
            except TypeError:
                return False

        def __setattr__(cls, name, value):
            if name in cls.__dict__.get("_members", ()):
                raise AttributeError(f"cannot reassign member {name!r}")
            type.__setattr__(cls, name, value)

    class Enum(metaclass=_Members):
        """The base beside `str` of constants with a name. Unlike enum's, str() and format() give the value."""

        def __reduce_ex__(self, protocol):
            return type(self), (self.value,)

    class IntEnum(int, Enum):
        """The base of numbers with a name."""

        __str__ = int.__repr__

    class regex:  # noqa: N801 (used as a function)
        """A regular expression that is compiled when it is first used; flags are written into it, as `(?a)`."""

        def __init__(self, pattern):
            self._pattern = pattern

        def __getattr__(self, name):
            import re

            method = getattr(re.compile(self._pattern), name)
            setattr(self, name, method)
            return method
