"""The memory of accelerators: error counts, remapped rows, retired pages.

NVIDIA's guide "GPU Memory Error Management" is the source of what each state asks for: a pending remap or retirement
takes effect at the next reset, and work can go on until then; a failed remap qualifies the GPU for replacement.
"""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, known, ok, skip, unknown, warn
from nhc.core.units import count
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, on_or_off, pick
from nhc.node.checks.gpu_earlier import memory_errors
from nhc.node.facts.accelerator_values import Device

if TYPE_CHECKING:
    from typing import Iterable, List, Tuple

DRAM_CORRECTED = 20_000_000
SRAM_CORRECTED = 10_000
"""Azure's limits for A100, H100 and H200 nodes (`check_gpu_ecc 20000000 10000` in each of its SKU files)."""
MAX_REMAPS = 512
"""Rows that can be remapped on one GPU (NVIDIA, GPU Memory Error Management)."""
MAX_RETIRED = 62
"""The number of pages at which Azure takes a V100 out of service; its InfoROM can hold 64."""


def _metrics(device: Device) -> Tuple[Metric, ...]:
    dram, sram, dram_life, sram_life, _exceeded = device.errors
    return known(
        gpu_dram_corrected=dram.corrected, gpu_dram_uncorrected=dram.uncorrected,
        gpu_sram_corrected=sram.corrected, gpu_sram_uncorrected=sram.uncorrected,
        gpu_dram_aggregate_corrected=dram_life.corrected, gpu_dram_aggregate_uncorrected=dram_life.uncorrected,
        gpu_sram_aggregate_corrected=sram_life.corrected, gpu_sram_aggregate_uncorrected=sram_life.uncorrected,
    )  # fmt: skip


def _errors(device: Device, dram: int, sram: int, uncorrected: int) -> Iterable[Outcome]:
    target, metrics = device.label, _metrics(device)
    errors = device.errors
    for place, counts, limit in (("DRAM", errors.dram, dram), ("SRAM", errors.sram, sram)):
        if counts.uncorrected is not None and counts.uncorrected > uncorrected:
            message = f"{target}: {counts.uncorrected} uncorrected {place} errors since the driver loaded"
            if uncorrected:
                message += f" (limit {uncorrected})"
            reason = f"Gpu{place.capitalize()}Uncorrected"
            yield crit(reason, message, target=target, metrics=metrics, action=Action.RESET_DEVICE)
        if counts.corrected is not None and counts.corrected > limit:
            message = f"{target}: {counts.corrected} corrected {place} errors since the driver loaded (limit {limit})"
            reason = f"Gpu{place.capitalize()}Corrected"
            yield crit(reason, message, target=target, metrics=metrics, action=Action.INSPECT)
    if errors.sram_threshold_exceeded:
        message = f"{target}: its SRAM has passed the number of errors from which NVIDIA replaces the board"
        yield crit("GpuSramThreshold", message, target=target, metrics=metrics, action=Action.REPLACE)
    repairable = device.hardware_errors.get("repairable_dram", 0)
    if repairable:
        message = f"{target}: {repairable} uncorrected HBM errors that a reload of the driver repairs"
        yield crit("GpuDramRepairable", message, target=target, metrics=metrics, action=Action.RELOAD_DRIVER)


@check(
    "check_gpu_ecc",
    DEVICES,
    opt("-u --uncorrected", "uncorrected", count, "uncorrected errors to tolerate, in DRAM and in SRAM each", 0),
    arg("dram", count, "corrected DRAM errors to tolerate since the driver loaded", DRAM_CORRECTED),
    arg("sram", count, "corrected SRAM errors to tolerate since the driver loaded", SRAM_CORRECTED),
    timeout=30,
    source=SOURCE,
    parts=("errors", "row_remap", "retired_pages", "ecc_mode"),
    tags=("nvidia", "amd", "neuron", "gaudi"),
)
def check_gpu_ecc(
    host: Host, dram: int = DRAM_CORRECTED, sram: int = SRAM_CORRECTED, uncorrected: int = 0, devices: str = ""
) -> Judged:
    """The memory of every accelerator is sound: no uncorrected error, no repair pending or failed.

    Reads the error counts since the driver loaded, DRAM (HBM) and SRAM (caches, registers) apart; the
    counts of the board's life are metrics only, as a past repair is no fault. Judged with them are row
    remapping (check_gpu_row_remap) and retired pages (check_gpu_retired_pages). The limits for corrected
    errors, 20,000,000 and 10,000, are Azure's. Unlike there an uncorrected DRAM error has no share in the
    limit of corrected ones: from the first on it is CRIT, as DRAM then returned wrong data. WARN where corrected errors
    grow so fast between two looks that they would reach the limit within a day, and where the board counts uncorrected
    errors since before the restart that nobody has seen.
    UNKNOWN where counts cannot be read or ECC is off; SKIP where no device counts errors.

    Example: *gpu* || check_gpu_ecc 20000000 10000
    """

    def judge(device: Device) -> Iterable[Outcome]:
        bad = [
            *_errors(device, dram, sram, uncorrected),
            *(outcome._replace(metrics=_metrics(device)) for outcome in memory_errors(host, device, dram, sram)),
            *(outcome for outcome in _rows(device) if outcome.verdict > 1),
            *(outcome for outcome in _pages(device, MAX_RETIRED) if outcome.verdict > 1),
        ]
        metrics = _metrics(device)
        areas = [area for area in ("errors", "sram", "row_remap") if area in device.unread]
        if areas:
            bad.append(not_reported(device, areas[0], "its memory errors"))
        if bad:
            return bad
        if device.modes.ecc is False:
            return [unknown("GpuEccOff", f"{device.label}: ECC is off, so errors are not counted", target=device.label)]
        if not metrics and device.row_remap is None and device.retired_pages is None:
            return [not_reported(device, "errors", "memory errors")]
        return [ok(f"{device.label}: no memory error beyond the limits", target=device.label, metrics=metrics)]

    return each(host, devices, judge)


def _rows(device: Device) -> List[Outcome]:
    rows = device.row_remap
    target = device.label
    if rows is None:
        return [not_reported(device, "row_remap", "remapped rows")]
    total = (rows.corrected or 0) + (rows.uncorrected or 0)
    metrics = known(
        gpu_rows_remapped_corrected=rows.corrected,
        gpu_rows_remapped_uncorrected=rows.uncorrected,
        gpu_banks_without_spare_rows=rows.banks_exhausted,
    )
    faults = []
    if rows.failed:
        message = f"{target}: remapping a row of its memory failed"
        faults.append(crit("GpuRowRemapFailed", message, target=target, metrics=metrics, action=Action.REPLACE))
    if rows.pending:
        message = f"{target}: a row of its memory waits to be remapped at the next reset"
        faults.append(warn("GpuRowRemapPending", message, target=target, metrics=metrics, action=Action.RESET_DEVICE))
    if total >= MAX_REMAPS:
        message = f"{target}: {total} rows remapped, all that its memory allows"
        faults.append(crit("GpuRowRemapExhausted", message, target=target, metrics=metrics, action=Action.REPLACE))
    elif rows.banks_exhausted:
        message = f"{target}: {rows.banks_exhausted} banks of its memory have no spare row left"
        faults.append(warn("GpuRowRemapExhausted", message, target=target, metrics=metrics, action=Action.REPLACE))
    return faults or [ok(f"{target}: {total} rows remapped, none pending", target=target, metrics=metrics)]


@check("check_gpu_row_remap", DEVICES, timeout=30, source=SOURCE, parts=("row_remap",), tags=("nvidia", "gaudi"))
def check_gpu_row_remap(host: Host, devices: str = "") -> Judged:
    """No accelerator waits for a row of its memory to be remapped, and none has run out of spare rows.

    NVIDIA from Ampere on. A remap that failed is CRIT (replace), one that is pending WARN (reset the GPU when it is
    idle: work can go on, as check_kmsg says of its Xid 63), 512 remapped rows CRIT, banks without a spare row WARN: the
    next fault in such a bank cannot be repaired.

    Example: * || check_gpu_row_remap
    """
    return each(host, devices, _rows)


def _pages(device: Device, most: int) -> List[Outcome]:
    pages = device.retired_pages
    target = device.label
    if pages is None:
        return [not_reported(device, "retired_pages", "retired pages")]
    total = (pages.single_bit or 0) + (pages.double_bit or 0)
    metrics = (Metric("gpu_retired_pages", total),)
    faults = []
    if total >= most:
        message = f"{target}: {total} pages of its memory retired (limit {most})"
        faults.append(crit("GpuRetiredPagesExhausted", message, target=target, metrics=metrics, action=Action.REPLACE))
    if pages.pending:
        message = f"{target}: a page of its memory waits to be retired at the next reset"
        faults.append(
            warn("GpuRetiredPagePending", message, target=target, metrics=metrics, action=Action.RESET_DEVICE)
        )
    return faults or [ok(f"{target}: {total} pages retired, none pending", target=target, metrics=metrics)]


@check(
    "check_gpu_retired_pages",
    DEVICES,
    opt("-m --max", "most", count, "CRIT from this many retired pages on", MAX_RETIRED),
    timeout=30,
    source=SOURCE,
    parts=("retired_pages",),
    tags=("nvidia", "amd"),
)
def check_gpu_retired_pages(host: Host, most: int = MAX_RETIRED, devices: str = "") -> Judged:
    """No accelerator has a page of memory waiting to be retired, nor has it retired nearly all it can.

    NVIDIA before Ampere (V100, T4) and AMD. The default limit of 62 is Azure's for V100, whose InfoROM
    holds 64. A pending page is WARN (reset the device when it is idle).

    Example: * || check_gpu_retired_pages -m 60
    """
    return each(host, devices, lambda device: _pages(device, most))


COHERENT = ("GH200", "GB200", "GB300")
HBM = 64 << 20
"""A NUMA node without processors and with at least this many kB is a GPU's memory: GH200 has 96 GB, and its boards have
no CXL expanders.

ClusterMAX's audit takes the same."""


@check(
    "check_gpu_memory_numa",
    arg("state", on_or_off, "on: the GPUs' memory is to be the system's as well; off: it is not", False),
    timeout=30,
    source=SOURCE,
    parts=(),
    tags=("nvidia",),
)
def check_gpu_memory_numa(host: Host, state: bool = False) -> Judged:
    """The memory of coherent GPUs is, or is not, memory of the operating system, as the site wants it.

    GH200, GB200 and GB300 can show their HBM as NUMA nodes without processors. Then the kernel puts page cache and
    processes there, which jobs miss, and a container's memory limit does not hold them apart (NVIDIA's driver calls the
    other mode CDMM). Reads /sys/devices/system/node. Other than asked for is WARN; SKIP on other GPUs.

    Example: gb200* || check_gpu_memory_numa off
    """
    from nhc.node.facts.cpuinfo import node_memory, numa_nodes

    picked = pick(host, "", "nvidia")
    if not any(name in device.name for device in picked.devices for name in COHERENT):
        named = [skip("NotSupported", "no GPU whose memory the processors can address")] if picked.devices else []
        return [*picked.outcomes, *named]
    try:
        nodes = numa_nodes(host)
        sizes = [node_memory(host, number) or 0 for number in nodes.all if number not in nodes.with_cpus]
    except (OSError, ValueError) as error:
        return [*picked.outcomes, unknown("Unreadable", f"NUMA nodes cannot be read: {error}")]
    shown = [size for size in sizes if size >= HBM]
    if bool(shown) == state:
        return [*picked.outcomes, ok(f"{len(shown)} NUMA nodes of GPU memory")]
    message = f"{len(shown)} NUMA nodes are GPU memory" if shown else "no NUMA node is GPU memory"
    return [*picked.outcomes, warn("GpuMemoryNuma", f"{message}, {'some' if state else 'none'} expected")]
