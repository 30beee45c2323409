"""Pages of memory: how fragmented free memory is, and how many huge pages of each size there are.

Sources: /proc/buddyinfo and /proc/pagetypeinfo (proc(5), Documentation/admin-guide/mm), for huge pages
Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.units import size_kb
from nhc.node.facts.meminfo import parse_meminfo

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

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
    """The share of page blocks that hold unmovable memory, in percent; None if the text does not tell."""
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


def free_blocks(host: Host) -> Tuple[FreeBlocks, ...]:
    """Raises OSError."""
    return parse_buddyinfo(host.read("/proc/buddyinfo"))


def huge_order(host: Host) -> int:
    """The order of a transparent huge page: 9 on x86-64 (2 MiB of 4 KiB pages)."""
    size = host.number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
    return 9 if size is None else max(0, (size // host.system.sysconf("SC_PAGE_SIZE")).bit_length() - 1)


POOLS = "/sys/kernel/mm/hugepages"


class Pool(NamedTuple):
    """The pages of one size, kB each."""

    size: int
    total: int
    free: int
    reserved: int


def huge_page_pools(host: Host) -> Tuple[Pool, ...]:
    """The pools by size, smallest first; none if the kernel has no huge pages. Raises ValueError for junk."""
    read = []
    for name in host.names(POOLS):
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        if match:
            leaves = ("nr_hugepages", "free_hugepages", "resv_hugepages")
            total, free, reserved = (int(host.read(f"{POOLS}/{name}/{leaf}")) for leaf in leaves)
            read.append(Pool(int(match[1]), total, free, reserved))
    return tuple(sorted(read))


def default_huge_page_size(host: Host) -> Optional[int]:
    """The size in kB that `hugepages=` without a size means; None if /proc/meminfo does not tell."""
    return parse_meminfo(host.read("/proc/meminfo")).get("Hugepagesize")


def asked_at_boot(parameters: Sequence[str], default: Optional[int]) -> Dict[int, int]:
    """Pages by size in kB that the kernel command line asks for: `hugepagesz=1G hugepages=16`.

    `hugepages=0:8,1:8` asks node by node. Words of another form are left out, as the kernel ignores them.
    """
    asked: Dict[int, int] = {}
    size = default
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name in ("default_hugepagesz", "hugepagesz"):
            try:
                size = size_kb(value)
            except ValueError:
                size = None
        elif name == "hugepages" and size:
            counts = [part.rpartition(":")[2] for part in value.split(",")]
            if all(count.isascii() and count.isdigit() for count in counts):
                asked[size] = sum(map(int, counts))
    return asked


def transparent_huge_pages(host: Host) -> str:
    """The value in brackets of `always [madvise] never`; "" if the kernel has no transparent huge pages."""
    match = re.search(r"\[(\w+)\]", host.read_or("/sys/kernel/mm/transparent_hugepage/enabled"))
    return match[1] if match else ""
