"""The migrations of the store, for Alembic: each file of `versions` changes the schema from one number to the next."""
