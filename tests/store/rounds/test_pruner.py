"""Pruning by itself: once in a while by all processes together, for ever bounded, and a failure is no end."""

import pytest
import sqlalchemy as sa

from nhc.store import audit, deep, retention, schema, trains
from nhc.store.retention import PruneSettings, RetentionPeriods
from nhc.store.rounds.leader import Leader
from nhc.store.rounds.pruner import Pruner
from tests.store.test_reports import NOW, XID, report, result, take

DAY = 86400.0
WEEK = RetentionPeriods(7 * DAY, 7 * DAY, 7 * DAY, 7 * DAY, 7 * DAY, 7 * DAY)


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def pruner(store, tmp_path, clock, said=None, **more):
    settings = PruneSettings(WEEK, str(tmp_path / "old"), DAY)
    return Pruner(store, settings, "nhc test", log=(said if said is not None else []).append, clock=clock, **more)


def counts(store):
    tables = (schema.report_history, schema.coverage, schema.problems, schema.deep_results, schema.audit)
    with store.read() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in tables
        }  # fmt: skip


@pytest.mark.thorough
def test_for_a_year_the_store_stays_as_large_as_what_it_keeps(store, tmp_path):
    clock, most = Clock(), {}
    mine = pruner(store, tmp_path, clock)
    for day in range(0, 366, 6):
        clock.now = NOW + day * DAY
        take(store, report(clock.now, XID, host="n1"))
        take(store, report(clock.now + 60, result("check_gpu_xid"), host="n1"))
        with store.write() as connection:
            row = deep.DeepResult("n1", "burn", "gemm", "gpu0", 1.0, "x", "OK", "", clock.now)
            deep.add(connection, [row])
            audit.append(connection, clock.now, "test", "test.day")
        clock.now += 120
        assert mine.look() is True
        for name, count in counts(store).items():
            most[name] = max(most.get(name, 0), count)
    assert most["report_history"] <= 4
    assert most["problems"] <= 4
    assert most["deep_results"] <= 4
    assert most["audit"] <= 16
    assert most["coverage"] <= 4
    assert sum(mine.rows.values()) > 200
    assert mine.failed == 0


@pytest.mark.thorough
def test_several_processes_prune_once_a_day_together(store, tmp_path):
    clock = Clock()
    first, second = pruner(store, tmp_path, clock), pruner(store, tmp_path, clock)
    assert (first.look(), second.look(), first.look()) == (True, False, False)
    clock.now += DAY - 1
    assert second.look() is False
    clock.now += 1
    assert (second.look(), first.look()) == (True, False)
    clock.now -= 30 * DAY  # a clock that was set back stops nothing
    assert first.look() is True


def test_while_another_prunes_nobody_else_does(store, tmp_path):
    clock = Clock()
    other = Leader(store, name="prune", clock=lambda: NOW - 10 * DAY)
    assert other.attempt()
    mine = pruner(store, tmp_path, clock)
    assert mine.look() is False
    other.release()
    assert mine.look() is True


def test_a_failure_is_told_once_counted_and_tried_again(store, tmp_path):
    clock, said = Clock(), []
    with store.write() as connection:
        for number in range(3):
            audit.append(connection, NOW - (30 - number) * DAY, "test", "test.day")
    (tmp_path / "old").write_text("a file where the directory is to be")
    mine = pruner(store, tmp_path, clock, said)
    for _ in range(2):
        assert mine.look() is False
        clock.now += DAY
    assert (mine.failed, len(said)) == (2, 1)
    (tmp_path / "old").unlink()
    assert mine.look() is True
    assert "the audit log's old rows are in" in said[-1]
    shown = "".join(family.render() for family in mine.families())
    assert "nhc_store_prune_failures_total 2" in shown
    assert f"nhc_store_prune_last_timestamp_seconds {clock.now:.10g}" in shown


def test_evidence_is_left_to_who_has_its_files(store, tmp_path):
    forgotten = []
    without = pruner(store, tmp_path, Clock())
    assert without.look()
    assert "evidence" not in without.rows
    clock = Clock()
    clock.now += 2 * DAY
    with_files = pruner(store, tmp_path, clock, forget=forgotten.extend)
    assert with_files.look()
    assert (with_files.rows["evidence"], forgotten) == (0, [])


def test_of_an_old_train_its_name_stays(store, tmp_path):
    with store.write() as connection:
        made = trains.create(connection, "old", [["n1"]], plan="", digest="d", state="running", node_state="planned",
                             by="ada", why="", now=NOW - 30 * DAY)  # fmt: skip
        trains.approve(connection, made, by="ada", why="", now=NOW - 30 * DAY)
        trains.save_train(connection, made, state="done", by="ada", why="", now=NOW - 29 * DAY, ended=NOW - 29 * DAY)
    assert retention.due(store, WEEK, NOW)["episodes"] == 1
    assert pruner(store, tmp_path, Clock()).look()
    with store.read() as connection:
        assert trains.get(connection, "old").state == "done"
        assert trains.nodes_of(connection, made.id) == []
        assert trains.approvals_of(connection, made.id) == []
