"""Values that all vendors' accelerators share."""

import json

import pytest

from nhc.node.facts.accelerator_values import whole


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("12 MHz", 12),
        ("0x1f", 31),
        ("12.7 W", 12),
        (12.7, 12),
        (7, 7),
        (True, None),
        (None, None),
        ("", None),
        ("N/A", None),
    ],
)
def test_a_whole_number_is_what_a_tool_printed_first(printed, number):
    assert whole(printed) == number


@pytest.mark.parametrize("text", ["Infinity", "-Infinity", "NaN", "1e400"])
def test_no_number_of_json_that_is_infinite_becomes_a_whole_one(text):
    assert whole(json.loads(text)) is None
