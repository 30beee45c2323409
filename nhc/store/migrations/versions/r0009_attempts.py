"""Attempts by their time: rates are counted from those of the last hour or day, and none is ever deleted."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_index("attempts_written", "attempts", ["written"], unique=False)
