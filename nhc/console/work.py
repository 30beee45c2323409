"""What the node's screen shows of the work on it: deep verdicts, jobs, trains, spares. And a job's own screen."""

from __future__ import annotations

from nhc.console.screens import ROWS, Missing, Value
from nhc.store import deep, jobs, node_work
from nhc.store.database import Store
from nhc.store.deep_rates import rates

MEASURED = 2000
"""Results of a node that are read for how its values went: of eight GPUs with a dozen values each, the last 20 runs."""
SHOWN = 20
"""Values of each that the page draws."""


def work_of(store: Store, name: str, now: float) -> Value:
    """The work on one node, as texts with who and why. Raises StoreError."""
    with store.read() as connection:
        verdicts = deep.last_verdicts(connection, name)
        measured = rates(deep.history(connection, name, MEASURED))
        running = node_work.running_jobs(connection, name)
        failed = node_work.failed_jobs(connection, name)
        trains = node_work.trains_of(connection, name)
        spares = node_work.spares_of(connection, name)
    return {
        "deep": [{**one._asdict(), "age": one.age(now)} for one in verdicts],
        "rates": [{**one._asdict(), "values": one.values[-SHOWN:], "runs": len(one.values), "change": one.change,
                   "lowest": min(value for _at, value in one.values), "median": one.middle, "last": one.last}
                  for one in measured[:ROWS]],
        "running": [{"id": one.id, "job": one.text(), "user": one.user, "phase": one.phase, "run": one.run}
                    for one in running],
        "failed": [{**one._asdict(), "job": "/".join(part for part in (one.kind, one.namespace, one.name) if part),
                    "id": one.job} for one in failed],
        "trains": [{key: value for key, value in one._asdict().items() if key != "detail"} for one in trains],
        "spares": [one._asdict() for one in spares],
    }  # fmt: skip


def job(store: Store, number: int) -> Value:
    """One watched job: why its runs failed, its restarts, and where. Raises Missing, StoreError."""
    with store.read() as connection:
        found = node_work.job(connection, number)
        if found is None:
            raise Missing(f"there is no job {number}")
        restarts = jobs.restarts(connection, number)
        pairs = jobs.pairs(connection, number)
        ends = jobs.ends(connection, number)
    return {
        **found._asdict(), "job": found.text(), "nodes": list(found.node_names)[:ROWS],
        "restarts": [{**one._asdict(), "nodes": one.nodes.split()[:ROWS]} for one in restarts[-ROWS:]],
        "ends": [one._asdict() for one in ends[-ROWS:]],
        "pairs": [one._asdict() for one in pairs[:ROWS]], "left_out": max(0, len(pairs) - ROWS),
    }  # fmt: skip
