"""Published criteria for clusters, as far as one node can answer them: met, not met, unknown, or not for here."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, List, NamedTuple, Sequence

from nhc.core.data.reader import table
from nhc.core.host import Host
from nhc.core.model import Outcome, Verdict
from nhc.node.facts.infiniband import ports
from nhc.node.facts.pci import accelerator_functions
from nhc.node.planning.generate import tried

STATES = NOT_MET, UNKNOWN, MET, NOT_HERE = ("not met", "unknown", "met", "not this machine")


class Criterion(NamedTuple):
    """One row of a list of criteria. Without `checks` nobody asks this machine: `elsewhere` says who can judge it."""

    id: str
    category: str
    title: str
    needs: str
    checks: Sequence[str]
    targets: str
    elsewhere: str


class CriterionState(NamedTuple):
    """What is said of a criterion: MET, NOT_MET, UNKNOWN or NOT_HERE, and why."""

    criterion: Criterion
    state: str
    why: str


def criteria(name: str) -> List[Criterion]:
    """The rows of a list that comes with nhc."""
    rows = []
    for key, category, title, needs, checks, last in table(f"{name}.tsv"):
        lines = [line.strip() for line in checks.split(";") if line.strip()]
        rows.append(Criterion(key, category, title, needs, lines, last if lines else "", "" if lines else last))
    return rows


def judge(wanted: Sequence[Criterion], host: Host, node: str) -> List[CriterionState]:
    """Run what the criteria ask, each line once, and say of each criterion what came of it."""
    there = {
        "": True,
        "gpu": bool(host.fact(accelerator_functions)),
        "rdma": bool(host.fact(ports)),
        "slurm": host.which("scontrol") is not None,
    }
    asked = [line for one in wanted if there[one.needs] for line in one.checks]
    said = tried(asked, node, host) if asked else {}
    return [_judged(one, there[one.needs], said) for one in wanted]


def _judged(one: Criterion, there: bool, said: Dict[str, List[Outcome]]) -> CriterionState:
    if not one.checks:
        return CriterionState(one, NOT_HERE, one.elsewhere)
    if not there:
        return CriterionState(one, NOT_HERE, {"gpu": "no GPU", "rdma": "no RDMA port", "slurm": "no Slurm"}[one.needs])
    outcomes = [
        outcome
        for line in one.checks
        for outcome in said[line]
        if fnmatchcase(outcome.target, one.targets) or (not outcome.target and outcome.verdict is Verdict.UNKNOWN)
    ]
    for state in (NOT_MET, UNKNOWN, MET, NOT_HERE):
        found = [outcome.message for outcome in outcomes if _state(outcome) == state]
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 and state != MET else ""
            return CriterionState(one, state, found[0] + more)
    return CriterionState(one, NOT_HERE, "nothing of it on this node")


def _state(outcome: Outcome) -> str:
    """What one outcome says of a criterion. A program that is not installed is asked for, and is not there."""
    if outcome.verdict is Verdict.UNKNOWN and outcome.reason != "CommandMissing":
        return UNKNOWN
    return {Verdict.OK: MET, Verdict.SKIP: NOT_HERE}.get(outcome.verdict, NOT_MET)
