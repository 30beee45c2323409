"""Memory and swap, from /proc/meminfo (the kernel's Documentation/filesystems/proc.rst)."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, Optional


class MemoryInfo(NamedTuple):
    """Sizes in kB. `available` is None on kernels before 3.14, which do not estimate it.

    `unreclaimable` is what the kernel itself holds and does not give back (SUnreclaim), `shared` is in tmpfs and shared
    memory.
    """

    total: int
    free: int
    buffers: int
    cached: int
    available: Optional[int]
    swap_total: int
    swap_free: int
    unreclaimable: int = 0
    shared: int = 0

    @property
    def usable(self) -> int:
        """The memory a program can get: the kernel's estimate, or free memory if there is none."""
        return self.free if self.available is None else self.available

    @property
    def reclaimable(self) -> int:
        """Free memory, buffers and cache together: what LBNL NHC calls free."""
        return self.free + self.buffers + self.cached


def parse_meminfo(text: str) -> Dict[str, int]:
    """Every line that is a name and a number, in kB (huge page counts are plain numbers)."""
    values: Dict[str, int] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and fields and fields[0].isascii() and fields[0].isdigit():
            values[name.strip()] = int(fields[0][:18])
    return values


def memory(host: Host) -> MemoryInfo:
    """The node's memory. Raises OSError, or ValueError if the file lacks what every kernel prints."""
    values = parse_meminfo(host.read("/proc/meminfo"))
    try:
        return MemoryInfo(
            values["MemTotal"],
            values["MemFree"],
            values.get("Buffers", 0),
            values.get("Cached", 0),
            values.get("MemAvailable"),
            values.get("SwapTotal", 0),
            values.get("SwapFree", 0),
            values.get("SUnreclaim", 0),
            values.get("Shmem", 0),
        )
    except KeyError as error:
        raise ValueError(f"/proc/meminfo has no {error.args[0]}") from None
