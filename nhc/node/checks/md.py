"""Software RAID (md): its arrays are present, complete and writable."""

from __future__ import annotations

from nhc.core.check import Judged, check, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import show_number, text
from nhc.node.facts import md_arrays

if TYPE_CHECKING:
    from typing import List, Sequence

    from nhc.node.facts.md_arrays import MdArray

_SERVES = ("clean", "active", "active-idle", "write-pending", "read-auto", "suspended")
"""States in which an array works. `read-auto`: nothing has been written to it yet; a write makes it `active`."""
_SPARED = {"raid1": -1, "raid10": 1, "raid4": 1, "raid5": 1, "raid6": 2}
"""Members that each level can lose; -1: all but one. Of raid10 more may go where they do not mirror each other."""
_BUSY = ("resync", "recover", "reshape")


@check("check_md", rest("arrays", text, "arrays that must be there (md0 or /dev/md/scratch)"), timeout=5, every=300)
def check_md(host: Host, arrays: Sequence[str] = ()) -> Judged:
    """The arrays of software RAID run, are whole and take writes.

    Reads /sys/block/md*/md. An array that is inactive, has lost more members than its level can (`broken`), or is
    read-only is CRIT. One that lacks a member, or is being synchronised anew, is WARN: it serves. A check of its data
    (`sync_action` check) is none of these. A named array that is not there is CRIT, one that only mdadm.conf names is
    WARN. The containers of firmware RAID (IMSM, DDF) are left out. SKIP where there is no array and none is named.

    Example: * || check_md md0 md127
    """
    there = md_arrays.arrays(host)
    names = {array.name for array in there}
    outcomes: List[Outcome] = []
    for asked, say in ((arrays, crit), (md_arrays.configured(host), warn)):
        for name in asked:
            device = name if name.startswith("/") else f"/dev/{name}"
            if host.realpath(device).rsplit("/", 1)[-1] not in names and name not in names:
                whose = "" if say is crit else ", which mdadm.conf names,"
                message = f"the array {name}{whose} is not there"
                outcomes.append(say("MdMissing", message, target=name, action=Action.INSPECT))
    for array in there:
        outcomes += _judge(array)
    if not there and not outcomes:
        return skip("NoMd", "no array of software RAID on this node")
    return outcomes or ok(f"{show_number(len(there), 'array')} of software RAID whole")


def _judge(array: MdArray) -> List[Outcome]:
    name = f"{array.name} ({array.level or 'no level'})"
    lost = f": without {', '.join(array.faulty)}" if array.faulty else ""
    if not array.state:
        return [unknown("MdUnreadable", f"{array.name} does not tell its state: {array.unread}", target=array.name)]
    if array.state == "clear":
        return []  # the name of an array that was stopped
    if array.state == "inactive":
        return [crit("MdInactive", f"{name} is inactive: it was not started", target=array.name, action=Action.INSPECT)]
    spared = _SPARED.get(array.level, -1)  # of an unknown level: accepted as long as the kernel uses it
    bearable = array.disks - 1 if spared < 0 else array.disks // 2 if array.level == "raid10" else spared
    missing = array.degraded or 0
    if array.state == "broken" or (missing and missing > bearable):
        message = f"{name} has failed, {missing or 'some'} of {array.disks} members are gone{lost}"
        return [crit("MdFailed", message, target=array.name, action=Action.INSPECT)]
    outcomes: List[Outcome] = []
    if array.unread:
        message = f"{array.name} does not tell whether it lacks members: {array.unread}"
        outcomes.append(unknown("MdUnreadable", message, target=array.name))
    if array.state == "readonly":
        outcomes.append(crit("MdReadOnly", f"{name} is read-only", target=array.name, action=Action.INSPECT))
    elif array.state not in _SERVES:
        message = f"{name} is in a state that is not known: {array.state[:40]}"
        outcomes.append(unknown("MdUnreadable", message, target=array.name))
    far = "" if array.progress is None else f", {array.progress:.0f} % done"
    busy = array.action in _BUSY
    if missing:
        message = f"{name} lacks {missing} of {array.disks} members{lost}" + f"; {array.action}{far}" * busy
        outcomes.append(warn("MdDegraded", message, target=array.name, action=Action.REPLACE))
    elif busy:
        outcomes.append(warn("MdResync", f"{name} is busy with {array.action}{far}", target=array.name))
    return outcomes
