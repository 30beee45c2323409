"""Memory: free memory comes in pieces that are large enough."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import percent, show_kb, size_kb, whole
from nhc.node.facts import buddyinfo

if TYPE_CHECKING:
    from typing import List, Optional


@check(
    "check_mem_fragmentation",
    opt("-o --order", "order", whole, "size of the block wanted: 2**N pages (default: a transparent huge page, 9)"),
    opt("-w --warn", "warn_at", percent, "WARN from this share of free memory that is in smaller pieces on", 95.0),
    opt("-c --crit", "crit_at", percent, "CRIT from this share on (0: never)", 0.0),
    opt("-f --free", "least", size_kb, "judge only NUMA nodes with at least this much free memory", 4 << 20),
    opt("-u --unmovable", "unmovable", percent, "WARN from this share of page blocks that cannot be moved (0: never)",
        0.0),
)  # fmt: skip
def check_mem_fragmentation(
    host: Host,
    order: Optional[int] = None,
    warn_at: float = 95.0,
    crit_at: float = 0.0,
    least: int = 4 << 20,
    unmovable: float = 0.0,
) -> Judged:
    """Free memory is not cut into pieces too small for huge pages.

    Reads /proc/buddyinfo, for each NUMA node apart: a job's huge pages and the large buffers of network adapters
    want blocks of one piece. Judged is the unusable free space index of Mel Gorman's work on the kernel's
    allocator: the share of free memory that is in pieces smaller than -o. WARN from 95 %; a node with little free
    memory (-f, 4 GB) is not judged, as its page cache gives memory back in larger pieces when asked. -u looks at
    /proc/pagetypeinfo, which only root may read: memory that the kernel itself holds cannot be moved together. The
    remedy is `echo 1 >/proc/sys/vm/compact_memory`, else a reboot.

    Example: * |every 10m| check_mem_fragmentation -w 90
    """
    wanted = buddyinfo.huge_order(host) if order is None else order
    try:
        nodes = buddyinfo.nodes(host)
    except OSError as error:
        return unknown("Unreadable", f"/proc/buddyinfo: {error.strerror}")
    if not nodes or not all(0 <= wanted < len(node.free) for node in nodes):
        return unknown("BadData", f"/proc/buddyinfo does not tell of blocks of order {wanted}")
    page = host.system.sysconf("SC_PAGE_SIZE") // 1024
    outcomes: List[Outcome] = []
    for node in nodes:
        free, share = node.pages * page, node.unusable(wanted) * 100
        metrics = (Metric("unusable_free_share", share, "%"), Metric("free_blocks", node.blocks(wanted)))
        if free < least or share < min(warn_at, crit_at or 101):
            continue
        target = f"node{node.number}"
        message = (f"{share:.0f} % of {show_kb(free)} free memory of NUMA {target} is in pieces "
                   f"smaller than {show_kb(page << wanted)}")  # fmt: skip
        say = crit if crit_at and share >= crit_at else warn
        outcomes.append(say("MemoryFragmented", message, target=target, metrics=metrics, action=Action.INSPECT))
    if unmovable:
        outcomes += _judge_blocks(host, unmovable)
    worst = max(node.unusable(wanted) for node in nodes) * 100
    blocks = sum(node.blocks(wanted) for node in nodes)
    metrics = (Metric("unusable_free_share", worst, "%"), Metric("free_blocks", blocks))
    return outcomes or ok(f"{blocks} free blocks of {show_kb(page << wanted)}", metrics=metrics)


def _judge_blocks(host: Host, limit: float) -> List[Outcome]:
    try:
        share = buddyinfo.parse_unmovable(host.read("/proc/pagetypeinfo"))
    except OSError as error:
        return [unknown("Unreadable", f"/proc/pagetypeinfo: {error.strerror}")]
    if share is None:
        return [unknown("BadData", "/proc/pagetypeinfo does not tell how many blocks can be moved")]
    if share < limit:
        return []
    message = f"{share:.0f} % of memory is in blocks that cannot be moved, limit {limit:g} %"
    return [warn("MemoryUnmovable", message, metrics=(Metric("unmovable_share", share, "%"),), action=Action.REBOOT)]
