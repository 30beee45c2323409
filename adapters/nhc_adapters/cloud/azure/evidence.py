"""What Azure shows of a machine without asking it: its serial console and a picture of its screen."""

from __future__ import annotations

from typing import Iterator

from nhc.ports.adapter import AdapterError
from nhc.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.cloud.azure.api import Azure
from nhc_adapters.cloud.azure.identity import Vm
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.evidence import EvidenceCollector


def collect(azure: Azure, which: Vm, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can.

    Boot diagnostics must be on. The addresses are signed for minutes and shown nowhere.
    """
    pieces = EvidenceCollector(budget)
    try:
        path = f"{which.path}/retrieveBootDiagnosticsData"
        found = azure.call(
            "retrieveBootDiagnosticsData", "POST", path, query={"sasUriExpirationTimeInMinutes": "5"}
        ).answer
    except CallFailed as error:
        raise AdapterError(f"Azure shows nothing of {which.shown}: {error}") from None
    for name, kind, key in (
        ("console.txt", "text/plain", "serialConsoleLogBlobUri"),
        ("screenshot.bmp", "image/bmp", "consoleScreenshotBlobUri"),
    ):
        address = str(found.get(key) or "")
        if not address or pieces.spent():
            continue
        try:
            content = azure.fetch(name, address)
        except CallFailed as error:
            pieces.missing(name, str(error))
            continue
        if content:
            yield from pieces.take(name, kind, content)
    if not pieces.taken:
        raise AdapterError(f"Azure shows nothing of {which.shown}: {pieces.complaint() or 'no output yet'}")
