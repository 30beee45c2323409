"""What changed between two sweeps: nodes that are worse or better, checks that fail now or no longer, nodes that
came or went.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import Verdict
from nhc.fleet.fold import Problem
from nhc.fleet.history import Sweep, SweepHistory, default_path
from nhc.fleet.node_result import findings
from nhc.fleet.settings import FleetSettings
from nhc.fleet.summary import sweep_line
from nhc.fleet.sweep_request import FleetDiff


class NodeChange(NamedTuple):
    """A node's verdict before and after, and the problems that came and went."""

    node: str
    old: Verdict
    new: Verdict
    begun: Tuple[Problem, ...]
    ended: Tuple[Problem, ...]


class Diff(NamedTuple):
    old: Sweep
    new: Sweep
    changes: Tuple[NodeChange, ...]
    came: Tuple[str, ...]
    went: Tuple[str, ...]
    same: int

    @property
    def worse(self) -> List[NodeChange]:
        return [change for change in self.changes if change.new > change.old]


def compare(history: SweepHistory, old: Sweep, new: Sweep) -> Diff:
    """Compare node by node. Raises HistoryError."""
    before, after = _problems(history, old), _problems(history, new)
    changes: List[NodeChange] = []
    for node in sorted(before.keys() & after.keys()):
        (old_verdict, had), (new_verdict, has) = before[node], after[node]
        if old_verdict != new_verdict or had != has:
            changes.append(NodeChange(node, old_verdict, new_verdict, _worst_first(has - had), _worst_first(had - has)))
    same = len(before.keys() & after.keys()) - len(changes)
    return Diff(
        old, new, tuple(changes), tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())), same,
    )  # fmt: skip


def _problems(history: SweepHistory, sweep: Sweep) -> Dict[str, Tuple[Verdict, Set[Problem]]]:
    by_host: Dict[str, Tuple[Verdict, Set[Problem]]] = {}
    for report, _extra in history.reports(sweep.id):
        problems = {(c, t, v, r) for c, t, v, r, _message, _action in findings(report) if v > Verdict.OK}
        by_host[report.host] = (report.verdict, problems)
    return by_host


def _worst_first(problems: Set[Problem]) -> Tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (-problem[2], problem)))


def show(diff: Diff) -> str:
    """Changes with the same story share a line, the worst first."""
    lines = [f"old: {sweep_line(diff.old)}", f"new: {sweep_line(diff.new)}"]
    alike: Dict[Tuple[Any, ...], List[str]] = {}
    for change in diff.changes:
        alike.setdefault(tuple(change)[1:], []).append(change.node)
    for (old, new, begun, ended), nodes in sorted(alike.items(), key=lambda item: (-item[0][1], item[0][0], item[1])):
        moved = f"{old.name} -> {new.name}" if old is not new else f"still {new.name}"
        changes = [*(f"now {_problem(problem)}" for problem in begun), *(f"no longer {_problem(p)}" for p in ended)]
        lines.append(f"{fold(nodes)}{f' ({len(nodes)})' if len(nodes) > 1 else ''} {moved}{': ' if changes else ''}"
                     + "; ".join(changes))  # fmt: skip
    if diff.came:
        lines.append(f"new nodes ({len(diff.came)}): {fold(diff.came)}")
    if diff.went:
        why = " (it was interrupted)" if diff.new.interrupted else ""
        lines.append(f"not in the new sweep{why} ({len(diff.went)}): {fold(diff.went)}")
    better = sum(1 for change in diff.changes if change.new < change.old)
    lines.append(f"{len(diff.worse)} worse, {better} better, {diff.same} the same")
    return "".join(f"{line}\n" for line in lines)


def _problem(problem: Problem) -> str:
    check, target, verdict, reason = problem
    return " ".join(part for part in (Verdict(verdict).name, reason, check, target) if part)


def to_json(diff: Diff) -> Dict[str, Any]:
    def rows(problems: Tuple[Problem, ...]) -> List[Dict[str, str]]:
        return [{"check": c, "target": t, "verdict": Verdict(v).name, "reason": r} for c, t, v, r in problems]

    return {
        "schema": 1,
        "old": {"id": diff.old.id, "started": diff.old.started},
        "new": {"id": diff.new.id, "started": diff.new.started},
        "changes": [
            {"node": c.node, "old": c.old.name, "new": c.new.name, "begun": rows(c.begun), "ended": rows(c.ended)}
            for c in diff.changes
        ],
        "came": list(diff.came),
        "went": list(diff.went),
        "same": diff.same,
    }


def run(args: FleetDiff, site: FleetSettings) -> int:
    """Carry out `nhc fleet diff`. Raises HistoryError."""
    kept = SweepHistory(site.history or default_path(), create=False)
    diff = compare(kept, kept.find(args.old), kept.find(args.new))
    if args.form == "json":
        sys.stdout.write(json.dumps(to_json(diff), indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(show(diff))
    return 1 if diff.worse else 0
