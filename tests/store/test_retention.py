"""What is old goes, what is in use stays, and nothing of the audit log is ever lost."""

import pytest
import sqlalchemy as sa

from nhc.store import audit, evidence, nodes, problems, retention, schema
from nhc.store.errors import StoreError
from nhc.store.retention import Keep, prune
from nhc.store.verify import verify
from tests.store.test_episodes import opened
from tests.store.test_reports import NOW, XID, report, result, take

DAY = 86400.0


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
    keep = Keep(5 * DAY, 5 * DAY, 5 * DAY, 5 * DAY)
    planned = retention.due(store, keep, now)
    done = prune(store, keep, now, segments=str(tmp_path / "old"), by="ada")
    assert done.rows == {"report_history": 15, "coverage": 10, "problems": 5, "tokens": 1, "evidence": 1}
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


def test_a_segment_that_cannot_be_written_deletes_nothing(store, tmp_path):
    opened(store, now=NOW)
    opened(store, node="n2", now=NOW)
    (tmp_path / "old").write_text("no directory")
    with pytest.raises(StoreError, match="no row was archived"):
        retention.archive(store, NOW + 1, NOW + DAY, segments=str(tmp_path / "old"), by="ada")
    with store.read() as connection:
        assert verify(connection, store.anchor) == (2, 0, 2, 2, ())
