"""Which programs an application's fault came from: a device is suspect only where different ones fail on it alone.

A pod that crashes and is started again repeats its Xid on every node that it comes to. NVIDIA prints who held the
channel (`pid=1234, name=python`: open-gpu-kernel-modules kernel_rc.c krcReportXid).
"""

from __future__ import annotations

import re

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from nhc.kernlog.state_types import LogState

KEPT = 16
"""Programs remembered for one device and error."""
STORES = 256

_NAME = r"\bname=(?:'([^']*)'|([^,]*))"


def name_of(line: str) -> str:
    """The program that a line names, "" for none."""
    found = re.search(_NAME, line)
    name = (found[1] or found[2] or "").strip() if found else ""
    return "" if name == "<unknown>" else name[:64]


def note(state: LogState, place: str, line: str, when: float, window: float, burst: float) -> None:
    """Remember the program of this line at a place: how often it failed there (bursts count once), and when last."""
    stores = state.setdefault("programs", {})
    held = {name: seen for name, seen in stores.pop(place, {}).items() if when - window <= seen[1]}
    name = name_of(line)
    if name:
        times, last = held.pop(name, [0, when])
        held[name] = [times + (times == 0 or when - last > burst), when]
    while len(held) > KEPT:
        del held[next(iter(held))]
    if held:
        stores[place] = held
    while len(stores) > STORES:
        del stores[next(iter(stores))]


def independent(state: LogState, place: str, wanted: int, unit: bool) -> int:
    """How many different programs speak against this place, 0 for fewer than `wanted`.

    One program that crashes again and again meets, sooner or later, a single crash of another on the same device. So on
    a whole device programs count that failed twice, unless one more than wanted have failed. On one unit of a device
    (an SM of 132) chance explains no second program.
    """
    held = state.get("programs", {}).get(place, {})
    twice = sum(times > 1 for times, _last in held.values())
    enough = len(held) >= wanted if unit else twice >= wanted or len(held) > wanted
    return len(held) if enough else 0
