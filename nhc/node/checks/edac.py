"""Memory errors: corrected and uncorrected."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, seconds, show_number, show_seconds
from nhc.node.facts import hardware_errors
from nhc.node.facts.dmi import virtual
from nhc.node.facts.history import amount, growth

if TYPE_CHECKING:
    from typing import Optional, Tuple


@check(
    "check_edac_errors",
    opt("-w --corrected", "corrected", count, "WARN from this many corrected errors of one module within --per on", 10),
    opt("-c --critical", "critical", count, "CRIT from this many corrected errors of one module within --per on", 0),
    opt("-u --uncorrected", "uncorrected", count, "CRIT from this many uncorrected errors since boot on", 1),
    opt("-p --per", "per", seconds, "the time over which corrected errors count", 86400.0),
)
def check_edac_errors(
    host: Host, corrected: int = 10, critical: int = 0, uncorrected: int = 1, per: float = 86400.0
) -> Judged:
    """Memory modules have no uncorrected errors, and few corrected ones.

    Reads the counters of the kernel's EDAC drivers in /sys/devices/system/edac/mc, by module. Uncorrected
    errors count since boot; corrected ones as their growth over a day, remembered from run to run. 10 in 24
    hours is mcelog's limit for a module (ce-error-threshold in mcelog.conf). Corrected errors do no harm,
    so they are CRIT only where -c says from how many on; 0 turns a limit off. SKIP in a virtual machine and
    where the memory has no ECC (SMBIOS); UNKNOWN on a physical node without an EDAC driver.

    Example: * || check_edac_errors -c 1000
    """
    counted = hardware_errors.modules(host)
    if not counted:
        if virtual(host):
            return skip("NoEdac", "a virtual machine without memory error counters")
        if hardware_errors.has_ecc(host) is False:
            return skip("NoEcc", "this node's memory does not correct errors")
        return unknown("NoEdacDriver", "no EDAC driver counts this node's memory errors")
    unreadable = [module.name for module in counted if module.corrected is None or module.uncorrected is None]
    grown = growth(host, "edac_corrected", {m.name: float(m.corrected or 0) for m in counted}, per)
    outcomes = [
        outcome
        for module in counted
        for outcome in [_judge(module, amount(grown, module.name), (corrected, critical, uncorrected), per)]
        if outcome
    ]
    if unreadable:
        outcomes.append(unknown("EdacUnreadable", f"no error counts from {', '.join(unreadable)}"))
    if outcomes:
        return outcomes
    total = Metric("corrected_errors", sum(module.corrected or 0 for module in counted))
    modules = len(counted)
    return ok(f"{show_number(modules, 'memory module')} without errors that count", metrics=(total,))


def _judge(
    module: hardware_errors.Module, recent: float, limits: Tuple[int, int, int], per: float
) -> Optional[Outcome]:
    """What is wrong with a module, None if nothing is."""
    corrected, critical, uncorrected = limits
    who = module.name + (f" ({module.label})" if module.label else "")
    metrics = (
        Metric("corrected_errors", recent),
        Metric("corrected_errors_total", module.corrected or 0),
        Metric("uncorrected_errors_total", module.uncorrected or 0),
    )
    if uncorrected and (module.uncorrected or 0) >= uncorrected:
        message = f"{who} has {module.uncorrected} uncorrected memory errors since boot"
        return crit("MemoryUncorrected", message, target=module.name, metrics=metrics, action=Action.REPLACE)
    message = f"{who} has {recent:.0f} corrected memory errors in {show_seconds(per)}"
    if critical and recent >= critical:
        return crit("MemoryCorrected", f"{message}, limit {critical}", target=module.name, metrics=metrics,
                    action=Action.REPLACE)  # fmt: skip
    if corrected and recent >= corrected:
        return warn("MemoryCorrected", f"{message}, limit {corrected}", target=module.name, metrics=metrics,
                    action=Action.INSPECT)  # fmt: skip
    return None
