"""Deep checks: the results of nodes, and sweeps over many with their tests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", ID, nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("by", sa.Text(), server_default="", nullable=False),
        sa.Column("launcher", sa.Text(), server_default="", nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("updated", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("findings", sa.Text(), server_default="{}", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sweeps_began", "sweeps", ["began"], unique=False)
    op.create_table(
        "sweep_tests",
        sa.Column("sweep", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("layer", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("missing", sa.Text(), server_default="", nullable=False),
        sa.Column("rails", sa.Text(), server_default="", nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("handle", sa.Text(), server_default="", nullable=False),
        sa.Column("began", sa.Double(), nullable=True),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["sweep"], ["sweeps.id"]),
        sa.PrimaryKeyConstraint("sweep", "name"),
    )
    op.create_index("sweep_tests_ended", "sweep_tests", ["ended"], unique=False)
    op.create_table(
        "deep_results",
        sa.Column("id", ID, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("test", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), server_default="", nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("unit", sa.Text(), server_default="", nullable=False),
        sa.Column("verdict", sa.Text(), server_default="", nullable=False),
        sa.Column("message", sa.Text(), server_default="", nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("boot_id", sa.Text(), server_default="", nullable=False),
        sa.Column("versions", sa.Text(), server_default="{}", nullable=False),
        sa.Column("sweep", ID, nullable=True),
        sa.ForeignKeyConstraint(["sweep"], ["sweeps.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("deep_results_node", "deep_results", ["node", "suite", "at"], unique=False)
    op.create_index("deep_results_at", "deep_results", ["at"], unique=False)
