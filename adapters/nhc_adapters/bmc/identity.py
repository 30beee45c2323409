"""Checks that a management controller belongs to the machine that was judged: a wrong reset stops another job."""

from __future__ import annotations

import re
from typing import FrozenSet

from nhc.model import printable
from nhc.ports.repair import Machine


def forms(uuid: str) -> FrozenSet[str]:
    """A UUID as hexadecimal digits, in each byte order that it is met in; empty for what is no UUID.

    SMBIOS 2.6 and later store the first three fields little-endian; controllers hand them on as they are, swapped, or
    (IPMI 2.0, "Get System GUID") with all sixteen bytes reversed.
    """
    digits = re.sub(r"[^0-9a-f]", "", uuid.lower())
    if len(digits) != 32 or len(set(digits)) == 1:  # all zeros or all ones: never set
        return frozenset()
    raw = bytes.fromhex(digits)
    swapped = raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]
    return frozenset(order.hex() for order in (raw, swapped, raw[::-1], swapped[::-1]))


def differs(machine: Machine, uuid: str, shown_by: str) -> str:
    """Why the machine is not the one with this UUID, "" where it is."""
    if not forms(machine.uuid):
        return (
            f"no UUID of {machine.node} is known (DMI's product_uuid, as its report has it), so it cannot be compared"
        )
    if not forms(uuid):
        return f"{shown_by} shows no UUID of the machine: {printable(uuid, 60) or 'none'}"
    if forms(machine.uuid).isdisjoint(forms(uuid)):
        return f"{shown_by} is another machine's: UUID {printable(uuid, 60)}, not {printable(machine.uuid, 60)}"
    return ""
