"""`--mark`: hand a sweep's reports to an adapter, by the rules that every marking goes by.

The policy's ceilings and rates hold, the ledger remembers, and without --apply it is only shown.
"""

from __future__ import annotations

import sys
from typing import Callable, List

from nhc.core.plugins import NoAdapter
from nhc.core.render.json import from_dict
from nhc.core.settings.settings_file import SettingsError
from nhc.fleet.history import SweepHistory
from nhc.fleet.node_result import was_reached
from nhc.fleet.settings import FleetSettings
from nhc.fleet.sweep_request import SweepRequest
from nhc.marks.plugins import open_adapter
from nhc.marks.policy.ledger import Ledger, LedgerError
from nhc.marks.policy.policy_file import policy_of
from nhc.marks.policy.reconcile import SyncResult, show_text, sync
from nhc.marks.ports.adapter import AdapterError, Marker, Operation

MarkReports = Callable[[SweepHistory, int], int]
"""Hands the reports of a sweep, by its number, to an adapter. Returns the exit status."""


class BadMark(ValueError):
    """The adapter or the policy cannot be used. One line."""


def prepare(request: SweepRequest, site: FleetSettings) -> MarkReports:
    """A function that marks once the sweep is over; everything that can be wrong is found now. Raises BadMark."""
    try:
        settings = policy_of(site.policy_path, site.max_drained)
        marker = open_adapter(request.mark)
    except (SettingsError, NoAdapter, AdapterError, ValueError) as error:
        raise BadMark(str(error)) from None
    if not isinstance(marker, Marker):
        raise BadMark(f"--mark {request.mark}: this adapter knows nodes but cannot mark them")

    def mark(history: SweepHistory, number: int) -> int:
        reports = list(filter(was_reached, map(from_dict, history.records(number))))
        ledger = Ledger(site.ledger_path or None, "nhc fleet check")
        try:
            done = sync(marker, reports, settings.policy, ledger, apply=request.apply or settings.apply)
        except (AdapterError, LedgerError) as error:
            print(f"nhc fleet check: --mark {request.mark}: {error}", file=sys.stderr)
            return 3
        stream = sys.stdout if request.form == "text" else sys.stderr
        stream.write("".join(f"{line}\n" for line in lines_of(done, request.mark)))
        return 1 if done.failed else 0

    return mark


def lines_of(done: SyncResult, adapter: str) -> List[str]:
    """What was marked, a line for each reason. That nodes could be put back is no matter of a sweep."""
    withheld = tuple(each for each in done.withheld if each.operation is not Operation.CLEAR)
    text = show_text(done._replace(withheld=withheld))
    return [f"{adapter}: {line}" for line in (*done.notes, *text.splitlines())]
