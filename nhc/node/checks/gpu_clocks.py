"""Clocks, heat and power of accelerators: what slows a device down without breaking it."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, known, ok, warn
from nhc.core.units import number, whole
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, partly_unread
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.accelerator_values import HARDWARE_REASONS, UNNAMED, Device

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Tuple

_WORDS = {
    "hw-slowdown": "slowed down by hardware (heat, power or an external signal)",
    "hw-thermal": "slowed down by hardware because of heat",
    "hw-power-brake": "slowed down by an external power brake",
    "sw-thermal": "slowed down by the driver because of heat",
    "sw-power-cap": "held by its power limit",
}


def _throttling(device: Device) -> Iterable[Outcome]:
    reasons, target = device.clocks.reasons, device.label
    if reasons is None:
        yield not_reported(device, "clocks", "why its clocks are held down")
        return
    metrics = known("MHz", gpu_clock_graphics=device.clocks.graphics)
    hard = [reason for reason in reasons if reason in HARDWARE_REASONS]
    evidence = (f"{target}: reasons {', '.join(reasons)}",) if reasons else ()
    if hard:
        worst = next((r for r in ("hw-power-brake", "hw-thermal") if r in hard), "hw-slowdown")
        reason = {"hw-power-brake": "GpuPowerBrake", "hw-thermal": "GpuHwThermalSlowdown"}.get(worst, "GpuHwSlowdown")
        message = f"{target}: {_WORDS[worst]}"
        yield crit(reason, message, target=target, metrics=metrics, action=Action.INSPECT, evidence=evidence)
    elif "sw-thermal" in reasons:
        message = f"{target}: {_WORDS['sw-thermal']}"
        yield warn("GpuSwThermalSlowdown", message, target=target, metrics=metrics, evidence=evidence)
    elif any(reason.startswith(UNNAMED) for reason in reasons):
        unnamed = ", ".join(reason[len(UNNAMED) :] for reason in reasons if reason.startswith(UNNAMED))
        message = f"{target}: held down for a reason that this version does not know: {unnamed}"
        yield warn("GpuSlowdownUnknown", message, target=target, metrics=metrics, evidence=evidence)
    else:
        state = _WORDS["sw-power-cap"] if "sw-power-cap" in reasons else "clocks free"
        yield ok(f"{target}: {state}", target=target, metrics=metrics)


@check(
    "check_gpu_clock_throttling",
    DEVICES,
    timeout=30,
    source=SOURCE,
    parts=("clocks",),
    tags=("nvidia", "amd"),
    samples=("GpuPowerBrake", "GpuHwThermalSlowdown", "GpuHwSlowdown"),
)
def check_gpu_clock_throttling(host: Host, devices: str = "") -> Judged:
    """No accelerator is slowed down by heat, by its power supply or by its board.

    Asks NVML why clocks are held down. Hardware slowdown, hardware thermal slowdown and power brake are
    CRIT, thermal slowdown by the driver and a reason that nhc does not know are WARN; idle, application clocks, sync
    boost and the power limit are what a healthy GPU shows. It is the state of this moment, and is CRIT when two looks
    in a row find it, or as many as the line's `strikes` says.

    Example: * |every 60s, strikes 3| check_gpu_clock_throttling
    """
    return each(host, devices, _throttling)


def _temperature(device: Device, margin: int, most: Optional[int], most_memory: Optional[int]) -> Iterable[Outcome]:
    heat, target = device.thermal, device.label
    if heat.gpu is None and heat.memory is None and heat.margin is None:
        yield not_reported(device, "thermal", "its temperature")
        return
    yield from partly_unread(device, "thermal", "a temperature of it")
    metrics = known("Cel", gpu_temperature=heat.gpu, gpu_memory_temperature=heat.memory)
    # What is judged, its value, the limit, and whether reaching the limit is CRIT or WARN.
    limits: List[Tuple[str, Optional[int], Optional[int], bool]] = [
        ("GPU", heat.gpu, most, True),
        ("GPU", heat.gpu, heat.shutdown, True),
        ("GPU", heat.gpu, heat.slowdown, True),
        ("GPU", heat.gpu, heat.gpu_max, False),
        ("memory", heat.memory, most_memory if most_memory is not None else heat.memory_max, True),
    ]
    judged = [
        (what, value, limit, critical)
        for what, value, limit, critical in limits
        if value is not None and limit is not None
    ]
    for what, value, limit, critical in judged:
        if value >= limit - margin:
            message = f"{target}: {what} at {value} degrees, limit {limit}"
            judge = crit if critical else warn
            yield judge("GpuTemperature", message, target=target, metrics=metrics, action=Action.INSPECT)
            return
    if heat.margin is not None and heat.margin <= margin:
        slow = heat.slowdown_margin if heat.slowdown_margin is not None else 0
        message = f"{target}: {heat.margin} degrees left to the most it may run at"
        judge = crit if heat.margin <= slow else warn
        yield judge("GpuTemperature", message, target=target, metrics=metrics, action=Action.INSPECT)
    elif not judged and heat.margin is None:
        yield not_reported(device, "thermal", "limits of its temperature (say one with -m)")
    else:
        degrees = heat.gpu if heat.gpu is not None else heat.memory
        yield ok(f"{target}: {degrees} degrees", target=target, metrics=metrics)


@check(
    "check_gpu_temp",
    DEVICES,
    opt("-a --ahead", "ahead", whole, "judge this many degrees ahead of the limits", 0),
    opt("-m --max", "most", whole, "CRIT from this temperature of the GPU on, besides its own limits"),
    opt(
        "-M --max-memory",
        "most_memory",
        whole,
        "CRIT from this temperature of its memory on (default: its own limit)",
    ),
    timeout=30,
    source=SOURCE,
    parts=("thermal",),
    tags=("nvidia", "amd", "gaudi"),
    samples=("GpuTemperature",),
)
def check_gpu_temp(
    host: Host,
    ahead: int = 0,
    most: Optional[int] = None,
    most_memory: Optional[int] = None,
    devices: str = "",
) -> Judged:
    """No accelerator is hotter than its own limits allow.

    Reads temperature and limits from the device: NVML's slowdown, shutdown and operating limits, or on newer GPUs what
    is left to them (T.Limit), and amdgpu's hwmon limits. The slowdown limit of the GPU and the limit of its memory are
    CRIT at two looks in a row, the operating limit WARN. For Gaudi, which tells no limits, give one with -m.

    Example: * || check_gpu_temp -a 3
    """
    return each(host, devices, lambda device: _temperature(device, ahead, most, most_memory))


def _power(device: Device, limit: Optional[float], lower: bool, common: float) -> Iterable[Outcome]:
    """`common` is the limit of most devices of its model on this node: a site's cap, where it is below the default."""
    power, target = device.power, device.label
    if power.limit is None:
        yield not_reported(device, "power", "its power limit")
        return
    metrics = known("W", gpu_power=power.usage, gpu_power_limit=power.limit)
    wanted = limit if limit is not None else power.default
    if wanted is None:
        yield not_reported(device, "power", "its default power limit")
    elif abs(power.limit - wanted) < 1 or (limit is None and power.limit > wanted) or (lower and power.limit < wanted):
        yield ok(f"{target}: power limit {power.limit:.0f} W", target=target, metrics=metrics)
    elif limit is None and power.limit > common - 1:
        message = f"{target}: power limit {power.limit:.0f} W, as most here; its default is {wanted:.0f} W"
        yield ok(message, target=target, metrics=metrics)
    else:
        whose = "expected" if limit is not None else "its default"
        message = f"{target}: power limit is {power.limit:.0f} W, {whose} {wanted:.0f} W"
        yield crit("GpuPowerLimit", message, target=target, metrics=metrics, action=Action.INSPECT)


def _common_limit(device: Device, every: Iterable[Device]) -> float:
    """The power limit that most devices of this one's model have, of two the higher; in whole watts."""
    limits = [
        round(other.power.limit) for other in every
        if (other.vendor, other.name) == (device.vendor, device.name) and other.power.limit is not None
    ]  # fmt: skip
    return max(limits, key=lambda limit: (limits.count(limit), limit), default=0)


@check(
    "check_gpu_power",
    DEVICES,
    flag("-l --lower", "lower", "a lower limit is fine, only a higher one is not"),
    arg("limit", number, "the power limit in watts (default: the board's own, or what most GPUs here have)"),
    timeout=30,
    source=SOURCE,
    parts=("power",),
    tags=("nvidia", "amd"),
)
def check_gpu_power(host: Host, limit: Optional[float] = None, lower: bool = False, devices: str = "") -> Judged:
    """Every accelerator has the power limit that it should have.

    One GPU with a lower limit than the others slows a whole job down. Reads the limit in force from NVML or
    amdgpu's hwmon and compares it with LIMIT, within a watt. Without LIMIT one that is below the board's default is
    CRIT, unless most GPUs of its model on this node have that limit: then it is the site's cap.

    Example: *h100* || check_gpu_power 700
    """
    every = accelerators(host).devices

    def judge(device: Device) -> Iterable[Outcome]:
        return _power(device, limit, lower, _common_limit(device, every))

    return each(host, devices, judge)


def clocks_pair(value: str) -> Tuple[int, int]:
    """`GRAPHICS,MEMORY` in MHz."""
    low, comma, high = value.partition(",")
    if not comma or not low.isdigit() or not high.isdigit():
        raise ValueError(f"{value!r} is not a pair of clocks in MHz, as in 1410,1593")
    return int(low), int(high)


def _application(device: Device, wanted: Optional[Tuple[int, int]]) -> Iterable[Outcome]:
    clocks, target = device.clocks, device.label
    now = (clocks.application_graphics, clocks.application_memory)
    expected = wanted or (clocks.default_graphics, clocks.default_memory)
    if None in now or None in expected:
        yield not_reported(device, "clocks", "its application clocks")
    elif now != expected:
        whose = "expected" if wanted else "its default"
        message = f"{target}: application clocks {now[0]},{now[1]} MHz, {whose} {expected[0]},{expected[1]} MHz"
        yield crit("GpuApplicationClocks", message, target=target, action=Action.INSPECT)
    else:
        yield ok(f"{target}: application clocks {now[0]},{now[1]} MHz", target=target)


@check(
    "check_app_gpu_clocks",
    DEVICES,
    arg("clocks", clocks_pair, "GRAPHICS,MEMORY in MHz (default: the board's default clocks)"),
    timeout=30,
    source=SOURCE,
    parts=("application_clocks",),
    tags=("gpu", "nvidia"),
)
def check_app_gpu_clocks(host: Host, clocks: Optional[Tuple[int, int]] = None, devices: str = "") -> Judged:
    """Every GPU has the application clocks that it should have.

    Asks NVML for the application clocks and compares them with CLOCKS, or with the board's default. Nothing
    is set: Azure's check of this name repairs what it finds, which hides that something had changed it.
    SKIP on GPUs that no longer have application clocks.

    Example: *a100* || check_app_gpu_clocks 1410,1593
    """
    return each(host, devices, lambda device: _application(device, clocks), vendor="nvidia")
