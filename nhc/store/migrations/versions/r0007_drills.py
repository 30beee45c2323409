"""Drills on real nodes that have not been undone yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "drills",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), server_default="", nullable=False),
        sa.Column("injected", sa.Text(), server_default="{}", nullable=False),
        sa.Column("by", sa.Text(), server_default="", nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
