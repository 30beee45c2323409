"""When network links lost their carrier and when it came back, from system logs, and how long they were down.

systemd-networkd writes `ib0: Lost carrier`, dhcpcd `ib0: carrier lost`, NetworkManager
`device (ib0): carrier: link disconnected`; the kernel's mlx5 driver writes
`mlx5_core 0101:00:00.0 ib0: Link down`. Several of them log the same loss, so they are counted separately.

Pairs of log lines, and repeated reads of the ports, show how long a link was down. NCCL gives a link up after about 7
seconds (NCCL_IB_TIMEOUT 20 and 7 retries, ncclIbDev in its net_ib.cc), so an outage ends jobs although the link is up
again when somebody looks.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.bounded_read import GZIP, unpacked
from nhc.node.facts.infiniband import ports
from nhc.node.facts.kernel_lines import parse_line
from nhc.node.facts.kmsg import TAIL, boot_time, log_tail, ring_records, rotated_to

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

NETWORK, DRIVER = "lost carrier", "link down"
"""Who noticed: the network daemon, or the driver."""
STORE = "carrier-losses"
RING = "/dev/kmsg"
"""The kernel's own log, which a node without log files also has."""
_KEPT = 1000

_HINT = re.compile(r"carrier|link (?:is |status definitely )?(?:down|up|active|nop)\b", re.IGNORECASE)
_DAEMON = re.compile(
    r"([\w.-]+)\)?: (?:(lost carrier|carrier lost|carrier: link disconnected)"
    r"|gained carrier|carrier acquired|carrier: link connected)",
    re.IGNORECASE,
)
_DRIVER = re.compile(r"([\w.-]+): (?:8051: )?(?:nic )?link (?:is )?(?:(down)|up)\b", re.IGNORECASE)
_PORT = re.compile(r"([\w.-]+): port: (\d+) link (?:(down|nop)|active)\b", re.IGNORECASE)
"""drivers/infiniband/core/cache.c, ib_cache_update: since Linux 6.13 for every RDMA driver."""
_BOND = re.compile(
    r"(?:\(slave ([\w.-]+)\): )?link status definitely (?:(down)|up)(?: for interface ([\w.-]+))?", re.IGNORECASE
)
"""drivers/net/bonding/bond_main.c, bond_miimon_commit: the interface behind the words before Linux 5.3."""


class CarrierChange(NamedTuple):
    """A link that was lost, or came back (`up`). `when` is Unix time, None if the line's stamp cannot be read.

    `interface` is a network interface or, of the kernel's lines about RDMA ports, a port as `mlx5_0:1`.
    """

    interface: str
    kind: str
    when: Optional[float]
    up: bool = False


def change_of(text: str) -> Optional[Tuple[str, str, bool]]:
    """What a line without its time stamp says: the link, who noticed, and whether it is up; None for other lines."""
    if not _HINT.search(text):
        return None
    match = _DAEMON.search(text)
    if match:
        return match[1], NETWORK, not match[2]
    match = _PORT.search(text)
    if match:
        return f"{match[1]}:{match[2]}", DRIVER, not match[3]
    match = _BOND.search(text)
    if match and (match[1] or match[3]):
        return match[1] or match[3], DRIVER, not match[2]
    match = _DRIVER.search(text)
    if match:
        name = f"{match[1]}:1" if ": 8051: " in text else match[1]  # an Omni-Path adapter has one port
        return name, DRIVER, not match[2]
    return None


def parse_changes(text: str, now: float, booted: float) -> List[CarrierChange]:
    """The link changes in a log, with any form of time stamps (ISO-8601, syslog, dmesg, JSON)."""
    reported: List[CarrierChange] = []
    for line in text.split("\n"):
        if not _HINT.search(line):
            continue
        record = parse_line(line, now)
        when = record.when
        if when is None and record.since_boot is not None:
            when = booted + record.since_boot
        change = change_of(record.text)
        if change:
            reported.append(CarrierChange(change[0], change[1], when, change[2]))
    return reported


def changes(host: Host, path: str) -> List[CarrierChange]:
    """The link changes in a log file since boot, including what earlier runs read. Raises OSError.

    A change counts once a second and kind. A file whose name ends in .gz is read whole each time.
    """
    if path == RING:
        return _ring_changes(host)
    now, booted, boot = host.time(), boot_time(host), host.boot_id()
    if path.endswith(".gz"):
        try:
            text = unpacked(host.read_bytes(path), TAIL, GZIP).decode(errors="replace")
        except ValueError as error:
            raise OSError(5, f"not a gzip file that can be read: {error}", path) from None
        return _distinct(parse_changes(text, now, booted), booted)
    stat = host.stat(path)
    held: List[CarrierChange] = []

    def change(stored: Dict[str, Any]) -> None:
        if stored.get("boot") != boot:
            stored.clear()
        stored["boot"] = boot
        logs = stored.setdefault("logs", {})
        kept = logs.get(path) if isinstance(logs, dict) else None
        inode, offset, before = _valid(kept)
        texts = []
        if inode is not None and inode != stat.ino:
            rotated = rotated_to(host, path, inode)
            if rotated:
                texts.append(log_tail(host, rotated, offset, TAIL)[0])
            offset = 0
        elif inode is None:
            offset = max(0, stat.size - TAIL)
        elif stat.size < offset:  # truncated in place
            offset = 0
        text, end, _left_out = log_tail(host, path, offset, TAIL)
        texts.append(text)
        fresh = [change for each in texts for change in parse_changes(each, now, booted)]
        held[:] = _distinct([*before, *fresh], booted)[-_KEPT:]
        stored["logs"] = {**(logs if isinstance(logs, dict) else {}), path: [stat.ino, end, [list(e) for e in held]]}

    host.memory.update(STORE, change)
    return held


def _ring_changes(host: Host) -> List[CarrierChange]:
    """The link changes in the kernel's ring, including those that it no longer holds. Raises OSError."""
    booted, boot = boot_time(host), host.boot_id()
    held: List[CarrierChange] = []

    def change(stored: Dict[str, Any]) -> None:
        if stored.get("boot") != boot:
            stored.clear()
        stored["boot"] = boot
        logs = stored.setdefault("logs", {})
        after, _, before = _valid(logs.get(RING) if isinstance(logs, dict) else None)
        raws = host.system.kernel_log(-1 if after is None else after)
        fresh = []
        for record in ring_records(host, raws):
            after = record.number
            found = change_of(record.text)
            if found:
                fresh.append(CarrierChange(found[0], found[1], record.when, found[2]))
        held[:] = _distinct([*before, *fresh], booted)[-_KEPT:]
        kept = logs if isinstance(logs, dict) else {}
        stored["logs"] = {**kept, RING: [-1 if after is None else after, 0, [list(e) for e in held]]}

    host.memory.update(STORE, change)
    return held


def _distinct(reported: List[CarrierChange], booted: float) -> List[CarrierChange]:
    """Changes since boot, one a second, interface and kind. One of unknown time stays."""
    seen: Dict[Tuple[str, str, bool, Optional[int]], CarrierChange] = {}
    for index, each in enumerate(reported):
        if each.when is None:
            seen[each.interface, each.kind, each.up, -1 - index] = each
        elif each.when >= booted - 1:
            seen.setdefault((each.interface, each.kind, each.up, int(each.when)), each)
    return list(seen.values())


def _valid(kept: object) -> Tuple[Optional[int], int, List[CarrierChange]]:
    """What an earlier run left, nothing if it is of another form: state is never trusted."""
    if not (isinstance(kept, list) and len(kept) == 3 and isinstance(kept[0], int) and isinstance(kept[1], int)):
        return None, 0, []
    events = [
        CarrierChange(str(e[0]), str(e[1]), e[2], bool(e[3:] and e[3]))
        for e in (kept[2] if isinstance(kept[2], list) else [])
        if isinstance(e, list) and len(e) in (3, 4) and (e[2] is None or isinstance(e[2], (int, float)))
    ]
    return kept[0], kept[1], events


LONG_OUTAGE = 7.0
"""Seconds after which NCCL gives up."""
OUTAGES_STORE = "ib-outages"
PORT_SETTLES = 300.0
"""Seconds after boot in which a link that goes down without having been up is still being set up."""
PORT_UNSEEN = 60.0
"""The most seconds after the last look that found a link down that count as outage, if it was up at the next look."""
_OUTAGES_KEPT = 200


class Outage(NamedTuple):
    """A time in which a link was down, in Unix time."""

    link: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def paired_outages(changes: Iterable[CarrierChange], booted: float) -> List[Outage]:
    """The outages in log lines: from the first line that says down to the next that says up.

    Several programs may report one outage. A link whose return no line reports has none.
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
            elif down is None and (was_up or when > booted + PORT_SETTLES):
                down = when
    return found


def seen_outages(host: Host) -> List[Outage]:
    """The outages of RDMA links that the looks of this boot have found, this one included.

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
                found.append(Outage(link, begin, min(now, last + PORT_UNSEEN)))
            elif not is_up and (link in been_up or link in down):
                down[link] = (down[link][0] if link in down else now, now)
        names = sorted(been_up | {link for link, is_up in up.items() if is_up})
        del found[:-_OUTAGES_KEPT]
        stored.clear()
        stored.update(boot=boot, down=down, up=names, outages=[list(outage) for outage in found])

    host.memory.update(OUTAGES_STORE, change)
    return list(found)


def joined_outages(lines: List[Outage], looks: List[Outage]) -> List[Outage]:
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
