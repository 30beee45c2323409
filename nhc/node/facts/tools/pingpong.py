"""fi_pingpong of libfabric: one row a message size. Source: libfabric util/pingpong.c (show_perf).

The time of one transfer is in microseconds.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.tools.output import figure, lines

if TYPE_CHECKING:
    from typing import List, Optional, Tuple

_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}


class PingRow(NamedTuple):
    """One message size in bytes; `sent` messages, `acked` of which were answered."""

    size: int
    sent: int
    acked: int
    latency: float


class PingPong(NamedTuple):
    rows: Tuple[PingRow, ...]
    failures: Tuple[str, ...]


def parse(text: str) -> PingPong:
    """What one end printed. Raises ValueError."""
    rows: List[PingRow] = []
    failures: List[str] = []
    head: Optional[List[str]] = None
    for line in lines(text):
        fields = line.split()
        if fields[:1] == ["bytes"] and "MB/sec" in fields:
            head = fields
        elif "error" in line.lower() or line.startswith(("fi_", "[error]")):
            failures.append(line.strip()[:300])
        elif head and fields and fields[0][:1].isdigit():
            if len(fields) != len(head):
                raise ValueError(f"a row of {len(fields)} columns: {line.strip()[:80]}")
            cell = dict(zip(head, fields))
            sent = _count(cell["#sent"])
            acked = sent if cell["#ack"].startswith("=") else _count(cell["#ack"])
            rows.append(PingRow(_count(cell["bytes"]), sent, acked, figure(cell["usec/xfer"])))
    if head is None and not failures:
        raise ValueError("not an output of fi_pingpong")
    return PingPong(tuple(rows), tuple(failures))


def _count(text: str) -> int:
    unit = _UNITS.get(text[-1:].lower(), 1)
    return int(figure(text[:-1] if unit > 1 else text) * unit)
