"""`nhc remedy episodes`: open episodes, or all of them."""

from __future__ import annotations

import time
from typing import List, Optional

import click

from nhc.cli.common_options import FORMAT
from nhc.cli.durations import DURATION
from nhc.cli.option_groups import GroupedCommand, under
from nhc.cli.printing import age, show, show_table
from nhc.cli.remedy_options import SETTINGS, STORE, detail_of, episode_value, opened
from nhc.model import printable
from nhc.store import episodes


@click.command("episodes", cls=GroupedCommand)
@under("Which")("--node", default="", metavar="NAME", help="Only this node's, ended ones too.")
@under("Which")("--ended", type=DURATION, default=None, metavar="TIME", help="Also those that ended within this time.")
@under("Which")("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="At most so many.")
@SETTINGS
@STORE
@FORMAT
def command(
    node: str, ended: Optional[float], limit: int, settings_path: Optional[str], store_url: Optional[str], form: str
) -> None:
    """List episodes, the newest last. Exit status: 0, 2 wrong usage, 3 the store cannot be read."""
    with opened(settings_path, store_url) as store, store.read() as connection:
        rows = episodes.list_episodes(connection, node=node, is_open=None if node else True, limit=limit)
        if ended is not None and not node:
            rows += episodes.list_episodes(connection, is_open=False, ended_since=time.time() - ended, limit=limit)
    rows = sorted(rows, key=lambda row: row.id)[-limit:]
    if form == "json":
        show([episode_value(row) for row in rows])
        return
    lines: List[List[str]] = [["ID", "NODE", "STATE", "RUNG", "OPENED", "MOVED", "WHY"]]
    for row in rows:
        why = row.outcome or detail_of(row).waiting or row.cause
        lines.append([
            str(row.id), printable(row.node), row.state, row.rung or "-", f"{age(row.opened)} ago",
            f"{age(row.updated)} ago", printable(why),
        ])  # fmt: skip
    show_table(lines)
    if not rows:
        click.echo("no episode")
