from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts.hardware_errors import McelogErrors, parse_mcelog

ANSWER = """Memory errors
SOCKET 0 CHANNEL any DIMM any
corrected memory errors:
\t12 total
\t10 in 24h
uncorrected memory errors:
\t0 total
\t0 in 24h

SOCKET 0 CHANNEL 1 DIMM 0
DMI_NAME "DIMM_B1" DMI_LOCATION "NODE 0 CHANNEL 1 DIMM 0"
corrected memory errors:
\t12 total
\t10 in 24h
uncorrected memory errors:
\t2 total
\t1 in 24h

Per page corrected memory statistics:
3b2f6000: total 4 seen in "4 in 24h"
"""


def test_counts_by_place_and_kind():
    found = parse_mcelog(ANSWER)

    assert found[0] == McelogErrors("SOCKET 0 CHANNEL any DIMM any", True, 12, 10, "24h")
    assert found[3] == McelogErrors("SOCKET 0 CHANNEL 1 DIMM 0 (DIMM_B1)", False, 2, 1, "24h")
    assert [errors.exact for errors in found] == [False, False, True, True]


def test_a_text_of_another_kind_holds_no_counts():
    assert parse_mcelog("mcelog: warning: 8 bytes ignored\n") == ()


@given(st.text())
def test_junk_never_raises(text):
    parse_mcelog(text)


@given(st.lists(st.sampled_from(ANSWER.splitlines())))
def test_lines_in_any_order_never_raise(lines):
    parse_mcelog("\n".join(lines))
