"""Versions are ordered as package managers order them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts.packages import (
    PackageRequirement,
    Requirement,
    compare_versions,
    read_package_requirement,
    read_requirement,
)

ORDERED = [
    ("1.0~rc1", "1.0"), ("1.0", "1.0.1"), ("1.9", "1.10"), ("5.14.0-70.el9", "5.14.0-427.el9"), ("1.2-9", "1.2.1-1"),
    ("2.0", "1:1.0"), ("1.0a", "1.0b"), ("1.0", "1.0a"), ("6.1.0-18-amd64", "6.1.0-21-amd64"), ("1.0", "1.0^git1"),
    ("1.0^git1", "1.0.1"), ("23.02.7", "23.11.0"), ("1.0~rc1", "1.0~rc2"), ("550.54.14-0ubuntu1", "550.54.15-0ubuntu1"),
]  # fmt: skip


@pytest.mark.parametrize(("older", "newer"), ORDERED)
def test_order(older, newer):
    assert compare_versions(older, newer) == -1
    assert compare_versions(newer, older) == 1


def test_without_a_release_any_release_is_equal():
    assert compare_versions("23.11.4-1.el9", "23.11.4") == 0
    assert read_requirement("=23.11.4").holds("23.11.4-1.el9")


VERSIONS = st.text("0123456789abz.-~:+^", max_size=12)


@given(VERSIONS, VERSIONS)
def test_order_is_antisymmetric_and_never_fails(a, b):
    assert compare_versions(a, b) == -compare_versions(b, a)
    assert compare_versions(a, a) == 0


def test_requirements_are_read():
    assert read_requirement(">=5.14") == Requirement(">=", "5.14")
    assert read_requirement("5.14.*").holds("5.14.0-427")
    assert not read_requirement("<6").holds("6.1")
    assert read_package_requirement("munge") == PackageRequirement("munge", ())
    assert [str(v) for v in read_package_requirement("ucx>=1.15,<1.17").versions] == [">=1.15", "<1.17"]
    assert read_package_requirement("nvidia-driver=550.*").versions[0].holds("550.54.14-1")
    assert read_package_requirement("libstdc++6").name == "libstdc++6"


@pytest.mark.parametrize("text", ["", "-x", "a b", "ucx>=1,2", ">=2"])
def test_junk_is_refused_with_what_was_expected(text):
    with pytest.raises(ValueError, match=r"package requirement|lacks one of"):
        read_package_requirement(text)
