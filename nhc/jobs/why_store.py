"""What the store knows of a job's nodes about the time of its end, and what nhc has done since."""

from __future__ import annotations

import time
from typing import List, Optional, Sequence, Tuple

from nhc.core.model import Verdict
from nhc.core.timestamps import utc
from nhc.jobs.why import Clue
from nhc.jobs.why_nodes import check_clue
from nhc.store import deep, job_restarts, problems
from nhc.store.database import Store

LOOK_BACK = 3600.0
"""Seconds before the end within which a problem that has ended again is still looked at."""
MOST = 20
"""Lines of one kind that are shown."""


def node_clues(store: Store, nodes: Sequence[str], ended: Optional[float]) -> List[Clue]:
    """The problems of the nodes about that time (None: now). Raises StoreError."""
    at = time.time() if ended is None else ended
    with store.read() as connection:
        rows = problems.list_problems(connection, nodes=list(nodes), is_open=None, since=at - LOOK_BACK)
    return [check_clue(row.node, row.check, row.reason, row.message, row.verdict == Verdict.CRIT.name, row.began)
            for row in rows if row.began <= at + LOOK_BACK]  # fmt: skip


def done(store: Store, job: str, nodes: Sequence[str], ended: Optional[float]) -> Tuple[str, ...]:
    """What nhc did: restarts of the job, what stands on its nodes, and their newest proofs. Raises StoreError."""
    lines: List[str] = []
    with store.read() as connection:
        for row in job_restarts.find(connection, job)[:1] if job else ():
            lines += [f"restart {restart.number}: {restart.outcome or restart.state}, {restart.why}" for restart in
                     job_restarts.restarts(connection, row.id)[-MOST:]]  # fmt: skip
            if row.left:
                lines.append(f"not restarted: {row.left}")
        standing = problems.list_problems(connection, nodes=list(nodes), is_open=True) if nodes else []
        lines += [f"{problem.node}: {problem.reason} stands since {utc(problem.began)}" for problem in standing
                 if problem.verdict == Verdict.CRIT.name][:MOST]  # fmt: skip
        for (node, suite), verdict in sorted(deep.last_conclusive(connection, nodes=list(nodes)).items())[:MOST]:
            when = "before" if ended is None or verdict.at < ended else "after"
            lines.append(f"{node}: {suite} was {verdict.verdict} {when} the end, at {utc(verdict.at)}")
    return tuple(lines)
