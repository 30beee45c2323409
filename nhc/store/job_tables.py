"""The tables of jobs that are restarted after infrastructure faults; part of `nhc.store.schema`'s metadata."""

from __future__ import annotations

import sqlalchemy as sa

from nhc.store.schema import Id, metadata


def _time(name: str, empty: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=empty)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default="")


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("controller", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    _text("user"),
    _text("phase"),
    _text("run"),
    _text("nodes"),
    sa.Column("wants", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_restarts", sa.Integer, nullable=False, server_default="0"),
    _text("checkpoint"),
    _text("said"),
    _time("began"),
    _time("seen"),
    _time("ended", empty=True),
    sa.UniqueConstraint("controller", "kind", "namespace", "name", "uid"),
    sa.Index("jobs_ended", "ended"),
)
"""The jobs that nhc restarts after infrastructure faults. `run` and `nodes` are those of the newest run seen; `said` is
what was said last about it, so that it is said once."""

job_restarts = sa.Table(
    "job_restarts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("job", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    _text("state"),
    _text("outcome"),
    _text("why"),
    _text("nodes"),
    _text("exclude"),
    _text("manifest"),
    _text("message"),
    _time("written"),
    _time("sent", empty=True),
    _time("updated"),
    _time("ended", empty=True),
    sa.UniqueConstraint("job", "run"),
    sa.UniqueConstraint("job", "number"),
    sa.Index("job_restarts_written", "written"),
    sa.Index("job_restarts_ended", "ended"),
)
"""One restart of a job. A run that failed is restarted once: `job` and `run` are unique together."""

job_nodes = sa.Table(
    "job_nodes",
    metadata,
    sa.Column("job", Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    _text("why"),
    _time("at"),
    sa.PrimaryKeyConstraint("job", "node", "run"),
    sa.Index("job_nodes_node", "node", "at"),
)
"""Which node failed which job, in which of its runs: the job is kept off that node."""
