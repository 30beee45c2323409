"""What a GPU's driver asks for, by its number: in lines of Xid 154 and through NVML. One table, so that both agree.

The numbers are nvmlGpuRecoveryAction_t's (nvml.h and pynvml, NVML_GPU_RECOVERY_ACTION_*). The words beside a number in
a kernel line are a comment, which changes from driver to driver. While peer-to-peer traffic is to be drained, or the
IMEX domain recovered, work that uses neither goes on: no reason to take a node out by itself. Nor is a number that
nobody knows yet, which a person should look at.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.facts.nvml_codes import RECOVERY
from nhc.node.kernlog.match import DEGRADED, FATAL, INFO

if TYPE_CHECKING:
    from typing import Dict, Optional, Tuple

ACTIONS: Dict[int, Tuple[str, Action, str]] = {
    0: (INFO, Action.NONE, ""),
    1: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    2: (FATAL, Action.REBOOT, "GpuRebootRequired"),
    3: (DEGRADED, Action.RESET_DEVICE, "GpuDrainRequired"),
    4: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    5: (DEGRADED, Action.RESTART_APP, "GpuDrainRequired"),
    6: (FATAL, Action.RESET_DEVICE, "GpuResetRequired"),
    7: (FATAL, Action.REBOOT, "GpuRebootRequired"),
}
"""Severity, what repairs it, and the reason under which a check tells it."""
UNLISTED = (DEGRADED, Action.INSPECT, "GpuRecoveryRequired")

_NUMBER = re.compile(r"(?a)\bto (?:0x([0-9a-fA-F]{1,8})|(\d{1,9}))\b")
_WORDS = {
    "None": 0, "GPU Reset Required": 1, "Node Reboot Required": 2, "Drain P2P": 3, "Drain and Reset": 4,
}  # fmt: skip
"""The words of drivers that print no number."""


def of_line(rest: str) -> Optional[int]:
    """The number that an Xid 154 changes to, None where the line names none that can be read."""
    match = _NUMBER.search(rest)
    if match:
        return int(match[1], 16) if match[1] else int(match[2])
    wanted = rest.partition("changed from")[2].rpartition(" to ")[2] or rest
    return next((number for text, number in _WORDS.items() if wanted.strip().lstrip("(").startswith(text)), None)


def of_number(number: int) -> Tuple[str, Action, str]:
    """Severity, repair and reason of a recovery action."""
    return ACTIONS.get(number, UNLISTED)


def of_device(recovery: str) -> Tuple[str, Action, str]:
    """The same by what a device's description says (`nhc.node.facts.nvml_codes.RECOVERY`)."""
    return of_number(next((number for number, description in RECOVERY.items() if description == recovery), -1))
