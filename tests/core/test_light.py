"""The constants of the path before every job answer what others of nhc ask an enum."""

import enum

import pytest

from nhc.core import light


@pytest.mark.parametrize(
    ("ours", "theirs", "base"), [(light.Enum, enum.Enum, (str,)), (light.IntEnum, enum.IntEnum, ())]
)
def test_members_are_listed_and_found_by_name(ours, theirs, base):
    values = {"ONE": 1, "TWO": 2, "SAME": 1} if not base else {"ONE": "one", "TWO": "two", "SAME": "one"}
    made = [type(kind)("Kind", (*base, kind), _space(kind, base, values)) for kind in (ours, theirs)]
    for ask in (
        lambda kind: [(name, member.value, member.name) for name, member in kind.__members__.items()],
        lambda kind: ("ONE" in kind.__members__, "THREE" in kind.__members__),
        lambda kind: [member.name for member in kind],
        lambda kind: kind["SAME"].name,
    ):
        assert ask(made[0]) == ask(made[1])


def _space(kind, base, values):
    space = type(kind).__prepare__("Kind", (*base, kind))
    for name, value in values.items():
        space[name] = value
    return space
