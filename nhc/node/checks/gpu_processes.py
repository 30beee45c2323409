"""Processes that hold accelerators although none should."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok
from nhc.core.units import show_kb, size_bytes, text
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, partly_unread
from nhc.node.facts.accelerator_values import SERVICES, Device
from nhc.node.gpu_proof.running import is_proof

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Tuple


@check(
    "check_gpu_processes",
    DEVICES,
    opt(
        "-a --allow",
        "allow",
        text,
        "a process name to allow (a shell pattern), besides NVIDIA's own daemons; may be repeated",
        many=True,
    ),
    opt("-m --memory", "memory", size_bytes, "CRIT from this much memory in use on, processes or not"),
    timeout=30,
    source=SOURCE,
    parts=("processes",),
    tags=("nvidia", "amd", "neuron"),
)
def check_gpu_processes(
    host: Host, allow: Optional[List[str]] = None, memory: Optional[int] = None, devices: str = ""
) -> Judged:
    """No process holds an accelerator: what a finished job has left behind would slow the next one.

    Asks NVML, the kfd part of amdgpu or neuron-ls which processes use each device. For an epilog or an idle
    node: while a job runs, its processes are where they should be. MPS, DCGM, the fabric manager and the
    persistence daemon are allowed, and nhc's own proof of a GPU (check_gpu_proof_beside). Memory in use without a
    process (-m) points at a leak that a reset ends.

    Example: * |context epilog| check_gpu_processes -m 2G
    """
    from fnmatch import fnmatchcase

    patterns = [*(f"{name}*" for name in SERVICES), *(allow or [])]

    def judge(device: Device) -> Iterable[Outcome]:
        target = device.label
        if device.processes is None:
            yield not_reported(device, "processes", "its processes")
            return
        proofs = [p for p in device.processes if is_proof(host, p.pid)]
        others = [p for p in device.processes if p not in proofs]
        left = [p for p in others if not any(fnmatchcase(p.name, pattern) for pattern in patterns)]
        proving = sum(p.memory or 0 for p in proofs)
        metrics: Tuple[Metric, ...] = (Metric("gpu_processes", len(left)),)
        if device.memory_used is not None:
            metrics += (Metric("gpu_memory_used", device.memory_used, "B"),)
        evidence = tuple(
            f"pid {p.pid} {p.name or '?'}" + (f" {show_kb(p.memory // 1024)}" if p.memory else "") for p in left
        )
        if memory is not None:
            yield from partly_unread(device, "memory", "how much of its memory is in use")
        if left:
            names = ", ".join(f"{p.name or '?'} ({p.pid})" for p in left[:3]) + (" ..." if len(left) > 3 else "")
            message = f"{target} is still held by {len(left)} process{'es' * (len(left) != 1)}: {names}"
            yield crit(
                "GpuProcessesLeft",
                message,
                target=target,
                metrics=metrics,
                action=Action.RESTART_APP,
                evidence=evidence,
            )
        elif memory is not None and device.memory_used is not None and device.memory_used - proving >= memory:
            used, limit = show_kb(device.memory_used // 1024), show_kb(memory // 1024)
            message = f"{target}: {used} of its memory are in use (limit {limit}) without a process"
            yield crit("GpuMemoryLeft", message, target=target, metrics=metrics, action=Action.RESET_DEVICE)
        else:
            yield ok(f"{target} is free", target=target, metrics=metrics)

    return each(host, devices, judge)
