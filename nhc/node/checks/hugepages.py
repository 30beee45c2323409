"""Huge pages exist as configured."""

from __future__ import annotations

from nhc.core.check import check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown
from nhc.core.units import count, show_kb, size_kb, text
from nhc.node.facts.kernel import cmdline
from nhc.node.facts.memory_pages import (
    POOLS,
    asked_at_boot,
    default_huge_page_size,
    huge_page_pools,
    transparent_huge_pages,
)

if TYPE_CHECKING:
    from typing import List, Optional


@check(
    "check_hugepages",
    opt("-s --size", "size", size_kb, "the page size that -t and -f are about; the kernel's default where not given"),
    opt("-t --total", "total", count, "least number of pages"),
    opt("-f --free", "free", count, "least number of pages neither used nor reserved"),
    opt("-T --transparent", "thp", text, "the mode of transparent huge pages: always, madvise or never"),
)
def check_hugepages(
    host: Host,
    size: Optional[int] = None,
    total: Optional[int] = None,
    free: Optional[int] = None,
    thp: Optional[str] = None,
) -> Outcome:
    """The node has the huge pages it was configured with.

    Reads /sys/kernel/mm/hugepages and, for what was asked for, the kernel command line: the kernel gives
    fewer pages than asked without failing where memory is fragmented. -t and -f set floors; -T the mode of
    transparent huge pages. Too few is CRIT, as programs that need them do not start. SKIP where nothing
    asks for huge pages.

    Example: * || check_hugepages -s 1G -t 16 -f 8 -T madvise
    """
    asked = asked_at_boot(cmdline(host), default_huge_page_size(host))
    if not asked and total is None and free is None and thp is None:
        return skip("NothingAsked", "neither the kernel command line nor an option asks for huge pages")
    if thp is not None:
        mode = transparent_huge_pages(host)
        if mode != thp:
            return crit("TransparentHugepages", f"transparent huge pages are {mode or 'not supported'}, not {thp}")
    try:
        pools = {pool.size: pool for pool in huge_page_pools(host)}
    except ValueError as error:
        return unknown("BadData", f"{POOLS}: {error}")
    wanted = size or default_huge_page_size(host) or 2048
    floors = dict(asked)
    if total is not None:
        floors[wanted] = total
    short: List[str] = []
    for each, least in floors.items():
        have = pools[each].total if each in pools else 0
        if have < least:
            short.append(f"{have} of {least} huge pages of {show_kb(each)}")
    pool = pools.get(wanted)
    if free is not None:
        available = max(0, pool.free - pool.reserved) if pool else 0
        if available < free:
            short.append(f"{available} free huge pages of {show_kb(wanted)}, {free} wanted")
    metrics = tuple(Metric(f"hugepages_{size}kB", pool.total) for size, pool in pools.items() if pool.total)
    if short:
        return crit("HugepagesMissing", f"there are only {' and '.join(short)}", metrics=metrics, action=Action.REBOOT)
    there = ", ".join(f"{pool.total} of {show_kb(pool.size)}" for pool in pools.values() if pool.total)
    return ok(f"huge pages: {there or 'none'}" + (f", transparent {thp}" if thp else ""), metrics=metrics)
