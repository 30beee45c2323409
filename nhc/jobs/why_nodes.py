"""What the nodes of a job show about the time of its end: their kernel logs, and their problems in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, Optional, Tuple

from nhc.core.units import show_seconds
from nhc.jobs.log_catalogue import INITIATING, MEMORY, NETWORK, NODE, PROGRAM, STORAGE, UNKNOWN
from nhc.jobs.why import CGROUP, CHECKS, KERNEL, Clue
from nhc.node.facts.carrier import LONG_OUTAGE, PORT_SETTLES, CarrierChange, Outage, change_of, paired_outages

if TYPE_CHECKING:
    from nhc.node.facts.jobs_here import MemoryEvents
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
    return (
        clues
        + [_outage_clue(node, each) for each in paired_outages(changes, -PORT_SETTLES) if each.seconds >= LONG_OUTAGE][
            :MOST
        ]
    )


def _outage_clue(node: str, outage: Outage) -> Clue:
    away = show_seconds(outage.seconds)
    text = f"{outage.link} was away for {away}: NCCL gives a link up after about {LONG_OUTAGE:.0f} s"
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
