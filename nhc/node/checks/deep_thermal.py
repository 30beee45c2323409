"""Heat and clocks under load: what slows down when all of the node works."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, Verdict, crit, known, ok, skip, unknown, warn
from nhc.core.units import seconds
from nhc.node.checks import deep, deep_cpu
from nhc.node.checks.deep_cpu import judge as judge_stress
from nhc.node.checks.deep_gemm import PYTHON, check_deep_gemm
from nhc.node.facts import cpufreq
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.accelerator_values import HARDWARE_REASONS

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

    from nhc.node.facts.accelerator_values import Device

THROTTLE = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"
"""Events since boot, by core and by package (arch/x86/kernel/cpu/mce/therm_throt.c). Intel's processors alone."""
LEAST = 5
"""Samples (one a second) that there must be under load."""


class Watch:
    """What was observed while the load ran. `look` is called every second and never raises."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.looks = 0
        self.trouble = ""
        self.reasons: Dict[str, Set[str]] = {}
        self.answered: Set[str] = set()
        """GPUs that reported at least once what slows their clocks down ("nothing" is also an answer)."""
        self.clocks: Dict[str, List[int]] = {}
        self.heat: Dict[str, int] = {}
        self.cpu: List[List[int]] = []

    def look(self) -> None:
        try:
            self.host.forget()
            self.cpu.append(cpufreq.current_khz(self.host))
            for device in accelerators(self.host).devices:
                self._device(device)
            self.looks += 1
        except Exception as error:
            self.trouble = f"({type(error).__name__}: {error})"

    def _device(self, device: Device) -> None:
        name = device.label
        self.reasons.setdefault(name, set()).update(device.clocks.reasons or ())
        if device.clocks.reasons is not None:
            self.answered.add(name)
        if device.clocks.graphics is not None:
            self.clocks.setdefault(name, []).append(device.clocks.graphics)
        if device.thermal.gpu is not None:
            self.heat[name] = max(self.heat.get(name, 0), device.thermal.gpu)


@check(
    "check_deep_thermal",
    opt("-t --time", "duration", seconds, "how long to load", 60.0),
    flag("-c --cpu-only", "cpu_only", "load the processors alone, although there are GPUs"),
    PYTHON,
    timeout=2 * deep.OVERHEAD + 300,
    tags=("cpu", "gpu"),
    parts=("clocks",),
)
def check_deep_thermal(
    host: Host, duration: float = 60.0, cpu_only: bool = False, python: str = "python3"
) -> List[Outcome]:
    """Nothing slows down because of heat or power while all of the node works.

    Loads all processors with stress-ng, then all GPUs as check_deep_gemm does, and looks every second. CRIT where a
    GPU's hardware holds its clocks down (heat, power brake), WARN where the driver does so because of heat, where a GPU
    or a processor clocks more than 10 percent below its peers, or where processors count thermal events.

    Example: * |context deep| check_deep_thermal -t 5m
    """
    outcomes = [_processors(host, duration)]
    if not cpu_only:
        outcomes += _devices(host, duration, python)
    return outcomes


def _events(host: Host) -> Dict[str, int]:
    """Thermal events since boot, by file."""
    counts = ((path, host.number(path)) for path in host.glob(f"{THROTTLE}/*_throttle_count"))
    return {path: count for path, count in counts if count is not None}


def _processors(host: Host, duration: float) -> Outcome:
    before, watch = _events(host), Watch(host)
    argv = ["stress-ng", "--cpu", "0", "--verify", "--metrics", "--oomable", "--timeout", f"{max(1, round(duration))}s"]
    ran = deep.measure(
        host, argv, duration + deep.START, "stress-ng", lambda done: deep_cpu.parse_stress_ng(done.output), watch.look
    )
    load = ran if isinstance(ran, Outcome) else judge_stress({"cpu": 0}, duration, *ran)
    if load.verdict is not Verdict.OK:
        return load
    after = _events(host)
    hot = sum(max(0, count - before.get(path, count)) for path, count in after.items())
    loaded = [clocks for clocks in watch.cpu[1:] if clocks]
    lowest = [min(clocks) / 1000 for clocks in loaded]
    metrics = (*known(cpu_thermal_events=float(hot)), *known("MHz", cpu_clock_lowest=min(lowest, default=None)))
    if hot:
        message = f"processors counted {hot} thermal events under load"
        return warn("DeepThrottled", message, metrics=metrics, action=Action.INSPECT)
    behind = [clocks for clocks in loaded if min(clocks) < sorted(clocks)[len(clocks) // 2] * (1 - deep.BEHIND)]
    if len(loaded) >= LEAST and len(behind) > len(loaded) / 2:
        message = f"under load a processor ran at {min(lowest):.0f} MHz, most of the others more than 10% faster"
        return warn("DeepClockSpread", message, metrics=metrics)
    if not after and not lowest:
        return skip("NotSupported", "this machine shows neither thermal events nor frequencies of its processors")
    return ok(f"processors: no thermal event in {duration:g} s of load", target="processors", metrics=metrics)


def _devices(host: Host, duration: float, python: str) -> List[Outcome]:
    if not accelerators(host).devices:
        return []
    watch = Watch(host)
    watched = WatchedHost(host, watch)
    burnt = check_deep_gemm(watched, duration, python=python, floor=deep.NONE)
    load = [burnt] if isinstance(burnt, Outcome) else burnt
    bad = [outcome for outcome in load if outcome.verdict > Verdict.OK or outcome.reason == "CommandMissing"]
    if bad:
        return bad
    if watch.looks < LEAST:
        return [
            unknown("DeepNoProof", f"the GPUs were looked at {watch.looks} times under load {watch.trouble}".rstrip())
        ]
    return judge_devices(watch)


class WatchedHost(Host):
    """The same host, observed while its commands run."""

    def __init__(self, host: Host, watch: Watch) -> None:
        self.__dict__.update(host.__dict__)
        self._watch = watch

    def run(self, argv, timeout=5.0, stdin="", during=None):  # type: ignore[no-untyped-def]
        long = timeout > deep.START + 60
        return super().run(argv, timeout, stdin, self._watch.look if long else during)


def judge_devices(watch: Watch) -> List[Outcome]:
    """Judge what was observed of GPUs under load."""
    # The first sample may be from before the load: the upper half of all samples is from under load.
    typical = {name: sorted(seen)[3 * len(seen) // 4] for name, seen in watch.clocks.items()}
    middle = sorted(typical.values())[len(typical) // 2] if typical else 0
    outcomes: List[Outcome] = []
    for name, reasons in sorted(watch.reasons.items()):
        clock: Optional[int] = typical.get(name)
        metrics = (*known("MHz", gpu_clock_loaded=clock), *known("Cel", gpu_heat_loaded=watch.heat.get(name)))
        hard = sorted(reasons & set(HARDWARE_REASONS))
        if hard:
            message = f"{name}: its hardware held its clocks down under load ({', '.join(hard)})"
            outcomes.append(crit("DeepThrottled", message, target=name, metrics=metrics, action=Action.INSPECT))
        elif "sw-thermal" in reasons:
            message = f"{name}: the driver held its clocks down under load because of heat"
            outcomes.append(warn("DeepThrottled", message, target=name, metrics=metrics))
        elif clock is not None and clock < middle * (1 - deep.BEHIND):
            message = f"{name}: {clock} MHz under load, its peers {middle} MHz"
            outcomes.append(warn("DeepClockSpread", message, target=name, metrics=metrics))
        elif clock is None:
            outcomes.append(unknown("DeepNotTested", f"{name} does not tell its clocks", target=name))
        elif name not in watch.answered:
            message = f"{name}: {clock} MHz under load, and it does not tell what holds its clocks down"
            outcomes.append(unknown("DeepNotTested", message, target=name, metrics=metrics))
        else:
            heat = f", {watch.heat[name]} degrees" if name in watch.heat else ""
            outcomes.append(ok(f"{name}: {clock} MHz under load{heat}", target=name, metrics=metrics))
    return outcomes
