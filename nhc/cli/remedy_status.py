"""`nhc remedy status`: what the loop is at, what holds it, and what it may do."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import Any, Dict, List, Mapping, Optional

import click

from nhc.cli.common_options import FORMAT
from nhc.cli.option_groups import GroupedCommand
from nhc.cli.printing import age, show, show_table, when
from nhc.cli.remedy_options import SETTINGS, STORE, detail_of, settings_of
from nhc.model import printable
from nhc.plugins import NoAdapter
from nhc.policy.bounds import ACTIONS
from nhc.policy.breaker import NAME
from nhc.ports.adapter import AdapterError
from nhc.remedy.ladder import Mode
from nhc.remedy.site import verdicts_by_cluster
from nhc.rounds.leader import leads
from nhc.store import ended_episodes, episodes, holds, nodes
from nhc.store.settings import fleet_store


@click.command("status", cls=GroupedCommand)
@SETTINGS
@STORE
@FORMAT
def command(settings_path: Optional[str], store_url: Optional[str], form: str) -> int:
    """Show open episodes, nodes that wait for a person, the breaker, holds, and which actions are enabled.

    Exit status: 0, 1 while the breaker is open or a step is stalled, 2 wrong usage, 3 the store cannot be read.
    """
    settings, now = settings_of(settings_path, store_url), time.time()
    with closing(fleet_store(settings.store, create=False)) as store:
        with store.read() as connection:
            rows = episodes.list_episodes(connection, is_open=True)
            left = ended_episodes.left_to_persons(connection)
            breaker = holds.breakers(connection).get(NAME)
            held = holds.in_force(connection, now)
            verdicts = nodes.counts(connection, now - settings.sources.max_age)
        leader = leads(store)
    known, elsewhere = "store", ""
    if not verdicts and settings.sources.adapter:
        known = "cluster"
        try:
            verdicts = verdicts_by_cluster(settings, now)
        except (NoAdapter, AdapterError) as error:
            elsewhere = f"the store knows none, and the cluster cannot be asked: {printable(str(error))}"
    is_open = breaker is not None and breaker.state == "open"
    states, details = Counter(row.state for row in rows), {row.id: detail_of(row) for row in rows}
    stalled = [row for row in rows if details[row.id].alarmed]
    modes = {action: settings.mode(action) for action in ACTIONS}
    value: Dict[str, Any] = {
        "leader": leader or "", "breaker": breaker._asdict() if breaker is not None and is_open else None,
        "actions": {action: mode.value for action, mode in modes.items()}, "nodes": verdicts,
        "nodes_by": known,
        "episodes": dict(states),
        "stalled": [{"episode": row.id, "node": row.node, "waiting": details[row.id].waiting} for row in stalled],
        "left": [{"episode": row.id, "node": row.node, "since": row.ended, "why": row.outcome} for row in left],
        "holds": [hold._asdict() for hold in held],
    }  # fmt: skip
    if form == "json":
        show(value)
        return 1 if is_open or stalled else 0
    enabled = [action for action, mode in modes.items() if mode is Mode.ON]
    lines: List[List[str]] = [
        ["leader", printable(leader) if leader else "nobody has led this store yet"],
        ["enabled", ", ".join(enabled) or "nothing: nhc remedy run --dry-run shows what would be done"],
        ["breaker", f"OPEN since {when(breaker.since)} by {printable(breaker.by)}: {printable(breaker.why)}"
         if breaker is not None and is_open else "closed"],
        ["nodes", elsewhere or _counted(verdicts, known)],
        ["episodes", ", ".join(f"{count} {state}" for state, count in states.items()) or "none is open"],
    ]  # fmt: skip
    for row in stalled:
        what = f"episode {row.id} {printable(row.node)} {row.state} for {age(row.updated)}"
        lines.append(["stalled", f"{what}: {printable(details[row.id].waiting)}"])
    for row in left:
        what = f"episode {row.id} {printable(row.node)} {row.state} {age(row.ended or row.updated)} ago"
        lines.append(["a person", f"{what}: {printable(row.outcome)}: nhc remedy release {printable(row.node)}"])
    lines += [["hold", f"{hold.name or 'fleet'} by {hold.by} until {when(hold.until)}: {hold.why}"] for hold in held]
    show_table(lines)
    return 1 if is_open or stalled else 0


def _counted(verdicts: Mapping[str, int], known: str) -> str:
    """The nodes by verdict, and whose view that is, where it is not the store's."""
    counts = ", ".join(f"{count} {verdict or 'without a report'}" for verdict, count in sorted(verdicts.items()))
    if counts and known == "cluster":
        return f"{counts} (by the cluster: the store has none)"
    return counts or "none is known"
