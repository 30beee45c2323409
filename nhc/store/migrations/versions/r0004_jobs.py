"""Jobs that are restarted after infrastructure faults: the jobs, their restarts, and which node failed which job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default="", nullable=False)


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", ID, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("controller", "kind", "namespace", "name", "uid")),
        *(_text(name) for name in ("user", "phase", "run", "nodes")),
        sa.Column("wants", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_restarts", sa.Integer(), server_default="0", nullable=False),
        _text("checkpoint"),
        _text("said"),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("seen", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("controller", "kind", "namespace", "name", "uid"),
    )
    op.create_index("jobs_ended", "jobs", ["ended"], unique=False)
    op.create_table(
        "job_restarts",
        sa.Column("id", ID, nullable=False),
        sa.Column("job", ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        *(_text(name) for name in ("state", "outcome", "why", "nodes", "exclude", "manifest", "message")),
        sa.Column("written", sa.Double(), nullable=False),
        sa.Column("sent", sa.Double(), nullable=True),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
        sa.UniqueConstraint("job", "run"),
        sa.UniqueConstraint("job", "number"),
    )
    op.create_index("job_restarts_written", "job_restarts", ["written"], unique=False)
    op.create_index("job_restarts_ended", "job_restarts", ["ended"], unique=False)
    op.create_table(
        "job_nodes",
        sa.Column("job", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        _text("why"),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "node", "run"),
    )
    op.create_index("job_nodes_node", "job_nodes", ["node", "at"], unique=False)
