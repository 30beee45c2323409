"""Machine checks that the processors raised, as the kernel counts them in /proc/interrupts."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Tuple

_NAMES = {"MCE": "exceptions", "THR": "threshold", "DFR": "deferred"}
"""MCE: machine check exceptions; THR: corrected errors reached a bank's threshold (CMCI);
DFR: AMD's deferred errors. MCP counts polls, not errors (arch/x86/kernel/irq.c)."""


def parse_interrupts(text: str) -> Dict[str, int]:
    """Machine-check interrupts since boot, summed over processors, by the names above."""
    counts: Dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.strip().partition(":")
        if not colon or name not in _NAMES:
            continue
        total = 0
        for number in rest.split():
            if not (number.isascii() and number.isdigit()):
                break
            total += int(number)
        counts[_NAMES[name]] = total
    return counts


def interrupts(host: Host) -> Dict[str, int]:
    """The counts; empty on a kernel without machine checks. Raises OSError."""
    return parse_interrupts(host.read("/proc/interrupts"))


def recent_records(host: Host) -> Tuple[str, ...]:
    """What rasdaemon recorded last (`ras-mc-ctl --errors`); nothing where it is not there or cannot tell."""
    if not host.which("ras-mc-ctl"):
        return ()
    try:
        ended = host.run(["ras-mc-ctl", "--errors"], timeout=5)
    except OSError:
        return ()
    return tuple(line.rstrip() for line in ended.stdout.splitlines() if line[:1].isdigit())[-20:]
