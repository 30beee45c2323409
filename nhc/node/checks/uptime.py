"""How long the node has been up, and whether it should be restarted."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import seconds, show_seconds
from nhc.node.facts import packages
from nhc.node.facts.kernel import release, uptime

if TYPE_CHECKING:
    from typing import Optional


@check(
    "check_uptime",
    opt("-m --min", "least", seconds, "WARN where the node has been up for less"),
    opt("-x --max", "most", seconds, "WARN where the node has been up for longer (0: no limit)", 365 * 86400.0),
)
def check_uptime(host: Host, least: Optional[float] = None, most: float = 365 * 86400.0) -> Outcome:
    """The node has been up neither too short nor too long.

    Reads /proc/uptime. -m holds a node back while it settles after a boot (gcm has the same check); longer
    than a year (ours) means that no kernel update can have taken effect. Both are WARN.

    Example: * || check_uptime -m 5m -x 180d
    """
    try:
        up = uptime(host)
    except (ValueError, IndexError):
        return unknown("BadData", "/proc/uptime does not begin with a number")
    metrics = (Metric("uptime", up, "s"),)
    message = f"up for {show_seconds(up)}"
    if least is not None and up < least:
        return warn("UptimeShort", f"{message}, less than {show_seconds(least)}", metrics=metrics)
    if most and up > most:
        return warn("UptimeLong", f"{message}, more than {show_seconds(most)}", metrics=metrics, action=Action.REBOOT)
    return ok(message, metrics=metrics)


@check(
    "check_reboot_pending",
    flag("-c --critical", "critical", "a pending reboot is CRIT, not WARN"),
    timeout=30,
    every=3600,
)
def check_reboot_pending(host: Host, critical: bool = False) -> Outcome:
    """No update waits for a reboot.

    Looks for /run/reboot-required (Debian, Ubuntu), asks `needs-restarting -r` where dnf-utils is installed
    (Red Hat and kin), and compares the running kernel with those in /boot, of the same flavour and only
    where the running one is among them. WARN, as the node works; CRIT with -c. SKIP where none of the three
    is there to tell: a node that boots an image has nothing pending.

    Example: * |every 1h| check_reboot_pending
    """
    running = release(host)
    try:
        kernels = host.listdir("/boot")
    except FileNotFoundError:
        kernels = []
    pending = packages.marker(host)
    newer = packages.newer_kernel(running, kernels)
    if not pending and newer:
        pending = packages.Pending(f"kernel {newer} is installed, {running} runs")
    asks = host.which("needs-restarting") is not None
    if not pending and asks:
        asked = packages.asked_of_dnf(host)
        if asked is None:
            return unknown("NeedsRestartingFailed", "needs-restarting -r could not tell")
        if asked:
            pending = packages.Pending(f"updated since boot: {', '.join(asked[:5])}", asked)
    if pending:
        say = crit if critical else warn
        return say("RebootPending", pending.why, action=Action.REBOOT, evidence=tuple(pending.evidence))
    if not asks and not packages.reboot_marks(host) and f"vmlinuz-{running}" not in kernels:
        return skip("NoRebootMarks", "nothing on this node would mark a pending reboot")
    return ok("nothing waits for a reboot")
