"""The database under the store: SQLite in one file, or PostgreSQL; its transactions report a failure in one line.

A transaction that adds to the audit log anchors its new head after the commit. If the anchor cannot be written, the
next such transaction is refused until it can: the log is never more than one transaction ahead of the anchor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url

from nhc.core.model import printable
from nhc.core.system import written_files
from nhc.store import location, schema
from nhc.store.anchor import Anchor, Head
from nhc.store.errors import LeadershipLost, NoStore, StoreError

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
    from sqlalchemy.pool import ConnectionPoolEntry


# Whether SQLite's file is still the one that was opened: it may be replaced, deleted or overwritten while it is open.
#
# SQLite itself continues then: with the deleted file, or with pages of two files. What it writes is lost, or damages
# the copy that was put there.


EVERY = 1.0
"""Seconds between two reads of the file; each time nhc checks whether it is the same file."""


class FileIdentity:
    """The file of one store. `store` is the store's own id, which is stored in it."""

    def __init__(self, path: str, name: str, store: str) -> None:
        self._path, self._name, self._store = path, name, store
        self._looked = time.monotonic()  # it has just been opened: a command that ends soon checks nothing more
        self._newest = 0
        status = os.stat(path)
        self._place = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raises StoreError if it is another file, or has the content of another store or of an older copy."""
        try:
            status = os.stat(self._path)
            if (status.st_dev, status.st_ino) != self._place:
                raise self._changed("the file was replaced by another")
            now = time.monotonic()
            if now - self._looked < EVERY:
                return
        except OSError as error:
            raise self._changed(f"the file is gone: {error.strerror}") from None
        try:
            # Only through SQLite: if other code of this process closes the file, its locks on it are lost
            # (howtocorrupt.html, 2.2). And through a separate connection: the open ones have older pages in memory.
            with contextlib.closing(sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True, timeout=1.0)) as own:
                [store] = own.execute("SELECT id FROM store").fetchone()
                [newest] = own.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):  # a table or a column of ours
                return  # another process writes just now, or no descriptor or memory is left: this proves nothing
            raise self._changed(f"the file was overwritten: {error}") from None
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise self._changed(f"the file was overwritten: {error}") from None
        if store != self._store:
            raise self._changed("the file was overwritten by another store")
        if newest < self._newest:
            raise self._changed("the file was overwritten by an older copy")
        self._looked, self._newest = now, newest

    def _changed(self, why: str) -> StoreError:
        self._looked = float("-inf")
        return StoreError(f"{self._name}: {why} while it was open: restart what uses it")


BUSY = 10.0
"""Seconds that a statement waits for the lock of another transaction."""
PATIENCE = 30.0
"""Seconds that a statement may take. PostgreSQL ends it a little earlier; if PostgreSQL is frozen, nhc ends the
connection."""
PING = 5.0
"""Seconds for the check whether a returned connection still works."""
LONG = 3600.0
"""The same for work on whole tables: migrations, pruning."""
RETRY = 0.02
"""Seconds between two tries of an operation for which SQLite does not wait."""
VERSION_TABLE = "nhc_schema"
HEAD = "nhc_audit_head"
"""The newest row of the audit log that this transaction has added; None if a savepoint rolled it back."""
NEWEST = sa.select(schema.audit.c.seq, schema.audit.c.hash, schema.audit.c.at)
NEWEST = NEWEST.order_by(schema.audit.c.seq.desc()).limit(1)
_WRITE = "nhc_write"


class Fence(NamedTuple):
    """The number of a leader: writes under it fail once another leads."""

    name: str
    number: int


class Store:
    """An open store. Threads may share it; each transaction has a connection of its own."""

    def __init__(self, engine: Engine, name: str, anchor: Anchor) -> None:
        self.engine, self.name, self.anchor = engine, name, anchor
        self.id = ""
        self._file: Optional[FileIdentity] = None
        self.stands_in: Optional[str] = None
        """Its directory, if it is an empty store instead of one that does not exist yet; `close` deletes it."""

    def identify(self, store: str) -> None:
        """Its own name for itself, which the anchor of its audit log bears as well."""
        self.id = store
        if self.sqlite and store:
            self._file = FileIdentity(str(self.engine.url.database), self.name, store)
        self.anchor.belong_to(store)

    def stand_in_for(self, name: str, place: str) -> None:
        """Use the name of a store that does not exist yet; `place`, this store's directory, is deleted when it is
        closed.
        """
        self.name, self.stands_in = name, place

    @property
    def sqlite(self) -> bool:
        """Whether it is one file of this machine."""
        return self.engine.dialect.name == "sqlite"

    @contextlib.contextmanager
    def read(self, patience: float = PATIENCE) -> Iterator[Connection]:
        """A transaction that only reads; `patience`: seconds that a statement of it may take. Raises StoreError."""
        self._check_file()
        try:
            with self.engine.connect() as connection, connection.begin(), _patient(connection, patience):
                yield connection
        except (sa.exc.SQLAlchemyError, *_NOT_TAKEN) as error:
            raise StoreError(f"{self.name}: {problem_of(error)}") from None

    @contextlib.contextmanager
    def write(self, fence: Optional[Fence] = None, patience: float = PATIENCE) -> Iterator[Connection]:
        """A transaction: committed at the end of the `with`, rolled back if its body raises. `patience`: see `read`.

        Raises StoreError; LeadershipLost, before the body runs, if `fence` is no longer the leader's number.
        """
        committing = False
        self._check_file()
        try:
            with self.engine.connect() as plain:
                connection = plain.execution_options(**{_WRITE: True})
                connection.info.pop(HEAD, None)
                with connection.begin() as transaction, _patient(connection, patience):
                    if fence is not None:
                        _hold(connection, fence)
                    yield connection
                    added = HEAD in connection.info
                    head: Optional[Head] = connection.info.pop(HEAD, None)
                    if added and head is None:
                        last = connection.execute(NEWEST).first()
                        head = Head(last.seq, last.hash, last.at) if last is not None else None
                    if head is not None:
                        self.anchor.ready()
                    committing = True
                    transaction.commit()
        except (sa.exc.SQLAlchemyError, *_NOT_TAKEN) as error:
            lost = committing and getattr(error, "connection_invalidated", False)
            unknown = " (whether it was written is not known)" if lost else ""
            refused = isinstance(error, (sa.exc.DataError, sa.exc.IntegrityError, *_NOT_TAKEN))
            held = getattr(getattr(error, "orig", None), "sqlstate", None) in _HELD
            raise StoreError(
                f"{self.name}: {problem_of(error)}{unknown}", ambiguous=lost, refused=refused, held=held
            ) from None
        if head is not None:
            self.anchor.add(head)

    def _check_file(self) -> None:
        if self._file is not None:
            self._file.check()

    def close(self) -> None:
        """End its connections."""
        self.engine.dispose()
        if self.stands_in is not None:
            shutil.rmtree(self.stands_in, ignore_errors=True)


def connect(url: str, *, anchor: str = "", create: bool = True, pool: int = 5) -> Store:
    """The database at a URL or in a file, with any schema. Raises StoreError."""
    parsed = _parsed(url)
    name = parsed.render_as_string(hide_password=True).replace("+psycopg", "")
    if parsed.get_backend_name() == "sqlite":
        name = f"sqlite:///{parsed.database}"
    try:
        if parsed.get_backend_name() == "sqlite":
            path = str(parsed.database)
            _file(path, create)
            engine = sa.create_engine(parsed, pool_size=pool, connect_args={"timeout": BUSY, "isolation_level": None})
            event.listen(engine, "connect", _pragmas)
            event.listen(engine, "begin", _begin)
            anchor = anchor or f"{path}.anchor"
        else:
            from nhc.store.bounded_connection import BoundedConnection

            def bounded(_dialect: object, _record: object, words: Any, named: Any) -> BoundedConnection:
                return BoundedConnection.connect(*words, **named)

            engine = sa.create_engine(parsed, pool_size=pool, pool_pre_ping=True, connect_args=_PSYCOPG)
            event.listen(engine, "do_connect", bounded)
            event.listen(engine, "checkin", _expect_a_ping)
            event.listen(engine, "checkout", _expect_statements)
            anchor = anchor or f"{location.DIRECTORY}/{parsed.database or 'nhc'}.anchor"
    except ModuleNotFoundError as error:
        from nhc.core.extras import how_to_install

        raise StoreError(f"the store needs {error.name}: {how_to_install(str(error.name), 'remedy')}") from None
    except FileNotFoundError as error:
        if create:
            raise StoreError(f"{name}: {problem_of(error)}") from None
        raise NoStore(name, problem_of(error)) from None
    except (OSError, sa.exc.SQLAlchemyError) as error:
        raise StoreError(f"{name}: {problem_of(error)}") from None
    event.listen(engine, "rollback_savepoint", _forget_head)
    return Store(engine, name, Anchor(anchor))


def same_database(first: str, second: str) -> bool:
    """Whether two URLs name one database: the same file, or the same host, port and name. Raises StoreError."""

    def place(url: str) -> tuple[object, ...]:
        parsed = _parsed(url)
        if parsed.drivername == "sqlite":
            return ("sqlite", os.path.realpath(str(parsed.database)))
        return (parsed.drivername, parsed.host or "", parsed.port or 5432, parsed.database or "")

    return place(first) == place(second)


def revision(connection: Connection, name: str) -> str:
    """Which schema a database has, "" for none. Raises StoreError for one that is not ours, or not released."""
    table = sa.table(VERSION_TABLE, sa.column("version_num"))
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        others = sa.inspect(connection).get_table_names()
        if others:
            raise StoreError(f"{name}: is no store of nhc: it holds other tables ({', '.join(sorted(others)[:3])})")
        return ""
    value = str(connection.scalar(sa.select(table.c.version_num)) or "")
    if value < schema.FIRST:
        raise StoreError(
            f"{name}: has schema {value}, of before nhc's first release, which cannot be migrated: put the file or"
            " database aside, and nhc store migrate makes a new store"
        )
    if value > schema.REVISION:
        raise StoreError(f"{name}: has schema {value}, newer than this nhc's {schema.REVISION}: install a newer nhc")
    return value


_NOT_TAKEN = (UnicodeEncodeError, OverflowError)
"""What sqlite3 raises by itself, before the database, of a text that is no UTF-8 and of an integer above 64 bits."""


def problem_of(error: Exception) -> str:
    """The message of a database error, in one line and without the statement."""
    if isinstance(error, UnicodeEncodeError):
        return f"{ascii(error.object)[:60]} is not UTF-8"
    cause: object = getattr(error, "orig", None) or error
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.filename}: {cause.strerror}" if cause.filename else cause.strerror
    text = str(cause).strip() or type(cause).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^", "HINT:", "Is the server", "CONTEXT:"))]
    return printable("; ".join(kept or lines).partition(" (Background on")[0], 300)


_PSYCOPG = {
    "connect_timeout": 10,
    "application_name": "nhc",
    "tcp_user_timeout": 15_000,  # milliseconds in which a dead server's silence ends the connection
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # The server must notice a machine that is cut off as well: by default it waits for two hours.
    "options": f"-c lock_timeout={int(BUSY * 1000)} -c idle_in_transaction_session_timeout=60000"
    f" -c statement_timeout={int(PATIENCE * 900)} -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=5"
    " -c tcp_keepalives_count=3 -c tcp_user_timeout=15000",
}


_HELD = ("55P03", "40P01", "40001")
"""PostgreSQL's codes for a lock that is not available, and for a deadlock."""


def _expect_a_ping(connection: Any, _record: ConnectionPoolEntry) -> None:
    if connection is not None:
        connection.wait_at_most(PING)


def _expect_statements(connection: Any, _record: ConnectionPoolEntry, _proxy: object) -> None:
    connection.wait_at_most(PATIENCE)


@contextlib.contextmanager
def _patient(connection: Connection, patience: float) -> Iterator[None]:
    """Statements of a transaction may take longer than others."""
    if patience == PATIENCE or connection.dialect.name != "postgresql":
        yield
        return
    bounded: Any = connection.connection.dbapi_connection
    connection.execute(sa.text(f"SET LOCAL statement_timeout = {int(patience * 900)}"))
    bounded.wait_at_most(patience)
    try:
        yield
    finally:
        bounded.wait_at_most(PATIENCE)


def _parsed(url: str) -> URL:
    if not url.isprintable():  # a byte of a command line that is no UTF-8 is none either, and no driver takes it
        raise StoreError("the store's URL has a control character, or is not UTF-8")
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=os.path.abspath(url))
    except (sa.exc.ArgumentError, ValueError):
        raise StoreError("the store's URL is neither sqlite:///FILE nor postgresql://USER@HOST/DATABASE") from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise StoreError(f"the store is kept in sqlite or postgresql, not in {printable(parsed.drivername, 40)}")
    if parsed.drivername == "sqlite" and (not parsed.database or parsed.database.startswith((":memory:", "file:"))):
        raise StoreError(f"the store needs a file: {location.DEFAULT}")
    return parsed


def _file(path: str, create: bool) -> None:
    """Make the file with a mode of its own: it holds hashes of tokens and what nodes say. Raises OSError."""
    if create and not os.path.exists(path):
        written_files.make_directories(os.path.dirname(path) or ".", 0o700)
        os.close(written_files.open_or_make(path, os.O_WRONLY, 0o600))
    else:
        os.stat(path)


def _pragmas(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(BUSY * 1000)}")
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous=FULL")  # in WAL mode, less may lose the last commits in a power loss
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _use_wal(cursor: DBAPICursor) -> None:
    """Switch a new file to a write-ahead log; raises sqlite3.OperationalError if it stays locked for BUSY seconds.

    SQLite does not wait for busy_timeout here while another process, which opened the new file too, is a writer.
    """
    until = time.monotonic() + BUSY
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "database is locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(RETRY)
        else:
            return


def _begin(connection: Connection) -> None:
    """A writer takes its lock at once: if it read first, it could not wait for another writer, only fail."""
    write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _forget_head(connection: Connection, _name: str, _context: object) -> None:
    """Rows that a savepoint rolled back must not be anchored, and no later row may be chained to them."""
    if HEAD in connection.info:
        connection.info[HEAD] = None


def _hold(connection: Connection, fence: Fence) -> None:
    """Keep the leader's row as it is until this transaction ends; on SQLite there is one writer anyway."""
    row = schema.leader
    if connection.dialect.name == "postgresql":  # a leader that is stopped in here must not block the row for the next
        connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 15000"))
    asked = sa.select(row.c.number).where(row.c.name == fence.name).with_for_update(read=True)
    number = connection.scalar(asked)
    if number != fence.number:
        raise LeadershipLost(f"another leads now ({fence.name} number {number}, ours was {fence.number})")
