"""The NVLink fabric: NVSwitches, the fabric manager, and each GPU's registration with it."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import whole
from nhc.node.checks.gpu import COMING_UP, DEVICES, SOURCE, each, not_reported, partly_unread, pick
from nhc.node.facts.accelerator_values import Device
from nhc.node.facts.pci import shows, switch_functions

if TYPE_CHECKING:
    from typing import Iterable, List, Optional

MANAGER = "nv-fabricmanager"
SERVICE = "nvidia-fabricmanager"


def _registered(device: Device) -> Iterable[Outcome]:
    fabric, target = device.fabric, device.label
    if fabric is None:
        yield not_reported(device, "fabric", "a state of the NVLink fabric")
    elif fabric.state != "completed":
        message = f"{target} has not joined the NVLink fabric: its registration is {fabric.state}"
        yield crit("FabricNotReady", message, target=target, action=Action.INSPECT)
    elif fabric.status:
        message = f"{target} could not join the NVLink fabric: {fabric.status}"
        yield crit("FabricError", message, target=target, action=Action.RESET_DEVICE)
    elif fabric.problems or fabric.summary == "unhealthy":
        message = f"{target}: the NVLink fabric is unhealthy: {', '.join(fabric.problems) or 'it does not say why'}"
        yield crit("FabricUnhealthy", message, target=target, action=Action.INSPECT)
    elif fabric.summary == "limited-capacity":
        yield warn("FabricLimited", f"{target}: the NVLink fabric runs with limited capacity", target=target)
    elif fabric.summary not in ("", "healthy"):
        message = f"{target}: the NVLink fabric is in a state that this version does not know: {fabric.summary}"
        yield warn("FabricLimited", message, target=target)
    else:
        yield ok(f"{target}: in the NVLink fabric", target=target)


@check(
    "check_gpu_fabric", DEVICES, timeout=30, source=SOURCE, parts=("fabric",), tags=("nvidia",),
    settles=("FabricError", "FabricUnhealthy", "FabricSplit", *COMING_UP), starting=("FabricNotReady",),
)  # fmt: skip
def check_gpu_fabric(host: Host, devices: str = "") -> Judged:
    """Every GPU has joined the NVLink fabric, and the fabric is healthy.

    Asks NVML for the fabric state of each GPU (Hopper and newer, on boards with NVSwitch): registration
    must be completed without an error, and no bit of the health mask may say that bandwidth is degraded, a
    route is unhealthy or recovering, or the configuration wrong. All GPUs must have joined the same
    cluster and clique. Without a joined fabric CUDA fails to start. SKIP for GPUs without one; for A100
    see check_fabric_manager.

    Example: * || check_gpu_fabric
    """
    outcomes = each(host, devices, _registered, vendor="nvidia")
    joined = [d.fabric for d in pick(host, devices, "nvidia").devices if d.fabric and d.fabric.state == "completed"]
    if len({(fabric.cluster, fabric.clique) for fabric in joined}) > 1:
        seen = sorted({f"{fabric.cluster or '-'}/{fabric.clique}" for fabric in joined})
        message = f"the node's GPUs have joined different NVLink domains: {', '.join(seen)}"
        outcomes.append(crit("FabricSplit", message, action=Action.INSPECT))
    return outcomes


def _manager_runs(host: Host) -> Optional[bool]:
    """Whether the fabric manager runs, by systemd or by its process; None if neither can be asked."""
    if _service_state(host) == "active":
        return True
    from nhc.core.resource_manager import process_names

    running = process_names(host)
    return MANAGER[:15] in running if running else None


def _service_state(host: Host) -> str:
    """What systemd says of the fabric manager, "" if there is no systemd."""
    return host.run(["systemctl", "is-active", SERVICE], timeout=5).stdout.strip() if host.which("systemctl") else ""


def _by_registration(host: Host) -> List[Outcome]:
    """The fabric manager as the GPUs report it, for switches that are not on this node's bus."""
    picked = pick(host, "", "nvidia")
    fabrics = [(device, device.fabric) for device in picked.devices if device.fabric is not None]
    if not fabrics:
        unread = [one for device in picked.devices for one in partly_unread(device, "fabric", "its fabric")]
        none = skip("NoNvswitch", "no NVSwitch on this node's PCI bus, and no GPU with an NVLink fabric")
        return [*picked.outcomes, *unread] or [none]
    out = [(device.label, fabric) for device, fabric in fabrics if fabric.state != "completed" or fabric.status]
    if not out:
        joined = ok(f"{len(fabrics)} GPUs have joined the NVLink fabric; its switches are not on this node's PCI bus")
        return [*picked.outcomes, joined]
    names = ", ".join(f"{label} ({fabric.status or fabric.state})" for label, fabric in out)
    message = f"{len(out)} of {len(fabrics)} GPUs have not joined the NVLink fabric: {names}"
    if _manager_runs(host) is False:
        message += f"; the fabric manager ({SERVICE}) does not run on this node"
        return [*picked.outcomes, crit("FabricManagerDown", message, action=Action.RELOAD_DRIVER)]
    return [*picked.outcomes, crit("FabricNotReady", message, action=Action.INSPECT)]


@check(
    "check_fabric_manager",
    opt("-n --switches", "switches", whole, "how many NVSwitches the PCI bus must show"),
    timeout=30,
    source=SOURCE,
    parts=("fabric",),
    tags=("gpu", "nvidia"),
    settles=("NvswitchMissing", "FabricManagerDown", *COMING_UP),
    starting=("FabricManagerStarts", "FabricNotReady"),
)
def check_fabric_manager(host: Host, switches: Optional[int] = None) -> Judged:
    """The fabric manager runs where there are NVSwitches, and all of them are on the bus.

    Counts NVSwitches on the PCI bus (6 on an HGX A100, 4 on an HGX H100 or H200; on Blackwell they are not
    the node's PCI devices) and asks systemd for nvidia-fabricmanager, else looks for its process. CRIT when
    it does not run although there are switches: CUDA then fails with "system not yet initialized". Where no switch
    is on the bus, the GPUs' registration tells (NVML): CRIT where one has not joined its fabric, whether the manager
    should run here or elsewhere (on an NVL72 rack it runs on the switch trays, for a virtual machine on its host).
    SKIP where the GPUs have no fabric.

    Example: *a100* || check_fabric_manager -n 6
    """
    if not shows(host, "nvidia"):
        return skip("NoAccelerator", "no nvidia device on this node's PCI bus")
    there = len(host.fact(switch_functions))
    metrics = (Metric("nvswitch_count", there),)
    outcomes: List[Outcome] = []
    if switches is not None and there != switches:
        message = f"{there} NVSwitches on the PCI bus, {switches} expected"
        outcomes.append(crit("NvswitchMissing", message, metrics=metrics, action=Action.REBOOT))
    if not there:
        return outcomes or _by_registration(host)
    runs = _manager_runs(host)
    if runs is None:
        outcomes.append(unknown("FabricManagerUnknown", "neither systemd nor /proc tells whether it runs"))
    elif not runs and _service_state(host) == "activating":
        message = f"{there} NVSwitches, and the fabric manager ({SERVICE}) is being started"
        outcomes.append(crit("FabricManagerStarts", message, metrics=metrics, action=Action.RELOAD_DRIVER))
    elif not runs:
        message = f"{there} NVSwitches, but the fabric manager ({SERVICE}) does not run"
        outcomes.append(crit("FabricManagerDown", message, metrics=metrics, action=Action.RELOAD_DRIVER))
    return outcomes or ok(f"the fabric manager runs, {there} NVSwitches", metrics=metrics)
