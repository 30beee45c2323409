"""When network links lost their carrier and when it came back, as system logs tell it.

systemd-networkd writes `ib0: Lost carrier`, dhcpcd `ib0: carrier lost`, NetworkManager
`device (ib0): carrier: link disconnected`; the kernel's mlx5 driver writes
`mlx5_core 0101:00:00.0 ib0: Link down`. Several of them log one loss, so they are counted apart.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.system.bounded_read import GZIP, unpacked
from nhc.node.facts.kernel_lines import parse_line
from nhc.node.facts.kmsg import TAIL, boot_time, log_tail, ring_records, rotated_to

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

NETWORK, DRIVER = "lost carrier", "link down"
"""Who noticed: the network daemon, or the driver."""
STORE = "carrier-losses"
RING = "/dev/kmsg"
"""The kernel's own log, which a node without a log file has all the same."""
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
    """A link that was lost, or came back (`up`). `when` is Unix time, None where the line's stamp cannot be read.

    `interface` is a network interface or, of the kernel's lines about RDMA ports, a port as `mlx5_0:1`.
    """

    interface: str
    kind: str
    when: Optional[float]
    up: bool = False


def change_of(text: str) -> Optional[Tuple[str, str, bool]]:
    """What a line without its stamp says of a link: the link, who noticed, and whether it is up; None for nothing."""
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
    """What a log tells of links, whatever form its stamps have (ISO-8601, syslog, dmesg, JSON)."""
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
    """What a log file tells of links since boot, what earlier runs read of it included. Raises OSError.

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
    """What the kernel's ring tells, beyond what it still holds. Raises OSError."""
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
    """What an earlier run left, nothing where it is of another form: state is never trusted."""
    if not (isinstance(kept, list) and len(kept) == 3 and isinstance(kept[0], int) and isinstance(kept[1], int)):
        return None, 0, []
    events = [
        CarrierChange(str(e[0]), str(e[1]), e[2], bool(e[3:] and e[3]))
        for e in (kept[2] if isinstance(kept[2], list) else [])
        if isinstance(e, list) and len(e) in (3, 4) and (e[2] is None or isinstance(e[2], (int, float)))
    ]
    return kept[0], kept[1], events
