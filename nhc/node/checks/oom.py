"""Processes that the kernel killed because memory ran out."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.units import count, seconds, show_seconds
from nhc.node.facts.history import amount, growth


@check(
    "check_oom_kills",
    opt("-w --warn", "warn_at", count, "WARN from this many kills on", 1),
    opt("-c --crit", "crit_at", count, "CRIT from this many kills on (0: never)", 0),
    opt("-p --per", "per", seconds, "the time over which kills count", 3600.0),
    flag("-b --since-boot", "since_boot", "count all kills since boot instead"),
)
def check_oom_kills(
    host: Host, warn_at: int = 1, crit_at: int = 0, per: float = 3600.0, since_boot: bool = False
) -> Outcome:
    """The kernel has killed no process for want of memory of late.

    Reads oom_kill in /proc/vmstat, which counts kills within a job's own cgroup too: those are the job's
    affair, so a kill within the last hour is WARN, and CRIT only where -c says from how many on. The total
    since boot is given as a number, and judged with -b. UNKNOWN on kernels before 4.13, which do not count.

    Example: * || check_oom_kills -c 20 -p 10m
    """
    line = next((each for each in host.lines("/proc/vmstat") if each.startswith("oom_kill ")), "")
    number = line[9:].strip()
    if not (number.isascii() and number.isdigit()):
        return unknown("NotCounted", "/proc/vmstat has no oom_kill count")
    total = int(number)
    recent = amount(growth(host, "oom_kills", {"oom_kill": float(total)}, per), "oom_kill")
    metrics = (Metric("oom_kills", total), Metric("oom_kills_recent", recent))
    judged, when = (float(total), "since boot") if since_boot else (recent, f"in {show_seconds(per)}")
    message = f"{judged:.0f} processes killed for want of memory {when}"
    if crit_at and judged >= crit_at:
        return crit("OomKills", f"{message}, limit {crit_at}", metrics=metrics, evidence=(line,))
    if warn_at and judged >= warn_at:
        return warn("OomKills", message, metrics=metrics, action=Action.INSPECT, evidence=(line,))
    return ok(f"no process killed for want of memory {when} ({total} since boot)", metrics=metrics)
