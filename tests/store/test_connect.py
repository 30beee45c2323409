"""Opening the store: who may, what is refused, and what one transaction is."""

import os
import sqlite3
import threading

import pytest
import sqlalchemy as sa

from nhc.store import migrate, schema
from nhc.store.connect import open_store
from nhc.store.database import VERSION_TABLE, connect, revision
from nhc.store.errors import StoreError
from tests.support.run import ROOT, nhc


@pytest.mark.thorough
def test_a_new_store_is_what_the_code_says_and_has_the_newest_number(store):
    assert migrate.differences(store) == []
    assert (migrate.known()[0], migrate.known()[-1]) == (schema.FIRST, schema.REVISION)
    with store.read() as connection:
        assert revision(connection, store.name) == schema.REVISION


def test_a_second_open_finds_the_same_store(store, url, tmp_path):
    again = open_store(url, anchor=str(tmp_path / "anchor"))
    assert again.id == store.id != ""
    again.close()


@pytest.mark.thorough
def test_two_who_open_a_new_store_at_once_share_it(url, tmp_path):
    ids, ready = [], threading.Barrier(4)

    def one():
        ready.wait()
        made = open_store(url, anchor=str(tmp_path / "anchor"))
        ids.append(made.id)
        made.close()

    threads = [threading.Thread(target=one) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_a_new_file_that_another_writes_to_is_waited_for(tmp_path):
    """SQLite fails at once, whatever its busy_timeout, where it is to switch such a file to a write-ahead log."""
    path, opened = str(tmp_path / "store.db"), []

    def open_it():
        made = open_store(path)
        opened.append(made.id)
        made.close()

    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opener = threading.Thread(target=open_it)
    opener.start()
    opener.join(0.1)
    assert opener.is_alive()  # it waits
    other.rollback()
    other.close()
    opener.join(30)
    assert len(opened) == 1


def _set_revision(store, number):
    with store.write() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{number}'"))


def test_a_newer_schema_is_refused_in_one_line(store, url):
    _set_revision(store, "9999")
    with pytest.raises(StoreError, match="has schema 9999, newer than this nhc's"):
        open_store(url)


def test_an_older_schema_is_left_for_migrate(store, url, monkeypatch):
    monkeypatch.setattr(schema, "REVISION", "0199")
    with pytest.raises(StoreError, match=r"has schema 0100, this nhc needs 0199: run nhc store migrate"):
        open_store(url)


def test_a_schema_of_before_the_first_release_is_one_line(store, url):
    _set_revision(store, "0014")
    said = r"^\S+: has schema 0014, of before nhc's first release, .* makes a new store$"
    with pytest.raises(StoreError, match=said):
        open_store(url)
    with pytest.raises(StoreError, match=said):
        migrate.upgrade(store, 5.0)


def test_a_database_of_somebody_else_is_left_alone(url):
    other = connect(url)
    with other.write() as connection:
        connection.execute(sa.text("CREATE TABLE invoices (id int)"))
    other.close()
    with pytest.raises(StoreError, match=r"is no store of nhc: it holds other tables \(invoices\)"):
        open_store(url)


def test_an_empty_database_is_not_filled_unless_asked(url):
    connect(url).close()
    with pytest.raises(StoreError, match="holds no tables yet"):
        open_store(url, create=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:sekrit@h/d", "not in mysql"),
        ("sqlite://", "needs a file"),
        ("postgresql://nhc:sekrit@127.0.0.1:1/x", "Connection refused"),
        ("sqlite:////proc/none/x.db", "No such file"),
        ("://", "neither sqlite"),
        ("/tmp/\udcff", "not UTF-8"),
        ("sqlite:////tmp/a\n", "control character"),
    ],
)
def test_what_cannot_be_opened_is_one_line_without_a_password(url, said):
    with pytest.raises(StoreError, match=said) as raised:
        open_store(url)
    assert "sekrit" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_database_is_said_so(tmp_path):
    (tmp_path / "store.db").write_text(
        "hello, I am a text, and long enough to be read as a database's first page\n" * 9
    )
    with pytest.raises(StoreError, match="file is not a database"):
        open_store(str(tmp_path / "store.db"))


@pytest.mark.thorough
def test_the_file_is_its_owners_alone(tmp_path):
    os.umask(os.umask(0o022))
    open_store(str(tmp_path / "deep" / "store.db")).close()
    assert (tmp_path / "deep" / "store.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700


def test_a_value_that_no_database_takes_is_refused_in_one_line(store):
    """A byte of a command line that is no UTF-8; a number that somebody typed."""
    with pytest.raises(StoreError) as raised, store.write() as connection:
        connection.execute(sa.insert(schema.breaker).values(name="\udcff", state="open", since=1.0))
    assert raised.value.refused
    for column, value in ((schema.breaker.c.name, "\udcff"), (schema.evidence.c.id, 2**70)):
        with pytest.raises(StoreError) as raised, store.read() as connection:
            connection.execute(sa.select(column).where(column == value)).all()
        assert "\n" not in str(raised.value)


def test_a_body_that_raises_leaves_nothing_behind(store):
    def fails():
        with store.write() as connection:
            connection.execute(sa.insert(schema.breaker).values(name="x", state="open", since=1.0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    with store.read() as connection:
        assert connection.execute(sa.select(schema.breaker)).all() == []


@pytest.mark.thorough
def test_a_writer_waits_for_another_and_no_update_is_lost(store):
    with store.write() as connection:
        connection.execute(sa.insert(schema.leader).values(name="x", number=0, since=1.0))

    def count():
        for _ in range(20):
            with store.write() as connection:
                row = schema.leader
                number = connection.scalar(sa.select(row.c.number).where(row.c.name == "x").with_for_update())
                connection.execute(sa.update(row).where(row.c.name == "x").values(number=number + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    with store.read() as connection:
        assert connection.scalar(sa.select(schema.leader.c.number)) == 80


@pytest.mark.thorough
def test_a_malformed_package_is_said_in_one_line_where_alembic_cannot_read_it(tmp_path):
    """Alembic reads the entry points of every installed package when it is imported."""
    torn = tmp_path / "torn-1.0.dist-info"
    torn.mkdir()
    (torn / "entry_points.txt").write_text("[nhc.checks]\ncheck_x\n")
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "adapters")))

    done = nhc("store", "migrate", "--store", tmp_path / "store.db", env={"PYTHONPATH": path})

    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "cannot read what some package here offers: " in done.stderr
