"""What one run over a scheduler's nodes did, or would do: as lines for a person, and as JSON."""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, Optional, Tuple

from nhc.core.matching.node_ranges import fold
from nhc.core.model import printable
from nhc.marks.policy.reconcile import SyncResult
from nhc.marks.ports.adapter import Applied, Effect, Operation

NAMES = {operation: operation.value for operation in Operation}
"""What operations are called where the scheduler has no words of its own for them."""


def show_text(done: SyncResult, names: Mapping[Operation, str] = NAMES) -> str:
    """One line for each reason: what is done, to which nodes, why."""
    lines: List[str] = []
    fates = {(operation, applied.node): applied for operation, applied in done.applied}
    rows: Dict[Tuple[str, str], List[str]] = {}
    for planned in done.operations:
        fate = fates.get((planned.operation, planned.node))
        verb = f"would {names[planned.operation]}" if done.dry_run else names[planned.operation]
        why = planned.because
        if fate is not None and fate.effect is not Effect.CHANGED:
            verb = f"{'FAILED to' if fate.effect is Effect.FAILED else 'did not'} {verb}"
            why = fate.message
        rows.setdefault((verb, why), []).append(planned.node)
    for withheld in done.withheld:
        rows.setdefault((f"not {names[withheld.operation]}", withheld.why), []).append(withheld.node)
    width = max((len(verb) for verb, _why in rows), default=0)
    for (verb, why), nodes in rows.items():
        lines.append(f"{verb:<{width}}  {printable(fold(nodes))}  {printable(why)}")
    count = len(done.operations)
    summary = f"{count - len(done.failed)} of {count} done"
    if done.dry_run:
        summary = f"{count} to do, dry run: nothing changed (--apply does it)"
    asked = "" if done.calls is None else f"; {done.calls} controller calls"
    lines.append(f"{summary}; {len(done.withheld)} left as they are{asked}")
    lines += [done.counts] if done.counts else []
    return "\n".join(lines) + "\n"


def show_json(done: SyncResult) -> str:
    """The same as JSON."""
    fates = {(operation, applied.node): applied for operation, applied in done.applied}
    value = {
        "dry_run": done.dry_run,
        "nodes": done.nodes,
        **({} if done.calls is None else {"calls": done.calls}),
        "remedies": [
            {
                "node": printable(planned.node),
                "deed": planned.operation.value,
                "because": printable(planned.because),
                "action": planned.mark.action.value if planned.mark else "none",
                **_fate(fates.get((planned.operation, planned.node))),
            }
            for planned in done.operations
        ],
        "withheld": [
            {"node": printable(withheld.node), "deed": withheld.operation.value, "why": printable(withheld.why)}
            for withheld in done.withheld
        ],
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _fate(applied: Optional[Applied]) -> Dict[str, str]:
    return {} if applied is None else {"effect": applied.effect.value, "message": printable(applied.message)}
