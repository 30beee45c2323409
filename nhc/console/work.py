"""What the node's screen shows of the work on it: deep verdicts, jobs, trains, spares. And a job's own screen."""

from __future__ import annotations

from typing import Dict

from nhc.console.screens import ROWS, Missing, Value, left_out
from nhc.marks.ports.job_control import JobName
from nhc.store import deep, job_restarts, node_work, spares
from nhc.store.database import Store
from nhc.store.deep import rates

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
        standing_in = spares.of_node(connection, name)
    return {
        "deep": [{**row._asdict(), "age": row.age(now)} for row in verdicts],
        "rates": [{**row._asdict(), "values": row.values[-SHOWN:], "runs": len(row.values), "change": row.change,
                   "lowest": min(value for _at, value in row.values), "median": row.middle, "last": row.last}
                  for row in measured[:ROWS]],
        "running": [{"id": row.id, "job": row.text(), "user": row.user, "phase": row.phase, "run": row.run}
                    for row in running],
        "failed": [{**row._asdict(), "job": JobName(row.kind, row.namespace, row.name).text(),
                    "id": row.job} for row in failed],
        "trains": [{key: value for key, value in row._asdict().items() if key != "detail"} for row in trains],
        "spares": [row._asdict() for row in standing_in],
    }  # fmt: skip


def watched_jobs(store: Store, name: str) -> Dict[str, int]:
    """The jobs on one node that nhc watches, their numbers by their names. Raises StoreError."""
    with store.read() as connection:
        return {row.text(): row.id for row in node_work.running_jobs(connection, name)}


def found_jobs(store: Store, text: str) -> Value:
    """The watched jobs that a person names so. Raises StoreError."""
    with store.read() as connection:
        rows = job_restarts.find(connection, text)[:ROWS] if text else []
    return {"rows": [{"id": row.id, "job": row.text(), "user": row.user, "phase": row.phase, "ended": row.ended}
                     for row in rows]}  # fmt: skip


def job(store: Store, number: int) -> Value:
    """One watched job: why its runs failed, its restarts, and where. Raises Missing, StoreError."""
    with store.read() as connection:
        watched = job_restarts.get(connection, number)
        if watched is None:
            raise Missing(f"there is no job {number}")
        restarts = job_restarts.restarts(connection, number)
        pairs = job_restarts.pairs(connection, number)
        ends = job_restarts.ends(connection, number)
    return {
        **watched._asdict(), "job": watched.text(), "nodes": list(watched.node_names)[:ROWS],
        "restarts": [{**row._asdict(), "nodes": row.nodes.split()[:ROWS]} for row in restarts[-ROWS:]],
        "ends": [row._asdict() for row in ends[-ROWS:]],
        "pairs": [row._asdict() for row in pairs[:ROWS]], "left_out": left_out(pairs),
    }  # fmt: skip
