"""The schema of the first release, from which later ones are counted. A new store is made by `nhc.store.migrate`."""

from __future__ import annotations

revision = "0100"
down_revision = None


def upgrade() -> None:
    """Nothing is migrated to it: an older schema is refused (`nhc.store.database.revision`)."""
