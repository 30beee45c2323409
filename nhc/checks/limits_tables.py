"""Tables of the kernel that fill up: tracked connections, neighbours, and what a service may start."""

from __future__ import annotations

from nhc.check import Judged, check, opt
from nhc.checks.limits import CRIT, WARN, fullest, judge_share
from nhc.facts import limits
from nhc.host import Host
from nhc.light import TYPE_CHECKING
from nhc.model import Outcome, ok, skip, unknown
from nhc.units import text

if TYPE_CHECKING:
    from typing import List, Sequence


@check("check_limits_conntrack", WARN, CRIT)
def check_limits_conntrack(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Outcome:
    """The kernel's table of tracked connections has room.

    Reads nf_conntrack_count and nf_conntrack_max in /proc/sys/net/netfilter. A full table drops the packets of new
    connections (`nf_conntrack: table full, dropping packet`), which looks like a flaky network. WARN from 80 %,
    CRIT from 95 % in use, as for file handles (GPUd); node-problem-detector's conntrack conditions warn at a full
    table alone. SKIP where connections are not tracked.

    Example: * || check_limits_conntrack
    """
    base = "/proc/sys/net/netfilter"
    if not host.exists(f"{base}/nf_conntrack_max"):
        return skip("NoConntrack", "this node's kernel does not track connections")
    used, limit = (host.number(f"{base}/nf_conntrack_{name}") for name in ("count", "max"))
    if used is None or limit is None:
        return unknown("BadData", f"no numbers in {base}/nf_conntrack_count and nf_conntrack_max")
    if limit == 0:
        return ok("tracked connections are not limited")
    return judge_share("tracked_connections", "ConntrackLow", used, limit, (warn_at, crit_at))


@check("check_limits_neighbours", WARN, CRIT)
def check_limits_neighbours(host: Host, warn_at: float = 80.0, crit_at: float = 95.0) -> Judged:
    """The tables of neighbours (ARP, and IPv6's) have room.

    Compares the entries that /proc/net/stat/arp_cache and ndisc_cache count with gc_thresh3, the most that the
    kernel keeps (1024 by default, too few for a large flat network): with a full table new peers cannot be reached
    (`neighbor table overflow!`). WARN from 80 %, CRIT from 95 % in use. SKIP where the kernel tells of no such
    table, as in containers.

    Example: * || check_limits_neighbours
    """
    outcomes: List[Outcome] = []
    for family, cache in (("ipv4", "arp"), ("ipv6", "ndisc")):
        statistics = host.read_or(f"/proc/net/stat/{cache}_cache")
        path = f"/proc/sys/net/{family}/neigh/default/gc_thresh3"
        if not statistics or not host.exists(path):
            continue
        used, limit = limits.parse_neighbours(statistics), host.number(path)
        if used is None or not limit:
            outcomes.append(unknown("BadData", f"/proc/net/stat/{cache}_cache or {path} has no number", target=family))
            continue
        outcomes.append(judge_share("neighbours", "NeighboursLow", used, limit, (warn_at, crit_at), family))
    if not outcomes:
        return skip("NoNeighbourTable", "this kernel does not tell how many neighbours it knows")
    return [each for each in outcomes if each.reason] or outcomes[0]


@check(
    "check_limits_tasks",
    WARN,
    CRIT,
    opt("-i --ignore", "ignore", text, "control groups to leave out, as a shell pattern; may be repeated", many=True),
)
def check_limits_tasks(host: Host, warn_at: float = 80.0, crit_at: float = 95.0, ignore: Sequence[str] = ()) -> Judged:
    """Services and slices can start more processes and threads.

    Reads pids.current and pids.max of the top control groups and of those in system.slice (systemd's TasksMax=): a
    service at its limit cannot fork, though the node has processes to spare (`fork rejected by pids controller`).
    The groups of jobs, pods and users below them are their owners' affair. WARN from 80 %, CRIT from 95 % in use.
    SKIP where no group has a limit, or there is no cgroup v2.

    Example: * || check_limits_tasks -i 'system.slice/docker-*'
    """
    from fnmatch import fnmatchcase

    groups = [each for each in limits.task_groups(host) if not any(fnmatchcase(each.name, i) for i in ignore)]
    if not groups:
        return skip("NoTaskLimits", "no control group of services here has a limit of processes")
    outcomes = [
        judge_share("tasks", "TasksLow", each.used, each.limit, (warn_at, crit_at), each.name) for each in groups
    ]
    bad = [outcome for outcome in outcomes if outcome.reason]
    if bad:
        return bad
    most = fullest(outcomes)
    return ok(f"{len(groups)} control groups, fullest: {most.message}", metrics=most.metrics)
