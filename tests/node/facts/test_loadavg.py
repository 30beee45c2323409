import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts.loadavg import parse_loadavg


def test_load_averages_are_read():
    assert parse_loadavg("9.10 4.00 2.50 17/528 53271\n") == (9.1, 4.0, 2.5, 17, 528)


@given(st.text())
def test_other_text_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse_loadavg(text)
