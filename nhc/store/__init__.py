"""The store of a fleet: reports, problems, repairs and the audit log, in SQLite or PostgreSQL."""
