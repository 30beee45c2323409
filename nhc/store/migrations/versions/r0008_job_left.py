"""Why the newest run of a job is left alone, as a word that notices and metrics can read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("left", sa.Text(), server_default="", nullable=False))
