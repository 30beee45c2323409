"""What Google shows of an instance without asking it: its serial console, a picture of its screen, its description."""

from __future__ import annotations

import base64
from functools import partial
from typing import Iterator

from nhc.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.cloud.google.api import Google
from nhc_adapters.cloud.google.identity import InstanceName
from nhc_adapters.repair.evidence import EvidenceCollector


def collect(google: Google, where: InstanceName, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can."""
    pieces = (
        ("console.txt", "text/plain", partial(_console, google, where)),
        ("screenshot.jpg", "image/jpeg", partial(_screenshot, google, where)),  # needs a display device, which few have
    )
    return EvidenceCollector(budget).gather(pieces, f"Google shows nothing of {where.name}")


def _console(google: Google, where: InstanceName) -> bytes:
    """The last megabyte of serial port 1, which is all that Google keeps."""
    answer = google.call("instances.getSerialPortOutput", "GET", f"{where.path}/serialPort", {"port": "1"})
    return str(answer.get("contents") or "").encode()


def _screenshot(google: Google, where: InstanceName) -> bytes:
    answer = google.call("instances.getScreenshot", "GET", f"{where.path}/screenshot")
    return base64.b64decode(str(answer.get("contents") or ""))
