"""The answer to "why did my job end": three lines for a person, its evidence, and JSON (docs/why.schema.json)."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from nhc.core.timestamps import utc
from nhc.core.units import show_number
from nhc.jobs.log_catalogue import (
    DISK,
    GPU,
    INITIATING,
    MEMORY,
    NETWORK,
    NODE,
    PROGRAM,
    SCHEDULER,
    STORAGE,
    TIME,
    UNKNOWN,
)  # fmt: skip
from nhc.jobs.why import ELSEWHERE, NOT_KNOWN, Clue, JobVerdict
from nhc.jobs.why_logs import cascades

SCHEMA = "nhc.job-why/1"
ANSWERS = {
    PROGRAM: "your program", MEMORY: "your limits (memory)", TIME: "your limits (time)", DISK: "your limits (disk)",
    NODE: "the node", NETWORK: "the network", STORAGE: "the storage", SCHEDULER: "the scheduler or a person",
    GPU: "not known", UNKNOWN: "not known",
}  # fmt: skip
SHOWN = 60
"""Clues that are listed."""
QUICK_TESTS = "run the node's quick tests before the next job (nhc deep run quick)"
"""What to do where no witness knows the cause: at Meta 78 % of the unexpected interruptions of a training run were
hardware (The Llama 3 Herd of Models, 3.3.4)."""
_HELPS = {
    "no": "a restart does not help before this is changed",
    "may": "a restart may help",
    ELSEWHERE: "yes, but not on this node",
    "unknown": "whether a restart helps is not known",
}


class Witness(NamedTuple):
    """One source that could be asked. `missing` says why it was not read, "" where it was."""

    name: str
    missing: str = ""


class JobWhy(NamedTuple):
    """All of the answer. `state` is the scheduler's own name for the job's end; `done` is what nhc did about it.

    `output` is the file of the job's standard output, "" where it has none.
    """

    job: str
    verdict: JobVerdict
    clues: Tuple[Clue, ...] = ()
    witnesses: Tuple[Witness, ...] = ()
    nodes: Tuple[str, ...] = ()
    state: str = ""
    started: Optional[float] = None
    ended: Optional[float] = None
    shared: Tuple[str, ...] = ()
    done: Tuple[str, ...] = ()
    output: str = ""


def summary(why: JobWhy) -> List[str]:
    """Three lines."""
    verdict = why.verdict
    first = verdict.first
    where = f", {place(first)}" if first and place(first) else ""
    when = f" at {utc(first.at)}" if first and first.at else ""
    name = f"job {why.job}: " if why.job else ""
    sure = f" ({verdict.sure})" if verdict.sure != NOT_KNOWN else ""
    lines = [f"{name}{ANSWERS[verdict.cause]}{sure}: {verdict.what}{where}{when}"]
    clues = [f"{clue.witness} {clue.where}" for clue in (verdict.clues or verdict.against)[:3]]
    missing = [witness.name for witness in why.witnesses if witness.missing]
    lines.append(f"by: {', '.join(clues) or 'nothing'}" + (f"; not read: {', '.join(missing)}" if missing else ""))
    helps = _HELPS[verdict.restart]
    if verdict.restart == ELSEWHERE and first and first.node:
        helps = f"{helps}: without {first.node}"
    if verdict.cause in (GPU, UNKNOWN):
        helps = f"{helps}; {QUICK_TESTS}"
    lines.append(f"restart: {helps}" + (f"; nhc: {why.done[0]}" if why.done else ""))
    return lines


def evidence(why: JobWhy) -> List[str]:
    """What every witness said, in the order of time, and what was not read."""
    ordered = sorted(why.clues, key=lambda clue: (clue.at is None, clue.at or 0.0, clue.where, clue.order))
    initiating = [clue for clue in ordered if clue.role == INITIATING]
    rest = [clue for clue in ordered if clue.role != INITIATING]
    clues = sorted([*initiating, *rest][:SHOWN], key=ordered.index)
    lines = [_line(clue, clue in why.verdict.clues, clue in why.verdict.against) for clue in clues]
    if len(ordered) > len(clues):
        lines.append(f"  and {show_number(len(ordered) - len(clues), 'more line')}, of them "
                     f"{cascades(ordered) - cascades(clues)} that only follow")  # fmt: skip
    lines += [f"  shared: {finding}" for finding in why.shared]
    lines += [f"  not read: {witness.name}: {witness.missing}" for witness in why.witnesses if witness.missing]
    lines += [f"  nhc: {action}" for action in why.done]
    return lines


def _line(clue: Clue, decided: bool, against: bool) -> str:
    mark = ">" if decided else "!" if against else " "
    at = utc(clue.at) if clue.at else "-"
    role = "" if clue.role == INITIATING else f" ({clue.role})"
    return f"{mark} {at}  {clue.witness} {clue.where}{f' [{place(clue)}]' if place(clue) else ''}: {clue.text}{role}"


def place(clue: Clue) -> str:
    """Rank, node and GPU, as far as they are known."""
    parts = [f"rank {clue.rank}"] if clue.rank >= 0 else []
    if clue.node:
        parts.append(clue.node)
    if clue.gpu >= 0:
        parts.append(f"GPU {clue.gpu}")
    return ", ".join(parts)


def as_json(why: JobWhy) -> Dict[str, Any]:
    """By docs/why.schema.json."""
    verdict, first = why.verdict, why.verdict.first
    return {
        "schema": SCHEMA, "job": why.job, "state": why.state, "answer": ANSWERS[verdict.cause],
        "cause": UNKNOWN if verdict.cause == GPU else verdict.cause, "sure": verdict.sure, "what": verdict.what,
        "restart": verdict.restart, "at": first.at if first else None, "node": first.node if first else "",
        "rank": first.rank if first and first.rank >= 0 else None,
        "gpu": first.gpu if first and first.gpu >= 0 else None,
        "nodes": list(why.nodes), "started": why.started, "ended": why.ended,
        "evidence": [{**_json(clue), "decided": clue in verdict.clues, "against": clue in verdict.against}
                     for clue in why.clues],
        "shared": list(why.shared), "done": list(why.done),
        "witnesses": [{"name": name, "read": not missing, "missing": missing} for name, missing in why.witnesses],
    }  # fmt: skip


def _json(clue: Clue) -> Dict[str, Any]:
    return {
        "witness": clue.witness, "cause": clue.cause, "role": clue.role, "kind": clue.kind, "text": clue.text,
        "at": clue.at, "where": clue.where, "node": clue.node, "rank": clue.rank if clue.rank >= 0 else None,
        "gpu": clue.gpu if clue.gpu >= 0 else None,
    }  # fmt: skip
