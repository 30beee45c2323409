"""The tables of maintenance trains, of spare nodes and of drills; part of `nhc.store.schema`'s metadata."""

from __future__ import annotations

import sqlalchemy as sa

from nhc.store.schema import Id, metadata, text_column, time_column

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

A name is used once: what was done to a node under it is never done again.
"""

train_nodes = sa.Table(
    "train_nodes",
    metadata,
    sa.Column("train", Id, sa.ForeignKey("trains.id"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("wave", sa.Integer, nullable=False),
    text_column("state"),
    sa.Column("step", sa.Integer, nullable=False, server_default="0"),
    time_column("marked", empty=True),
    time_column("updated"),
    time_column("ended", empty=True),
    text_column("outcome"),
    sa.Column("detail", sa.Text, nullable=False, server_default="{}"),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
    sa.PrimaryKeyConstraint("train", "node"),
    sa.Index("train_nodes_ended", "ended"),
    sa.Index("train_nodes_node", "node"),
)
"""A node of a train. `step` counts the work that is done or begun; `detail` is JSON that only nhc.trains reads."""

train_acts = sa.Table(
    "train_acts",
    metadata,
    sa.Column("train", Id, sa.ForeignKey("trains.id"), nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    text_column("what"),
    text_column("rung"),
    text_column("repairer"),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    text_column("state"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="1"),
    text_column("message"),
    text_column("request_id"),
    sa.Column("before", sa.Text, nullable=False, server_default="{}"),
    time_column("written"),
    time_column("ended", empty=True),
    sa.PrimaryKeyConstraint("train", "node", "step"),
    sa.Index("train_acts_written", "written"),
)
"""One piece of work on one node, written down before it is begun. The key of the table lets each be begun once."""

train_approvals = sa.Table(
    "train_approvals",
    metadata,
    sa.Column("train", Id, sa.ForeignKey("trains.id"), nullable=False),
    sa.Column("by", sa.Text, nullable=False),
    time_column("at"),
    text_column("why"),
    sa.PrimaryKeyConstraint("train", "by"),
)
"""Who has agreed to a train; two persons are two rows."""

spares = sa.Table(
    "spares",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("pool", sa.Text, nullable=False),
    text_column("state"),
    text_column("stands_for"),
    sa.Column("episode", Id),
    text_column("token"),
    time_column("since"),
    time_column("verified", empty=True),
    time_column("updated"),
    text_column("why"),
    sa.Column("version", sa.Integer, nullable=False, server_default="1"),
)
"""A spare node: waiting, on its way in, in service for another node, on its way back."""
sa.Index("spares_stands_for", spares.c.stands_for, unique=True, sqlite_where=spares.c.stands_for != "",
         postgresql_where=spares.c.stands_for != "")  # fmt: skip

drills = sa.Table(
    "drills",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    text_column("scenario"),
    sa.Column("injected", sa.Text, nullable=False, server_default="{}"),
    text_column("by"),
    time_column("began"),
)
"""A drill on a real node that has not been undone yet. `injected` is JSON that only nhc.drills reads."""
