"""Which programs an application's fault came from: a device is suspect only where different ones fail on it alone.

A pod that crashes and is started again repeats its Xid on every node that it comes to. NVIDIA prints who held the
channel (`pid=1234, name=python`: open-gpu-kernel-modules kernel_rc.c krcReportXid).
"""

from __future__ import annotations

import re

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict

KEPT = 16
"""Programs remembered for one device and error."""
STORES = 256

_NAME = r"\bname=(?:'([^']*)'|([^,]*))"


def name_of(line: str) -> str:
    """The program that a line names, "" for none."""
    found = re.search(_NAME, line)
    name = (found[1] or found[2] or "").strip() if found else ""
    return "" if name == "<unknown>" else name[:64]


def note(state: Dict[str, Any], place: str, line: str, when: float, window: float) -> int:
    """Remember the program of this line; how many different ones the window holds at this place."""
    stores: Dict[str, Dict[str, float]] = state.setdefault("programs", {})
    held = {name: at for name, at in stores.pop(place, {}).items() if when - window <= at}
    name = name_of(line)
    if name:
        held.pop(name, None)
        held[name] = when
    while len(held) > KEPT:
        del held[next(iter(held))]
    if held:
        stores[place] = held
    while len(stores) > STORES:
        del stores[next(iter(stores))]
    return len(held)
