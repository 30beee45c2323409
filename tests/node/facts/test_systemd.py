"""systemctl's two formats."""

from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts.systemd import parse_failed, parse_units


def test_units_are_separated_by_an_empty_line():
    found = parse_units("Id=a.service\nActiveState=active\n\nId=b.service\nActiveState=failed\nResult=exit-code\n")

    assert [unit["Id"] for unit in found] == ["a.service", "b.service"]
    assert found[1]["Result"] == "exit-code"


def test_failed_units_with_and_without_a_dot():
    text = (
        "fwupd-refresh.service loaded failed failed Refresh fwupd metadata\n"
        "● mnt-old.mount not-found failed failed /mnt/old\n"
    )
    found = parse_failed(text)

    assert [unit.name for unit in found] == ["fwupd-refresh.service", "mnt-old.mount"]
    assert found[0].description == "Refresh fwupd metadata"


@given(st.text())
def test_never_fails(text):
    parse_units(text)
    parse_failed(text)
