"""Bring a database to the schema of this nhc.

An empty one gets the tables as `nhc.store.schema` has them. One with an older schema is changed by Alembic's migrations
in `nhc.store.migrations`.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, List

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from nhc.core.plugins import one_line
from nhc.store import schema
from nhc.store.database import LONG, VERSION_TABLE, Store, revision
from nhc.store.errors import StoreError

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory


# What a new store has besides its tables: triggers that protect the audit log, and storage options of rows.


ONLY_ADDED = "the audit log is only ever added to"
IN_A_SEGMENT = "OLD.seq <= COALESCE((SELECT max(last) FROM audit_segments), 0)"

# SQLite's INSERT OR REPLACE deletes a row past the trigger for that; PostgreSQL's ON CONFLICT DO UPDATE is an update to
# its triggers.
ONLY_NEW = """
CREATE TRIGGER {table}_only_new BEFORE INSERT ON {table}
WHEN NEW.{number} <= (SELECT COALESCE(max({number}), -1) FROM {table})
BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END
"""
SQLITE_GUARDS = (
    f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    (
        f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN NOT ({IN_A_SEGMENT})"
        f" BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END"
    ),
    f"CREATE TRIGGER segments_no_update BEFORE UPDATE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    f"CREATE TRIGGER segments_no_delete BEFORE DELETE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    ONLY_NEW.format(table="audit", number="seq"),
    ONLY_NEW.format(table="audit_segments", number="last"),
)
POSTGRESQL_GUARDS = (
    (
        f"CREATE FUNCTION nhc_only_added() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{ONLY_ADDED}'; END $$"
    ),
    (
        f"CREATE FUNCTION nhc_only_archived() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF {IN_A_SEGMENT} THEN RETURN OLD; END IF; RAISE EXCEPTION '{ONLY_ADDED}'; END $$"
    ),
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION nhc_only_added()",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION nhc_only_archived()",
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit EXECUTE FUNCTION nhc_only_added()",
    (
        "CREATE TRIGGER segments_no_change BEFORE UPDATE OR DELETE ON audit_segments"
        " FOR EACH ROW EXECUTE FUNCTION nhc_only_added()"
    ),
    "CREATE TRIGGER segments_no_truncate BEFORE TRUNCATE ON audit_segments EXECUTE FUNCTION nhc_only_added()",
)
POSTGRESQL_STORAGE = (
    # A report is compressed already, and stored apart from its row: a report that changes nothing then rewrites a short
    # row within its page, for which each page keeps room.
    "ALTER TABLE nodes SET (fillfactor = 60, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.05)",
    "ALTER TABLE nodes ALTER COLUMN report SET STORAGE EXTERNAL",
    "ALTER TABLE report_history ALTER COLUMN report SET STORAGE EXTERNAL",
)


_LOCK = 0x6E686353
METADATA = schema.metadata


def upgrade(store: Store, now: float) -> List[str]:
    """Make the tables, or carry out the migrations that are missing, in one transaction. Returns the numbers of the
    schemas that were applied. Raises StoreError.
    """
    with store.write(patience=LONG) as connection:
        if not store.sqlite:  # several servers may start at once
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        before = revision(connection, store.name)
        done = [number for number in known() if number > before]
        if not before:
            _make(connection)
        elif done:
            _run(connection)
        if not schema.count(connection, schema.store):
            connection.execute(sa.insert(schema.store), {"id": uuid.uuid4().hex, "made": now})
    return done


def known() -> List[str]:
    """The numbers of all migrations, the oldest first. Raises StoreError."""
    try:
        from alembic.util.exc import CommandError
    except ImportError:
        raise
    except Exception as error:  # it reads the entry points of every installed package
        raise StoreError(
            f"alembic cannot be loaded, since it cannot read what some package here offers: {one_line(error)}:"
            " nhc list names that package"
        ) from None
    try:
        return [migration.revision for migration in _script().walk_revisions()][::-1]
    except (CommandError, OSError) as error:
        raise StoreError(f"nhc's own migrations cannot be read: {error}") from None


def differences(store: Store) -> List[str]:
    """How the database's tables differ from those of this nhc. Raises StoreError."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with store.read(LONG) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        return [_difference(difference) for difference in compare_metadata(context, METADATA)]


def _difference(difference: object) -> str:
    parts = difference if isinstance(difference, tuple) else (difference,)
    if parts and isinstance(parts[0], (list, tuple)):
        return "; ".join(_difference(part) for part in parts)
    return " ".join(
        str(getattr(part, "name", part)) for part in parts if isinstance(part, str) or hasattr(part, "name")
    )


def _make(connection: Connection) -> None:
    """The tables with their guards, in a database that has none, and the number of their schema."""
    from alembic.migration import MigrationContext

    METADATA.create_all(connection)
    sqlite = connection.dialect.name == "sqlite"
    for statement in SQLITE_GUARDS if sqlite else (*POSTGRESQL_GUARDS, *POSTGRESQL_STORAGE):
        connection.execute(sa.text(statement))
    MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).stamp(_script(), "head")


def _run(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", _directory().replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"the migrations cannot be carried out: {error}") from None


def _script() -> ScriptDirectory:
    """The migrations. Raises OSError, CommandError."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(_directory())


def _directory() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")
