"""What Alembic runs to migrate: `nhc.store.migrate` hands it the connection, inside a transaction of its own."""

from __future__ import annotations

from alembic import context

from nhc.store.database import VERSION_TABLE
from nhc.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
