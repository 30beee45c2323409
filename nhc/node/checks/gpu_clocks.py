"""Clocks, heat and power of accelerators: what slows a device down without breaking it."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, Verdict, crit, known, ok, skip, warn
from nhc.core.units import number, percent, seconds, show_age, whole
from nhc.node.checks.gpu import DEVICES, SOURCE, each, not_reported, partly_unread, pick
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.accelerator_values import HARDWARE_REASONS, UNNAMED, Device

if TYPE_CHECKING:
    from typing import Iterable, List, Optional, Sequence, Tuple

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


def _gradient(device: Device) -> Optional[int]:
    """How many degrees its memory is hotter than the GPU itself."""
    heat = device.thermal
    return None if heat.gpu is None or heat.memory is None else heat.memory - heat.gpu


def _steeper(device: Device, every: Iterable[Device], most: int) -> Iterable[Outcome]:
    """Compares the temperature difference of a GPU and its memory with its model's median: finds badly mounted
    coolers.
    """
    own = _gradient(device)
    alike = [_gradient(other) for other in every if (other.vendor, other.name) == (device.vendor, device.name)]
    known_ones = sorted(value for value in alike if value is not None)
    if own is None or len(known_ones) < PEERS:
        return
    median = known_ones[len(known_ones) // 2]
    if own - median >= most:
        message = f"{device.label}: memory is {own} degrees hotter than the GPU, {median} on its peers"
        yield warn("GpuTemperatureGradient", message, target=device.label, action=Action.INSPECT)


PEERS = 4
"""The fewest GPUs of a model whose median is taken as usual on this node."""


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
    opt("-g --gradient", "gradient", whole, "WARN where its memory is this many degrees hotter, against its peers"),
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
    gradient: Optional[int] = None,
    devices: str = "",
) -> Judged:
    """No accelerator is hotter than its own limits allow.

    Reads temperature and limits from the device: NVML's slowdown, shutdown and operating limits, or on newer GPUs what
    is left to them (T.Limit), and amdgpu's hwmon limits. The slowdown limit of the GPU and the limit of its memory are
    CRIT at two looks in a row, the operating limit WARN. For Gaudi, which tells no limits, give one with -m.
    With -g the heat between a GPU and its memory is compared with the median of at least four GPUs of its model: far
    above it the cooler sits badly. No vendor publishes a figure, and GPUs at different work differ by some 10 degrees.

    Example: * || check_gpu_temp -a 3
    """
    every = accelerators(host).devices

    def judge(device: Device) -> Iterable[Outcome]:
        yield from _temperature(device, ahead, most, most_memory)
        if gradient is not None:
            yield from _steeper(device, every, gradient)

    return each(host, devices, judge)


def _power(device: Device, limit: Optional[float], lower: bool, common: float) -> Iterable[Outcome]:
    """`common` is the limit of most devices of its model on this node: a site's cap if it is below the default."""
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
    """The power limit that most devices of this model have (of two the higher), in whole watts."""
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


IDLE_DEGREES = 60
IDLE_WATTS = (("H100", 150), ("H200", 150), ("GB200", 300), ("GB300", 300), ("B200", 250), ("B300", 250))
"""What an idle GPU may draw: the first entry that its name contains counts. From ClusterMAX's audit, as the degrees
above."""


def _idle(device: Device, degrees: int, watts: Optional[int]) -> Iterable[Outcome]:
    target = device.label
    if device.processes is None:
        yield not_reported(device, "processes", "which processes hold it")
        return
    if device.processes:
        yield skip("GpuBusy", f"{target} is in use", target=target)
        return
    heat, drawn = device.thermal.gpu, device.power.usage
    most = watts if watts is not None else next((limit for name, limit in IDLE_WATTS if name in device.name), None)
    metrics = known("Cel", gpu_temperature=heat) + known("W", gpu_power=drawn)
    if heat is None and drawn is None:
        yield not_reported(device, "thermal", "its temperature or power")
    elif heat is not None and heat > degrees:
        message = f"{target}: {heat} degrees without work, {degrees} at most"
        yield warn("GpuIdleHot", message, target=target, metrics=metrics, action=Action.INSPECT)
    elif drawn is not None and most is not None and drawn > most:
        message = f"{target}: draws {drawn:.0f} W without work, {most} at most"
        yield warn("GpuIdlePower", message, target=target, metrics=metrics, action=Action.INSPECT)
    else:
        yield ok(f"{target}: idle and cool", target=target, metrics=metrics)


def _lasting(host: Host, name: str, outcomes: Iterable[Outcome], least: float) -> List[Outcome]:
    """Warnings count only if all looks within `least` seconds found them: a single moment proves nothing."""
    from nhc.node.facts.history import unchanged_since

    judged = list(outcomes)
    now = host.monotonic()
    found = {f"{outcome.reason} {outcome.target}": 1 for outcome in judged if outcome.verdict is Verdict.WARN}
    since = unchanged_since(host, name, found)

    def counted(outcome: Outcome) -> Outcome:
        begun = since.get(f"{outcome.reason} {outcome.target}", now)
        if outcome.verdict is not Verdict.WARN or now - begun >= least:
            return outcome
        message = f"{outcome.message}, for {show_age(now - begun)} of {show_age(least)}"
        return ok(message, target=outcome.target, metrics=outcome.metrics)

    return [counted(outcome) for outcome in judged]


@check(
    "check_gpu_idle",
    DEVICES,
    opt("-t --temperature", "degrees", whole, "WARN above so many degrees", IDLE_DEGREES),
    opt("-w --watts", "watts", whole, "WARN above so many watts (default: by model)"),
    opt("-f --for", "least", seconds, "WARN once it has lasted so long", 600.0),
    timeout=30,
    source=SOURCE,
    parts=("thermal", "power", "processes"),
    tags=("nvidia", "amd"),
)
def check_gpu_idle(
    host: Host, degrees: int = IDLE_DEGREES, watts: Optional[int] = None, least: float = 600.0, devices: str = ""
) -> Judged:
    """An accelerator without work is cool and draws little.

    One that nobody uses and that is hot, or draws as if it worked, has a fan or a clock that is stuck, or somebody
    else's work. Asks which processes hold it, its temperature and its power. Above 60 degrees, or above 150 W (H100,
    H200), 250 W (B200, B300) or 300 W (GB200, GB300) for ten minutes it is WARN, as a GPU takes some minutes to cool;
    other models have no limit of power without -w. A device in use is left out.

    Example: *gpu* |every 5m| check_gpu_idle
    """
    return _lasting(host, "gpu-idle", each(host, devices, lambda device: _idle(device, degrees, watts)), least)


BUSY = 95
"""A GPU counts as busy if kernels ran in at least this percentage of the time: one that waits in a collective has 100.
"""


@check(
    "check_gpu_stalled",
    DEVICES,
    opt("-f --for", "least", seconds, "WARN once it has lasted so long", 900.0),
    arg("share", percent, "power below this share of the limit is too little for a busy GPU", 30.0),
    timeout=30,
    source=SOURCE,
    parts=("power", "processes", "utilization"),
    tags=("nvidia",),
)
def check_gpu_stalled(host: Host, share: float = 30.0, least: float = 900.0, devices: str = "") -> Judged:
    """No job stands still on this node's GPUs while they look busy.

    In a collective that never ends each GPU spins: NVML calls it 100 % utilised, and it draws little power. Where all
    GPUs in use are so, all below SHARE of their power limit, and were so at each look of a quarter of an hour, it is
    WARN. A phase of loading or an inference service may look the same, so take no node out for it: it is the job that
    stands still, and mostly because of another node (nhc job why). The share is nhc's own: no vendor publishes one.

    Example: *gpu* |every 1m| check_gpu_stalled
    """
    picked = pick(host, devices, "nvidia")
    return [*picked.outcomes, *_lasting(host, "gpu-stalled", _stalled(picked.devices, share), least)]


def _stalled(devices: Sequence[Device], share: float) -> Iterable[Outcome]:
    busy = [device for device in devices if device.processes]
    if not busy:
        silent = next((device for device in devices if device.processes is None), None)
        if silent is not None:
            yield not_reported(silent, "processes", "which processes hold it")
        elif devices:
            yield skip("GpuIdle", "no process uses a GPU")
        return
    shares = []
    for device in busy:
        if device.utilization is None or device.power.usage is None or not device.power.limit:
            area = "power" if device.utilization is not None else "utilization"
            yield not_reported(device, area, "its utilisation and power")
            return
        shares.append(100 * device.power.usage / device.power.limit)
    metrics = known("%", gpu_power_share=round(sum(shares) / len(shares), 1))
    if all((device.utilization or 0) >= BUSY for device in busy) and max(shares) < share:
        message = f"all {len(busy)} GPUs in use look busy and draw at most {max(shares):.0f} % of their power limit"
        yield warn("GpuStalled", message, metrics=metrics)
    else:
        yield ok(f"{len(busy)} GPUs in use, up to {max(shares):.0f} % of their power limit", metrics=metrics)
