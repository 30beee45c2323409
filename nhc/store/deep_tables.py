"""The tables of deep checks and of sweeps; part of `nhc.store.schema`'s metadata."""

from __future__ import annotations

import sqlalchemy as sa

from nhc.store.schema import Id, metadata, text_column, time_column

sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("id", Id, primary_key=True),
    text_column("state"),
    text_column("by"),
    text_column("launcher"),
    time_column("began"),
    time_column("updated"),
    time_column("ended", empty=True),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("findings", sa.Text, nullable=False, server_default="{}"),
    text_column("message"),
    sa.Index("sweeps_began", "began"),
)
"""A sweep of deep checks over many nodes. `plan` and `findings` are JSON that only nhc.deep reads."""

sweep_tests = sa.Table(
    "sweep_tests",
    metadata,
    sa.Column("sweep", Id, sa.ForeignKey("sweeps.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("layer", sa.Text, nullable=False),
    sa.Column("nodes", sa.Text, nullable=False),
    sa.Column("repeat", sa.Integer, nullable=False),
    text_column("state"),
    sa.Column("value", sa.Double),
    text_column("missing"),
    text_column("rails"),
    text_column("why"),
    text_column("handle"),
    time_column("began", empty=True),
    time_column("ended", empty=True),
    sa.PrimaryKeyConstraint("sweep", "name"),
    sa.Index("sweep_tests_ended", "ended"),
)
"""One test of a sweep: planned, running, and then what was seen. `handle` is the launcher's name for it."""

deep_results = sa.Table(
    "deep_results",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("suite", sa.Text, nullable=False),
    sa.Column("test", sa.Text, nullable=False),
    text_column("device"),
    sa.Column("value", sa.Double),
    text_column("unit"),
    text_column("verdict"),
    text_column("message"),
    time_column("at"),
    text_column("boot_id"),
    sa.Column("versions", sa.Text, nullable=False, server_default="{}"),
    sa.Column("sweep", Id, sa.ForeignKey("sweeps.id")),
    text_column("serial"),
    sa.Index("deep_results_serial", "serial", "at"),
    sa.Index("deep_results_node", "node", "suite", "at"),
    sa.Index("deep_results_at", "at"),
)
"""What deep checks have found, one row a measured value or a verdict. A node that was not tested gets none."""
