"""What a container runtime that answers says of containers that it cannot create."""

from __future__ import annotations

import re

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import seconds, show_seconds, text, whole
from nhc.node.facts.journal import logged

if TYPE_CHECKING:
    from typing import Sequence

UNITS = ("*containerd*", "*crio*", "*cri-o*", "*docker*", "k3s*", "rke2-*", "k0s*")
"""Patterns of journalctl, as a snap, a distribution and a role each give the unit another name."""
_FAILS = re.compile(
    r"(?:fail|error|unable|cannot)[^\n]{0,300}?(?:creat|start|reserv|setup|set up|mount|shim|sandbox)", re.IGNORECASE
)
_OF_THE_NODE = re.compile(
    r"no space left on device|too many open files|cannot allocate memory|resource temporarily unavailable"
    r"|read-only file system|input/output error|structure needs cleaning|context deadline exceeded"
    r"|nvidia-container-cli|nvml error|shim (?:exited|disconnected)|ttrpc: closed"
    r"|failed to (?:create|write|join) cgroup|unable to (?:apply cgroup|freeze)|cni plugin not initialized"
    r"|no ip addresses available",
    re.IGNORECASE,
)
"""Causes that lie with the node. A wrong command, image or mount of a pod is its owner's, and is not counted."""


@check(
    "check_runtime_log",
    opt("-n --count", "count", whole, "so many failures are a fault", 3),
    opt("-w --within", "within", seconds, "how far back they count", 600.0),
    flag("-c --critical", "critical", "CRIT, not WARN"),
    rest("units", text, "units of systemd; where none is given the runtimes that are known"),
    timeout=20,
    every=300,
)
def check_runtime_log(
    host: Host, count: int = 3, within: float = 600.0, critical: bool = False, units: Sequence[str] = ()
) -> Outcome:
    """The container runtime can create containers, by its own log.

    A runtime can answer on its socket and fail at each container: no space, no cgroup, no network addresses, an NVIDIA
    library that does not fit its driver. Reads the journal of containerd, CRI-O, docker and the like for failures
    whose cause lies with the node: 3 within 10 minutes are WARN, with -c CRIT. What a pod's own command, image or mount
    got wrong does not count. UNKNOWN where the journal cannot be read; SKIP without journalctl.

    Example: * |every 5m| check_runtime_log
    """
    if not host.which("journalctl"):
        return skip("NoJournal", "no journal on this node")
    try:
        lines = logged(host, host.time() - within, *(f"--unit={unit}" for unit in (units or UNITS)))
    except OSError as error:
        return unknown("JournalUnreadable", f"journalctl: {error.strerror}")
    failures = [line for line in lines if _OF_THE_NODE.search(line) and _FAILS.search(line)]
    metrics = (Metric("runtime_failures", len(failures)),)
    if len(failures) < max(count, 1):
        return ok(f"{len(failures)} containers could not be created in {show_seconds(within)}", metrics=metrics)
    message = f"the runtime could not create {len(failures)} containers in {show_seconds(within)}: {failures[-1][:200]}"
    say = crit if critical else warn
    return say("RuntimeCannotCreate", message, metrics=metrics, action=Action.INSPECT, evidence=tuple(failures[-5:]))
