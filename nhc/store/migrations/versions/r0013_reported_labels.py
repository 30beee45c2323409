"""Which labels of a node came with its reports, and by which source: one that is no longer reported ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("reported", sa.JSON(), server_default="{}", nullable=False))
