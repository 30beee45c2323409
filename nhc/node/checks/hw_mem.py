"""Memory and swap: their size and how much is free. Messages and units (kB) are LBNL NHC's."""

from __future__ import annotations

from nhc.core.check import Param, arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Metric, Outcome, crit, known, ok, unknown
from nhc.core.units import percent, show_size, size_kb
from nhc.node.facts.meminfo import MemoryInfo, memory

if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple


class SizeOrShare(NamedTuple):
    """An amount in kB, or a share in percent of a total."""

    share: float = 0.0
    amount: int = 0

    def of(self, total: int) -> int:
        return int(self.share * total / 100) + self.amount


EXACT = SizeOrShare()

_SIZE = {"RAM": " size", "SWAP": " size", "system memory": ""}
"""How LBNL NHC's messages name the size of each."""


def size_or_share(value: str) -> SizeOrShare:
    """`2%` or a size."""
    return SizeOrShare(share=percent(value)) if value.endswith("%") else SizeOrShare(amount=size_kb(value))


_LIMITS: Tuple[Param, ...] = (
    arg("min", size_kb, "least size (k, M, G, T; kB where no unit is given); no minimum where left empty"),
    arg("max", size_kb, "greatest size; no maximum where left empty"),
    arg("fudge", size_or_share, "tolerance: a size, or a percentage of the actual size as in 3%", EXACT),
)
_FREE: Tuple[Param, ...] = (
    arg(
        "min",
        size_or_share,
        "least that must be free: a size (kB where no unit is given), or a share of what the node has, as in 5%",
        required=True,
    ),
)


@check("check_hw_physmem", *_LIMITS, timeout=5)
def check_hw_physmem(
    host: Host, min: Optional[int] = None, max: Optional[int] = None, fudge: SizeOrShare = EXACT
) -> Outcome:
    """The RAM is as large as it should be: no module has failed or gone missing.

    Reads MemTotal of /proc/meminfo, which is what is installed less what firmware and kernel keep for
    themselves (1 to 3 %): give a minimum below the sum of the modules, or a fudge factor.

    Example: * || check_hw_physmem 512GB 512GB 3%
    """
    return _size(host, "RAM", "memory_total", lambda sizes: sizes.total, min, max, fudge)


@check("check_hw_swap", *_LIMITS, timeout=5)
def check_hw_swap(
    host: Host, min: Optional[int] = None, max: Optional[int] = None, fudge: SizeOrShare = EXACT
) -> Outcome:
    """The swap space is as large as it should be.

    Reads SwapTotal of /proc/meminfo. `check_hw_swap 0 0` demands that there is none.

    Example: * || check_hw_swap 4G 16G
    """
    return _size(host, "SWAP", "swap_total", lambda sizes: sizes.swap_total, min, max, fudge)


@check("check_hw_mem", *_LIMITS, timeout=5)
def check_hw_mem(
    host: Host, min: Optional[int] = None, max: Optional[int] = None, fudge: SizeOrShare = EXACT
) -> Outcome:
    """RAM and swap together are as large as they should be.

    Reads MemTotal and SwapTotal of /proc/meminfo.

    Example: * || check_hw_mem 520GB 540GB 2%
    """
    return _size(host, "system memory", "memory_and_swap", lambda m: m.total + m.swap_total, min, max, fudge)


@check("check_hw_physmem_free", *_FREE, timeout=5)
def check_hw_physmem_free(host: Host, min: SizeOrShare) -> Outcome:
    """Free RAM, buffers and cache included, stays above a floor.

    Adds MemFree, Buffers and Cached of /proc/meminfo, as LBNL NHC does. Cached holds tmpfs and shared
    memory too, which cannot be dropped; MemAvailable, reported as a metric, is the kernel's own estimate.

    Example: * || check_hw_physmem_free 5%
    """
    return _free(host, "RAM free", "memory_free", lambda m: (m.reclaimable, m.total), min)


@check("check_hw_swap_free", *_FREE, timeout=5)
def check_hw_swap_free(host: Host, min: SizeOrShare) -> Outcome:
    """Free swap space stays above a floor.

    Reads SwapFree of /proc/meminfo. A floor in percent is of SwapTotal: a node without swap passes.

    Example: * || check_hw_swap_free 1GB
    """
    return _free(host, "swap free", "swap_free", lambda m: (m.swap_free, m.swap_total), min)


@check("check_hw_mem_free", *_FREE, timeout=5)
def check_hw_mem_free(host: Host, min: SizeOrShare) -> Outcome:
    """Free RAM and swap together stay above a floor.

    Adds MemFree, Buffers, Cached and SwapFree of /proc/meminfo. A floor in percent is of MemTotal and SwapTotal.

    Example: * || check_hw_mem_free 2GB
    """
    return _free(
        host, "free memory", "memory_and_swap_free",
        lambda m: (m.reclaimable + m.swap_free, m.total + m.swap_total), min,
    )  # fmt: skip


def _size(
    host: Host,
    what: str,
    metric: str,
    pick: Callable[[MemoryInfo], int],
    least: Optional[int],
    most: Optional[int],
    tolerance: SizeOrShare,
) -> Outcome:
    try:
        actual = pick(host.fact(memory))
    except ValueError as error:
        return unknown("MeminfoUnreadable", str(error))
    spare = tolerance.of(actual)
    passes = "" if least is None and most is None else f"{((least or 0) - spare) * 1024:.0f}:"
    passes += "" if most is None else f"{(most + spare) * 1024:.0f}"
    metrics = (Metric(metric, actual * 1024, "B", crit=passes),)
    if least is not None and actual + spare < least:
        message = f"Actual {what}{_SIZE[what]} ({actual} kB) less than minimum allowed ({least} kB)."
        return crit("MemoryTooSmall", message, metrics=metrics)
    if most is not None and actual - spare > most:
        message = f"Actual {what}{_SIZE[what]} ({actual} kB) greater than maximum allowed ({most} kB)."
        return crit("MemoryTooLarge", message, metrics=metrics)
    return ok(f"{show_size(actual)} {what}", metrics=metrics)


def _free(
    host: Host, what: str, metric: str, pick: Callable[[MemoryInfo], Tuple[int, int]], floor: SizeOrShare
) -> Outcome:
    """Judge what is free; `pick` gives it and its total, in kB."""
    try:
        sizes = host.fact(memory)
    except ValueError as error:
        return unknown("MeminfoUnreadable", str(error))
    actual, total = pick(sizes)
    least = floor.of(total)
    available = None if sizes.available is None else sizes.available * 1024
    metrics = known("B", **{metric: actual * 1024}, memory_available=available)
    if actual < least:
        share = f", {floor.share:g} % of {total} kB" if floor.share else ""
        return crit("MemoryLow", f"Not enough {what} ({actual} kB < {least} kB{share}).", metrics=metrics)
    return ok(f"{show_size(actual)} {what}", metrics=metrics)
