"""The tables of the store, the same on SQLite and PostgreSQL.

Times are Unix seconds. Texts that an outsider wrote have passed `nhc.core.model.printable`. A new store is made of
these tables (`nhc.store.migrate`). Once nhc is released, each change of them needs a migration with its own number.
"""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, TypeVar, Union

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

FIRST = "0100"
"""The schema of the first release. Lower numbers are from before that release: nothing migrates those."""
REVISION = "0100"
"""The newest migration: the schema that this nhc reads and writes."""

BATCH = 500
"""Rows or keys in one statement: the limit of parameters of the databases."""

T = TypeVar("T")

metadata = sa.MetaData()

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""A number that the database gives; SQLite counts up in columns of the type INTEGER alone."""


def time_column(name: str, empty: bool = False) -> sa.Column[float]:
    """Unix seconds."""
    return sa.Column(name, sa.Double, nullable=empty)


def text_column(name: str) -> sa.Column[str]:
    """A text that is never missing; "" for none."""
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def insert_into(connection: Connection, table: sa.Table) -> Union[postgresql.Insert, sqlite.Insert]:
    """An INSERT that can say what happens to an existing row: both databases have it, standard SQL does not."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def batches(keys: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    """The items in chunks that fit into one statement."""
    return (keys[begin : begin + size] for begin in range(0, len(keys), size))


def count(connection: Connection, table: sa.Table, *which: sa.ColumnElement[bool]) -> int:
    """How many rows of a table there are, all of them or those that are `which`."""
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table).where(*which)) or 0)


def with_end(table: sa.Table, is_open: Optional[bool]) -> sa.ColumnElement[bool]:
    """Which rows are open (true), which have ended (false), or all (None)."""
    if is_open is None:
        return sa.true()
    return table.c.ended.is_(None) if is_open else table.c.ended.is_not(None)


def of_nodes(asked: sa.Select[Any], table: sa.Table, names: Optional[Sequence[str]]) -> Iterator[sa.Select[Any]]:
    """Run a query about these nodes, in chunks that fit into one statement; None: about all."""
    if names is None:
        return iter([asked])
    return (asked.where(table.c.node.in_(batch)) for batch in batches(names))


store = sa.Table(
    "store",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    time_column("made"),
)
"""One row: the id of this store. The audit's anchor names it, so that the anchor of a different store is not
accepted."""

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    text_column("kind"),
    sa.Column("groups", sa.JSON, nullable=False),
    text_column("provider_id"),
    text_column("address"),
    text_column("uuid"),
    text_column("boot_id"),
    sa.Column("labels", sa.JSON, nullable=False),
    text_column("verdict"),
    time_column("since", empty=True),
    time_column("reported_at", empty=True),
    time_column("judged_at", empty=True),
    time_column("received_at", empty=True),
    time_column("covered_since", empty=True),
    text_column("source"),
    text_column("digest"),
    time_column("noted", empty=True),
    time_column("stored", empty=True),
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("rival_boot", sa.Text, nullable=False, server_default=""),
    sa.Column("rival_seq", sa.BigInteger, nullable=False, server_default="0"),
    time_column("rival_at", empty=True),
    time_column("contested", empty=True),
    time_column("machine_since", empty=True),
    text_column("mark"),
    sa.Column("reported", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("report", sa.LargeBinary),
)
"""The newest of each node. `reported_at` is when its newest report was so, `since` when it first had this verdict,
`judged_at` when the oldest result of the newest report was judged: each check of an agent has its own interval.

`report` is the newest report of a node that is CRIT or UNKNOWN; that of another node, which reported nothing new since,
may be older by the store's `refresh`, or as old as its agent's last whole report (an hour). It began at `stored`.
`noted` is when report_history last got a row. `covered_since`: no gap between then and `reported_at`. `seq` is the
number of the newest report within its boot, 0 for none. `rival_boot`, `rival_seq`, `rival_at`: the boot before, or
another boot that reported since, with its number and its arrival; `contested` is when both reported. `reported` names
the labels that came with reports, and by which source. `machine_since`: a different machine has the name since then
(`nhc.store.machines`); NULL if it was never replaced. `mark` takes the node out if the store is the source of nodes
(the adapter `store`). None of the columns that each report changes is indexed: PostgreSQL then updates a row in its
page.
"""

report_history = sa.Table(
    "report_history",
    metadata,
    sa.Column("node", sa.Text, nullable=False),
    time_column("started"),
    text_column("boot_id"),
    text_column("verdict"),
    text_column("source"),
    text_column("digest"),
    sa.Column("report", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("node", "started"),
    sa.Index("report_history_started", "started"),
)

machines = sa.Table(
    "machines",
    metadata,
    sa.Column("node", sa.Text, nullable=False),
    time_column("began"),
    text_column("uuid"),
    text_column("provider_id"),
    sa.Column("made_of", sa.JSON, nullable=False),
    sa.PrimaryKeyConstraint("node", "began"),
)
"""Which machine a node was from `began` on, and its hardware: a new row when one of both changes."""

coverage = sa.Table(
    "coverage",
    metadata,
    sa.Column("node", sa.Text, nullable=False),
    time_column("began"),
    time_column("ended"),
    sa.PrimaryKeyConstraint("node", "began"),
    sa.Index("coverage_ended", "ended"),
)
"""Spans without a gap in a node's reports, before the span that begins at `nodes.covered_since`."""

problems = sa.Table(
    "problems",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("check", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    text_column("verdict"),
    text_column("action"),
    text_column("message"),
    text_column("source"),
    time_column("began"),
    time_column("seen"),
    time_column("ended", empty=True),
    text_column("scope"),
    text_column("device"),
)
"""`scope` and `device`: what the fault is about, as in the report; "" for the node. The device's names are JSON."""
sa.Index(
    "problems_open",
    *(problems.c.node, problems.c.check, problems.c.reason, problems.c.target),
    unique=True,
    sqlite_where=problems.c.ended.is_(None),
    postgresql_where=problems.c.ended.is_(None),
)
sa.Index("problems_ended", problems.c.ended)
sa.Index("problems_node", problems.c.node, problems.c.began)

episodes = sa.Table(
    "episodes",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    text_column("action"),
    text_column("state"),
    text_column("rung"),
    time_column("opened"),
    time_column("updated"),
    time_column("ended", empty=True),
    text_column("outcome"),
    sa.Column("detail", sa.Text, nullable=False, server_default="{}"),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    sa.Column("train", Id),
    sa.Column("wave", sa.Integer, nullable=False, server_default="0"),
    sa.Column("kind", sa.Text, nullable=False, server_default="repair"),
)
"""The work of all flows, a row an item. `kind` is the flow: `repair`, `maintenance`, or another; `train` and `wave` are
those of maintenance. `detail` is JSON that its flow alone reads.
"""
sa.Index(
    "episodes_open",
    *(episodes.c.kind, episodes.c.node, episodes.c.cause),
    unique=True,
    sqlite_where=episodes.c.ended.is_(None),
    postgresql_where=episodes.c.ended.is_(None),
)
SPARE = "spare"
"""The kind of a spare's work; its `cause` is the node that it replaces."""
IN_USE = sa.text(f"kind = '{SPARE}' AND ended IS NULL")
for _name in ("node", "cause"):  # no spare replaces two nodes, and no node has two spares
    sa.Index(f"spares_{_name}", episodes.c[_name], unique=True, sqlite_where=IN_USE, postgresql_where=IN_USE)
OF_SPARES = sa.text(f"kind = '{SPARE}'")
sa.Index("spares", episodes.c.id, sqlite_where=OF_SPARES, postgresql_where=OF_SPARES)
sa.Index("episodes_ended", episodes.c.ended)
sa.Index("episodes_node", episodes.c.node, episodes.c.id)
LEFT = sa.text("state IN ('escalated', 'aborted')")
"""Episodes that ended without a change to the node; it stays out of service if it was marked: a person must act.

The values are literals: with parameters, SQLite does not use the index.
"""
sa.Index("episodes_left", episodes.c.node, episodes.c.id, sqlite_where=LEFT, postgresql_where=LEFT)
sa.Index("episodes_train", episodes.c.train, sqlite_where=episodes.c.train.is_not(None),
         postgresql_where=episodes.c.train.is_not(None))  # fmt: skip

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("episode", Id, sa.ForeignKey("episodes.id"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    text_column("rung"),
    text_column("device"),
    text_column("repairer"),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    text_column("state"),
    text_column("outcome"),
    text_column("message"),
    text_column("request_id"),
    sa.Column("before", sa.Text, nullable=False, server_default="{}"),
    time_column("written"),
    time_column("sent", empty=True),
    time_column("ended", empty=True),
    sa.UniqueConstraint("episode", "number"),
    sa.Index("attempts_node", "node", "written"),
    sa.Index("attempts_written", "written"),
)

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("episode", Id, sa.ForeignKey("episodes.id"), nullable=False),
    sa.Column("attempt_number", sa.Integer, nullable=False),
    text_column("rung"),
    time_column("asked"),
    text_column("evidence_digest"),
    text_column("decided_by"),
    time_column("decided"),
    text_column("decision"),
    text_column("reason"),
    sa.UniqueConstraint("episode", "attempt_number", "decided_by"),
)
"""One person's decision on one attempt; each person has a row."""

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("seq", Id, primary_key=True, autoincrement=False),
    time_column("at"),
    text_column("actor"),
    text_column("what"),
    text_column("node"),
    sa.Column("episode", Id),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("audit_node", "node", "seq"),
    sa.Index("audit_episode", "episode", "seq"),
)

audit_segments = sa.Table(
    "audit_segments",
    metadata,
    sa.Column("last", Id, primary_key=True, autoincrement=False),
    sa.Column("first", Id, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    time_column("archived"),
)
"""Rows of the audit log that are in a file: the triggers allow only those rows to be deleted."""

holds = sa.Table(
    "holds",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    text_column("by"),
    text_column("why"),
    time_column("made"),
    time_column("until", empty=True),
    time_column("ended", empty=True),
)

breaker = sa.Table(
    "breaker",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    text_column("state"),
    time_column("since"),
    text_column("why"),
    text_column("by"),
)

evidence = sa.Table(
    "evidence",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("episode", Id, sa.ForeignKey("episodes.id"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    text_column("kind"),
    text_column("sha256"),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("cut", sa.Boolean, nullable=False),
    time_column("collected"),
    time_column("expires", empty=True),
    text_column("message"),
    sa.Index("evidence_episode", "episode"),
    sa.Index("evidence_expires", "expires"),
)
"""The evidence that was collected, or could not be (`message` says why). The content is a file named by its SHA-256."""

settings_seen = sa.Table(
    "settings_seen",
    metadata,
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    time_column("first"),
    time_column("last"),
    sa.Column("content", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("name", "sha256"),
)
"""The settings that the remedy loop ran under, without secrets: a decision is explained by the settings of its time."""

clocks = sa.Table(
    "clocks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    text_column("boot"),
    time_column("ahead"),
    time_column("since"),
    time_column("looked"),
)
"""For each loop, since when the clock of its host is steady (nhc.core.system.steady_time)."""

leader = sa.Table(
    "leader",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    text_column("holder"),
    time_column("since"),
    time_column("seen", empty=True),
)
"""Who leads, and the fencing number: each new leader raises it, and writes of an older one fail.

`seen` is its last heartbeat: NULL if it writes none, 0 if it gave up the lead.
"""

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    text_column("by"),
    time_column("made"),
    time_column("ended", empty=True),
    sa.Index("tokens_node", "node"),
    sa.Index("tokens_ended", "ended"),
)
"""The tokens that agents report with, as SHA-256."""


# The tables of deep checks and of sweeps; part of `nhc.store.schema`'s metadata.


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


# The tables of jobs that are restarted after infrastructure faults; part of `nhc.store.schema`'s metadata.


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
"""Why a run of a job failed, as `nhc job why` says it; `own_fault` why no other node helps, "" if one may."""

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


# The tables of maintenance trains and of drills; part of `nhc.store.schema`'s metadata.


trains = sa.Table(
    "trains",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    text_column("state"),
    text_column("by"),
    text_column("why"),
    text_column("digest"),
    sa.Column("plan", sa.Text, nullable=False),
    time_column("made"),
    time_column("updated"),
    time_column("ended", empty=True),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
)
"""A maintenance train: the same work on many nodes, in waves. `plan` is the text of its file, `digest` its SHA-256.

A name is used once: the work done to a node under it is never repeated. Its nodes are episodes.
"""

train_approvals = sa.Table(
    "train_approvals",
    metadata,
    sa.Column("train", Id, sa.ForeignKey("trains.id"), nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    time_column("at"),
    text_column("why"),
    sa.PrimaryKeyConstraint("train", "by"),
)
"""Who has agreed to a train; each person has a row."""

drills = sa.Table(
    "drills",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    text_column("scenario"),
    sa.Column("injected", sa.Text, nullable=False, server_default="{}"),
    text_column("by"),
    time_column("began"),
)
"""A drill on a real node that has not been undone yet. `injected` is JSON that only nhc.lab.drills reads."""


# The tables of notices to people and their systems; part of `nhc.store.schema`'s metadata.


incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
    time_column("seen"),
)
"""One cause in one group that notices are sent about: `content` is JSON of `nhc.console.notices.incidents.Incident`."""

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    time_column("made"),
    time_column("due"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    time_column("ended", empty=True),
    text_column("outcome"),
    text_column("error"),
)
"""Messages to people and their systems; a message that has not `ended` must still be sent."""
sa.Index("outbox_ended", outbox.c.ended, outbox.c.channel)
