"""Maintenance trains, their nodes, their work and who agreed; and spare nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default="", nullable=False)


def _time(name: str, empty: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=empty)


def upgrade() -> None:
    op.create_table(
        "trains",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        *(_text(name) for name in ("state", "by", "why", "digest")),
        sa.Column("plan", sa.Text(), nullable=False),
        _time("made"),
        _time("updated"),
        _time("ended", empty=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "train_nodes",
        sa.Column("train", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        _text("state"),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        _time("marked", empty=True),
        _time("updated"),
        _time("ended", empty=True),
        _text("outcome"),
        sa.Column("detail", sa.Text(), server_default="{}", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.ForeignKeyConstraint(["train"], ["trains.id"]),
        sa.PrimaryKeyConstraint("train", "node"),
    )
    op.create_index("train_nodes_ended", "train_nodes", ["ended"], unique=False)
    op.create_table(
        "train_acts",
        sa.Column("train", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        *(_text(name) for name in ("what", "rung", "repairer")),
        sa.Column("key", sa.Text(), nullable=False),
        _text("state"),
        sa.Column("tries", sa.Integer(), server_default="1", nullable=False),
        *(_text(name) for name in ("message", "request_id")),
        sa.Column("before", sa.Text(), server_default="{}", nullable=False),
        _time("written"),
        _time("ended", empty=True),
        sa.ForeignKeyConstraint(["train"], ["trains.id"]),
        sa.PrimaryKeyConstraint("train", "node", "step"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("train_acts_written", "train_acts", ["written"], unique=False)
    op.create_table(
        "train_approvals",
        sa.Column("train", ID, nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        _time("at"),
        _text("why"),
        sa.ForeignKeyConstraint(["train"], ["trains.id"]),
        sa.PrimaryKeyConstraint("train", "by"),
    )
    op.create_table(
        "spares",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        *(_text(name) for name in ("state", "stands_for")),
        sa.Column("episode", ID, nullable=True),
        _text("token"),
        _time("since"),
        _time("verified", empty=True),
        _time("updated"),
        _text("why"),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    given = sa.text("stands_for != ''")
    op.create_index("spares_stands_for", "spares", ["stands_for"], unique=True, sqlite_where=given,
                    postgresql_where=given)  # fmt: skip
