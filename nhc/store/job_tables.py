"""The tables of jobs that are restarted after infrastructure faults; part of `nhc.store.schema`'s metadata."""

from __future__ import annotations

import sqlalchemy as sa

from nhc.store.schema import Id, metadata, text_column, time_column

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("controller", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    text_column("user"),
    text_column("phase"),
    text_column("run"),
    text_column("nodes"),
    sa.Column("wants", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_restarts", sa.Integer, nullable=False, server_default="0"),
    text_column("checkpoint"),
    text_column("logged"),
    time_column("began"),
    time_column("seen"),
    time_column("ended", empty=True),
    text_column("left"),
    sa.UniqueConstraint("controller", "kind", "namespace", "name", "uid"),
    sa.Index("jobs_ended", "ended"),
)
"""The jobs that nhc restarts after infrastructure faults. `run` and `nodes` are those of the newest run seen; `logged`
is the last line that was logged about it, so that it is logged once; `left` why its newest run is left alone."""

job_restarts = sa.Table(
    "job_restarts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("job", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    text_column("state"),
    text_column("outcome"),
    text_column("why"),
    text_column("nodes"),
    text_column("exclude"),
    text_column("manifest"),
    text_column("message"),
    time_column("written"),
    time_column("sent", empty=True),
    time_column("updated"),
    time_column("ended", empty=True),
    sa.UniqueConstraint("job", "run"),
    sa.UniqueConstraint("job", "number"),
    sa.Index("job_restarts_written", "written"),
    sa.Index("job_restarts_ended", "ended"),
)
"""One restart of a job. A run that failed is restarted once: `job` and `run` are unique together."""

job_ends = sa.Table(
    "job_ends",
    metadata,
    sa.Column("job", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    text_column("cause"),
    text_column("sure"),
    text_column("why"),
    text_column("node"),
    text_column("restart"),
    text_column("own_fault"),
    sa.Column("gpus", sa.Integer, nullable=False, server_default="0"),
    time_column("began", empty=True),
    time_column("ended"),
    sa.PrimaryKeyConstraint("job", "run"),
    sa.Index("job_ends_ended", "ended"),
)
"""Why a run of a job failed, as `nhc job why` says it; `own_fault` why no other node helps, "" where one may."""

job_nodes = sa.Table(
    "job_nodes",
    metadata,
    sa.Column("job", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    text_column("why"),
    time_column("at"),
    sa.PrimaryKeyConstraint("job", "node", "run"),
    sa.Index("job_nodes_node", "node", "at"),
)
"""Which node failed which job, in which of its runs: the job is kept off that node."""
