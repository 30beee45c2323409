"""What the store knows of the nodes of jobs: their critical problems."""

from __future__ import annotations

from typing import Iterable, List

from sqlalchemy.engine import Connection

from nhc.jobs.judge import JobNodeFault
from nhc.jobs.settings import RestartSettings
from nhc.matching.node_names import Names
from nhc.model import Verdict
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems

LOOK_BACK = 86400.0
"""Seconds for which a problem that has ended is still looked at: a run's end may be seen late, after an outage."""


def of_store(connection: Connection, nodes: Iterable[str], settings: RestartSettings, now: float) -> List[JobNodeFault]:
    """The critical problems of these nodes, those that have ended within a day among them, under the given names."""
    wanted = sorted(set(nodes))
    if not wanted:
        return []
    known = [row.node for row in store_nodes.list_nodes(connection)]
    names = Names(wanted, known)
    asked = sorted({name for node in wanted for name in (node, names.stored(node))})
    found = store_problems.list_problems(connection, nodes=asked, is_open=None, since=now - LOOK_BACK)
    return [
        JobNodeFault(
            names.here(one.node), f"{one.reason}: {one.message}" if one.message else one.reason, one.began, one.ended
        )
        for one in found
        if one.verdict == Verdict.CRIT.name and settings.counts(one.check)
    ]
