"""What is wrong with the nodes of jobs: critical problems in the store, and nodes that a controller calls down."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Tuple

from sqlalchemy.engine import Connection

from nhc.core.matching.node_ranges import NodeNames
from nhc.core.model import Verdict
from nhc.jobs.failure_cause import JobNodeFault
from nhc.jobs.settings import RestartSettings
from nhc.store import nodes as store_nodes
from nhc.store import problems as store_problems

LOOK_BACK = 86400.0
"""Seconds for which a problem that has ended is still looked at: a run's end may be seen late, after an outage."""

DOWN_BEFORE = 3600.0
"""Seconds for which this process remembers that a node was down. What agents report of it is in the store."""


class DownNodes:
    """The nodes that controllers called down, for an hour after they came back: a node may come back at once."""

    def __init__(self) -> None:
        self._down: Dict[Tuple[str, str], JobNodeFault] = {}

    def seen(self, name: str, down: Mapping[str, str], asked: Iterable[str], now: float) -> List[JobNodeFault]:
        """The nodes of a controller that are down now or were lately.

        `down` are those down now with what is wrong, among the nodes that were `asked` for.
        """
        since = now - DOWN_BEFORE
        kept = {key: fault for key, fault in self._down.items() if fault.ended is None or fault.ended > since}
        for node in asked:
            known = kept.get((name, node))
            if node in down and (known is None or known.ended is not None):
                kept[name, node] = JobNodeFault(node, down[node], now)
            elif node not in down and known is not None and known.ended is None:
                kept[name, node] = known._replace(ended=now)
        self._down = kept
        return [fault for (controller, _node), fault in kept.items() if controller == name]


def of_store(connection: Connection, nodes: Iterable[str], settings: RestartSettings, now: float) -> List[JobNodeFault]:
    """The critical problems of these nodes, those that have ended within a day among them, under the given names.

    If two machines push under one node's name, it is unknown which of them has the fault and which ran the job.
    """
    wanted = sorted(set(nodes))
    if not wanted:
        return []
    known = store_nodes.list_nodes(connection)
    names = NodeNames(wanted, [row.node for row in known])
    contested = {row.node for row in known if row.is_contested}
    asked = sorted({name for node in wanted for name in (node, names.stored(node))})
    rows = store_problems.list_problems(connection, nodes=asked, is_open=None, since=now - LOOK_BACK)
    return [
        JobNodeFault(names.scheduler_name(row.node),
                     f"{row.reason}: {row.message}" if row.message else row.reason, row.began,
                     row.ended)
        for row in rows
        if row.verdict == Verdict.CRIT.name and settings.counts(row.check) and row.node not in contested
    ]  # fmt: skip
