"""The PCIe links of accelerators."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, known, ok, warn
from nhc.core.units import count, whole
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, partly_unread, pick
from nhc.node.facts.accelerator_values import Device
from nhc.node.facts.history import Growth, amount, growth

if TYPE_CHECKING:
    from typing import Dict, List, Optional


def _link(device: Device, generation: Optional[int], width: Optional[int]) -> List[Outcome]:
    link, target = device.pcie, device.label
    if link.width is None and link.generation is None:
        return [not_reported(device, "pcie", "its PCIe link")]
    metrics = known(gpu_pcie_generation=link.generation, gpu_pcie_width=link.width)
    faults = partly_unread(device, "pcie", "a part of its PCIe link")
    least_width = width or link.max_width
    if least_width and link.width is not None and link.width < least_width:
        message = f"{target} ({device.pci}): PCIe link is x{link.width}, x{least_width} expected"
        faults.append(crit("GpuPcieWidth", message, target=target, metrics=metrics, action=Action.INSPECT))
    least = generation or link.max_generation
    if least and link.generation is not None and link.generation < least:
        message = f"{target} ({device.pci}): PCIe link runs at generation {link.generation}, {least} expected"
        idle = device.clocks.reasons is None or "idle" in device.clocks.reasons
        if generation is not None or not idle:
            faults.append(crit("GpuPcieGeneration", message, target=target, metrics=metrics, action=Action.INSPECT))
    speed = f"PCIe generation {link.generation or '?'} x{link.width or '?'}"
    return faults or [ok(f"{target}: {speed}", target=target, metrics=metrics)]


@check(
    "check_gpu_pcie",
    DEVICES,
    opt("-g --generation", "generation", whole, "least generation (default: what device and slot can do)"),
    opt("-w --width", "width", whole, "least number of lanes (default: what device and slot can do)"),
    opt("-r --replays", "replays", count, "WARN from this many replays of a device a minute on", 8),
    timeout=30,
    source=SOURCE,
    parts=("pcie", "clocks"),
    tags=("nvidia", "amd", "gaudi"),
)
def check_gpu_pcie(
    host: Host, generation: Optional[int] = None, width: Optional[int] = None, replays: int = 8, devices: str = ""
) -> Judged:
    """Every accelerator's PCIe link has its full width and speed.

    Asks NVML, the amdgpu driver or hl-smi for the link as it runs and as device and slot together can run.
    A narrower link is CRIT, at any time. A slower one is CRIT only while the device works, as an idle one
    may rest at a lower generation, unless -g names the least generation. Replays are WARN from 8 a minute
    on (DCGM's limit), judged from the second run on.

    Example: *h100* || check_gpu_pcie -g 5 -w 16
    """
    outcomes = each(host, devices, lambda device: _link(device, generation, width))
    picked = pick(host, devices)
    counters: Dict[str, float] = {d.id: float(d.pcie.replays) for d in picked.devices if d.pcie.replays is not None}
    grown: Dict[str, Growth] = growth(host, "gpu_pcie_replays", counters, 60.0, since_boot=False) if counters else {}
    for device in picked.devices:
        added = amount(grown, device.id)
        if added and added >= replays:
            message = f"{device.label} ({device.pci}): {added:g} PCIe replays within a minute (limit {replays})"
            outcomes.append(warn("GpuPcieReplays", message, target=device.label, action=Action.INSPECT))
    return outcomes
