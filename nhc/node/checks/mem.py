"""Memory: free memory is not fragmented, an idle node has what its scheduler promises, the kernel uses little."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import percent, seconds, show_kb, show_size, size_kb, text, whole
from nhc.node.checks.hw_mem import SizeOrShare, size_or_share
from nhc.node.facts.meminfo import memory
from nhc.node.facts.memory_pages import free_blocks, huge_order, parse_unmovable

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
    wanted = huge_order(host) if order is None else order
    try:
        nodes = free_blocks(host)
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
        share = parse_unmovable(host.read("/proc/pagetypeinfo"))
    except OSError as error:
        return [unknown("Unreadable", f"/proc/pagetypeinfo: {error.strerror}")]
    if share is None:
        return [unknown("BadData", "/proc/pagetypeinfo does not tell how many blocks can be moved")]
    if share < limit:
        return []
    message = f"{share:.0f} % of memory is in blocks that cannot be moved, limit {limit:g} %"
    return [warn("MemoryUnmovable", message, metrics=(Metric("unmovable_share", share, "%"),), action=Action.REBOOT)]


_TENTH, _SLACK, _NEVER = SizeOrShare(share=10.0), SizeOrShare(share=5.0), SizeOrShare()


@check(
    "check_mem_kernel",
    opt("-w --warn", "warn_at", size_or_share, "WARN from this size, or share of RAM, on", _TENTH),
    opt("-c --crit", "crit_at", size_or_share, "CRIT from this size, or share of RAM, on (0: never)", _NEVER),
)
def check_mem_kernel(host: Host, warn_at: SizeOrShare = _TENTH, crit_at: SizeOrShare = _NEVER) -> Outcome:
    """The kernel itself holds little memory that it does not give back.

    Reads SUnreclaim of /proc/meminfo: what a leak in a driver or file system client (Lustre's, a GPU's) ends in, which
    no job's end frees. WARN from a tenth of RAM on. Only a restart brings it back; slabtop tells who holds it.

    Example: * |every 10m| check_mem_kernel -w 5% -c 20%
    """
    try:
        sizes = host.fact(memory)
    except ValueError as error:
        return unknown("MeminfoUnreadable", str(error))
    held = sizes.unreclaimable
    metrics = (Metric("memory_unreclaimable", held * 1024, "B"),)
    share = held * 100 / max(sizes.total, 1)
    text = f"the kernel holds {show_size(held)} that it does not give back, {share:.0f} % of RAM"
    for limit, say in ((crit_at.of(sizes.total), crit), (warn_at.of(sizes.total), warn)):
        if limit and held >= limit:
            return say("MemoryUnreclaimable", text, metrics=metrics, action=Action.REBOOT)
    return ok(text, metrics=metrics)


@check(
    "check_mem_promised",
    opt("-n --node", "node", text, "what Slurm calls this node; its short host name where not given"),
    opt("-s --slack", "slack", size_or_share, "how much less may be free: a size, or a share of what is promised",
        _SLACK),
    opt("-t --timeout", "deadline", seconds, "how long Slurm may take to answer", 10.0),
    flag("-c --critical", "critical", "CRIT, not WARN"),
    timeout=30,
    every=300,
)  # fmt: skip
def check_mem_promised(
    host: Host,
    node: Optional[str] = None,
    slack: SizeOrShare = _SLACK,
    deadline: float = 10.0,
    critical: bool = False,
) -> Outcome:
    """A node without jobs has the memory free that Slurm promises to the next one.

    Compares MemAvailable with RealMemory less MemSpecLimit of `scontrol show node`, within 5 % (-s), where no processor
    and no memory is allocated. What is missing is held by processes or files in memory that jobs left, or by the
    kernel itself: a job that asks for the whole node is then killed for memory that it does not use. WARN, with -c
    CRIT. OK while jobs run here; UNKNOWN where Slurm does not answer; SKIP where it is not installed.

    Example: * |every 5m| check_mem_promised -s 4GB
    """
    from nhc.node.facts import scheduler

    if not host.which("scontrol"):
        return skip("NoScheduler", "Slurm is not installed on this node")
    wanted = node or host.setting("SLURMD_NODENAME") or host.system.hostname().partition(".")[0]
    try:
        sizes = host.fact(memory)
        has = scheduler.slurm_memory(host, wanted, deadline)
    except ValueError as error:
        return unknown("MeminfoUnreadable", str(error))
    except scheduler.BadSchedulerAnswer as error:
        return unknown("SchedulerUntold", str(error))
    if has.allocated or has.cpus_allocated:
        taken = show_size(has.allocated * 1024)
        return ok(f"jobs run here: {has.cpus_allocated} processors and {taken} are allocated")
    wants = (has.real - has.special) * 1024
    least = wants - slack.of(wants)
    metrics = (Metric("memory_available", sizes.usable * 1024, "B"), Metric("memory_promised", wants * 1024, "B"))
    if sizes.usable >= least:
        return ok(f"{show_size(sizes.usable)} of the {show_size(wants)} that Slurm promises are free", metrics=metrics)
    message = (f"no job runs here, and {show_size(sizes.usable)} are free of the {show_size(wants)} that Slurm"
               f" promises; in files and shared memory {show_size(sizes.shared)}, held by the kernel"
               f" {show_size(sizes.unreclaimable)}")  # fmt: skip
    say = crit if critical else warn
    return say("MemoryNotFreed", message, metrics=metrics, action=Action.INSPECT)
