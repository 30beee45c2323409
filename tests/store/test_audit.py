"""The audit log: nobody changes it unseen, however many rows they write anew."""

import gzip
import hashlib
import json
import os
import threading

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nhc.store import audit, schema
from nhc.store.anchor import Anchor
from nhc.store.audit import verify
from nhc.store.connect import open_store
from nhc.store.errors import StoreError
from nhc.store.retention import archive


def fill(store, count, at=1000.0):
    for number in range(count):
        with store.write() as connection:
            audit.append(
                connection, at + number, "ada", "hold.set", node=f"n{number}", detail={"why": f"\0 {number}", "x": 0.1}
            )


def mistakes(store):
    with store.read() as connection:
        return verify(connection, store.anchor).mistakes


def unguarded(store, *statements):
    """What who owns the database can do: the triggers are theirs to drop."""
    with store.write() as connection:
        if store.sqlite:
            names = connection.execute(sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            for name in names:
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
        else:
            connection.execute(sa.text("ALTER TABLE audit DISABLE TRIGGER ALL"))
            connection.execute(sa.text("ALTER TABLE audit_segments DISABLE TRIGGER ALL"))
        for statement in statements:
            connection.execute(sa.text(statement) if isinstance(statement, str) else statement)


def rewrite(store, seq, **changes):
    """Change a row and hash the whole chain from there anew."""
    with store.read() as connection:
        rows = audit.entries(connection, limit=10_000)
    previous, statements = "", []
    for row in rows:
        if row.seq == seq:
            row = row._replace(**changes)
        if row.seq >= seq:
            row = row._replace(previous=previous or row.previous)
            row = row._replace(hash=audit.digest(row))
            values = {**row._asdict(), "episode": row.episode or None}
            statements.append(sa.update(schema.audit).where(schema.audit.c.seq == row.seq).values(values))
        previous = row.hash
    unguarded(store, *statements)


def test_a_log_that_nobody_touched_is_whole(store):
    assert mistakes(store) == ()
    fill(store, 5)
    with store.read() as connection:
        seen = verify(connection, store.anchor)
    assert seen == (5, 0, 5, 5, ())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET actor = 'eve'",
        "DELETE FROM audit WHERE seq = 2",
        "UPDATE audit SET hash = hash WHERE seq = 1",
        "UPDATE audit_segments SET path = 'x'",
        "DELETE FROM audit_segments",
    ],
)
def test_the_database_itself_refuses_changes(store, statement):
    fill(store, 3)
    with store.write() as connection:
        connection.execute(
            sa.insert(schema.audit_segments).values(last=0, first=0, hash="", path="", sha256="", archived=1)
        )
    with pytest.raises(StoreError, match="the audit log is only ever added to"), store.write() as connection:
        connection.execute(sa.text(statement))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_row_is_not_replaced(store, number):
    fill(store, 3)
    with store.read() as connection:
        row = audit.entries(connection, after=number - 1, limit=1)[0]
    values = {**row._asdict(), "actor": "eve", "episode": None}
    columns, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    how = "INSERT OR REPLACE" if store.sqlite else "INSERT"
    end = "" if store.sqlite else " ON CONFLICT (seq) DO UPDATE SET actor = EXCLUDED.actor"
    with pytest.raises(StoreError, match="the audit log is only ever added to"), store.write() as connection:
        connection.execute(sa.text(f"{how} INTO audit ({columns}) VALUES ({marks}){end}"), values)
    assert mistakes(store) == ()


def test_a_segment_is_not_replaced(store, tmp_path):
    fill(store, 5)
    archive(store, 1003.0, 2000.0, segments=str(tmp_path / "old"), by="ada")
    how, end = (
        ("INSERT OR REPLACE", "") if store.sqlite else ("INSERT", " ON CONFLICT (last) DO UPDATE SET path = '/x'")
    )
    values = "(last, first, hash, path, sha256, archived) VALUES (3, 1, 'x', '/x', 'x', 1)"
    with pytest.raises(StoreError, match="the audit log is only ever added to"), store.write() as connection:
        connection.execute(sa.text(f"{how} INTO audit_segments {values}{end}"))


@pytest.mark.parametrize(
    ("column", "value"), [("detail", "x'ff00'"), ("actor", "x'00'"), ("at", "'soon'"), ("hash", "x'01'")]
)
def test_what_cannot_be_hashed_is_named(store, column, value):
    """SQLite keeps any type in any column."""
    if not store.sqlite:
        return
    fill(store, 5)
    unguarded(store, f"UPDATE audit SET {column} = {value} WHERE seq = 3")
    assert any("row 3 was changed" in one for one in mistakes(store)), mistakes(store)


def test_postgresql_refuses_to_truncate(store):
    if store.sqlite:
        return  # it has no such statement
    fill(store, 1)
    with pytest.raises(StoreError, match="the audit log is only ever added to"), store.write() as connection:
        connection.execute(sa.text("TRUNCATE audit"))


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["UPDATE audit SET actor = 'eve' WHERE seq = 3"], "row 3 was changed"),
        (["UPDATE audit SET at = at + 1 WHERE seq = 3"], "row 3 was changed"),
        (["DELETE FROM audit WHERE seq = 3"], "after row 2 comes row 4: rows are missing"),
        (["DELETE FROM audit WHERE seq < 3"], "after row 0 comes row 3: rows are missing"),
        (["DELETE FROM audit WHERE seq > 3"], "ends with row 3, but row 5 was anchored: its tail was cut"),
        (["DELETE FROM audit"], "ends with row 0, but row 5 was anchored"),
    ],
)
def test_what_the_owner_of_the_database_did_shows(store, statements, said):
    fill(store, 5)
    unguarded(store, *statements)
    assert any(said in one for one in mistakes(store)), mistakes(store)


def test_a_chain_made_anew_shows_against_the_anchor(store):
    fill(store, 5)
    rewrite(store, 2, actor="eve")
    assert any("row 2 is another than the one that was anchored" in one for one in mistakes(store))


def test_without_its_anchor_the_log_is_not_called_whole(store, tmp_path):
    fill(store, 2)
    (tmp_path / "anchor").unlink()
    assert "anchors nothing of this store, which has 2 rows" in mistakes(store)[0]


def test_an_anchor_that_is_no_file_is_not_waited_for(store, tmp_path):
    fill(store, 2)
    _as_pipe(tmp_path / "anchor")
    assert any("/anchor: not a file" in one for one in mistakes(store))


@pytest.mark.thorough
def test_anothers_anchor_does_not_pass(store, tmp_path):
    fill(store, 1)
    other = open_store(str(tmp_path / "other.db"), anchor=str(tmp_path / "anchor"))
    fill(other, 1)
    assert any("is of another store" in one for one in mistakes(store))
    other.close()


def test_a_line_torn_by_a_crash_is_said_and_spoils_no_other(store, tmp_path):
    fill(store, 1)
    with open(tmp_path / "anchor", "a") as file:
        file.write("half a li")
    fill(store, 1)
    (said,) = mistakes(store)
    assert said.endswith("anchor:2: damaged")


@pytest.mark.thorough
def test_many_who_write_at_once_make_one_chain(store):
    threads = [threading.Thread(target=fill, args=(store, 10)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with store.read() as connection:
        assert verify(connection, store.anchor) == (40, 0, 40, 40, ())


def test_an_anchor_that_cannot_be_written_stops_the_next_step(store, tmp_path):
    fill(store, 1)
    (tmp_path / "anchor").rename(tmp_path / "away")
    (tmp_path / "anchor").mkdir()
    with pytest.raises(StoreError, match=r"the audit's anchor .*: Is a directory: nothing was written"):
        fill(store, 1)
    with store.read() as connection:
        assert audit.head(connection).seq == 1
    (tmp_path / "anchor").rmdir()
    (tmp_path / "away").rename(tmp_path / "anchor")
    fill(store, 1)
    assert mistakes(store) == ()


def test_a_head_that_could_not_be_anchored_is_anchored_with_the_next(tmp_path):
    anchor = Anchor(str(tmp_path / "no" / "anchor"), "s")
    (tmp_path / "no").write_text("a file where a directory should be")
    anchor.add(audit.Head(1, "a", 1.0))
    assert "anchor" in anchor.problem
    with pytest.raises(StoreError, match="nothing was written"):
        anchor.ready()
    (tmp_path / "no").unlink()
    anchor.ready()
    assert anchor.problem == ""
    assert [line.seq for line in anchor.lines()] == [1]


def test_archived_rows_are_verified_from_their_file(store, tmp_path):
    fill(store, 10)
    path = archive(store, 1004.0, 2000.0, segments=str(tmp_path / "old"), by="ada")
    with store.read() as connection:
        assert verify(connection, store.anchor) == (7, 4, 11, 11, ())
        assert audit.entries(connection)[0].seq == 5
    assert archive(store, 1004.0, 2000.0, segments=str(tmp_path / "old"), by="ada") == ""
    second = archive(store, 1e9, 3000.0, segments=str(tmp_path / "old"), by="ada")
    with store.read() as connection:
        assert verify(connection, store.anchor) == (2, 10, 12, 12, ())
    assert path != second
    with gzip.open(path, "rt") as file:
        assert [json.loads(line)[0] for line in file] == [1, 2, 3, 4]


def _as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def _change(path, **_):
    with gzip.open(path, "rt") as file:
        text = file.read()
    with gzip.open(path, "wt") as file:
        file.write(text.replace("ada", "eve"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_change, "was changed since it was archived"),
        (lambda path: path.unlink(), "rows 1 to 4 were archived there: No such file"),
        (_as_pipe, "rows 1 to 4 were archived there: not a file"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "damaged"),
        (lambda path: path.write_bytes(gzip.compress(b'{"a": 1}\n')), "a line is no row"),
        (lambda path: path.write_bytes(gzip.compress(b"[" * 100_000)), "nested too deep"),
        (
            lambda path: path.write_bytes(gzip.compress(b'[1, 2.0, [], "", "", 0, "", "", ""]')),
            "actor of a row is a list",
        ),
        (
            lambda path: path.write_bytes(gzip.compress(b'["1", 2.0, "", "", "", 0, "", "", ""]')),
            "seq of a row is a str",
        ),
    ],
)
def test_a_segment_that_was_touched_shows(store, tmp_path, spoil, said):
    fill(store, 6)
    archive(store, 1004.0, 2000.0, segments=str(tmp_path / "old"), by="ada")
    (path,) = (tmp_path / "old").iterdir()
    spoil(path)
    assert any(said in one for one in mistakes(store)), mistakes(store)


@pytest.mark.parametrize("keep", [0, 2])
def test_a_segment_that_was_emptied_with_a_digest_that_fits_shows(store, tmp_path, keep):
    """Rows of the middle are anchored, too: each is to be seen, in the database or in a segment."""
    fill(store, 6)
    archive(store, 1004.0, 2000.0, segments=str(tmp_path / "old"), by="ada")
    (path,) = (tmp_path / "old").iterdir()
    with gzip.open(path, "rt") as file:
        some = file.readlines()[:keep]
    path.write_bytes(gzip.compress("".join(some).encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    unguarded(store, f"UPDATE audit_segments SET sha256 = '{digest}'")
    seen = mistakes(store)
    assert any(f"holds {keep} rows" in one for one in seen), seen
    assert any(f"row {keep + 1} was anchored and is nowhere" in one for one in seen), seen


def test_a_segment_that_nobody_archived_hides_nothing(store):
    """Who may only add rows makes up a segment, so that the triggers let rows go."""
    fill(store, 5)
    with store.write() as connection:
        connection.execute(
            sa.insert(schema.audit_segments).values(last=5, first=1, hash="x", path="/none", sha256="", archived=1)
        )
        connection.execute(sa.delete(schema.audit))
    assert any("rows 1 to 5 were archived there: No such file" in one for one in mistakes(store))


@pytest.mark.slow
@given(data=st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_any_change_of_any_row_shows(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("a")
    store = open_store(str(directory / "s.db"))
    try:
        count = data.draw(st.integers(2, 6), "rows")
        fill(store, count)
        seq = data.draw(st.integers(1, count), "row")
        column = data.draw(st.sampled_from(["at", "actor", "what", "node", "episode", "detail"]), "column")
        value = {"at": 5.5, "episode": 9, "detail": '{"why":"none"}'}.get(column, "eve")
        if data.draw(st.booleans(), "whole chain"):
            rewrite(store, seq, **{column: value})
        else:
            unguarded(store, sa.update(schema.audit).where(schema.audit.c.seq == seq).values({column: value}))
        assert mistakes(store)
    finally:
        store.close()
