"""Results of deep checks and sweeps in the store, on SQLite and PostgreSQL."""

from contextlib import closing

import pytest

from nhc.core.model import CheckResult, DeviceId, Metric, Outcome, Report, Scope, Verdict
from nhc.store import deep
from nhc.store.deep import DeepResult, SweepTest, rates
from nhc.store.deep_delivery import to_store
from nhc.store.errors import Conflict
from nhc.store.schema import BATCH
from tests.support.new_store import new_store


def result(node, verdict, at, suite="quick", test="check_deep_gemm"):
    return DeepResult(node, suite, test, "", None, "", verdict, "", at)


def report(node, at, *outcomes):
    return Report(node, "b1", at, 1.0, tuple(CheckResult("check_deep_gemm", outcome) for outcome in outcomes),
                  version="9.9", labels={"kind": "hgx-h100-8"})  # fmt: skip


def test_a_report_becomes_a_row_for_each_value(store):
    outcomes = (
        Outcome(Verdict.OK, target="gpu0", metrics=(Metric("gemm", 700.5, "TF/s"), Metric("hot", 60.0, "Cel"))),
        Outcome(Verdict.CRIT, "Slow", "slow\nsecond line", target="gpu1"),
        Outcome(Verdict.SKIP, "NoGpu", "none"),
    )
    with store.write() as connection:
        assert deep.add_report(connection, report("n1", 100.0, *outcomes), "burn") == 3
        rows = deep.history(connection, "n1")

    assert {(row.test, row.device, row.value, row.unit, row.verdict) for row in rows} == {
        ("check_deep_gemm:gemm", "gpu0", 700.5, "TF/s", "OK"),
        ("check_deep_gemm:hot", "gpu0", 60.0, "Cel", "OK"),
        ("check_deep_gemm", "gpu1", None, "", "CRIT"),
    }
    assert {row.message for row in rows} == {"", "slow second line"}
    assert {(row.boot_id, row.at) for row in rows} == {("b1", 100.0)}
    assert {(row.verdict, row.versions) for row in rows} == {
        ("OK", '{"nhc": "9.9", "kind": "hgx-h100-8"}'),
        ("CRIT", '{"nhc": "9.9", "kind": "hgx-h100-8", "reason": "Slow"}'),
    }


def proof(node, at, serial, rate, target="gpu0"):
    board = DeviceId("0000:3b:00.0", "GPU-1", "", serial)
    metrics = (Metric("proof_bf16", rate, "TFLOPS"),)
    return report(node, at, Outcome(Verdict.OK, target=target, metrics=metrics, scope=Scope.DEVICE, device=board))


def test_the_rates_of_a_board_go_with_it_to_another_node(store):
    with store.write() as connection:
        deep.add_report(connection, proof("n1", 100.0, "1650", 700.0), "prejob")
        deep.add_report(connection, proof("n1", 200.0, "1650", 710.0), "prejob")
        deep.add_report(connection, proof("n2", 300.0, "1650", 600.0, "gpu5"), "prejob")
        deep.add_report(connection, proof("n1", 300.0, "1777", 705.0), "prejob")
        deep.add_report(connection, proof("n1", 400.0, "", 701.0), "prejob")
        [board] = rates(deep.history(connection, serial="1650"))
        of_node = rates(deep.history(connection, "n1"))
        assert len(deep.history(connection, "n1", serial="1650")) == 2

    assert (board.serial, board.node, board.device, board.unit) == ("1650", "n2", "gpu5", "TFLOPS")
    assert board.values == ((100.0, 700.0), (200.0, 710.0), (300.0, 600.0))
    assert (board.middle, board.last, round(board.change, 1)) == (700.0, 600.0, -14.3)
    assert [(one.serial, len(one.values)) for one in of_node] == [("", 1), ("1650", 2), ("1777", 1)]


def test_the_last_verdict_is_the_worst_of_the_newest_run_of_each_suite(store):
    with store.write() as connection:
        deep.add(connection, [
            result("n1", "CRIT", 100.0), result("n1", "OK", 200.0), result("n1", "UNKNOWN", 200.0, test="other"),
            result("n1", "OK", 150.0, suite="sweep"), result("n2", "CRIT", 90.0),
        ])  # fmt: skip
        found = {(one.node, one.suite): one for one in deep.last_verdicts(connection)}
        alone = deep.last_verdicts(connection, "n2")

    assert {key: (one.verdict, one.at) for key, one in found.items()} == {
        ("n1", "quick"): ("UNKNOWN", 200.0), ("n1", "sweep"): ("OK", 150.0), ("n2", "quick"): ("CRIT", 90.0),
    }  # fmt: skip
    assert [(one.node, one.verdict) for one in alone] == [("n2", "CRIT")]
    assert found["n1", "quick"].age(260.0) == 60.0


def begun(connection):
    sweep = deep.begin_sweep(connection, '{"nodes": ["a", "b"]}', launcher="slurm", by="root", now=1.0)
    deep.plan_tests(connection, [SweepTest(sweep.id, "leaf:a+b:0", 1, "leaf", "a b", 0)])
    return sweep


def test_a_sweep_and_its_tests_are_found_again(store):
    with store.write() as connection:
        sweep = begun(connection)
    with store.write() as connection:
        (test,) = deep.tests_of(connection, sweep.id)
        deep.save_test(connection, test._replace(state="running", handle="17", began=2.0), 2.0)
    with store.read() as connection:
        (kept,) = deep.tests_of(connection, sweep.id)
        assert (kept.state, kept.handle, kept.began, kept.ended) == ("running", "17", 2.0, None)
        assert [one.id for one in deep.newest_sweeps(connection, state=deep.OPEN)] == [sweep.id]
        assert deep.sweep(connection, sweep.id).updated == 2.0
        assert deep.sweep(connection, sweep.id + 1) is None


def test_a_result_is_written_once(store):
    with store.write() as connection:
        sweep = begun(connection)
        (test,) = deep.tests_of(connection, sweep.id)
        deep.save_test(connection, test._replace(state="bad", value=12.0, ended=3.0), 3.0)
    with pytest.raises(Conflict, match="has a result already"), store.write() as connection:
        deep.save_test(connection, test._replace(state="good", ended=4.0), 4.0)
    with store.read() as connection:
        assert deep.tests_of(connection, sweep.id)[0].state == "bad"


def test_a_sweep_ends_once(store):
    with store.write() as connection:
        sweep = begun(connection)
        deep.end_sweep(connection, sweep.id, deep.DONE, '{"blames": []}', "nobody is to blame", 9.0)
        ended = deep.sweep(connection, sweep.id)
    assert (ended.state, ended.ended, ended.findings) == ("done", 9.0, '{"blames": []}')
    with pytest.raises(Conflict, match="is not open"), store.write() as connection:
        deep.end_sweep(connection, sweep.id, deep.STOPPED, "{}", "", 10.0)


def test_the_last_verdict_that_could_tell_is_not_hidden_by_a_run_that_could_not(store):
    with store.write() as connection:
        deep.add(connection, [
            result("n1", "OK", 100.0), result("n1", "OK", 100.0, test="other"),
            result("n1", "OK", 200.0), result("n1", "UNKNOWN", 200.0, test="other"),
            result("n1", "CRIT", 90.0, suite="burn"), result("n1", "UNKNOWN", 90.0, suite="burn", test="other"),
            result("n2", "UNKNOWN", 300.0), result("n3", "WARN", 5.0),
        ])  # fmt: skip
        everything = deep.last_conclusive(connection)
        some = deep.last_conclusive(connection, ["n1", "n2"], ["burn"])
        none = deep.last_conclusive(connection, [])

    assert {key: (one.verdict, one.at) for key, one in everything.items()} == {
        ("n1", "quick"): ("OK", 100.0), ("n1", "burn"): ("CRIT", 90.0), ("n3", "quick"): ("WARN", 5.0),
    }  # fmt: skip
    assert set(some) == {("n1", "burn")}
    assert none == {}


def test_the_last_verdict_of_more_nodes_than_one_statement_takes(store):
    names = [f"n{number}" for number in range(BATCH + 3)]
    with store.write() as connection:
        deep.add(connection, [result(name, "OK", 1.0) for name in names])
        assert {node for node, _suite in deep.last_conclusive(connection, names)} == set(names)


def test_a_report_that_the_store_does_not_take_costs_no_other(tmp_path):
    fine = Outcome(Verdict.OK)
    with closing(new_store(tmp_path, "")) as store:
        reports = [report(name, 100.0, fine) for name in ("n1", "n\ud800", "n3")]
        problem = to_store(reports, "quick", f"sqlite:///{tmp_path}/store.db")
        with store.read() as connection:
            assert {node for node, _suite in deep.last_conclusive(connection)} == {"n1", "n3"}
    assert problem.endswith(": the results are not in the store")
