"""AMD's words: what `amd-smi reset --gpureset` printed for each GPU. It ends with 0 also where one failed."""

from __future__ import annotations

import re
from typing import Dict, Sequence

from nhc_adapters.node.hand.values import RepairDevice, RepairResult


def judge_reset(status: int, output: str, devices: Sequence[RepairDevice]) -> RepairResult:
    """The results by GPU: blocks of `GPU: N` with `Successfully reset GPU` or `Failed to reset GPU` in each."""
    results: Dict[int, str] = {}
    number = -1
    for line in output.splitlines():
        head = re.match(r"\s*GPU:\s*(\d+)\s*$", line)
        number = int(head[1]) if head else number
        own = re.search(r"(Successfully reset|Failed to reset) GPU\s*(\d*)", line)
        if own:
            which = int(own[2]) if own[2] else number
            good = own[1].startswith("Success") and results.get(which, "reset") == "reset"
            results[which] = "reset" if good else "Failed to reset GPU"
    if len(devices) == 1 and -1 in results:  # one GPU was asked for, and none is named
        results[devices[0].number] = results.pop(-1)
    mine = {device.label: results.get(device.number, "") for device in devices}
    bad = [f"{label}: {text or 'amd-smi does not say'}" for label, text in mine.items() if text != "reset"]
    if status and not bad:
        bad = [f"amd-smi ended with {status}"]
    return RepairResult(not bad, "; ".join(bad) or f"{', '.join(mine)} reset", mine)
