"""A result as `to_result` writes it is read in one look; that look takes, and refuses, what field by field is taken."""

import json

from hypothesis import given
from hypothesis import strategies as st

from nhc.core.render.json import from_result, read_by_field

TEXT = st.sampled_from(["", "check_mem", "gpu3"])
ODD = st.sampled_from([None, True, 7, -1, 1 << 70, 0.5, -0.5, 1e999, -1e999, float("nan"), "x", [], ["a", 1], {}, [{}]])
METRIC = st.fixed_dictionaries({"name": TEXT | ODD, "value": st.floats() | ODD, "unit": TEXT | ODD})
FIELDS = {
    **dict.fromkeys(("check", "reason", "message", "target", "source", "line"), TEXT),
    **dict.fromkeys(("evidence", "tags"), st.lists(TEXT | ODD, max_size=2)),
    **dict.fromkeys(("strike", "strikes"), st.integers(0, 3)),
    "verdict": st.sampled_from(["OK", "CRIT"]), "action": st.sampled_from(["none", "reboot"]),
    "metrics": st.lists(METRIC, max_size=2), "elapsed": st.floats(0, 10),
}  # fmt: skip
CHANGES = st.dictionaries(st.sampled_from(sorted(FIELDS)), ODD | st.just("missing"), max_size=2)


def read(function, value):
    try:
        return repr(function(value))
    except ValueError as error:
        return f"refused: {error}"


@given(st.fixed_dictionaries(FIELDS), CHANGES)
def test_both_ways_of_reading_a_result_agree(value, changes):
    for name, change in changes.items():
        if change == "missing":
            del value[name]
        else:
            value[name] = change
    value = json.loads(json.dumps(value))
    assert read(from_result, value) == read(read_by_field, value)


def test_what_is_no_object_is_refused_by_both():
    for value in (None, 7, "verdict", [], [1] * 14):
        assert (
            read(from_result, value)
            == read(read_by_field, value)
            == "refused: not a report: a result is not a JSON object"
        )
