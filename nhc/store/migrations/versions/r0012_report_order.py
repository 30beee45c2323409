"""The number of a node's newest report within its boot, by which the reports of a boot are put in order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("seq", sa.BigInteger(), server_default="0", nullable=False))
