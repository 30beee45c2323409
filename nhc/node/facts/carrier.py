"""When network links lost their carrier, as system logs tell it.

systemd-networkd writes `ib0: Lost carrier`, dhcpcd `ib0: carrier lost`, NetworkManager
`device (ib0): carrier: link disconnected`; the kernel's mlx5 driver writes
`mlx5_core 0101:00:00.0 ib0: Link down`. Several of them log one loss, so they are counted apart.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.kernel_lines import parse_line
from nhc.node.facts.kmsg import TAIL, boot_time, log_tail, rotated_to

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

NETWORK, DRIVER = "lost carrier", "link down"
"""Who noticed: the network daemon, or the driver."""
STORE = "carrier-losses"
_KEPT = 1000

_HINT = re.compile(r"carrier|link down", re.IGNORECASE)
_LOST = re.compile(r"([\w.-]+)\)?: (?:lost carrier|carrier lost|carrier: link disconnected)", re.IGNORECASE)
_DOWN = re.compile(r"([\w.-]+): link down\b", re.IGNORECASE)


class Loss(NamedTuple):
    """One loss of carrier. `when` is Unix time, None where the line's stamp cannot be read."""

    interface: str
    kind: str
    when: Optional[float]


def parse_losses(text: str, now: float, booted: float) -> List[Loss]:
    """The losses that a log tells of, whatever form its stamps have (ISO-8601, syslog, dmesg, JSON)."""
    reported: List[Loss] = []
    for line in text.split("\n"):
        if not _HINT.search(line):
            continue
        record = parse_line(line, now)
        when = record.when
        if when is None and record.since_boot is not None:
            when = booted + record.since_boot
        for kind, pattern in ((NETWORK, _LOST), (DRIVER, _DOWN)):
            match = pattern.search(record.text)
            if match:
                reported.append(Loss(match[1], kind, when))
    return reported


def losses(host: Host, path: str) -> List[Loss]:
    """The losses since boot in a log file, what earlier runs read of it included. Raises OSError.

    A loss counts once a second and kind. A file whose name ends in .gz is read whole each time.
    """
    now, booted, boot = host.time(), boot_time(host), host.boot_id()
    if path.endswith(".gz"):
        import zlib

        try:
            text = zlib.decompress(host.read_bytes(path), 31).decode(errors="replace")
        except zlib.error as error:
            raise OSError(5, f"not a gzip file: {error}", path) from None
        return _distinct(parse_losses(text, now, booted), booted)
    stat = host.stat(path)
    held: List[Loss] = []

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
        fresh = [loss for each in texts for loss in parse_losses(each, now, booted)]
        held[:] = _distinct([*before, *fresh], booted)[-_KEPT:]
        stored["logs"] = {**(logs if isinstance(logs, dict) else {}), path: [stat.ino, end, [list(e) for e in held]]}

    host.memory.update(STORE, change)
    return held


def _distinct(reported: List[Loss], booted: float) -> List[Loss]:
    """Losses since boot, one a second, interface and kind. One of unknown time stays."""
    seen: Dict[Tuple[str, str, Optional[int]], Loss] = {}
    for index, loss in enumerate(reported):
        if loss.when is None:
            seen[loss.interface, loss.kind, -1 - index] = loss
        elif loss.when >= booted - 1:
            seen.setdefault((loss.interface, loss.kind, int(loss.when)), loss)
    return list(seen.values())


def _valid(kept: object) -> Tuple[Optional[int], int, List[Loss]]:
    """What an earlier run left, nothing where it is of another form: state is never trusted."""
    if not (isinstance(kept, list) and len(kept) == 3 and isinstance(kept[0], int) and isinstance(kept[1], int)):
        return None, 0, []
    events = [
        Loss(str(e[0]), str(e[1]), e[2])
        for e in (kept[2] if isinstance(kept[2], list) else [])
        if isinstance(e, list) and len(e) == 3 and (e[2] is None or isinstance(e[2], (int, float)))
    ]
    return kept[0], kept[1], events
