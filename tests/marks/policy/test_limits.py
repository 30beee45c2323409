"""One way to write a limit, for hooks, sync, the controller, the loop, trains and jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.limits import NO_LIMIT, Limit, Rate, read_limit, read_rate


@pytest.mark.parametrize(
    ("text", "limit", "sizes", "shown"),
    [
        ("20", Limit(20), {3: 20, 1000: 20}, "20"),
        ("0", Limit(0), {3: 0}, "0"),
        ("20%", Limit(share=0.2), {3: 1, 14: 2, 100: 20}, "20%"),
        ("7%", Limit(share=0.07), {100: 7}, "7%"),
        ("0%", Limit(share=0.0), {100: 0}, "0%"),
        ("20 10%", Limit(20, 0.1), {100: 10, 1000: 20, 3: 1}, "20 and 10%"),
        ("10%, 20", Limit(20, 0.1), {100: 10}, "20 and 10%"),
        ("5% at least 2", Limit(share=0.05, least=2), {3: 2, 100: 5}, "5% (2 at least)"),
        ("4 5% at least 2", Limit(4, 0.05, 2), {3: 2, 60: 3, 1000: 4}, "4 and 5% (2 at least)"),
        ("none", Limit(), {100: NO_LIMIT}, "no limit"),
    ],
)
def test_a_limit_means_the_same_wherever_it_is_written(text, limit, sizes, shown):
    assert read_limit(text) == limit
    assert {size: limit.of(size) for size in sizes} == sizes
    assert limit.show() == shown


@pytest.mark.parametrize("text", ["", "ten", "110%", "5 nodes", "-1", "none 5", "5 at least 2", "at least 2", "\u0665"])
def test_what_is_no_limit_is_refused(text):
    with pytest.raises(ValueError, match="is not a number of nodes, a share"):
        read_limit(text)


@pytest.mark.thorough
@given(st.text(max_size=20))
def test_any_text_is_a_limit_and_a_rate_or_a_value_error(text):
    for read in (read_limit, read_rate):
        try:
            read(text)
        except ValueError:
            pass


def test_a_rate():
    assert read_rate(" 20 per 1h ") == Rate(20, 3600.0)
    with pytest.raises(ValueError, match="is not a rate"):
        read_rate("20 an hour")
