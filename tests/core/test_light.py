"""The tuples and constants of the local path behave as those of collections and enum, which they stand in for."""

from __future__ import annotations

import copy
import json
import pickle
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.light import Enum, IntEnum, NamedTuple


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    label: str = "p"

    @property
    def double(self) -> int:
        return self.x * 2


class Nothing(NamedTuple):
    pass


class Level(IntEnum):
    LOW = 0
    HIGH = 4


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


Original = namedtuple("Original", ["x", "y", "label"], defaults=[2, "p"])  # noqa: PYI024 (what is compared)


@given(st.integers(), st.integers(), st.text())
def test_a_tuple_is_what_collections_makes_of_it(x: int, y: int, label: str) -> None:
    ours, theirs = Point(x, y, label=label), Original(x, y, label=label)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert repr(ours).replace("Point", "Original") == repr(theirs)
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(y=7) == theirs._replace(y=7)
    assert Point._make([x, y, label]) == ours
    assert (ours.x, ours.y, ours.label, ours.double) == (x, y, label, x * 2)
    assert pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours) == ours


def test_fields_defaults_and_mistakes() -> None:
    assert Point(1) == (1, 2, "p")
    assert (Point._fields, Point._field_defaults) == (("x", "y", "label"), {"y": 2, "label": "p"})
    assert Nothing() == ()
    for wrong in (lambda: Point(), lambda: Point(1, z=2), lambda: Point(1, 2, "", 4), lambda: Point._make([1])):  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="z"):
        Point(1)._replace(z=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Point(1).other = 2  # type: ignore[attr-defined]


def test_a_field_without_a_default_after_one_with_is_refused() -> None:
    with pytest.raises(TypeError, match="Wrong"):
        type(NamedTuple)("Wrong", (NamedTuple,), {"__annotations__": {"a": "int", "b": "int"}, "a": 1})


@pytest.mark.parametrize("kind", [Level, Colour])
def test_constants_are_found_by_value_and_by_name(kind: type) -> None:
    members = list(kind)  # type: ignore[call-overload]
    assert [kind(member.value) for member in members] == members
    assert [kind[member.name] for member in members] == members  # type: ignore[index]
    assert list(reversed(kind)) == members[::-1]  # type: ignore[call-overload]
    assert all(kind(member.value) is member for member in members)
    assert all(pickle.loads(pickle.dumps(each)) is each and copy.deepcopy(each) is each for each in members)
    assert len({*members}) == len(members) == len(kind)  # type: ignore[arg-type]
    for wrong in ("green", 7, [], None):
        with pytest.raises(ValueError, match=kind.__name__):
            kind(wrong)
    with pytest.raises(KeyError):
        kind["GREEN"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        setattr(kind, members[0].name, members[1])


def test_a_constant_is_its_value_for_comparing_and_writing() -> None:
    assert Level.LOW < Level.HIGH == 4
    assert Colour.RED == "red"
    assert json.dumps([Level.HIGH, Colour.RED]) == '[4, "red"]'
    assert f"{Colour.BLUE} {Level.HIGH:02d}" == "blue 04"
    assert repr(Colour.RED) == "<Colour.RED: 'red'>"
    assert isinstance(Colour.RED, str)
    assert isinstance(Level.LOW, int)
