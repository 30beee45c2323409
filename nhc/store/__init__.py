"""What is known of a fleet, kept: reports, problems, repairs and the audit log, in SQLite or PostgreSQL."""
