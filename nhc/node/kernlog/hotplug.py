"""Distinguishes cards that people take out of their PCIe slots from cards that died there.

drivers/pci/hotplug/pciehp_ctrl.c: after a press of the attention button the slot blinks for 5 s, and then it is turned
off without a further line. A card that is pulled while it blinks, or without a press, is a surprise removal: the lines
are `Link Down`, `Card not present`, or both. A card that died keeps its place in the slot: `Link Down` alone.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.kernlog.match import INFO, Match

if TYPE_CHECKING:
    from nhc.node.kernlog.state_types import Finding, LogState

ASKED = 10.0
"""Seconds after a press of the button in which the slot's link may go down: 5 s of blinking (button_work of
pciehp_handle_button_press), and as much again for a busy kernel."""
TOGETHER = 60.0
"""Seconds within which a device's failure is that of the card that was taken out: a drive's notices at the latest when
a command times out (drivers/nvme/host/core.c io_timeout, 30 s), and then resets it in vain."""
SLOTS = 64
"""Slots remembered whose button was pressed."""

_SLOT = r"Slot\(([^)]*)\)"
_OF_A_CARD = {
    "nvme": ("Down", "Disabled", "NotReady"),
    "aer": ("UncorrectedFatal", "RecoveryFailed"),
    "pcie": ("Contained", "Inaccessible", "NotReady"),
    "driver": ("Unusable", "ResetFailed", "InitFailed", "HardwareError"),
    "mlx5": ("HealthCompromised", "FatalSensor", "CommandTimeout", "InitFailed", "RecoveryFailed"),
}
"""What is said of a card that is no longer there. Nobody pulls an accelerator out of a running node: one that goes has
died, and its slot says the same."""


def slot_event(state: LogState, match: Match, when: float) -> Match:
    """Take in a line of a slot. The match as it is to be judged: a link that a person turned off is no fault."""
    if match.code == "Unplugged":
        state["taken_out"] = when
    slot = re.search(_SLOT, match.line)
    if slot is None:
        return match
    slots = state.setdefault("slots", {})
    place = f"{match.device} {slot[1]}"
    if match.code == "SlotPowerOff":
        slots.pop(place, None)
        slots[place] = when
        while len(slots) > SLOTS:
            del slots[next(iter(slots))]
    elif match.code == "SlotPowerKept":
        slots.pop(place, None)
    elif match.code == "SlotLinkDown":
        if "Card not present" in match.line:
            state["taken_out"] = when
        if 0 <= when - slots.get(place, when - 2 * ASKED) <= ASKED:
            state["taken_out"] = when
            message = f"{match.message}: its button had been pressed"
            return match._replace(severity=INFO, action=Action.NONE, message=message)
    return match


def taken_out(state: LogState, finding: Finding) -> bool:
    """Whether a card was taken out of its slot, or a dock was unplugged, when this device failed."""
    if finding["code"] not in _OF_A_CARD.get(finding["kind"], ()) or "taken_out" not in state:
        return False
    return abs(finding["last"] - state["taken_out"]) <= TOGETHER
