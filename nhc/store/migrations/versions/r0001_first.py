"""The first schema: reports, problems, episodes with their attempts, and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

ONLY_ADDED = "the audit log is only ever added to"
IN_A_SEGMENT = "OLD.seq <= COALESCE((SELECT max(last) FROM audit_segments), 0)"

SQLITE_GUARDS = (
    f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    (
        f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN NOT ({IN_A_SEGMENT})"
        f" BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END"
    ),
    f"CREATE TRIGGER segments_no_update BEFORE UPDATE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    f"CREATE TRIGGER segments_no_delete BEFORE DELETE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
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
    # A report is compressed already, and lies apart from its row: a report that changes nothing then rewrites a
    # short row within its page, for which each page keeps room.
    "ALTER TABLE nodes SET (fillfactor = 60, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.05)",
    "ALTER TABLE nodes ALTER COLUMN report SET STORAGE EXTERNAL",
    "ALTER TABLE report_history ALTER COLUMN report SET STORAGE EXTERNAL",
)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", ID, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), server_default="", nullable=False),
        sa.Column("what", sa.Text(), server_default="", nullable=False),
        sa.Column("node", sa.Text(), server_default="", nullable=False),
        sa.Column("episode", ID, nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("audit_episode", "audit", ["episode", "seq"], unique=False)
    op.create_index("audit_node", "audit", ["node", "seq"], unique=False)
    op.create_table(
        "audit_segments",
        sa.Column("last", ID, autoincrement=False, nullable=False),
        sa.Column("first", ID, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("archived", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("last"),
    )
    op.create_table(
        "breaker",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("by", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "coverage",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node", "began"),
    )
    op.create_index("coverage_ended", "coverage", ["ended"], unique=False)
    op.create_table(
        "episodes",
        sa.Column("id", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("rung", sa.Text(), server_default="", nullable=False),
        sa.Column("opened", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.Column("due", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("detail", sa.Text(), server_default="{}", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("episodes_ended", "episodes", ["ended"], unique=False)
    op.create_index(
        "episodes_open",
        "episodes",
        ["node", "cause"],
        unique=True,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_table(
        "holds",
        sa.Column("id", ID, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), server_default="", nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "leader",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), server_default="", nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("groups", sa.JSON(), nullable=False),
        sa.Column("provider_id", sa.Text(), server_default="", nullable=False),
        sa.Column("address", sa.Text(), server_default="", nullable=False),
        sa.Column("uuid", sa.Text(), server_default="", nullable=False),
        sa.Column("boot_id", sa.Text(), server_default="", nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("verdict", sa.Text(), server_default="", nullable=False),
        sa.Column("since", sa.Double(), nullable=True),
        sa.Column("reported_at", sa.Double(), nullable=True),
        sa.Column("judged_at", sa.Double(), nullable=True),
        sa.Column("received_at", sa.Double(), nullable=True),
        sa.Column("covered_since", sa.Double(), nullable=True),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.Column("noted", sa.Double(), nullable=True),
        sa.Column("stored", sa.Double(), nullable=True),
        sa.Column("report", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "problems",
        sa.Column("id", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("check", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), server_default="", nullable=False),
        sa.Column("action", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("seen", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("problems_ended", "problems", ["ended"], unique=False)
    op.create_index(
        "problems_open",
        "problems",
        ["node", "check", "reason", "target"],
        unique=True,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )
    op.create_table(
        "report_history",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        sa.Column("boot_id", sa.Text(), server_default="", nullable=False),
        sa.Column("verdict", sa.Text(), server_default="", nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.Text(), server_default="", nullable=False),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node", "started"),
    )
    op.create_index("report_history_started", "report_history", ["started"], unique=False)
    op.create_table(
        "settings_seen",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("first", sa.Double(), nullable=False),
        sa.Column("last", sa.Double(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "sha256"),
    )
    op.create_table(
        "store",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), server_default="", nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_index("tokens_ended", "tokens", ["ended"], unique=False)
    op.create_index("tokens_node", "tokens", ["node"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("id", ID, nullable=False),
        sa.Column("episode", ID, nullable=False),
        sa.Column("attempt_number", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Text(), server_default="", nullable=False),
        sa.Column("asked", sa.Double(), nullable=False),
        sa.Column("evidence_digest", sa.Text(), server_default="", nullable=False),
        sa.Column("decided_by", sa.Text(), server_default="", nullable=False),
        sa.Column("decided", sa.Double(), nullable=False),
        sa.Column("decision", sa.Text(), server_default="", nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episodes.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("episode", "attempt_number", "decided_by"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", ID, nullable=False),
        sa.Column("episode", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("rung", sa.Text(), server_default="", nullable=False),
        sa.Column("device", sa.Text(), server_default="", nullable=False),
        sa.Column("repairer", sa.Text(), server_default="", nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("outcome", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("request_id", sa.Text(), server_default="", nullable=False),
        sa.Column("before", sa.Text(), server_default="{}", nullable=False),
        sa.Column("written", sa.Double(), nullable=False),
        sa.Column("sent", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["episode"], ["episodes.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("episode", "number"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("attempts_node", "attempts", ["node", "written"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("id", ID, nullable=False),
        sa.Column("episode", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("sha256", sa.Text(), server_default="", nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.Column("collected", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["episode"], ["episodes.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("evidence_episode", "evidence", ["episode"], unique=False)
    op.create_index("evidence_expires", "evidence", ["expires"], unique=False)
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in SQLITE_GUARDS if sqlite else (*POSTGRESQL_GUARDS, *POSTGRESQL_STORAGE):
        op.execute(statement)
