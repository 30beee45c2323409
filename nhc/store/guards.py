"""What a new store has besides its tables: triggers that keep the audit log as it is, and how rows are stored."""

from __future__ import annotations

ONLY_ADDED = "the audit log is only ever added to"
IN_A_SEGMENT = "OLD.seq <= COALESCE((SELECT max(last) FROM audit_segments), 0)"

# SQLite's INSERT OR REPLACE deletes a row past the trigger for that; PostgreSQL's ON CONFLICT DO UPDATE is an update to
# its triggers.
ONLY_NEW = """
CREATE TRIGGER {table}_only_new BEFORE INSERT ON {table}
WHEN NEW.{number} <= (SELECT COALESCE(max({number}), -1) FROM {table})
BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END
"""
SQLITE_GUARDS = (
    f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    (
        f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN NOT ({IN_A_SEGMENT})"
        f" BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END"
    ),
    f"CREATE TRIGGER segments_no_update BEFORE UPDATE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    f"CREATE TRIGGER segments_no_delete BEFORE DELETE ON audit_segments BEGIN SELECT RAISE(ABORT, '{ONLY_ADDED}'); END",
    ONLY_NEW.format(table="audit", number="seq"),
    ONLY_NEW.format(table="audit_segments", number="last"),
)
POSTGRESQL_GUARDS = (
    (
        f"CREATE FUNCTION nhc_only_added() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{ONLY_ADDED}'; END $$"
    ),
    (
        f"CREATE FUNCTION nhc_only_archived() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF {IN_A_SEGMENT} THEN RETURN OLD; END IF; RAISE EXCEPTION '{ONLY_ADDED}'; END $$"
    ),
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION nhc_only_added()",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION nhc_only_archived()",
    "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit EXECUTE FUNCTION nhc_only_added()",
    (
        "CREATE TRIGGER segments_no_change BEFORE UPDATE OR DELETE ON audit_segments"
        " FOR EACH ROW EXECUTE FUNCTION nhc_only_added()"
    ),
    "CREATE TRIGGER segments_no_truncate BEFORE TRUNCATE ON audit_segments EXECUTE FUNCTION nhc_only_added()",
)
POSTGRESQL_STORAGE = (
    # A report is compressed already, and lies apart from its row: a report that changes nothing then rewrites a
    # short row within its page, for which each page keeps room.
    "ALTER TABLE nodes SET (fillfactor = 60, toast_tuple_target = 256, autovacuum_vacuum_scale_factor = 0.05)",
    "ALTER TABLE nodes ALTER COLUMN report SET STORAGE EXTERNAL",
    "ALTER TABLE report_history ALTER COLUMN report SET STORAGE EXTERNAL",
)
