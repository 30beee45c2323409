"""Machine checks: broken hardware that the processors themselves report."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, crit, ok, skip, warn
from nhc.core.units import count, seconds, show_seconds
from nhc.node.facts.hardware_errors import machine_check_interrupts, recent_machine_checks
from nhc.node.facts.history import amount, growth

if TYPE_CHECKING:
    pass


@check(
    "check_mce_events",
    opt("-x --exceptions", "exceptions", count, "CRIT from this many machine check exceptions since boot on", 1),
    opt("-d --deferred", "deferred", count, "WARN from this many deferred errors since boot on", 1),
    opt("-w --threshold", "threshold", count, "WARN from this many threshold interrupts within --per on", 100),
    opt("-p --per", "per", seconds, "the time over which threshold interrupts count", 86400.0),
)
def check_mce_events(
    host: Host, exceptions: int = 1, deferred: int = 1, threshold: int = 100, per: float = 86400.0
) -> Judged:
    """The processors have raised no machine checks since boot.

    Reads the MCE, DFR and THR lines of /proc/interrupts. An exception (MCE) is an error that the hardware
    could not correct and the kernel survived: CRIT from the first. A deferred error (AMD) is poisoned data
    that nobody has used yet: WARN. Threshold interrupts (CMCI) follow corrected errors; every processor
    that shares a bank gets one, so the default of 100 a day is about a dozen events (mcelog's limit is 10
    errors a day). 0 turns a limit off. Where rasdaemon runs, its last records are the evidence. SKIP where
    the kernel has no machine checks, as on most virtual machines and on other than x86 processors.

    Example: * || check_mce_events
    """
    counts = machine_check_interrupts(host)
    if not counts:
        return skip("NoMachineChecks", "this kernel counts no machine checks")
    thresholds = growth(host, "mce_threshold", {"threshold": float(counts.get("threshold", 0))}, per)
    recent = amount(thresholds, "threshold")
    metrics = tuple(Metric(f"mce_{name}", number) for name, number in counts.items())
    raised, postponed = counts.get("exceptions", 0), counts.get("deferred", 0)
    outcomes = []
    if exceptions and raised >= exceptions:
        message = f"{raised} machine check exceptions since boot"
        outcomes.append(crit("MachineCheck", message, metrics=metrics, evidence=recent_machine_checks(host)))
    if deferred and postponed >= deferred:
        message = f"{postponed} deferred hardware errors since boot"
        records = recent_machine_checks(host)
        outcomes.append(warn("DeferredErrors", message, metrics=metrics, action=Action.INSPECT, evidence=records))
    if threshold and recent >= threshold:
        message = f"{recent:.0f} corrected-error interrupts in {show_seconds(per)}, limit {threshold}"
        records = recent_machine_checks(host)
        outcomes.append(warn("CorrectedErrors", message, metrics=metrics, action=Action.INSPECT, evidence=records))
    return outcomes or ok("no machine checks", metrics=metrics)
