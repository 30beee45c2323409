"""The tables of notices to people and their systems; part of `nhc.store.schema`'s metadata."""

from __future__ import annotations

import sqlalchemy as sa

from nhc.store.schema import Id, metadata, text_column, time_column

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
"""Messages to people and their systems; one that has not `ended` is still to be sent."""
sa.Index("outbox_ended", outbox.c.ended, outbox.c.channel)
