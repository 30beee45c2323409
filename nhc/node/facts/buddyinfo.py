"""How free memory is cut up: /proc/buddyinfo and /proc/pagetypeinfo (proc(5), Documentation/admin-guide/mm)."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_LINE = re.compile(r"Node\s+(\d+),\s*zone\s+(\S+)((?:\s+\d+)+)\s*$")
_BLOCKS = re.compile(r"Number of blocks type\s+(.+)$")


class FreeBlocks(NamedTuple):
    """The free blocks of one NUMA node, its zones together: `free[n]` blocks of 2**n pages."""

    number: int
    free: Tuple[int, ...]

    @property
    def pages(self) -> int:
        return sum(count << order for order, count in enumerate(self.free))

    def blocks(self, order: int) -> int:
        """How many blocks of `order` the free memory could give: larger ones count as often as they hold one."""
        return sum(count << (size - order) for size, count in enumerate(self.free) if size >= order)

    def unusable(self, order: int) -> float:
        """The unusable free space index (Gorman): the share of free memory that no block of `order` can come from."""
        return (self.pages - (self.blocks(order) << order)) / self.pages if self.pages else 0.0


def parse_buddyinfo(text: str) -> Tuple[FreeBlocks, ...]:
    """The NUMA nodes in order. DMA is left out: 16 MiB that allocations of programs leave alone."""
    nodes: Dict[int, List[int]] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if not match or match[2] == "DMA":
            continue
        counts = [int(word) for word in match[3].split()]
        mine = nodes.setdefault(int(match[1]), [])
        mine += [0] * (len(counts) - len(mine))
        for order, count in enumerate(counts):
            mine[order] += count
    return tuple(FreeBlocks(number, tuple(free)) for number, free in sorted(nodes.items()))


def parse_unmovable(text: str) -> Optional[float]:
    """The share of page blocks that hold unmovable memory, in percent; None where the text does not tell."""
    names: List[str] = []
    total = unmovable = 0
    for line in text.splitlines():
        head = _BLOCKS.match(line.strip())
        if head:
            names = head[1].split()
            continue
        match = _LINE.match(line.strip())
        if match and names:
            counts = [int(number) for number in match[3].split()]
            if len(counts) == len(names) and "Unmovable" in names:
                total += sum(counts)
                unmovable += counts[names.index("Unmovable")]
    return unmovable * 100 / total if total else None


def nodes(host: Host) -> Tuple[FreeBlocks, ...]:
    """Raises OSError."""
    return parse_buddyinfo(host.read("/proc/buddyinfo"))


def huge_order(host: Host) -> int:
    """The order of a transparent huge page: 9 on x86-64 (2 MiB of 4 KiB pages)."""
    size = host.number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
    return 9 if size is None else max(0, (size // host.system.sysconf("SC_PAGE_SIZE")).bit_length() - 1)
