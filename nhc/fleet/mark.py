"""`--mark`: hand a sweep's reports to an adapter, by the rules that every marking goes by.

The policy's ceilings and rates hold, the ledger remembers, and without --apply it is only shown.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List, Tuple

from nhc.fleet.history import SweepHistory
from nhc.fleet.node_result import was_reached
from nhc.fleet.sweep_options import SweepOptions
from nhc.matching.node_ranges import fold
from nhc.model import printable
from nhc.plugins import NoAdapter, open_adapter
from nhc.policy.decide import Policy
from nhc.policy.ledger import Ledger, LedgerError
from nhc.policy.limits import read_limit
from nhc.policy.policy_file import PolicyFile, load
from nhc.policy.reconcile import SyncResult, sync
from nhc.ports.adapter import AdapterError, Effect, Marker, Operation
from nhc.render.json import from_dict
from nhc.settings.settings_file import SettingsError

POLICY = "/etc/nhc/policy.toml"


MarkReports = Callable[[SweepHistory, int, SweepOptions], int]
"""Hands the reports of a sweep, by its number, to an adapter. Returns the exit status."""


class BadMark(ValueError):
    """The adapter or the policy cannot be used. One line."""


def prepare(options: SweepOptions) -> MarkReports:
    """A function that marks once the sweep is over; everything that can be wrong is found now. Raises BadMark."""
    path = options["policy_path"] or (POLICY if os.path.exists(POLICY) else None)
    try:
        settings = load(path) if path else PolicyFile(Policy())
        if options["max_drained"]:
            settings = settings._replace(policy=settings.policy.with_ceiling(read_limit(options["max_drained"])))
        marker = open_adapter(options["mark"] or "")
    except (SettingsError, NoAdapter, AdapterError, ValueError) as error:
        raise BadMark(str(error)) from None
    if not isinstance(marker, Marker):
        raise BadMark(f"--mark {options['mark']}: this adapter knows nodes but cannot mark them")

    def mark(history: SweepHistory, number: int, given: SweepOptions) -> int:
        reports = list(filter(was_reached, map(from_dict, history.records(number))))
        ledger = Ledger(given["ledger_path"], "nhc fleet check")
        try:
            done = sync(marker, reports, settings.policy, ledger, apply=bool(given["apply"]) or settings.apply)
        except (AdapterError, LedgerError) as error:
            print(f"nhc fleet check: --mark {given['mark']}: {error}", file=sys.stderr)
            return 3
        stream = sys.stdout if given["form"] == "text" else sys.stderr
        stream.write(show(done, given["mark"] or ""))
        return 1 if done.failed else 0

    return mark


def show(done: SyncResult, name: str) -> str:
    """One line for each reason: what is done, to which nodes, why."""
    fates = {(operation, applied.node): applied for operation, applied in done.applied}
    rows: Dict[Tuple[str, str], List[str]] = {}
    for planned in done.decision.operations:
        fate = fates.get((planned.operation, planned.node))
        action, why = f"{'would ' if done.dry_run else ''}{planned.operation.value}", planned.because
        if fate is not None and fate.effect is not Effect.CHANGED:
            action = f"{'FAILED to' if fate.effect is Effect.FAILED else 'did not'} {planned.operation.value}"
            why = fate.message
        rows.setdefault((action, why), []).append(planned.node)
    for withheld in done.decision.withheld:
        if withheld.operation is not Operation.CLEAR:
            rows.setdefault((f"not {withheld.operation.value}", withheld.why), []).append(withheld.node)
    lines = [f"{name}: {action}  {printable(fold(nodes))}  {printable(why)}" for (action, why), nodes in rows.items()]
    count = len(done.decision.operations)
    lines.append(
        f"{name}: {count} to do, dry run: nothing changed (--apply does it)"
        if done.dry_run
        else f"{name}: {count - len(done.failed)} of {count} done"
    )
    return "".join(f"{line}\n" for line in lines)
