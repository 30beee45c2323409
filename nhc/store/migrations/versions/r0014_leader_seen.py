"""When a leader was there last: another takes the lead of one that is stopped or cut off."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("leader", sa.Column("seen", sa.Double(), nullable=True))
