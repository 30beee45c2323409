"""What Azure shows of a machine without asking it: its serial console and a picture of its screen."""

from __future__ import annotations

from functools import partial
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
    collector = EvidenceCollector(budget)  # the time for the addresses counts
    try:
        path = f"{which.path}/retrieveBootDiagnosticsData"
        blobs = azure.call(
            "retrieveBootDiagnosticsData", "POST", path, query={"sasUriExpirationTimeInMinutes": "5"}
        ).answer
    except CallFailed as error:
        raise AdapterError(f"Azure shows nothing of {which.label}: {error}") from None
    addresses = (
        ("console.txt", "text/plain", str(blobs.get("serialConsoleLogBlobUri") or "")),
        ("screenshot.bmp", "image/bmp", str(blobs.get("consoleScreenshotBlobUri") or "")),
    )
    pieces = ((name, kind, partial(azure.fetch, name, address)) for name, kind, address in addresses if address)
    yield from collector.gather(pieces, f"Azure shows nothing of {which.label}")
