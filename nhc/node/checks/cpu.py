"""Processors: they run as fast as they can, and use the right clocksource."""

from __future__ import annotations

from nhc.core.check import arg, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import percent, text, whole
from nhc.node.facts import cpufreq

if TYPE_CHECKING:
    from typing import Optional, Sequence

_NO_SCALING = "the kernel does not scale this node's processor frequency"


@check("check_cpu_governor", rest("governors", text, "governors that will do; performance where none is given"))
def check_cpu_governor(host: Host, governors: Sequence[str] = ()) -> Outcome:
    """Every processor has the expected frequency governor.

    Reads scaling_governor of each policy in /sys/devices/system/cpu/cpufreq. Another governor than
    `performance` (gcm's expectation for training nodes) is WARN: the node works, but jobs run at its slowest
    processor's pace. SKIP where the kernel does not scale frequencies, as in virtual machines.

    Example: * || check_cpu_governor performance schedutil
    """
    wanted = tuple(governors) or ("performance",)
    policies = cpufreq.policies(host)
    if not policies:
        return skip("NoFrequencyScaling", _NO_SCALING)
    silent = [policy.name for policy in policies if not policy.governor]
    if silent:
        return unknown("Unreadable", f"{len(silent)} of {len(policies)} policies tell no governor, {silent[0]} first")
    other = [policy for policy in policies if policy.governor not in wanted]
    if other:
        kinds = ", ".join(sorted({policy.governor for policy in other}))
        message = f"{len(other)} of {len(policies)} processor policies have governor {kinds}, not {' or '.join(wanted)}"
        evidence = tuple(f"{policy.name} {policy.governor}" for policy in other[:20])
        return warn("CpuGovernor", message, evidence=evidence)
    return ok(f"governor {', '.join(sorted({policy.governor for policy in policies}))}")


@check(
    "check_cpu_frequency",
    opt("-m --min", "least", percent, "CRIT where the average frequency is below this share of the maximum", 0.0),
)
def check_cpu_frequency(host: Host, least: float = 0.0) -> Outcome:
    """Nothing caps the processors below what they can do.

    Compares scaling_max_freq with cpuinfo_max_freq of each policy: a ceiling below the hardware's maximum
    (a power profile, a tool's leftover) is WARN. With -m the current frequencies are read as well, and an
    average below that share of the maximum is CRIT: for a node under load, as idle processors slow down by
    design. SKIP where the kernel does not scale frequencies.

    Example: * || check_cpu_frequency
    """
    policies = cpufreq.policies(host)
    if not policies:
        return skip("NoFrequencyScaling", _NO_SCALING)
    known = [(p.name, p.ceiling, p.maximum) for p in policies if p.ceiling and p.maximum]
    if not known:
        return unknown("Unreadable", "no processor policy tells its frequencies")
    highest = max(maximum for _, _, maximum in known)
    metrics = [Metric("cpu_frequency_max", highest * 1000, "Hz")]
    if least:
        now = cpufreq.current_khz(host)
        if not now:
            return unknown("Unreadable", "no processor tells its current frequency", metrics=tuple(metrics))
        average = sum(now) / len(now)
        metrics.append(Metric("cpu_frequency", average * 1000, "Hz"))
        if average * 100 < least * highest:
            message = f"processors run at {average / 1e6:.2f} GHz on average, {least:g} % of {highest / 1e6:.2f} wanted"
            return crit("CpuSlow", message, metrics=tuple(metrics))
    capped = [(name, ceiling, maximum) for name, ceiling, maximum in known if ceiling < maximum]
    if capped:
        name, ceiling, maximum = min(capped, key=lambda each: each[1])
        message = (
            f"{len(capped)} of {len(policies)} processor policies are capped,"
            f" {name} at {ceiling / 1e6:.2f} of {maximum / 1e6:.2f} GHz"
        )
        return warn("CpuCapped", message, metrics=tuple(metrics))
    return ok(f"processors may run at {highest / 1e6:.2f} GHz", metrics=tuple(metrics))


@check("check_cpu_power", arg("watts", whole, "least limit of each package (default: what it is built for)"))
def check_cpu_power(host: Host, watts: Optional[int] = None) -> Outcome:
    """No processor is held below the power that it is built for.

    Compares the lasting power limit of each package (RAPL, /sys/class/powercap) with WATTS, else with the processor's
    own maximum and with the other packages of the node. Lower is WARN: firmware and providers set a cap below the
    data sheet, and a job runs at the pace of the lower package. SKIP where the kernel shows no limit, as in virtual
    machines.

    Example: * || check_cpu_power 350
    """
    try:
        found = cpufreq.packages(host)
    except (OSError, ValueError) as error:
        return unknown("Unreadable", f"a processor's power limit cannot be read: {error}")
    if not found:
        return skip("NoPowerLimit", "the kernel shows no power limit of a processor")
    metrics = tuple(Metric(f"cpu_power_limit_{package.name}", package.limit, "W") for package in found)
    highest = max(package.limit for package in found)
    for package in found:
        wanted = float(watts) if watts is not None else max(package.most or 0, highest)
        if package.limit < wanted - 1:
            message = f"{package.name} is limited to {package.limit:.0f} W, {wanted:.0f} expected"
            return warn("CpuPowerLimit", message, metrics=metrics, action=Action.INSPECT)
    return ok(f"processors may draw {found[0].limit:.0f} W each", metrics=metrics)


_SLOW = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}
"""Clocksources that must read a slow device or do not resolve microseconds. A kernel falls back to them
when it finds the TSC unstable (Documentation/timers/timekeeping.rst)."""


@check("check_cpu_clocksource", rest("expected", text, "clocksources that will do; any fast one where none is given"))
def check_cpu_clocksource(host: Host, expected: Sequence[str] = ()) -> Outcome:
    """The kernel reads time from a fast, stable clock.

    Reads current_clocksource in /sys/devices/system/clocksource. When the kernel loses trust in the TSC it
    falls back to hpet or acpi_pm: each time stamp then costs a microsecond instead of 20 ns, which slows
    MPI, NCCL and profilers, and only a reboot brings the TSC back: CRIT (gcm has the same check). Virtual
    clocks (kvm-clock, Hyper-V's, xen) and ARM's and POWER's own pass.

    Example: * || check_cpu_clocksource tsc
    """
    source = cpufreq.clocksource(host)
    if not source.current:
        return unknown("BadData", "the kernel tells no current clocksource")
    evidence = (f"available: {' '.join(source.available)}",)
    bad = source.current not in expected if expected else source.current in _SLOW
    if not bad:
        return ok(f"clocksource {source.current}")
    reason: Optional[str] = f", not {' or '.join(expected)}" if expected else ""
    lost = "" if "tsc" in source.available or source.current not in _SLOW else " (the TSC is lost)"
    message = f"clocksource is {source.current}{reason}{lost}"
    return crit(
        "ClocksourceSlow" if source.current in _SLOW else "Clocksource",
        message,
        action=Action.REBOOT,
        evidence=evidence,
    )
