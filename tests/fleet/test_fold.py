"""Folding, outliers, history and diff: the parts of a sweep that are pure or a file."""

from __future__ import annotations

import json
import os
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.matching.node_ranges import expand
from nhc.core.model import Action, CheckResult, Metric, Report, Verdict, crit, ok, skip, unknown, warn
from nhc.fleet import diff, fold, history
from nhc.fleet.commands.fleet_check import exit_status
from nhc.fleet.node_result import NodeResult, findings, line, metrics
from nhc.fleet.summary import Numbers, Picture, outliers, picture_of, show_value
from nhc.fleet.transport import Node


def report(name, *outcomes):
    return Report(name, "boot", 1000.0, 0.1, tuple(CheckResult(f"check_{n}", o) for n, o in enumerate(outcomes)))


def folder(*reports):
    made = fold.Folder([one.host for one in reports])
    for index, one in enumerate(reports):
        made.add(index, int(one.verdict), findings(one))
    return made


def test_nodes_with_the_same_problems_share_a_line_whatever_their_numbers():
    full = [report(f"n{i}", ok(), crit("LowSpace", f"/ has {i}% free", target="/")) for i in (1, 2, 3)]
    text = fold.show_by_node(folder(*full, report("n4", ok()), report("n5", ok())).by_node())
    assert text == "CRIT 3 nodes n[1-3]: LowSpace check_1 /: / has 1-3% free\nOK 2 nodes n[4-5]\n"


def test_several_problems_of_a_node_are_listed_worst_first():
    text = fold.show_by_node(
        folder(report("n1", warn("Slow", "slow"), unknown("NoTool", "gone"), crit("Bad", "b"))).by_node()
    )
    assert text.splitlines() == ["CRIT 1 node n1:", "    CRIT Bad check_2: b", "    UNKNOWN NoTool check_1: gone",
                                 "    WARN Slow check_0: slow"]  # fmt: skip


def test_a_report_without_results_is_unknown():
    assert fold.show_by_node(folder(report("n1")).by_node()) == "UNKNOWN 1 node n1\n"


def test_quiet_leaves_out_what_is_well():
    made = folder(report("n1", ok()), report("n2", crit("Bad", "b")))
    assert "n1" not in fold.show_by_node(made.by_node(), quiet=True)
    assert "n1" not in fold.show_by_check(made.by_check(), quiet=True)


verdicts = st.sampled_from([ok(), warn("W", "w"), unknown("U", "u"), crit("C", "c")])


@given(st.lists(st.lists(verdicts, max_size=3), max_size=12))
def test_every_node_is_in_exactly_one_group_and_under_its_verdict(outcomes):
    reports = [report(f"n{number}", *found) for number, found in enumerate(outcomes)]
    groups = folder(*reports).by_node()
    listed = [(name, max(fact.verdict for fact in group)) for group in groups for name in group[0].nodes]
    assert sorted(listed) == sorted((one.host, one.verdict) for one in reports)
    order = [max(fact.verdict for fact in group) for group in groups]
    assert order == sorted(order, reverse=True)
    for group in groups:
        assert sorted(expand(group[0].to_json()["nodes"])) == sorted(group[0].nodes)


@pytest.mark.parametrize(
    ("limit", "status"), [(None, 1), ((2, 0.0), 0), ((1, 0.0), 1), ((None, 0.5), 0), ((None, 0.4), 1)]
)
def test_the_exit_status_is_the_worst_node_s_beyond_what_is_allowed(limit, status):
    reports = [report("a", crit("C", "")), report("b", unknown("U", "")), report("c", warn("W", "")), report("d", ok())]
    picture = Picture([Node(one.host) for one in reports], 0.0)
    for index, one in enumerate(reports):
        picture.add(index, int(one.verdict), findings(one), metrics(one), {})
    assert exit_status(picture, limit) == status


# Outliers.


def numbers(values, kind="gpu"):
    made = Numbers()
    for index, value in enumerate(values):
        made.add(index, kind, [("check_gpu_clock", "gpu0", "clock", "MHz", value)])
    return made, [f"n{index}" for index in range(len(values))]


def test_a_node_far_from_its_peers_is_listed_and_its_peers_are_not():
    rng = random.Random(1)
    values = [rng.gauss(1980, 5) for _ in range(60)] + [1500.0]
    (found,) = outliers(*numbers(values))
    assert (found.node, found.value) == ("n60", 1500.0)
    assert "clock=1500MHz" in found.show()
    assert "below the median" in found.show()


@pytest.mark.parametrize(("value", "unit", "shown"), [
    (123456789.0, "B", "120563kB"), (1572864.0, "kB", "1536MB"), (250.0, "s", "4m10s"), (0.85, "s", "850ms"),
    (1980.0, "MHz", "1980MHz"), (12.345, "%", "12.35%"), (512.0, "B", "512B"), (-2048.0, "B", "-2kB"),
])  # fmt: skip
def test_numbers_have_the_units_that_checks_messages_have(value, unit, shown):
    assert show_value(value, unit) == shown


# Messages.


@pytest.mark.parametrize(("messages", "said"), [
    (["/ has 3% free", "/ has 1% free", "/ has 12% free"], "/ has 1-12% free"),
    (["GPU at 0000:3b:00.0 is lost", "GPU at 0000:af:00.0 is lost"], "GPU at … is lost"),
    (["load 1.5 of 2", "load 10.25 of 2"], "load 1.5-10.25 of 2"),
    (["n0 port 22: refused", "n1 port 22: refused"], "NODE port 22: refused"),
    (["taken at 10:11:12", "taken at 10:11:13"], "taken at …"),
    (["the same 7 words", "the same 7 words"], "the same 7 words"),
])  # fmt: skip
def test_messages_that_differ_in_figures_are_one_cause(messages, said):
    made = folder(*(report(f"n{place}", crit("Bad", text)) for place, text in enumerate(messages)))
    (cause,) = made.by_check()[0].causes
    assert (cause.message, len(cause.nodes)) == (said, len(messages))


def test_several_causes_under_one_reason_are_counted_apart():
    refused = [report(f"n{number}", unknown("HostKey", f"its key {number} is not known")) for number in range(3)]
    made = folder(*refused, report("n3", unknown("HostKey", "its key 3 has changed")))
    assert fold.show_by_node(made.by_node()).splitlines() == [
        "UNKNOWN 4 nodes n[0-3]: HostKey check_0",
        "    3 nodes n[0-2]: its key 0-2 is not known",
        "    1 node n3: its key 3 has changed",
    ]
    (fact,) = made.by_node()[0]
    assert fact.message == "3 x its key 0-2 is not known; 1 x its key 3 has changed"
    assert [cause["count"] for cause in fact.to_json()["causes"]] == [3, 1]


def test_a_suggested_action_is_in_view_and_checks_without_work_are_not():
    made = folder(report("n1", crit("Xid79", "lost", action=Action.REBOOT), skip("NoGpu", "no GPU here")))
    assert "CRIT 1 node n1: Xid79 check_0: lost (suggested: reboot)" in fold.show_by_node(made.by_node())
    assert "SKIP" not in fold.show_by_check(made.by_check())
    assert "SKIP check_1: 1 node n1" in fold.show_by_check(made.by_check(), skipped=True)


def test_a_program_that_says_something_else_each_time_does_not_fill_the_memory():
    words = ["".join(chr(ord("g") + int(digit)) for digit in f"{number:04}") for number in range(300)]
    made = folder(*(report(f"n{number:03}", crit("Bad", word)) for number, word in enumerate(words)))
    (fact,) = made.by_check()
    assert len(fact.nodes) == sum(len(cause.nodes) for cause in fact.causes) == 300
    assert len(fact.causes) == 51
    text = fold.show_by_check([fact])
    assert len(text.splitlines()) == 7
    assert "46 more causes" in text


def test_normal_scatter_lists_nobody():
    rng = random.Random(2)
    assert outliers(*numbers([rng.gauss(100, 10) for _ in range(2000)])) == []


def test_nodes_are_compared_to_their_own_type_only():
    made = Numbers()
    for index in range(20):
        made.add(index, "a100" if index < 10 else "h100", [("c", "", "clock", "MHz", 1410.0 if index < 10 else 1980.0)])
    assert outliers(made, [f"n{index}" for index in range(20)]) == []


def test_few_peers_or_two_crowds_have_no_outliers():
    assert outliers(*numbers([1.0] * 6 + [100.0])) == []
    assert outliers(*numbers([1.0] * 60 + [100.0] * 40)) == []


def test_equal_numbers_allow_for_what_nobody_cares_about():
    assert outliers(*numbers([100.0] * 20 + [101.0])) == []
    assert [one.node for one in outliers(*numbers([100.0] * 20 + [150.0]))] == ["n20"]


@given(st.lists(st.floats(-1e9, 1e9), min_size=8, max_size=40), st.floats(0.001, 1000))
def test_scale_and_order_do_not_matter(values, factor):
    made, names = numbers(values)
    scaled, _ = numbers([value * factor for value in values])
    assert {one.node for one in outliers(made, names)} == {one.node for one in outliers(scaled, names)} or any(
        abs(abs(one.deviations) - 6) < 1e-6 for one in outliers(made, names, far=5.999)
    )


# History and diff.


def keep(kept, reports, started=0.0):
    number = kept.begin("nhc fleet check", "0.1.0", started)
    for one in reports:
        text = line(NodeResult(Node(one.host, groups=("gpu",)), one))
        kept.add(number, one.host, int(one.verdict), 0.1, zlib.compress(text.encode()))
    kept.end(number)
    return number


def test_a_sweep_comes_back_as_it_went_in(tmp_path):
    kept = history.SweepHistory(str(tmp_path / "h" / "fleet.sqlite"))
    number = keep(kept, [report("n1", ok(metrics=(Metric("m", 1.5, "B"),))), report("n2", crit("Bad", "b"))])
    kept.close()
    again = history.SweepHistory(str(tmp_path / "h" / "fleet.sqlite"), create=False)
    picture = picture_of(again, again.find("last"))
    assert [record["host"] for record in again.records(number)] == ["n1", "n2"]
    assert picture.folder.counts[Verdict.CRIT] == 1
    assert os.stat(again.path).st_mode & 0o77 == 0
    again.close()


def test_only_the_newest_sweeps_are_kept(tmp_path):
    kept = history.SweepHistory(str(tmp_path / "fleet.sqlite"))
    for _ in range(5):
        number = keep(kept, [report("n1", ok())])
    kept.end(number, keep=2)
    assert [sweep.id for sweep in kept.sweeps()] == [4, 5]
    assert list(kept.lines(1)) == []
    assert kept.find("last-1").id == 4
    with pytest.raises(history.HistoryError, match="has 4 to 5"):
        kept.find("3")
    with pytest.raises(history.HistoryError, match="not a sweep"):
        kept.find("first")
    kept.close()


def test_a_history_that_cannot_be_written_does_not_stop_a_sweep(tmp_path):
    (tmp_path / "file").write_text("")
    kept = history.SweepHistory(str(tmp_path / "file" / "fleet.sqlite"))
    number = keep(kept, [report("n1", ok())])
    assert "this sweep is not kept" in kept.warning
    assert len(list(kept.lines(number))) == 1
    kept.close()


def test_a_history_that_breaks_in_the_middle_goes_on_in_memory(tmp_path):
    kept = history.SweepHistory(str(tmp_path / "fleet.sqlite"))
    number = kept.begin("nhc", "0.1.0", 0.0)
    for index in range(history.BATCH + 10):
        if index == history.BATCH + 5:
            kept.flush()
            kept.db.execute("pragma query_only = on")  # as a disk that has no room
        kept.add(number, f"n{index:04}", 1, 0.1, zlib.compress(b"{}"))
    kept.end(number)
    assert "this sweep is not kept" in kept.warning
    assert len(list(kept.lines(number))) == history.BATCH + 10
    kept.close()


def test_a_history_that_breaks_beside_a_later_sweep_goes_on_with_its_own(tmp_path):
    kept, other = (history.SweepHistory(str(tmp_path / "fleet.sqlite")) for _ in range(2))
    number = kept.begin("nhc", "0.1.0", 0.0)
    kept.add(number, "n1", 1, 0.1, zlib.compress(b"{}"))
    kept.flush()
    other.begin("nhc", "0.1.0", 1.0)
    kept.db.execute("pragma query_only = on")  # as a disk that has no room
    kept.add(number, "n2", 1, 0.1, zlib.compress(b"{}"))
    kept.end(number)
    assert [node for node, _line in kept.lines(number)] == ["n1", "n2"]
    kept.close()
    other.close()


def test_a_file_that_is_no_history_is_one_line(tmp_path):
    (tmp_path / "fleet.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(history.HistoryError, match="not a database"):
        history.SweepHistory(str(tmp_path / "fleet.sqlite"), create=False)


def test_diff_tells_what_began_what_ended_and_who_came(tmp_path):
    kept = history.SweepHistory(str(tmp_path / "fleet.sqlite"))
    keep(kept, [report("n1", ok()), report("n2", ok()), report("n3", crit("Bad", "1")), report("n4", ok())])
    keep(kept, [report("n1", crit("Bad", "2")), report("n2", crit("Bad", "3")), report("n3", ok()), report("n5", ok())])
    found = diff.compare(kept, kept.find("last-1"), kept.find("last"))
    shown = diff.show(found)
    assert "n[1-2] (2) OK -> CRIT: now CRIT Bad check_0" in shown
    assert "n3 CRIT -> OK: no longer CRIT Bad check_0" in shown
    assert "new nodes (1): n5" in shown
    assert "not in the new sweep (1): n4" in shown
    assert shown.endswith("2 worse, 1 better, 0 the same\n")
    assert json.loads(json.dumps(diff.to_json(found)))["changes"][0]["begun"][0]["reason"] == "Bad"
    kept.close()
