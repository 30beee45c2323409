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

A name is used once: what was done to a node under it is never done again. Its nodes are episodes.
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
"""A drill on a real node that has not been undone yet. `injected` is JSON that only nhc.lab.drills reads."""
