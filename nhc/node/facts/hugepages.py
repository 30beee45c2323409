"""Huge pages: how many of which size there are (Documentation/admin-guide/mm/hugetlbpage.rst)."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.units import size_kb
from nhc.node.facts.meminfo import parse_meminfo

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence, Tuple

POOLS = "/sys/kernel/mm/hugepages"


class Pool(NamedTuple):
    """The pages of one size, kB each."""

    size: int
    total: int
    free: int
    reserved: int


def pools(host: Host) -> Tuple[Pool, ...]:
    """The pools by size, smallest first; none where the kernel has no huge pages. Raises ValueError for junk."""
    read = []
    for name in host.names(POOLS):
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        if match:
            leaves = ("nr_hugepages", "free_hugepages", "resv_hugepages")
            total, free, reserved = (int(host.read(f"{POOLS}/{name}/{leaf}")) for leaf in leaves)
            read.append(Pool(int(match[1]), total, free, reserved))
    return tuple(sorted(read))


def default_size(host: Host) -> Optional[int]:
    """The size in kB that `hugepages=` without a size means; None where /proc/meminfo does not tell."""
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


def transparent(host: Host) -> str:
    """The value in brackets of `always [madvise] never`; "" where the kernel has no transparent huge pages."""
    match = re.search(r"\[(\w+)\]", host.read_or("/sys/kernel/mm/transparent_hugepage/enabled"))
    return match[1] if match else ""
