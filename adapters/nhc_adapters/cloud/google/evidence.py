"""What Google shows of an instance without asking it: its serial console, a picture of its screen, its description."""

from __future__ import annotations

import base64
from typing import Iterator

from nhc.ports.adapter import AdapterError
from nhc.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.cloud.google.api import Google
from nhc_adapters.cloud.google.identity import InstanceName
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.evidence import EvidenceCollector


def collect(google: Google, where: InstanceName, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can."""
    pieces = EvidenceCollector(budget)
    for name, kind, get in (("console.txt", "text/plain", _console), ("screenshot.jpg", "image/jpeg", _screenshot)):
        if pieces.spent():
            break
        try:
            content = get(google, where)
        except CallFailed as error:  # a screenshot needs a display device, which few have
            pieces.missing(name, str(error))
            continue
        if content:
            yield from pieces.take(name, kind, content)
    if not pieces.taken:
        raise AdapterError(f"Google shows nothing of {where.name}: {pieces.complaint() or 'no output yet'}")


def _console(google: Google, where: InstanceName) -> bytes:
    """The last megabyte of serial port 1, which is all that Google keeps."""
    answer = google.call("instances.getSerialPortOutput", "GET", f"{where.path}/serialPort", {"port": "1"})
    return str(answer.get("contents") or "").encode()


def _screenshot(google: Google, where: InstanceName) -> bytes:
    answer = google.call("instances.getScreenshot", "GET", f"{where.path}/screenshot")
    return base64.b64decode(str(answer.get("contents") or ""))
