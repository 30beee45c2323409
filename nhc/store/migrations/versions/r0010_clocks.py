"""The clocks of loops: waits go on after a restart, and begin anew where the clock was set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "clocks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("boot", sa.Text(), server_default="", nullable=False),
        sa.Column("ahead", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("looked", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
