"""Load averages (proc_loadavg(5))."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import NamedTuple


class LoadAverage(NamedTuple):
    """Over one, five and fifteen minutes; then the number of running scheduling entities, and of all."""

    one: float
    five: float
    fifteen: float
    running: int
    entities: int


def parse_loadavg(text: str) -> LoadAverage:
    """The content of /proc/loadavg. Raises ValueError if it is something else."""
    fields = text.split()
    running, slash, entities = fields[3].partition("/") if len(fields) >= 4 else ("", "", "")
    if not slash or not running.isdecimal() or not entities.isdecimal():
        raise ValueError(f"not load averages: {text.strip()[:60]!r}")
    return LoadAverage(float(fields[0]), float(fields[1]), float(fields[2]), int(running), int(entities))


def loadavg(host: Host) -> LoadAverage:
    return parse_loadavg(host.read("/proc/loadavg"))
