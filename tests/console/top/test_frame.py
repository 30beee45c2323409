"""What `nhc top` makes of a fleet, before it is painted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.console.fleet_nodes import WORST, NodeRow
from nhc.console.snapshot import ProblemRow, take
from nhc.console.top import frame
from nhc.console.top.frame import NodeFilter

NOW = 1_000_000.0


def row(name, verdict="OK", reported=NOW - 5, **groups):
    return NodeRow(name, verdict, reported, NOW - 600, "h100", groups, "agent")


def problem(node, reason, check="check_gpu_xid", verdict="CRIT", began=NOW - 60, message="", ended=None):
    return ProblemRow(node, check, reason, "gpu3", verdict, "reboot", message or f"{reason} of {node}", began, ended)


def fleet():
    rows = [row(f"n{number:02}", "CRIT" if number in (3, 7) else "OK", rack=f"r{number // 4}") for number in range(12)]
    rows += [row("n12", "WARN", rack="r3"), row("n13", "OK", NOW - 9999, rack="r3"), row("n14", "", None, rack="r3")]
    problems = [
        problem("n03", "Xid79"), problem("n07", "Xid79"), problem("n12", "NearlyFull", "check_fs_used", "WARN"),
        problem("n05", "Old", ended=NOW - 10),
    ]  # fmt: skip
    return take(rows, problems, NOW, stale=600)


def test_the_summary_counts_every_state_and_calls_no_old_report_ok():
    assert frame.summary(fleet()) == "15 nodes: 2 CRIT, 1 WARN, 1 stale, 1 never, 10 OK"


def test_the_sick_come_first_and_problems_that_ended_are_no_reason():
    lines, left_out = frame.node_lines(fleet(), NodeFilter())
    assert [line.node for line in lines[:5]] == ["n03", "n07", "n12", "n13", "n14"]
    assert {line.node: line.reasons for line in lines}["n05"] == ""
    assert left_out == 0


@pytest.mark.parametrize(("wanted", "names"), [
    (NodeFilter(text="N1"), {"n10", "n11", "n12", "n13", "n14"}),
    (NodeFilter(text="xid79"), {"n03", "n07"}),
    (NodeFilter(text="nearlyfull of"), {"n12"}),
    (NodeFilter(cause=("check_gpu_xid", "Xid79")), {"n03", "n07"}),
    (NodeFilter(group=("rack", "r3")), {"n12", "n13", "n14"}),
    (NodeFilter(text="n07", group=("rack", "r0")), set()),
])  # fmt: skip
def test_a_list_is_narrowed(wanted, names):
    assert {line.node for line in frame.node_lines(fleet(), wanted)[0]} == names


def test_a_long_list_says_what_it_leaves_out():
    rows = [row(f"n{number:05}", "CRIT" if number == 4999 else "OK") for number in range(5000)]
    lines, left_out = frame.node_lines(take(rows, [], NOW, 600), NodeFilter())
    assert (len(lines), left_out) == (frame.ROWS, 5000 - frame.ROWS)
    assert lines[0].node == "n04999"


def test_the_map_has_a_line_a_group_and_a_letter_a_node():
    assert [(line.group, line.letters, line.sick) for line in frame.map_lines(fleet(), "rack")] == [
        ("r0", "oooc", 1), ("r1", "oooc", 1), ("r2", "oooo", 0), ("r3", "wsn", 1),
    ]  # fmt: skip
    (line,) = frame.map_lines(fleet(), "")
    assert (line.group, len(line.letters)) == ("n00", 15)


@given(st.text(alphabet=WORST, min_size=1, max_size=300), st.integers(1, 80))
def test_no_sick_node_is_lost_where_nodes_share_a_place(letters, width):
    shown = frame.cells(letters, width)
    assert len(shown) == min(width, len(letters))
    assert min(shown, key=WORST.index) == min(letters, key=WORST.index)
    assert letters.count("c") == 0 or shown.count("c") <= letters.count("c")


def test_a_node_is_shown_with_what_would_mend_it():
    text = "\n".join(frame.node_text(fleet(), "n03", None))
    assert "n03  CRIT" in text
    assert "rack=r0" in text
    assert "CRIT check_gpu_xid gpu3: Xid79 (60s)  → reboot" in text
    assert frame.node_text(fleet(), "n99", None) == ["no node is called n99"]


def test_text_from_nodes_cannot_move_the_cursor():
    bad = take([row("n1", "CRIT")], [problem("n1", "X", message="\x1b[2Jgone\r\n")], NOW, 600)
    for lines in (frame.node_text(bad, "n1", None), frame.plain(bad, 200)):
        assert "\x1b" not in "".join(lines)
        assert "\r" not in "".join(lines)


def test_the_trend_is_a_place_for_each_part_and_one_node_shows():
    assert frame.trend((0, 0, 0)) == "   "
    assert frame.trend((0, 1, 100)) == " ▁█"


@pytest.mark.parametrize(("seconds", "said"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200000, "2d")])
def test_ages(seconds, said):
    assert frame.age(NOW, NOW - seconds) == said


def test_one_picture_as_text_folds_the_causes():
    assert frame.plain(fleet(), 200) == [
        "15 nodes: 2 CRIT, 1 WARN, 1 stale, 1 never, 10 OK",
        "CRIT 2 Xid79 (check_gpu_xid) n[03,07]: Xid79 of n03",
        "WARN 1 NearlyFull (check_fs_used) n12: NearlyFull of n12",
    ]
