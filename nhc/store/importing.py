"""Imports existing reports: files of reports, directories of them, kept sweeps."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple

from nhc.core.model import Report
from nhc.store.database import Store
from nhc.store.intake import Incoming, IntakeSettings, Receipt
from nhc.store.reports import receive

BATCH = 500


class Imported(NamedTuple):
    """How many reports came to what, and why some were refused (the first few)."""

    receipts: Dict[str, int]
    refused: List[str]


def import_reports(store: Store, reports: Iterable[Report], source: str, pace: IntakeSettings, now: float) -> Imported:
    """Take in reports, the oldest first within each batch. Raises StoreError: the batches before are kept."""
    counts = dict.fromkeys((receipt.value for receipt in Receipt), 0)
    refused: List[str] = []
    for batch in _batches(reports):
        batch.sort(key=lambda report: report.started)
        with store.write() as connection:
            done = receive(connection, [Incoming(report, source, now) for report in batch], pace)
        for receipt in done:
            counts[receipt.receipt.value] += 1
            if receipt.receipt is Receipt.REFUSED and len(refused) < 10:
                refused.append(f"{receipt.node}: {receipt.message}")
    return Imported(counts, refused)


def _batches(reports: Iterable[Report]) -> Iterator[List[Report]]:
    batch: List[Report] = []
    for report in reports:
        batch.append(report)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
