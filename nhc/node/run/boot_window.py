"""The first minutes of a boot: what is still starting then is not a fault.

NVLinks train, GPUs register with the fabric, a subnet manager activates ports, daemons start. A check names the reasons
that such a node has (`settles` and `starting` of `nhc.core.check.Check`). What is on its way is UNKNOWN until the
window ends; what is down counts at the second look, and is UNKNOWN at the first.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, Report, Verdict, unknown

if TYPE_CHECKING:
    from typing import Mapping

SETTING = "NHC_BOOT_WINDOW"
SECONDS = 300.0
"""The window, from the kernel's start."""
REASON = "BootWindow"


def window(settings: Mapping[str, str]) -> float:
    """Seconds since the boot that count as its first minutes; what cannot be read is the default."""
    if SETTING not in settings:
        return SECONDS
    from nhc.core.units import seconds

    try:
        return seconds(settings[SETTING])
    except ValueError:
        return SECONDS


def judged_early(report: Report) -> bool:
    """Whether a part of a report was not told because the node had just booted: that is no try of a suite."""
    return report.verdict is not Verdict.CRIT and any(result.outcome.reason == REASON for result in report.results)


def too_early(outcome: Outcome, uptime: float) -> Outcome:
    """A failure within the boot window, as UNKNOWN: it is too early to judge."""
    if outcome.verdict is not Verdict.CRIT:
        return outcome
    from nhc.core.units import show_seconds

    message = f"too early to tell, {show_seconds(uptime)} after the boot: {outcome.message or outcome.reason}"
    return unknown(REASON, message, target=outcome.target, metrics=outcome.metrics, evidence=outcome.evidence)
