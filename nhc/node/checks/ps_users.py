"""Processes of users who are not allowed on the node."""

from __future__ import annotations

from nhc.core.check import Param, check, opt, rest
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.matching.nodeset import mcheck
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown, warn
from nhc.core.resource_manager import resource_manager
from nhc.core.units import text
from nhc.node.checks.ps import action_word, actions_in_turn, kill_process, no_processes
from nhc.node.facts.jobs_here import JobsUnknown, job_users
from nhc.node.facts.processes import args_of, owner, pids, stat_of, stats
from nhc.node.facts.users import max_system_uid, user_name

if TYPE_CHECKING:
    from typing import Callable, FrozenSet, Iterator, Sequence, Tuple


class UserProcess(NamedTuple):
    pid: int
    uid: int
    user: str
    program: str


class Ignored(NamedTuple):
    """Whom and what not to judge: programs by path or name, users by number or name, processes by number."""

    programs: FrozenSet[str]
    uids: FrozenSet[str]
    users: FrozenSet[str]
    pids: FrozenSet[str]

    def covers(self, process: UserProcess) -> bool:
        return (
            process.program in self.programs
            or process.program.rpartition("/")[2] in self.programs
            or str(process.uid) in self.uids
            or process.user in self.users
            or str(process.pid) in self.pids
        )


def _ignored(
    programs: Sequence[str] = (), uids: Sequence[str] = (), users: Sequence[str] = (), ignored_pids: Sequence[str] = ()
) -> Ignored:
    """What the options name, several in one value with blanks between them."""
    given = (programs, uids, users, ignored_pids)
    return Ignored(*(frozenset(word for value in values for word in value.split()) for values in given))


_PARAMS: Tuple[Param, ...] = (
    opt("-c --command", "programs", text, "program not to judge, by path or name", many=True),
    opt("-u --uid", "uids", text, "number of a user not to judge", many=True),
    opt("-n --user", "users", text, "name of a user not to judge", many=True),
    opt("-p --pid", "ignored_pids", text, "process not to judge", many=True),
    rest("actions", action_word("ignore", "log", "syslog", "die", "kill"),
         "ignore, log, syslog, kill or die, in turn (default die)", changes=True),
)  # fmt: skip


def authorised(host: Host) -> FrozenSet[str]:
    """The users who always may: `$NHC_AUTH_USERS`, root and nobody by default."""
    return frozenset((host.setting("NHC_AUTH_USERS") or "root nobody").replace(",", " ").split())


def strangers(host: Host, ignored: Ignored) -> Iterator[UserProcess]:
    """The processes of users that are neither system users nor always authorised, as far as they still run."""
    limit = max_system_uid(host)
    always = authorised(host)
    for pid in host.fact(pids):
        uid = owner(host, pid)
        if uid is None or uid <= limit:
            continue
        user = user_name(host, uid)
        if user in always:
            continue
        process = UserProcess(pid, uid, user, args_of(host, pid).partition(" ")[0])
        if process.program and not ignored.covers(process):
            yield process


def _judge(
    host: Host, name: str, kind: str, reason: str, rogue: Callable[[UserProcess], bool], fine: str,
    actions: Sequence[str], ignored: Ignored,
) -> Outcome:  # fmt: skip
    """Take the actions on each process that is a rogue, and say so; the first one makes the message."""
    try:
        rogues = [process for process in strangers(host, ignored) if rogue(process)]
    except OSError as error:
        return no_processes(error)
    except JobsUnknown as error:
        return unknown("JobsUnknown", f"who may run processes here cannot be told: {error}")
    metrics = (Metric("processes", len(rogues)),)
    if not rogues:
        return ok(fine, metrics=metrics)
    taken = actions_in_turn(actions)
    messages = []
    for process in rogues:
        message = f'{process.user}\'s "{process.program}" process is {kind}. (PID {process.pid})'
        if "kill" in taken:
            message += _kill(host, process.pid)
        if "syslog" in taken:
            host.system.syslog(f"{name}:  {message}")
        messages.append(message)
    more = f" (and {len(rogues) - 1} more)" if len(rogues) > 1 else ""
    if not taken:
        return ok(f"{len(rogues)} {kind} process(es) ignored", metrics=metrics)
    if "die" in taken:
        return crit(reason, messages[0] + more, metrics=metrics, evidence=tuple(messages), action=Action.INSPECT)
    return warn(reason, messages[0] + more, metrics=metrics, evidence=tuple(messages))


def _kill(host: Host, pid: int) -> str:
    """Kill a process that was judged a moment ago, and say what came of it."""
    process = stat_of(host, pid)
    if process is None:
        return "; gone"
    try:
        kill_process(host, process)
    except OSError as error:
        return f"; not killed ({error.strerror})"
    return "; killed"


@check("check_ps_unauth_users", *_PARAMS, timeout=15.0)
def check_ps_unauth_users(host: Host, actions: Sequence[str] = (), **ignored: Sequence[str]) -> Outcome:
    """Every process belongs to a system user, an authorised user, or the owner of a job on this node.

    System users are those up to $MAX_SYS_UID (by login.defs where it is not set), authorised ones those
    in $NHC_AUTH_USERS (root and nobody by default). Who has jobs here is asked of Slurm (`squeue -w`) or
    read from TORQUE's job files, and only once a process of anybody else is found; where that fails, the
    check is UNKNOWN and kills nobody. Actions are taken in turn on every such process: log keeps it in the
    report, syslog writes it to the system log, kill sends SIGKILL, die fails, ignore stops.

    Example: * || check_ps_unauth_users log syslog kill
    """
    return _judge(
        host, "check_ps_unauth_users", "unauthorized", "UnauthorisedProcess",
        lambda process: process.user not in host.fact(job_users), "all processes belong to authorised users",
        actions, _ignored(**ignored),
    )  # fmt: skip


@check("check_ps_userproc_lineage", *_PARAMS, timeout=5.0)
def check_ps_userproc_lineage(host: Host, actions: Sequence[str] = (), **ignored: Sequence[str]) -> Outcome:
    """Every user's process descends from the resource manager.

    Follows the parents of each process that belongs neither to a system user nor to one of
    $NHC_AUTH_USERS up to one that matches $RM_DAEMON_MATCH (slurmstepd, pbs_mom, sge_execd or
    sge_shepherd, res). One without such an ancestor was started past the resource manager, or outlived
    its job. Options and actions as check_ps_unauth_users.

    Example: * || check_ps_userproc_lineage log die
    """
    pattern = host.setting("RM_DAEMON_MATCH")
    if not pattern:
        choice = resource_manager(host)
        pattern = choice.manager.ancestor if choice.manager is not None else ""
        if not pattern:
            wanted = "This check requires a supported resource manager (e.g., Slurm, TORQUE, SGE, LSF)"
            return unknown("NoResourceManager", f"{wanted}: {choice.how}" if choice.unsure else wanted)
    return _judge(
        host, "check_ps_userproc_lineage", "rogue", "RogueProcess",
        lambda process: not descends(host, process.pid, pattern),
        "all users' processes descend from the resource manager", actions, _ignored(**ignored),
    )  # fmt: skip


def descends(host: Host, pid: int, pattern: str) -> bool:
    """Whether a process, or one of its ancestors but init, matches."""
    if mcheck(args_of(host, pid).partition(" ")[0], pattern):
        return True
    table = host.fact(stats)
    seen = {pid}
    while pid in table and table[pid].parent not in seen and table[pid].parent > 1:
        pid = table[pid].parent
        seen.add(pid)
        if mcheck(args_of(host, pid), pattern):
            return True
    return False
