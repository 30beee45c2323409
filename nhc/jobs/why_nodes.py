"""What the nodes of a job show about the time of its end: their kernel logs, and their problems in the store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Iterable, List, Optional, Sequence, Tuple

from nhc.core.model import Verdict
from nhc.core.timestamps import utc
from nhc.core.units import show_seconds
from nhc.jobs.log_catalogue import INITIATING, MEMORY, NETWORK, NODE, PROGRAM, STORAGE, UNKNOWN
from nhc.jobs.why import CGROUP, CHECKS, KERNEL, Clue
from nhc.node.facts.carrier import CarrierChange, change_of
from nhc.node.facts.outages import LONG, SETTLES, Outage, paired
from nhc.store import deep, jobs, problems
from nhc.store.database import Store

if TYPE_CHECKING:
    from nhc.node.facts.job_memory import MemoryEvents
    from nhc.node.kernlog.match import Match


NETWORK_KINDS = ("mlx5", "efa", "ena", "infiniband", "net")
STORAGE_KINDS = ("lustre", "nfs", "ceph", "fs")
"""Families of the kernel log's catalogue (nhc/core/data/kernel.tsv)."""
MOST = 200
"""Findings of one kernel log that are kept."""


def kernel_clues(node: str, messages: Iterable[Tuple[str, Optional[float]]]) -> List[Clue]:
    """What a kernel log says that may have to do with a job's end: each kind once for a device, the first time."""
    from nhc.node.kernlog.catalogue import Matcher
    from nhc.node.kernlog.match import APP, DEGRADED, FATAL

    clues: List[Clue] = []
    seen = set()
    matcher = Matcher()
    changes: List[CarrierChange] = []
    for text, at in messages:
        change = change_of(text)
        if change:
            changes.append(CarrierChange(change[0], change[1], at, change[2]))
        match = matcher.judge(text)
        if match is None or match.severity not in (APP, DEGRADED, FATAL) or len(clues) >= MOST:
            continue
        minute = int((at or 0.0) // 60)
        if (match.kind, match.code, match.device, minute) in seen:
            continue
        seen.add((match.kind, match.code, match.device, minute))
        clues.append(_clue(node, match, at))
    return clues + [_outage_clue(node, each) for each in paired(changes, -SETTLES) if each.seconds >= LONG][:MOST]


def _outage_clue(node: str, outage: Outage) -> Clue:
    text = f"{outage.link} was away for {show_seconds(outage.seconds)}: NCCL gives a link up after about {LONG:.0f} s"
    return Clue(KERNEL, NETWORK, INITIATING, "link/Outage", text, outage.begin, 0, node, node, restart="unknown")


def _clue(node: str, match: Match, at: Optional[float]) -> Clue:
    code = f"{match.kind.capitalize()} {match.code}" if match.code.isdigit() else match.code
    device = f" ({match.device})" if match.device else ""
    return Clue(KERNEL, _cause(match.kind, match.severity), INITIATING, f"{match.kind}/{match.code}",
                f"{code}{device}: {match.message}", at, 0, node, node, restart="unknown")  # fmt: skip


def _cause(kind: str, severity: str) -> str:
    """The class of a finding; `app` are an application's own faults on a device (Xid 13, 31, 43)."""
    if kind == "oom":
        return MEMORY
    if severity == "fatal":
        return NODE
    if kind in ("xid", "amdgpu") and severity == "app":
        return PROGRAM
    if kind in NETWORK_KINDS:
        return NETWORK
    return STORAGE if kind in STORAGE_KINDS else UNKNOWN


def memory_clues(node: str, events: MemoryEvents) -> List[Clue]:
    """What the kernel counts in the job's control group. A limit that was reached without a kill is no cause."""
    if not events.at_limit and not events.killed:
        return []
    killed = "1 process" if events.killed == 1 else f"{events.killed} processes"
    text = f"at its memory limit {events.at_limit} times, {killed} killed for it"
    return [Clue(CGROUP, MEMORY if events.killed else UNKNOWN, INITIATING, "memory.events", text,
                 where=f"{events.path}/memory.events", node=node)]  # fmt: skip


def check_clue(node: str, check: str, reason: str, message: str, critical: bool, at: Optional[float]) -> Clue:
    """A problem of a node that the store has. Only a critical one may be a cause."""
    return Clue(CHECKS, NODE if critical else UNKNOWN, INITIATING, f"{check}/{reason}", f"{reason}: {message}"[:200],
                at, 0, node, node)  # fmt: skip


def shared(clues: Iterable[Clue]) -> List[str]:
    """Storage and network findings that several nodes have: then no single node is at fault."""
    nodes: dict[tuple[str, str], set[str]] = {}
    for clue in clues:
        if clue.witness in (KERNEL, CHECKS) and clue.cause in (NETWORK, STORAGE) and clue.node:
            nodes.setdefault((clue.cause, clue.kind), set()).add(clue.node)
    return [f"{kind} on {len(names)} nodes: {', '.join(sorted(names)[:5])}"
            for (_cause_, kind), names in sorted(nodes.items()) if len(names) > 1]  # fmt: skip


# What the store knows of a job's nodes about the time of its end, and what nhc has done since.


LOOK_BACK = 3600.0
"""Seconds before the end within which a problem that has ended again is still looked at."""
MOST_CLUES = 20
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
        for row in jobs.find(connection, job)[:1] if job else ():
            lines += [f"restart {restart.number}: {restart.outcome or restart.state}, {restart.why}" for restart in
                     jobs.restarts(connection, row.id)[-MOST_CLUES:]]  # fmt: skip
            if row.left:
                lines.append(f"not restarted: {row.left}")
        standing = problems.list_problems(connection, nodes=list(nodes), is_open=True) if nodes else []
        lines += [f"{problem.node}: {problem.reason} stands since {utc(problem.began)}" for problem in standing
                 if problem.verdict == Verdict.CRIT.name][:MOST_CLUES]  # fmt: skip
        for (node, suite), verdict in sorted(deep.last_conclusive(connection, nodes=list(nodes)).items())[:MOST_CLUES]:
            when = "before" if ended is None or verdict.at < ended else "after"
            lines.append(f"{node}: {suite} was {verdict.verdict} {when} the end, at {utc(verdict.at)}")
    return tuple(lines)
