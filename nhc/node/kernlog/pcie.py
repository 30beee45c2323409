"""PCIe errors that the kernel repairs: what "device recovery successful" and "failed" say of the errors before them.

drivers/pci/pcie/err.c pcie_do_recovery prints both on the port above the device that erred (on the port itself after
a downstream-port containment, dpc.c), so the address in the line is not that of the device. Recoveries of one port run
one after another, right after the error.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog.match import DEGRADED, Match

if TYPE_CHECKING:
    from typing import Dict, List

    from nhc.node.kernlog.state_types import Finding, LogState

RECOVERY = 120.0
"""Seconds in which a recovery ends: the kernel waits up to 60 s for a device after its reset (drivers/pci/pci.h
PCIE_RESET_READY_POLL_MS), and asks each driver before and after."""
REPAIRED = (("aer", "UncorrectedFatal"), ("aer", "UncorrectedNonFatal"), ("pcie", "Contained"))
"""Errors after each of which the kernel tries a recovery, and says how it went."""
SAYS_HOW = (*REPAIRED, ("nvme", "Down"))
"""Errors that are no more than degraded until a line says how the kernel's repair went. For an NVMe controller it is a
reset (drivers/nvme/host/pci.c nvme_reset_work), after which it names its queues or gives the device up."""
_OUTCOMES = (("aer", "Recovered"), ("aer", "RecoveryFailed"), ("aer", "NoCallback"))


def _domain(device: str) -> str:
    return device.partition(":")[0]


def _near(findings: Dict[str, Finding], port: str, when: float) -> List[str]:
    """The errors that a recovery below `port` is about."""
    near = []
    for key, finding in findings.items():
        if (finding["kind"], finding["code"]) not in REPAIRED or _domain(finding["device"]) != _domain(port):
            continue
        if finding["device"] == port or (finding["kind"] == "aer" and abs(when - finding["last"]) <= RECOVERY):
            near.append(key)
    return near


def outcome(state: LogState, match: Match, when: float) -> Match:
    """Take in how a recovery went. The match as it is to be judged."""
    if (match.kind, match.code) not in _OUTCOMES:
        return match
    findings = state.get("findings", {})
    if match.code == "NoCallback":
        state["no_callback"] = when
        return match
    near = _near(findings, match.device, when)
    if match.code == "Recovered":
        for key in near:
            gone = findings.pop(key)
            if "ended" in state:
                state["ended"][key] = {**gone, "last_line": match.line}
        findings.pop(f"aer/RecoveryFailed/{match.device}", None)
        return match
    for key in near:
        findings[key].pop("repairing", None)
    alike = {findings[key]["code"] for key in near}
    if alike == {"UncorrectedNonFatal"} and 0 <= when - state.get("no_callback", -RECOVERY * 2) <= RECOVERY:
        # Nothing was reset and nothing is cut off: the device goes on as before, its driver was only not asked.
        text = f"{match.message}: its driver cannot be asked; the error was not fatal"
        return match._replace(severity=DEGRADED, action=Action.INSPECT, message=text)
    return match
