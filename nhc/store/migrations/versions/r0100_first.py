"""The schema of the first release. Until then a change of the schema is a change of this file."""

from __future__ import annotations

from typing import Any, Dict, List

import sqlalchemy as sa
from alembic import op

from nhc.store.migrations.guards import POSTGRESQL_GUARDS, POSTGRESQL_STORAGE, SQLITE_GUARDS

revision = "0100"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def key(*names: str) -> List[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def text(*names: str) -> List[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), server_default="", nullable=False) for name in names]


def json(*names: str) -> List[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), server_default="{}", nullable=False) for name in names]


def time(*names: str) -> List[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=False) for name in names]


def no_time(*names: str) -> List[sa.Column[float]]:
    return [sa.Column(name, sa.Double()) for name in names]


def where(condition: str) -> Dict[str, Any]:
    return {f"{dialect}_where": sa.text(condition) for dialect in ("sqlite", "postgresql")}


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", ID, autoincrement=False),
        *time("at"),
        *text("actor", "what", "node"),
        sa.Column("episode", ID),
        *key("detail", "previous", "hash"),
        sa.PrimaryKeyConstraint("seq"),
        sa.Index("audit_episode", "episode", "seq"),
        sa.Index("audit_node", "node", "seq"),
    )
    op.create_table(
        "audit_segments",
        sa.Column("last", ID, autoincrement=False),
        sa.Column("first", ID, nullable=False),
        *key("hash", "path", "sha256"),
        *time("archived"),
        sa.PrimaryKeyConstraint("last"),
    )
    op.create_table(
        "breaker", *key("name"), *text("state"), *time("since"), *text("why", "by"), sa.PrimaryKeyConstraint("name")
    )
    op.create_table(
        "clocks", *key("name"), *text("boot"), *time("ahead", "since", "looked"), sa.PrimaryKeyConstraint("name")
    )
    op.create_table(
        "coverage",
        *key("node"),
        *time("began", "ended"),
        sa.PrimaryKeyConstraint("node", "began"),
        sa.Index("coverage_ended", "ended"),
    )
    op.create_table(
        "drills",
        *key("node"),
        *text("scenario"),
        *json("injected"),
        *text("by"),
        *time("began"),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "episodes",
        sa.Column("id", ID, primary_key=True),
        *key("node", "cause"),
        *text("action", "state", "rung"),
        *time("opened", "updated"),
        *no_time("due", "ended"),
        *text("outcome"),
        *json("detail"),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("train", ID),
        sa.Column("wave", sa.Integer(), server_default="0", nullable=False),
        sa.Index("episodes_ended", "ended"),
        sa.Index("episodes_left", "node", "id", **where("state IN ('escalated', 'aborted')")),
        sa.Index("episodes_node", "node", "id"),
        sa.Index("episodes_open", "node", "cause", unique=True, **where("ended IS NULL")),
        sa.Index("episodes_train", "train", **where("train IS NOT NULL")),
    )
    op.create_table(
        "holds",
        sa.Column("id", ID, primary_key=True),
        *key("scope", "name"),
        *text("by", "why"),
        *time("made"),
        *no_time("until", "ended"),
    )
    op.create_table("incidents", *key("key", "content"), *time("seen"), sa.PrimaryKeyConstraint("key"))
    op.create_table(
        "jobs",
        sa.Column("id", ID, primary_key=True),
        *key("controller", "kind", "namespace", "name", "uid"),
        *text("user", "phase", "run", "nodes"),
        sa.Column("wants", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_restarts", sa.Integer(), server_default="0", nullable=False),
        *text("checkpoint", "said"),
        *time("began", "seen"),
        *no_time("ended"),
        *text("left"),
        sa.UniqueConstraint("controller", "kind", "namespace", "name", "uid"),
        sa.Index("jobs_ended", "ended"),
    )
    op.create_table(
        "leader",
        *key("name"),
        sa.Column("number", sa.BigInteger(), nullable=False),
        *text("holder"),
        *time("since"),
        *no_time("seen"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "nodes",
        *key("node"),
        *text("kind"),
        sa.Column("groups", sa.JSON(), nullable=False),
        *text("provider_id", "address", "uuid", "boot_id"),
        sa.Column("labels", sa.JSON(), nullable=False),
        *text("verdict"),
        *no_time("since", "reported_at", "judged_at", "received_at", "covered_since"),
        *text("source", "digest"),
        *no_time("noted", "stored"),
        sa.Column("seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reported", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("report", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", ID, primary_key=True),
        *key("key", "channel", "kind", "content"),
        *time("made", "due"),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        *no_time("ended"),
        *text("outcome", "error"),
        sa.Index("outbox_ended", "ended", "channel"),
    )
    op.create_table(
        "problems",
        sa.Column("id", ID, primary_key=True),
        *key("node", "check", "reason", "target"),
        *text("verdict", "action", "message", "source"),
        *time("began", "seen"),
        *no_time("ended"),
        *text("scope", "device"),
        sa.Index("problems_ended", "ended"),
        sa.Index("problems_node", "node", "began"),
        sa.Index("problems_open", "node", "check", "reason", "target", unique=True, **where("ended IS NULL")),
    )
    op.create_table(
        "report_history",
        *key("node"),
        *time("started"),
        *text("boot_id", "verdict", "source", "digest"),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node", "started"),
        sa.Index("report_history_started", "started"),
    )
    op.create_table(
        "settings_seen",
        *key("name", "sha256"),
        *time("first", "last"),
        *key("content"),
        sa.PrimaryKeyConstraint("name", "sha256"),
    )
    op.create_table(
        "spares",
        *key("node", "pool"),
        *text("state", "stands_for"),
        sa.Column("episode", ID),
        *text("token"),
        *time("since"),
        *no_time("verified"),
        *time("updated"),
        *text("why"),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("node"),
        sa.Index("spares_stands_for", "stands_for", unique=True, **where("stands_for != ''")),
    )
    op.create_table("store", *key("id"), *time("made"), sa.PrimaryKeyConstraint("id"))
    op.create_table(
        "sweeps",
        sa.Column("id", ID, primary_key=True),
        *text("state", "by", "launcher"),
        *time("began", "updated"),
        *no_time("ended"),
        *key("plan"),
        *json("findings"),
        *text("message"),
        sa.Index("sweeps_began", "began"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, primary_key=True),
        *key("node"),
        sa.Column("hash", sa.Text(), unique=True, nullable=False),
        *text("by"),
        *time("made"),
        *no_time("ended"),
        sa.Index("tokens_ended", "ended"),
        sa.Index("tokens_node", "node"),
    )
    op.create_table(
        "trains",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text(), unique=True, nullable=False),
        *text("state", "by", "why", "digest"),
        *key("plan"),
        *time("made", "updated"),
        *no_time("ended"),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
    )
    op.create_table(
        "approvals",
        sa.Column("id", ID, primary_key=True),
        sa.Column("episode", ID, sa.ForeignKey("episodes.id"), nullable=False),
        sa.Column("attempt_number", sa.Integer(), nullable=False),
        *text("rung"),
        *time("asked"),
        *text("evidence_digest", "decided_by"),
        *time("decided"),
        *text("decision", "reason"),
        sa.UniqueConstraint("episode", "attempt_number", "decided_by"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", ID, primary_key=True),
        sa.Column("episode", ID, sa.ForeignKey("episodes.id"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *key("node"),
        *text("rung", "device", "repairer"),
        sa.Column("key", sa.Text(), unique=True, nullable=False),
        *text("state", "outcome", "message", "request_id"),
        *json("before"),
        *time("written"),
        *no_time("sent", "ended"),
        sa.UniqueConstraint("episode", "number"),
        sa.Index("attempts_node", "node", "written"),
        sa.Index("attempts_written", "written"),
    )
    op.create_table(
        "deep_results",
        sa.Column("id", ID, primary_key=True),
        *key("node", "suite", "test"),
        *text("device"),
        *no_time("value"),
        *text("unit", "verdict", "message"),
        *time("at"),
        *text("boot_id"),
        *json("versions"),
        sa.Column("sweep", ID, sa.ForeignKey("sweeps.id")),
        *text("serial"),
        sa.Index("deep_results_at", "at"),
        sa.Index("deep_results_node", "node", "suite", "at"),
        sa.Index("deep_results_serial", "serial", "at"),
    )
    op.create_table(
        "evidence",
        sa.Column("id", ID, primary_key=True),
        sa.Column("episode", ID, sa.ForeignKey("episodes.id"), nullable=False),
        *key("node", "name"),
        *text("kind", "sha256"),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        *time("collected"),
        *no_time("expires"),
        *text("message"),
        sa.Index("evidence_episode", "episode"),
        sa.Index("evidence_expires", "expires"),
    )
    op.create_table(
        "job_ends",
        sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE")),
        *key("run"),
        *text("cause", "sure", "why", "node", "restart", "own_fault"),
        sa.Column("gpus", sa.Integer(), server_default="0", nullable=False),
        *no_time("began"),
        *time("ended"),
        sa.PrimaryKeyConstraint("job", "run"),
        sa.Index("job_ends_ended", "ended"),
    )
    op.create_table(
        "job_nodes",
        sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE")),
        *key("node", "run"),
        *text("why"),
        *time("at"),
        sa.PrimaryKeyConstraint("job", "node", "run"),
        sa.Index("job_nodes_node", "node", "at"),
    )
    op.create_table(
        "job_restarts",
        sa.Column("id", ID, primary_key=True),
        sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *key("run"),
        sa.Column("key", sa.Text(), unique=True, nullable=False),
        *text("state", "outcome", "why", "nodes", "exclude", "manifest", "message"),
        *time("written"),
        *no_time("sent"),
        *time("updated"),
        *no_time("ended"),
        sa.UniqueConstraint("job", "number"),
        sa.UniqueConstraint("job", "run"),
        sa.Index("job_restarts_ended", "ended"),
        sa.Index("job_restarts_written", "written"),
    )
    op.create_table(
        "sweep_tests",
        sa.Column("sweep", ID, sa.ForeignKey("sweeps.id")),
        *key("name"),
        sa.Column("turn", sa.Integer(), nullable=False),
        *key("layer", "nodes"),
        sa.Column("repeat", sa.Integer(), nullable=False),
        *text("state"),
        *no_time("value"),
        *text("missing", "rails", "why", "handle"),
        *no_time("began", "ended"),
        sa.PrimaryKeyConstraint("sweep", "name"),
        sa.Index("sweep_tests_ended", "ended"),
    )
    op.create_table(
        "train_approvals",
        sa.Column("train", ID, sa.ForeignKey("trains.id")),
        *key("by"),
        *time("at"),
        *text("why"),
        sa.PrimaryKeyConstraint("train", "by"),
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in SQLITE_GUARDS if sqlite else (*POSTGRESQL_GUARDS, *POSTGRESQL_STORAGE):
        op.execute(statement)
