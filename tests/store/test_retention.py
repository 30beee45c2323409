"""What is old goes, what is in use stays, and nothing of the audit log is ever lost."""

import pytest
import sqlalchemy as sa

from nhc.store import audit, deep, evidence, nodes, problems, retention, schema
from nhc.store.audit import verify
from nhc.store.errors import StoreError
from nhc.store.retention import RetentionPeriods, prune
from tests.store.test_episodes import opened
from tests.store.test_reports import NOW, XID, report, result, take

DAY = 86400.0


@pytest.mark.thorough
def test_old_rows_go_and_young_ones_stay(store, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "CHUNK", 3)  # several rounds
    for day in range(10):
        at = NOW + day * DAY
        take(store, report(at, XID, host="n1"), report(at, XID, host="n2"))
        take(store, report(at + 60, result("check_gpu_xid"), host="n1"))
    episode, _ = opened(store, now=NOW)
    with store.write() as connection:
        evidence.add(connection, episode, "console", now=NOW, sha256="aa", size=1, expires=NOW + DAY)
        connection.execute(sa.insert(schema.tokens).values(node="n1", hash="h", made=NOW, ended=NOW))
        connection.execute(sa.insert(schema.tokens).values(node="n1", hash="g", made=NOW))
    now = NOW + 10 * DAY
    keep = RetentionPeriods(5 * DAY, 5 * DAY, 5 * DAY, 5 * DAY)
    planned = retention.due(store, keep, now)
    done = prune(store, keep, now, segments=str(tmp_path / "old"), by="ada")
    assert {name: count for name, count in done.rows.items() if count} == {
        "report_history": 15, "coverage": 10, "problems": 5, "tokens": 1, "evidence": 1,
    }  # fmt: skip
    assert planned == {**done.rows, "audit": 0}  # the only row of the log is the newest: it stays
    assert done.files == ["aa"]
    with store.read() as connection:
        assert min(row.started for row in nodes.history(connection, "n1")) >= now - 5 * DAY
        ended = problems.list_problems(connection, is_open=False)
        assert ended
        assert min(row.ended for row in ended) >= now - 5 * DAY
        (still,) = problems.list_problems(connection)  # open since before: it stays
        assert (still.node, still.began) == ("n2", NOW)
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.tokens)) == 1
        assert [row.what for row in audit.entries(connection)][-2:] == ["store.pruned", "audit.archived"]
        assert verify(connection, store.anchor).mistakes == ()
    again = prune(store, keep, now, segments=str(tmp_path / "old"), by="ada")
    assert not any(again.rows.values())


@pytest.mark.thorough
def test_the_history_of_a_node_whose_problem_comes_and_goes_stays_bounded(store, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "NEWEST", 20)
    monkeypatch.setattr(retention, "CHUNK", 7)
    sick, good = [XID], [result("check_gpu_xid")]
    for hour in range(3):
        at = NOW - NOW % 3600 + hour * 3600
        take(store, *[report(at + 60 * turn, *(good if turn % 2 else sick)) for turn in range(60)])
    take(store, report(NOW, host="calm"), report(NOW + 7200, XID, host="calm"))
    keep, now, old = RetentionPeriods(), NOW + 3 * 3600, str(tmp_path / "old")
    with store.read() as connection:
        before = nodes.history(connection, "n1"), problems.list_problems(connection, is_open=False)
    assert [len(rows) for rows in before] == [180, 90]
    planned = retention.due(store, keep, now)
    done = prune(store, keep, now, segments=old, by="ada")
    assert {name: count for name, count in done.rows.items() if count} == {
        "report_history": 180 - 20 - 6, "problems": 90 - 20 - 3,
    }  # fmt: skip
    assert {**done.rows, "audit": 0} == planned
    with store.read() as connection:
        history = nodes.history(connection, "n1")
        ended = problems.list_problems(connection, nodes=["n1"], is_open=False)
        assert len(nodes.history(connection, "calm")) == 2
    assert history[-20:] == before[0][-20:]
    assert [(row.started % 3600, row.verdict) for row in history[:-20]] == [(0, "CRIT"), (60, "OK")] * 3
    assert ended == [before[1][0], before[1][30], before[1][60], *before[1][-20:]]
    assert not any(prune(store, keep, now, segments=old, by="ada").rows.values())


@pytest.mark.thorough
def test_old_deep_results_and_sweeps_go_but_the_newest_verdict_of_each_node_stays(store, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "CHUNK", 2)

    def row(node, day, suite="quick", sweep=None, test="t"):
        return deep.DeepResult(node, suite, test, "", None, "", "OK", "", NOW + day * DAY, sweep=sweep)

    with store.write() as connection:
        numbers = []
        for day in (0, 1, 9):
            sweep = deep.begin_sweep(connection, "{}", launcher="slurm", by="ada", now=NOW + day * DAY)
            deep.plan_tests(
                connection, [deep.SweepTest(sweep.id, f"leaf:a+b:{n}", 1, "leaf", "a b", n) for n in range(3)]
            )
            deep.end_sweep(connection, sweep.id, deep.DONE, "{}", "", NOW + day * DAY)
            numbers.append(sweep.id)
        still = deep.begin_sweep(connection, "{}", launcher="slurm", by="ada", now=NOW)
        deep.add(connection, [row("n1", 0), row("n1", 1), row("n1", 9), row("n2", 0), row("n2", 0, test="u"),
                              row("n3", 0, "sweep", numbers[0]), row("n3", 9, "sweep", numbers[2]),
                              row("n4", 1, "sweep", numbers[1])])  # fmt: skip
    now, keep = NOW + 10 * DAY, RetentionPeriods(deep=5 * DAY)
    planned = retention.due(store, keep, now)
    done = prune(store, keep, now, segments=str(tmp_path / "old"), by="ada")
    # n4's newest verdict, however old, stays, and with it the sweep that it is from.
    assert {name: count for name, count in done.rows.items() if count} == {
        "deep_results": 3,
        "sweep_tests": 3,
        "sweeps": 1,
    }
    assert {name: planned[name] for name in ("deep_results", "sweep_tests", "sweeps")} == {
        "deep_results": 3, "sweep_tests": 3, "sweeps": 1,
    }  # fmt: skip
    with store.read() as connection:
        assert {(one.node, one.at) for one in deep.last_verdicts(connection)} == {
            ("n1", NOW + 9 * DAY), ("n2", NOW), ("n3", NOW + 9 * DAY), ("n4", NOW + DAY),
        }  # fmt: skip
        assert [one.id for one in deep.newest_sweeps(connection)] == [still.id, numbers[2], numbers[1]]
        assert len(deep.tests_of(connection, numbers[1])) == 3
    assert not any(prune(store, keep, now, segments=str(tmp_path / "old"), by="ada").rows.values())


def test_a_segment_that_cannot_be_written_deletes_nothing(store, tmp_path):
    opened(store, now=NOW)
    opened(store, node="n2", now=NOW)
    (tmp_path / "old").write_text("no directory")
    with pytest.raises(StoreError, match="no row was archived"):
        retention.archive(store, NOW + 1, NOW + DAY, segments=str(tmp_path / "old"), by="ada")
    with store.read() as connection:
        assert verify(connection, store.anchor) == (2, 0, 2, 2, ())


def test_evidence_of_a_long_time_goes_in_statements_that_every_database_takes(store):
    """PostgreSQL takes 65,535 parameters: after a long pause, one statement for all rows would fail for ever."""
    episode, _ = opened(store, now=NOW)
    with store.write() as connection:
        row = {"episode": episode.id, "node": "n1", "name": "console", "size": 1, "cut": False,
               "collected": NOW, "expires": NOW + 1.0}  # fmt: skip
        rows = [{**row, "sha256": f"{number // 2:064x}"} for number in range(2500)]
        connection.execute(sa.insert(schema.evidence), rows)
    most = []

    def listen(_connection, _cursor, _statement, parameters, _context, many):
        most.append(0 if many else len(parameters))

    sa.event.listen(store.engine, "before_cursor_execute", listen)
    try:
        gone = evidence.forget_expired(store, NOW + DAY)
    finally:
        sa.event.remove(store.engine, "before_cursor_execute", listen)
    assert (gone.rows, len(gone.files), len(set(gone.files))) == (2500, 1250, 1250)
    assert max(most) <= 1000
    assert evidence.forget_expired(store, NOW + DAY) == (0, [])
