"""What a node's screen asks for is found by its node: its problems, episodes and trains of a whole year."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("problems_node", "problems", ["node", "began"], unique=False)
    op.create_index("episodes_node", "episodes", ["node", "id"], unique=False)
    op.create_index("train_nodes_node", "train_nodes", ["node"], unique=False)
