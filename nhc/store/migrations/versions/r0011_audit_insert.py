"""Only new numbers come into the audit log: INSERT OR REPLACE of SQLite deletes a row past the trigger for that."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"

GUARD = """
CREATE TRIGGER {table}_only_new BEFORE INSERT ON {table}
WHEN NEW.{number} <= (SELECT COALESCE(max({number}), -1) FROM {table})
BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END
"""


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":  # PostgreSQL's ON CONFLICT DO UPDATE is an update to its triggers
        op.execute(GUARD.format(table="audit", number="seq"))
        op.execute(GUARD.format(table="audit_segments", number="last"))
