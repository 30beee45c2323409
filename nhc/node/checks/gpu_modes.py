"""Settings of accelerators that a site chooses: persistence, MIG, ECC, compute mode. Read, never changed."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, warn
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, on_or_off
from nhc.node.facts.accelerator_values import Device

if TYPE_CHECKING:
    from typing import Iterable, Optional

_ON_OFF = {True: "on", False: "off"}


def _mode(
    device: Device, what: str, area: str, now: Optional[bool], pending: Optional[bool], wanted: bool
) -> Iterable[Outcome]:
    target = device.label
    reason = f"Gpu{what.split(' ', 1)[0].capitalize()}Mode"
    if now is None:
        yield not_reported(device, area, f"its {what}")
    elif now != wanted:
        waits = ", a change waits for the next reset" if pending == wanted else ""
        message = f"{target}: {what} is {_ON_OFF[now]}, {_ON_OFF[wanted]} expected{waits}"
        yield crit(reason, message, target=target, action=Action.RESET_DEVICE if waits else Action.INSPECT)
    elif pending is not None and pending != now:
        message = f"{target}: {what} is {_ON_OFF[now]}, but will be {_ON_OFF[pending]} from the next reset on"
        yield warn(reason, message, target=target, action=Action.INSPECT)
    else:
        yield ok(f"{target}: {what} is {_ON_OFF[now]}", target=target)


@check(
    "check_gpu_persistence",
    DEVICES,
    arg("state", on_or_off, "on or off", True),
    timeout=30,
    source=SOURCE,
    parts=("persistence",),
    tags=("nvidia",),
)
def check_gpu_persistence(host: Host, state: bool = True, devices: str = "") -> Judged:
    """Persistence mode is on, so that the driver stays with a GPU that nobody uses.

    Without it each job waits seconds for the driver to start the GPU, and settings and error counts are
    lost in between. Asks NVML. Nothing is set: turn it on with nvidia-persistenced.

    Example: * || check_gpu_persistence
    """
    return each(
        host, devices, lambda d: _mode(d, "persistence mode", "persistence", d.modes.persistence, None, state),
        vendor="nvidia",
    )  # fmt: skip


@check(
    "check_gpu_mig",
    DEVICES,
    arg("state", on_or_off, "on or off", False),
    timeout=30,
    source=SOURCE,
    parts=("mig_mode",),
    tags=("nvidia",),
)
def check_gpu_mig(host: Host, state: bool = False, devices: str = "") -> Judged:
    """Multi-Instance GPU mode is as the site wants it, off unless said otherwise.

    Asks NVML for the mode in force and the one from the next reset on. SKIP for GPUs without MIG.

    Example: *mig* || check_gpu_mig on
    """
    return each(
        host, devices, lambda d: _mode(d, "MIG mode", "mig_mode", d.modes.mig, d.modes.mig_pending, state),
        vendor="nvidia",
    )  # fmt: skip


@check(
    "check_gpu_ecc_mode",
    DEVICES,
    arg("state", on_or_off, "on or off", True),
    timeout=30,
    source=SOURCE,
    parts=("ecc_mode",),
    tags=("nvidia", "gaudi"),
)
def check_gpu_ecc_mode(host: Host, state: bool = True, devices: str = "") -> Judged:
    """ECC is on, so that memory errors are corrected and counted.

    Asks NVML or hl-smi for the mode in force and the one from the next reset on.

    Example: * || check_gpu_ecc_mode on
    """
    return each(host, devices, lambda d: _mode(d, "ECC mode", "ecc_mode", d.modes.ecc, d.modes.ecc_pending, state))


def compute_mode(value: str) -> str:
    """One of NVIDIA's compute modes."""
    modes = ("default", "exclusive-process", "prohibited", "exclusive-thread")
    mode = value.lower().replace("_", "-")
    if mode not in modes:
        raise ValueError(f"{value!r} is not a compute mode (default, exclusive-process, prohibited)")
    return mode


@check(
    "check_gpu_compute_mode",
    DEVICES,
    arg("mode", compute_mode, "default, exclusive-process or prohibited", "default"),
    timeout=30,
    source=SOURCE,
    parts=("compute_mode",),
    tags=("nvidia",),
)
def check_gpu_compute_mode(host: Host, mode: str = "default", devices: str = "") -> Judged:
    """Every GPU has the compute mode that the site wants.

    A GPU left in `prohibited` refuses every job. Asks NVML.

    Example: * || check_gpu_compute_mode default
    """

    def judge(device: Device) -> Outcome:
        now, target = device.modes.compute, device.label
        if now is None:
            return not_reported(device, "compute_mode", "its compute mode")
        if now != mode:
            message = f"{target}: compute mode is {now}, {mode} expected"
            return crit("GpuComputeMode", message, target=target, action=Action.INSPECT)
        return ok(f"{target}: compute mode is {now}", target=target)

    return each(host, devices, judge, vendor="nvidia")
