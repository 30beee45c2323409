"""What Oracle shows of an instance without asking it: its console's history."""

from __future__ import annotations

import time
from typing import Iterator

from nhc.ports.adapter import AdapterError
from nhc.ports.repair import EvidenceBudget, Exhibit
from nhc_adapters.cloud.oracle.api import Oracle
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.evidence import EvidenceCollector

LENGTH = 1 << 20
"""Bytes of a console's history; Oracle keeps about one megabyte."""
POLL = 2.0


def collect(oracle: Oracle, which: str, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The console's history, within the budget. Raises AdapterError where it cannot be had.

    Oracle makes a history first, which takes seconds; it is deleted again.
    """
    pieces = EvidenceCollector(budget)
    until = time.monotonic() + budget.seconds
    made = oracle.call("capture_console_history", "POST", "instanceConsoleHistories", which, body={"instanceId": which})
    name = str(made.data.get("id") or "")
    path = f"instanceConsoleHistories/{name}"
    try:
        state = str(made.data.get("lifecycleState") or "")
        while state not in ("SUCCEEDED", "FAILED"):
            if time.monotonic() + POLL > until:
                raise AdapterError("Oracle did not make the console's history in time")
            time.sleep(POLL)
            state = str(oracle.call("get_console_history", "GET", path, which).data.get("lifecycleState") or "")
        if state == "FAILED":
            raise AdapterError("Oracle could not make the console's history")
        query = {"offset": "0", "length": str(LENGTH)}
        content = oracle.call("get_console_history_content", "GET", f"{path}/data", which, query=query).data
        if isinstance(content, bytes) and content:
            yield from pieces.take("console.txt", "text/plain", content)
    finally:
        try:
            oracle.call("delete_console_history", "DELETE", path, which)
        except CallFailed:
            pass  # Oracle deletes it with the instance
    if not pieces.taken:
        raise AdapterError("Oracle shows nothing of the instance's console")
