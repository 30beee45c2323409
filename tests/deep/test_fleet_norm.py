# ruff: noqa: E501 (programs and tables as they are)
"""What is normal among nodes of a kind, and the table that is proposed from healthy ones."""

import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import CheckResult, Metric, Report, crit, ok, unknown
from nhc.core.render.json import render
from nhc.deep.fleet_norm import LEAST, Norm, Sample, latest, norm, place, propose, samples
from nhc.node.facts import expected
from nhc.store import deep
from tests.support.new_store import new_store
from tests.support.run import nhc


def fleet(values, kind="hgx-h100-8", metric="host_triad", unit="GB/s"):
    return [Sample(f"n{at:03d}", kind, metric, unit, value) for at, value in enumerate(values)]


def test_the_slow_node_of_a_fleet_stands_out_and_no_other():
    source = random.Random(7)
    healthy = [source.gauss(400, 4) for _ in range(30)]
    found = norm(fleet([*healthy, 300.0]))
    assert place(300.0, found) == "out"
    assert [place(value, found) for value in healthy].count("out") == 0
    assert place(390.0, found, at_least=False) == "well"
    assert place(500.0, found, at_least=False) == "out"


def test_a_spread_narrower_than_that_between_runs_convicts_nobody():
    found = norm(fleet([100.0] * 20 + [99.0]))
    assert found.mad == 0
    assert place(99.0, found) == "well"
    assert place(94.0, found) == "out"
    assert place(96.0, found) == "look"


def test_too_few_peers_or_no_number_tell_nothing():
    assert place(1.0, norm(fleet([100.0] * (LEAST - 1)))) == "unknown"
    assert place(float("nan"), norm(fleet([100.0] * 20))) == "unknown"
    assert place(1.0, None) == "unknown"
    assert norm([]) is None
    assert place(0.0, norm(fleet([0.0] * 20))) == "unknown"


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=40))
def test_the_median_itself_is_always_well(values):
    found = norm(fleet(values))
    assert place(found.median, found) in ("well", "unknown")
    assert found.least <= found.median <= found.most


@given(st.lists(st.floats(50, 60), min_size=10, max_size=30), st.floats(0, 49))
def test_worse_is_never_judged_better(values, low):
    found = norm(fleet(values))
    order = ["out", "look", "well"]
    assert order.index(place(low, found)) <= order.index(place(low + 5, found))


def test_the_newest_figure_of_a_node_counts():
    old, new = Sample("n1", "k", "m", "GB/s", 1.0, at=1), Sample("n1", "k", "m", "GB/s", 2.0, at=2)
    assert latest([new, old]) == [new]


def test_a_proposal_names_who_stands_out_and_holds_for_the_rest():
    source = random.Random(3)
    values = [source.gauss(400, 3) for _ in range(12)]
    found = propose([*fleet([*values, 250.0]), *fleet([5.0] * 12, metric="rdma_write_latency", unit="us"),
                     *fleet([7.0] * 3, kind="rare")], "2026-01-02")  # fmt: skip
    triad, latency = found.rows
    assert (triad.metric, triad.at_least, triad.tolerance) == ("host_triad", True, 0.05)
    assert 395 < triad.expected < 405
    assert all(value >= triad.threshold for value in values)
    assert triad.threshold > 250.0
    assert (latency.at_least, latency.threshold) == (False, 5.25)
    assert triad.source == "calibrated 2026-01-02 on 12 nodes, 12 figures"
    assert any("n012" in remark and "stands out" in remark for remark in found.remarks)
    assert any("rare" in remark and "no row" in remark for remark in found.remarks)
    table = "\n".join(expected.format_row(row) for row in found.rows)
    assert expected.parse(table, "t") == tuple(
        row._replace(tolerance=again.tolerance) for row, again in zip(found.rows, expected.parse(table, "t")))  # fmt: skip


def report(node, value, reason="", *more):
    outcome = (crit(reason, "slow") if reason else ok("fine"))._replace(metrics=(Metric("host_triad", value, "GB/s"),))
    results = (CheckResult("check_deep_triad", outcome), *more)
    return Report(node, "b", 1.0, 1.0, results, labels={"kind": "cpu-x-2", "suite": "quick"})


def test_a_fleet_whose_floor_is_wrong_corrects_it():
    """Every node is CRIT by a floor that none can reach: their figures are what the kind reaches."""
    slow = [report(f"n{number}", 80.0 + number / 10, "DeepSlow") for number in range(11)]
    found, remarks = samples(slow)
    assert remarks == []
    [row] = propose(found, "2026-01-02").rows
    assert row.expected == 80.5


@pytest.mark.parametrize(
    "bad",
    [
        report("odd", 80.0, "DeepWrongResult"),
        report("odd", 80.0, "", CheckResult("check_gpu_ecc", crit("GpuEcc", "a double-bit error"))),
        report("odd", 80.0, "", CheckResult("nhc_deep_run", unknown("NotRun", "ended by signal 15"))),
        report("odd", 80.0)._replace(not_run=3),
    ],
)
def test_wrong_numbers_and_runs_without_an_end_are_left_out(bad):
    found, [remark] = samples([bad])
    assert found == []
    assert remark.startswith("odd: left out, ")


@pytest.mark.thorough
def test_nhc_deep_calibrate_writes_a_table_that_checks_read(tmp_path):
    (tmp_path / "reports").mkdir()
    for number in range(11):
        (tmp_path / "reports" / f"{number}.json").write_text(render(report(f"n{number}", 80.0 + number / 10)))
    (tmp_path / "sick.json").write_text(render(report("sick", 8.0, "DeepWrongResult")))
    done = nhc("deep", "calibrate", tmp_path / "reports", tmp_path / "sick.json", "-o", tmp_path / "own.tsv")

    assert done.returncode == 0, done.stderr
    text = (tmp_path / "own.tsv").read_text()
    assert "# left out: sick: left out, not healthy: slow" in text
    [row] = expected.parse(text, "own.tsv")
    assert (row.kind, row.expected, row.threshold) == ("cpu-x-2", 80.5, 80.5 * 0.95)
    few = nhc("deep", "calibrate", tmp_path / "sick.json")
    assert (few.returncode, few.stderr) == (1, "0 rows, 1 remarks\n")


@pytest.mark.thorough
def test_nhc_deep_calibrate_takes_the_fleet_s_own_results_from_its_store(tmp_path):
    store = new_store(str(tmp_path), anchor="")
    now = time.time()
    with store.write() as connection:
        for number in range(11):
            one = report(f"n{number}", 80.0 + number / 10, "DeepSlow" if number % 2 else "")
            deep.add_report(connection, one._replace(started=now - number), "quick")
        deep.add_report(connection, report("odd", 8.0, "DeepWrongResult")._replace(started=now), "quick")
        deep.add_report(connection, report("old", 8.0)._replace(started=now - 100 * 86400), "quick")
    store.close()
    done = nhc("deep", "calibrate", "--store", f"sqlite:///{tmp_path}/store.db", "-o", tmp_path / "own.tsv")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "own.tsv").read_text()
    [row] = expected.parse(text, "own.tsv")
    assert (row.kind, row.metric, row.expected) == ("cpu-x-2", "host_triad", 80.5)
    assert "# left out: odd: left out, not healthy: slow" in text
    nothing = nhc("deep", "calibrate")
    assert (nothing.returncode, "--store" in nothing.stderr) == (2, True)


@pytest.mark.thorough
def test_nhc_deep_calibrate_names_a_file_that_is_no_report(tmp_path):
    for text in ("", "{}", "[1]", "\x00", json.dumps({"host": 1})):
        (tmp_path / "bad.json").write_text(text)
        done = nhc("deep", "calibrate", tmp_path / "bad.json")
        assert done.returncode == 2
        wrong = "not a report" if text else "no report in it"
        assert done.stderr.startswith(f"nhc deep calibrate: {tmp_path}/bad.json: {wrong}")
        assert len(done.stderr.splitlines()) == 1
    assert nhc("deep", "calibrate", tmp_path / "none.json").returncode == 2


def test_a_norm_is_of_nodes_not_of_figures():
    eight = [Sample("n1", "k", "m", "GB/s", 100.0 + at, f"gpu{at}") for at in range(8)]
    assert norm(eight) == Norm(1, 8, 103.5, 2.0, 100.0, 107.0)
