"""Processes in states that mean trouble: stuck in the kernel, or dead and not collected."""

from __future__ import annotations

from fnmatch import fnmatchcase

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, warn
from nhc.core.system.process_identity import ProcessStat
from nhc.core.units import count, seconds, show_number, show_seconds, text
from nhc.node.facts.history import unchanged_since
from nhc.node.facts.processes import stats, switches

if TYPE_CHECKING:
    from typing import Dict, Sequence


_VFORK = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")
"""Where a parent waits for what it has vforked (kernel/fork.c): in D for as long as a user likes, yet killable."""


class StuckProcess(NamedTuple):
    """A process that has not run since it was first seen in uninterruptible sleep, `seconds` ago."""

    process: ProcessStat
    seconds: float
    wchan: str


@check(
    "check_ps_dstate",
    opt("-a --after", "after", seconds, "how long a process must have been stuck to count", 300.0),
    opt("-c --critical", "critical", count, "CRIT from this many stuck processes on (0: never)", 5),
    opt("-k --critical-name", "names", text, "CRIT for names that match this pattern as well", ["nvidia*"], many=True),
    opt("-i --ignore", "ignore", text, "processes to leave out, by name, as a shell pattern", many=True),
)  # fmt: skip
def check_ps_dstate(
    host: Host,
    after: float = 300.0,
    critical: int = 5,
    names: Sequence[str] = ("nvidia*",),
    ignore: Sequence[str] = (),
) -> Judged:
    """No process is stuck in uninterruptible sleep.

    Reads /proc/PID/stat. State D is where every process waits for a disk, so one look tells nothing: a
    process counts as stuck where earlier runs saw it in D and it has not run in between (its context
    switches stand still) for 5 minutes, GPUd's five checks of a minute. One is WARN; five, or one of a
    GPU driver (`nvidia*`, GPUd's pattern), is CRIT: a job's processes that cannot be killed hold its GPUs
    and memory. Kernel threads count only where -k names them; a parent that waits for what it has vforked is
    shown in D as well, can be killed, and does not count.

    Example: * || check_ps_dstate -a 10m -i 'nfsd*'
    """
    sleeping = [
        process
        for process in host.fact(stats).values()
        if process.state == "D"
        and not any(fnmatchcase(process.name, each) for each in ignore)
        and (not process.kernel_thread or any(fnmatchcase(process.name, each) for each in names))
    ]
    since = unchanged_since(host, "ps_dstate", {_key(process): switches(host, process.pid) for process in sleeping})
    now = host.monotonic()
    long = [
        StuckProcess(process, now - since[_key(process)], host.read_or(f"/proc/{process.pid}/wchan"))
        for process in sleeping
        if now - since[_key(process)] >= after
    ]
    stuck = [each for each in long if each.wchan.strip() not in _VFORK]
    metrics = (Metric("uninterruptible", len(sleeping)), Metric("stuck", len(stuck)))
    if not stuck:
        return ok(f"no process is stuck ({len(sleeping)} in state D)", metrics=metrics)
    oldest = max(each.seconds for each in stuck)
    named = [each for each in stuck if any(fnmatchcase(each.process.name, pattern) for pattern in names)]
    listing = ", ".join(f"{each.process.name}[{each.process.pid}]" for each in (named or stuck)[:5])
    more = len(named or stuck) - 5
    listing += f" and {more} more" if more > 0 else ""
    message = f"{len(stuck)} stuck in state D for up to {show_seconds(oldest)} ({listing})"
    evidence = tuple(f"{e.process.pid} {e.process.name} {e.seconds:.0f}s {e.wchan or '-'}" for e in stuck[:50])
    say = crit if named or (critical and len(stuck) >= critical) else warn
    return say("ProcessStuck", message, metrics=metrics, action=Action.REBOOT, evidence=evidence)


def _key(process: ProcessStat) -> str:
    return f"{process.pid}:{process.started}"


@check(
    "check_ps_zombies",
    opt("-w --warn", "warn_at", count, "WARN from this many zombies on", 1000),
    opt("-c --crit", "crit_at", count, "CRIT from this many zombies on", 2000),
)
def check_ps_zombies(host: Host, warn_at: int = 1000, crit_at: int = 2000) -> Outcome:
    """Dead processes are collected by their parents.

    Counts state Z in /proc/PID/stat. A zombie holds nothing but its process number; thousands mean a parent
    that has stopped working, and in the end no numbers are left. WARN from 1000, CRIT from 2000: GPUd's
    limits. The message names the parent that has most of them. 0 turns a limit off.

    Example: * || check_ps_zombies -w 100
    """
    processes = host.fact(stats)
    zombies = [process for process in processes.values() if process.state == "Z"]
    metrics = (Metric("zombies", len(zombies)),)
    message = show_number(len(zombies), "zombie")
    if not zombies:
        return ok(message, metrics=metrics)
    parents: Dict[int, int] = {}
    for zombie in zombies:
        parents[zombie.parent] = parents.get(zombie.parent, 0) + 1
    parent, children = max(parents.items(), key=lambda each: each[1])
    name = processes[parent].name if parent in processes else "?"
    message += f", {children} of them left by {name}[{parent}]"
    if crit_at and len(zombies) >= crit_at:
        return crit("Zombies", f"{message}, limit {crit_at}", metrics=metrics, action=Action.REBOOT)
    if warn_at and len(zombies) >= warn_at:
        return warn("Zombies", f"{message}, limit {warn_at}", metrics=metrics, action=Action.RESTART_APP)
    return ok(message, metrics=metrics)
