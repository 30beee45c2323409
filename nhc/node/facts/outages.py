"""How long network links were away: from pairs of lines in logs, and from looks at the ports.

NCCL gives a link up after about 7 seconds (NCCL_IB_TIMEOUT 20 and 7 retries, ncclIbDev in its net_ib.cc), so that an
outage ends jobs although the link is well again when somebody looks.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.infiniband import ports

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Tuple

    from nhc.node.facts.carrier import CarrierChange

LONG = 7.0
"""Seconds after which NCCL gives up."""
STORE = "ib-outages"
SETTLES = 300.0
"""Seconds after boot in which a link that goes down and was not up before is one that is being set up."""
UNSEEN = 60.0
"""Seconds after the last look that found a link down which count to its outage, where it was up at the next look."""
_KEPT = 200


class Outage(NamedTuple):
    """A time in which a link was away, in Unix time."""

    link: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def paired(changes: Iterable[CarrierChange], booted: float) -> List[Outage]:
    """The outages that lines tell of: from the first that a link is down to the next that it is up.

    Several programs may tell of one. A link that is down at the end, and one whose return no line tells, has none.
    """
    by_link: Dict[str, List[Tuple[float, bool]]] = {}
    for change in changes:
        if change.when is not None:
            by_link.setdefault(change.interface, []).append((change.when, change.up))
    found: List[Outage] = []
    for link, events in by_link.items():
        was_up, down = False, None
        for when, up in sorted(events):
            if up and down is not None:
                found.append(Outage(link, down, when))
            if up:
                was_up, down = True, None
            elif down is None and (was_up or when > booted + SETTLES):
                down = when
    return found


def seen(host: Host) -> List[Outage]:
    """The outages of RDMA links that looks of this boot have found, this one included.

    A link counts once it was seen up. An outage lasts from the first look that found it down to the one that found it
    up, of which the last step counts for at most UNSEEN seconds.
    """
    now, boot = host.time(), host.boot_id()
    up = {port.label: port.up for port in host.fact(ports) if port.up or (port.state and not port.state_unread)}
    found: List[Outage] = []

    def change(stored: Dict[str, Any]) -> None:
        known = stored if stored.get("boot") == boot else {}
        down, been_up = _spans(known.get("down")), _names(known.get("up"))
        found[:] = _outages(known.get("outages"))
        for link, is_up in up.items():
            if is_up and link in down:
                begin, last = down.pop(link)
                found.append(Outage(link, begin, min(now, last + UNSEEN)))
            elif not is_up and (link in been_up or link in down):
                down[link] = (down[link][0] if link in down else now, now)
        names = sorted(been_up | {link for link, is_up in up.items() if is_up})
        del found[:-_KEPT]
        stored.clear()
        stored.update(boot=boot, down=down, up=names, outages=[list(outage) for outage in found])

    host.memory.update(STORE, change)
    return list(found)


def together(lines: List[Outage], looks: List[Outage]) -> List[Outage]:
    """All outages, by begin. Lines are exact: what looks found of the same outage is left out."""

    def told(look: Outage) -> bool:
        same = (line for line in lines if line.link == look.link)
        return any(line.begin - 2 <= look.end and look.begin <= line.end + 2 for line in same)

    return sorted([*lines, *(look for look in looks if not told(look))], key=lambda outage: outage.begin)


# What earlier runs left is never trusted.


def _spans(stored: object) -> Dict[str, Tuple[float, float]]:
    pairs = stored.items() if isinstance(stored, dict) else ()
    return {str(link): (float(span[0]), float(span[1])) for link, span in pairs if _numbers(span, 2)}


def _names(stored: object) -> set[str]:
    return {str(name) for name in stored} if isinstance(stored, list) else set()


def _outages(stored: object) -> List[Outage]:
    rows = stored if isinstance(stored, list) else []
    return [Outage(str(row[0]), float(row[1]), float(row[2])) for row in rows
            if isinstance(row, list) and len(row) == 3 and _numbers(row[1:], 2)]  # fmt: skip


def _numbers(values: object, count: int) -> bool:
    return (
        isinstance(values, (list, tuple)) and len(values) == count and all(isinstance(v, (int, float)) for v in values)
    )
