"""The batch scheduler as the node sees it: it answers, and the node's state there allows jobs."""

from __future__ import annotations

from nhc.core.check import check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, crit, ok, skip, unknown, warn
from nhc.core.resource_manager import MANAGERS, Detected, Manager, resource_manager
from nhc.core.system.node_name import scheduler_name
from nhc.core.units import one_of, seconds, text
from nhc.node.facts import scheduler

if TYPE_CHECKING:
    from typing import Optional, Union


_MANAGER = opt(
    "-r --resource-manager",
    "name",
    one_of(sorted(manager.name for manager in MANAGERS)),
    "slurm, pbs, torque, lsf, sge or flux; the one that runs this node if not given",
)
_TIMEOUT = opt("-t --timeout", "deadline", seconds, "how long it may take to answer", 10.0)
_CRITICAL = flag("-c --critical", "critical", "CRIT, not WARN")


def _which(host: Host, name: Optional[str]) -> Union[Outcome, Manager]:
    detected = Detected(name, "-r") if name else resource_manager(host)
    manager = detected.manager
    if detected.unsure:
        return unknown("NoResourceManager", detected.how)
    if manager is None and detected.name:
        return unknown("NoResourceManager", f"nhc cannot ask {detected.name}: -r names one")
    if manager is None:
        return skip("NoScheduler", "no batch scheduler's commands on this node")
    if not any(host.which(command) for command in manager.commands):
        return unknown("CommandMissing", f"{' and '.join(manager.commands)}: not installed")
    return manager


@check("check_scheduler_ping", _MANAGER, _TIMEOUT, _CRITICAL, timeout=30, every=300)
def check_scheduler_ping(
    host: Host, name: Optional[str] = None, deadline: float = 10.0, critical: bool = False
) -> Outcome:
    """The batch scheduler answers this node.

    Runs `scontrol ping`, `qstat -B`, `lsid`, `qhost` or `flux ping`, ten seconds at most. No answer is WARN, as
    is a backup controller that is down: a scheduler that is away is no fault of the node, and would drain them
    all at once; -c makes it CRIT where the site knows better. A command that cannot be used is UNKNOWN. SKIP
    where no scheduler is installed.

    Example: * |every 5m| check_scheduler_ping
    """
    which = _which(host, name)
    if isinstance(which, Outcome):
        return which
    try:
        answer = scheduler.ping(host, which, deadline)
    except scheduler.BadSchedulerAnswer as error:
        return unknown("SchedulerUntold", str(error))
    except OSError as error:
        return unknown("CommandMissing", f"{error.filename}: {error.strerror}")
    if not answer.up:
        say = crit if critical else warn
        return say("SchedulerSilent", f"{which.name} does not answer: {answer.text}", target=which.name)
    if answer.partly:
        return warn("SchedulerPartly", f"{which.name} answers in part: {answer.text}", target=which.name)
    return ok(f"{which.name}: {answer.text}", target=which.name)


@check(
    "check_scheduler_node",
    _MANAGER,
    _TIMEOUT,
    opt("-n --node", "node", text, "what the scheduler calls this node; its short host name where not given"),
    _CRITICAL,
    timeout=30,
    every=300,
)
def check_scheduler_node(
    host: Host,
    name: Optional[str] = None,
    deadline: float = 10.0,
    node: Optional[str] = None,
    critical: bool = False,
) -> Outcome:
    """The batch scheduler has this node in a state to work.

    Asks `scontrol show node`, `pbsnodes`, `bhosts` or `qhost` what it thinks of this node. Down, not responding,
    failed to register (Slurm's INVALID_REG: fewer processors or less memory than configured), or unknown to the
    scheduler is WARN, with the scheduler's reason: the node looks well and gets no work. -c makes it CRIT. A node
    that somebody has drained is OK, and the message says so. UNKNOWN where the scheduler does not answer; SKIP
    where none is installed.

    Example: * |every 5m| check_scheduler_node
    """
    which = _which(host, name)
    if isinstance(which, Outcome):
        return which
    wanted = node or scheduler_name(host.environ, host.settings, host.system.hostname(), host.read_or)
    try:
        view = scheduler.view(host, which, wanted, deadline)
    except scheduler.BadSchedulerAnswer as error:
        return unknown("SchedulerUntold", str(error))
    except OSError as error:
        return unknown("CommandMissing", f"{error.filename}: {error.strerror}")
    say = crit if critical else warn
    if not view.states:
        return say("NodeUnknown", f"{which.name} knows no node {wanted}", target=wanted, evidence=(view.line,))
    bad, out = ([state for state in states if state in view.states] for states in (which.bad, which.out))
    why = f": {view.reason}" if view.reason else ""
    if bad:
        return say("NodeNotInService", f"{which.name} has {wanted} as {', '.join(bad)}{why}", target=wanted,
                   evidence=(view.line,))  # fmt: skip
    if out:
        return ok(f"{which.name} has {wanted} taken out ({', '.join(out)}){why}", target=wanted)
    return ok(f"{which.name} has {wanted} as {', '.join(sorted(view.states))}", target=wanted)
