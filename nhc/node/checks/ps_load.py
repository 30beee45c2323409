"""Load averages, and the kernel threads that reclaim memory."""

from __future__ import annotations

from nhc.core.check import arg, check, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, regex
from nhc.core.model import Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import number, whole
from nhc.node.checks.ps import action_word, actions_in_turn, no_processes
from nhc.node.facts.loadavg import loadavg
from nhc.node.facts.processes import clock, cpu_seconds, stats

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

_KSWAPD = regex(r"kswapd\d+")


@check(
    "check_ps_loadavg",
    arg("one", number, "limit of the 1-minute load average, '' for none"),
    arg("five", number, "limit of the 5-minute load average, '' for none"),
    arg("fifteen", number, "limit of the 15-minute load average, '' for none"),
    timeout=2.0,
)
def check_ps_loadavg(
    host: Host, one: Optional[float] = None, five: Optional[float] = None, fifteen: Optional[float] = None
) -> Outcome:
    """The load averages stay below their limits.

    Reads /proc/loadavg. A whole limit is compared with the whole part of the average, and reaching it
    fails. The usual limit is twice the number of cores.

    Example: * || check_ps_loadavg $((2*HW_CORES))
    """
    try:
        load = host.fact(loadavg)
    except (OSError, ValueError) as error:
        return unknown("LoadUnreadable", f"/proc/loadavg: {getattr(error, 'strerror', None) or error}")
    values = (load.one, load.five, load.fifteen)
    limits = (one, five, fifteen)
    metrics = tuple(
        Metric(f"load{minutes}", value, crit="" if limit is None else f"{limit:g}")
        for minutes, value, limit in zip((1, 5, 15), values, limits)
    )
    for minutes, value, limit in zip((1, 5, 15), values, limits):
        seen = int(value) if limit is not None and limit == int(limit) else value
        if limit is not None and seen >= limit:
            message = f"{minutes}-minute load average too high:  {seen:g} >= {limit:g}"
            return crit("LoadHigh", message, metrics=metrics)
    return ok(f"load averages {load.one:g} {load.five:g} {load.fifteen:g}", metrics=metrics)


def unbalanced(times: Sequence[int], limit: int, ratio: int) -> bool:
    """Whether the kswapd of one NUMA node has worked so much more than the others that something is wrong there."""
    least, most = min(times), max(times)
    if most > limit or (least == 0 and most > limit // 2):
        return True
    return least > 0 and most // least > ratio


def _kswapd(host: Host) -> Tuple[List[int], List[int]]:
    now = host.fact(clock)
    threads = [
        process for process in host.fact(stats).values() if process.kernel_thread and _KSWAPD.fullmatch(process.name)
    ]
    return [process.pid for process in threads], [cpu_seconds(process, now) for process in threads]


@check(
    "check_ps_kswapd",
    arg("limit", whole, "CPU seconds that none may have used", required=True),
    arg("ratio", whole, "how many times as much the busiest may have used as the idlest", required=True),
    rest("actions", action_word("ignore", "log", "syslog", "die"), "ignore, log, syslog or die (default die)"),
    timeout=5.0,
)
def check_ps_kswapd(host: Host, limit: int, ratio: int, actions: Sequence[str] = ()) -> Outcome:
    """Memory is reclaimed on all NUMA nodes alike.

    Compares the CPU time of the kernel's kswapd threads, one a NUMA node: none may have used more than
    LIMIT seconds, and the busiest no more than RATIO times the idlest's. Nodes with one NUMA node pass.
    The actions are taken in turn: log and syslog write it down, die fails, ignore stops.

    Example: * || check_ps_kswapd 1800 100 log syslog
    """
    try:
        pids, times = _kswapd(host)
    except OSError as error:
        return no_processes(error)
    except ValueError as error:
        return unknown("ProcUnreadable", str(error))
    if not pids:
        return skip("NoKswapd", "no kswapd thread to be seen: a container, or a kernel without paging")
    metrics = tuple(Metric(f"kswapd_{pid}", spent, "s") for pid, spent in zip(pids, times))
    if len(pids) == 1 or not unbalanced(times, limit, ratio):
        return ok(f"{len(pids)} kswapd thread(s), {min(times)} to {max(times)} s of CPU time", metrics=metrics)
    message = f"NUMA imbalance detected among PIDs {' '.join(map(str, pids))}."
    evidence = tuple(f"PID {pid}: {spent} s" for pid, spent in zip(pids, times))
    taken = actions_in_turn(actions)
    if "syslog" in taken:
        host.system.syslog(f"check_ps_kswapd:  {message}")
    if not taken:
        return ok("NUMA imbalance ignored", metrics=metrics)
    outcome = crit if "die" in taken else warn
    return outcome("NumaImbalance", message, metrics=metrics, evidence=evidence)
