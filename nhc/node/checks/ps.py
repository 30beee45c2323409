"""Processes that must run, and those that must not."""

from __future__ import annotations

import errno
import os

from nhc.core.check import arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.matching.nodeset import matcher
from nhc.core.model import Metric, Outcome, crit, ok, unknown
from nhc.core.units import text
from nhc.node.facts.processes import all_args, args_of, is_ssh_session, owner, unreadable
from nhc.node.facts.users import user_id, user_name

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

    from nhc.core.system.process_identity import ProcessStat

SIGKILL = 9


class OwnerTest:
    """Whether a process belongs to the user that a check asks for: a match string of user names, or a number.

    Without a pattern every process does. Users are looked up once each, and only those of processes
    that are asked about.
    """

    def __init__(self, host: Host, pattern: Optional[str]) -> None:
        self.host = host
        self.negated = bool(pattern) and str(pattern).startswith("!")
        self.pattern = (pattern or "")[1:] if self.negated else pattern or ""
        self.known: Dict[int, bool] = {}
        plain = self.pattern.replace("-", "").replace("_", "").replace(".", "").rstrip("$").isalnum()
        self.uid = user_id(host, self.pattern) if plain else None

    def __call__(self, pid: int) -> bool:
        if not self.pattern:
            return True
        uid = owner(self.host, pid)
        if uid is None:
            return False
        if uid not in self.known:
            matches = uid == self.uid if self.uid is not None else matcher(self.pattern)(user_name(self.host, uid))
            self.known[uid] = matches != self.negated
        return self.known[uid]


def contains(pattern: str) -> Callable[[str], bool]:
    """Whether a command line holds `pattern` somewhere: plain text, or a glob as in bash's `${args//$pattern}`."""
    if set("*?[\\(").isdisjoint(pattern):
        return lambda args: pattern in args
    return matcher(f"*{pattern}*")


def any_matches(texts: Sequence[str], pattern: str) -> bool:
    """Whether a match string matches one of several forms of the same thing; negated, whether it matches none."""
    negated = pattern.startswith("!")
    matches = matcher(pattern[1:] if negated else pattern)
    return any(map(matches, texts)) != negated


def cannot_read(pids: List[int], what: str) -> Outcome:
    """The outcome if processes hang and cannot be identified: each could be the one looked for."""
    listed = " ".join(str(pid) for pid in pids[:5]) + (" ..." if len(pids) > 5 else "")
    return unknown("ProcessUnreadable", f"{what}; the command line of PID {listed} cannot be read: it hangs")


def no_processes(error: OSError) -> Outcome:
    return unknown("ProcUnreadable", f"processes cannot be listed: /proc: {error.strerror}")


def described(host: Host, pid: int) -> str:
    """One line of evidence."""
    uid = owner(host, pid)
    return f"{pid} {'?' if uid is None else user_name(host, uid)} {args_of(host, pid)}"


def kill_process(host: Host, process: ProcessStat) -> None:
    """Kill a process that was judged a moment ago. Raises OSError if that is not done, as for nhc itself."""
    if host.live and process.pid in (os.getpid(), os.getppid()):
        raise PermissionError(errno.EPERM, "it is nhc itself")
    host.kill(process.pid, process.started, SIGKILL)


def action_word(*actions: str) -> Callable[[str], str]:
    """A converter that takes one of these actions."""

    def convert(value: str) -> str:
        if value not in actions:
            raise ValueError(f"{value!r} is no action ({', '.join(actions)})")
        return value

    return convert


def actions_in_turn(actions: Sequence[str]) -> List[str]:
    """The actions that are taken: up to and with `die`, or up to `ignore`; `die` alone where none is given."""
    taken: List[str] = []
    for action in actions or ("die",):
        if action == "ignore":
            break
        taken.append(action)
        if action == "die":
            break
    return taken


_DAEMON = arg("daemon", text, "text or glob that its command line must hold", required=True)
_ARGUMENTS = arg("arguments", text, "text that must follow, after one blank")


def _look(
    host: Host, daemon: str, user: Optional[str], arguments: Optional[str], sessions: bool
) -> Union[Tuple[str, int], Outcome]:
    """What is looked for in words, and the first process that it is, 0 for none; UNKNOWN if one hangs."""
    looked_for = f"{daemon} {arguments}" if arguments else daemon
    what = f"Process {looked_for} {f'owned by {user} ' if user else ''}"
    matches, owned = contains(looked_for), OwnerTest(host, user)
    try:
        for pid, args in all_args(host):
            if matches(args) and (sessions or not is_ssh_session(args)) and owned(pid):
                return what, pid
        hang = [pid for pid in sorted(host.fact(unreadable)) if owned(pid)]
    except OSError as error:
        return no_processes(error)
    return cannot_read(hang, f"{what}not found") if hang else (what, 0)


@check("check_ps_daemon", _DAEMON, arg("user", text, "user that it must run as"), _ARGUMENTS, timeout=5.0)
def check_ps_daemon(host: Host, daemon: str, user: Optional[str] = None, arguments: Optional[str] = None) -> Outcome:
    """A daemon is running, as the user that it should.

    Looks for a process whose command line holds DAEMON (and ARGUMENTS after it) and which belongs to USER,
    by name or number, where one is given. Kernel threads are found by `[name]`. Zombies do not count, and
    neither do the logins that sshd serves when `sshd` is looked for: they outlive the daemon that listens.
    A process that hangs so that its command line cannot be read makes a miss UNKNOWN.

    Example: * || check_ps_daemon sshd root
    """
    looked = _look(host, daemon, user, arguments, daemon not in ("sshd", "/usr/sbin/sshd"))
    if isinstance(looked, Outcome):
        return looked
    what, pid = looked
    return ok(f"{what}running (PID {pid})") if pid else crit("ProcessMissing", f"{what}not running")


@check(
    "check_ps_blacklist", _DAEMON, arg("user", text, "match string of the users it must not run as"), _ARGUMENTS,
    timeout=5.0,
)  # fmt: skip
def check_ps_blacklist(host: Host, daemon: str, user: Optional[str] = None, arguments: Optional[str] = None) -> Outcome:
    """A process that must not run is not running.

    The opposite of check_ps_daemon: fails on a process whose command line holds DAEMON (and ARGUMENTS
    after it) and whose user matches USER, a match string (`!root`: anybody but root).

    Example: * || check_ps_blacklist telnetd
    """
    looked = _look(host, daemon, user, arguments, sessions=True)
    if isinstance(looked, Outcome):
        return looked
    what, pid = looked
    if not pid:
        return ok(f"{what}not running")
    metrics = (Metric("pid", pid),)
    return crit("ProcessForbidden", f"{what}running", metrics=metrics, evidence=(described(host, pid),))
