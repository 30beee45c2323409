"""Services that must (or must not) run, and the actions to correct this."""

from __future__ import annotations

import time

from nhc.core.check import check, flag, opt, rest
from nhc.core.host import Host, WatchOnly
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Outcome, crit, ok, warn
from nhc.core.units import text
from nhc.node.checks.ps import OwnerTest, any_matches, cannot_read, described, kill_process, no_processes
from nhc.node.facts.processes import all_args, first_word, is_ssh_session, stat_of, unreadable
from nhc.node.facts.users import user_name

if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Tuple

ACTION_TIMEOUT = 25.0
"""Seconds that -v and -V wait for an action."""
GONE_TRIES, GONE_WAIT = 30, 0.01
"""How often, and how far apart in seconds, -V looks whether a process is gone."""


class Service(NamedTuple):
    """What the check looks for, how it recognises it, and what it should do."""

    name: str
    daemon: str
    match: str
    full: bool
    user: Optional[str]
    by_name: bool
    wait: bool
    verify: bool
    nonfatal: bool

    @property
    def named(self) -> str:
        by = f"owned by {self.user} " if self.user else ""
        return f"Service {self.name} (process {self.daemon}) {by}"


def service_command(host: Host, verb: str, name: str) -> Tuple[str, ...]:
    """The command by which this node starts, stops or restarts a service, or says whether it runs (`status`)."""
    from nhc.node.facts.systemd import booted

    if not booted(host):
        return ("/sbin/service", name, verb)
    return ("systemctl", "is-active", "--quiet", name) if verb == "status" else ("systemctl", verb, name)


def parse_main_pid(output: str) -> int:
    """The main process in `systemctl show -p ActiveState,MainPID`; 0 if the unit is not active or has none."""
    from nhc.node.facts.systemd import parse_properties

    values = parse_properties(output)
    pid = values.get("MainPID", "")
    return int(pid) if values.get("ActiveState") == "active" and pid.isdecimal() else 0


def _main_pid(host: Host, name: str) -> int:
    """The main process of a systemd service that is active, else 0."""
    from nhc.node.facts.systemd import booted

    if not booted(host):
        return 0
    try:
        ended = host.run(("systemctl", "show", "-p", "ActiveState,MainPID", name))
    except OSError:
        return 0
    return parse_main_pid(ended.stdout) if not ended.status else 0


def _matching(host: Host, service: Service) -> Tuple[List[int], List[int]]:
    """The service's processes, and those that hang and could belong to it."""
    owned = OwnerTest(host, service.user)
    pids = []
    for pid, args in all_args(host):
        # A login that sshd serves outlives the daemon that listens: it is not the service.
        if not service.full and is_ssh_session(args):
            continue
        names = (args,) if service.full else (args.partition(" ")[0], first_word(args))
        if any_matches(names, service.match) and owned(pid):
            pids.append(pid)
    if not pids and service.by_name:
        main = _main_pid(host, service.name)
        if main and owned(main):
            pids.append(main)
    return sorted(pids), [pid for pid in sorted(host.fact(unreadable)) if owned(pid)]


def _failure(error: OSError) -> str:
    return f"{'not done' if isinstance(error, WatchOnly) else 'failed'} ({error.strerror})"


def _ended(host: Host, argv: Sequence[str]) -> str:
    """Run an action to its end; "" if it succeeded, else how it failed."""
    try:
        ended = host.act(argv, ACTION_TIMEOUT)
    except OSError as error:
        return _failure(error)
    if ended.timed_out:
        return f"failed (not done within {ACTION_TIMEOUT:g}s)"
    return f"failed (exit code {ended.status})" if ended.status else ""


def _started(host: Host, argv: Sequence[str]) -> str:
    """Start an action and go on; "" if that was possible, else why not."""
    try:
        host.start(argv)
    except OSError as error:
        return _failure(error)
    return ""


def _gone(host: Host, pid: int, started: int) -> bool:
    """Whether a process that was signalled has ended, within a third of a second."""
    for attempt in range(GONE_TRIES):
        process = stat_of(host, pid)
        if process is None or process.started != started:
            return True
        if attempt + 1 < GONE_TRIES:
            time.sleep(GONE_WAIT)
    return False


def _kill(host: Host, service: Service, pid: int) -> Tuple[bool, str]:
    """Kill one process; returns whether -v or -V confirm it, and the message."""
    process = stat_of(host, pid)
    if process is None:
        return True, f"process ID {pid} is gone"
    try:
        kill_process(host, process)
    except OSError as error:
        return False, f'"kill -9 {pid}" {_failure(error)}.'
    if service.verify:
        if _gone(host, pid, process.started):
            return True, f"process ID {pid} terminated successfully."
        return False, f'"kill -9 {pid}" succeeded but failed to terminate process.'
    if service.wait:
        return True, f"process ID {pid} killed successfully."
    return False, f"killed process ID {pid} (SIGKILL)"


def _unwanted(host: Host, service: Service, pids: List[int], kill: bool, stop: bool, action: str) -> Outcome:
    """The service runs and must not: do what was asked for."""
    base = f"{service.named}running"
    evidence = tuple(described(host, pid) for pid in pids[:20])
    if kill:
        ended = [_kill(host, service, pid) for pid in pids]
        failed = [result for good, result in ended if not good]
        if len(pids) > 1:
            evidence += tuple(result for _good, result in ended)
        # Killed and verified: the node is as it should be.
        return _outcome(service, not failed, f"{base}; {(failed or [result for _good, result in ended])[0]}", evidence)
    argv = service_command(host, "stop", service.name) if stop else ("bash", "-c", action)
    command = " ".join(argv) if stop else action
    if not service.wait and not service.verify:
        failure = _started(host, argv)
        if failure:
            return _outcome(service, False, f'{base}; "{command}" {failure}.', evidence)
        doing = "service termination in progress" if stop else f'"{command}" in progress.'
        return _outcome(service, False, f"{base}; {doing}", evidence)
    before = [(pid, process.started) for pid in pids for process in (stat_of(host, pid),) if process is not None]
    failure = _ended(host, argv)
    if failure:
        return _outcome(service, False, f'{base}; "{command}" {failure}.', evidence)
    left = [pid for pid, started in before if not _gone(host, pid, started)] if service.verify else []
    if left:
        return _outcome(
            service, False, f'{base}; "{command}" succeeded but failed to stop process {left[0]}.', evidence
        )
    host.forget()  # what later checks of this run see has changed
    what = f"service {service.name} stopped" if stop else f'"{command}" succeeded'
    return _outcome(service, True, f"{base}; {what}{' and its process is gone' if service.verify else ''}.", evidence)


def _missing(host: Host, service: Service, verb: str, action: str) -> Outcome:
    """The service must run and does not: do what was asked for."""
    base = f"{service.named}not running"
    if not verb and not action:
        return _outcome(service, False, base)
    if verb == "cycle":
        stop, start = (" ".join(service_command(host, each, '"$1"')) for each in ("stop", "start"))
        argv: Tuple[str, ...] = ("bash", "-c", f"{stop}; sleep 2; {start}", "nhc", service.name)
    else:
        argv = service_command(host, verb, service.name) if verb else ("bash", "-c", action)
    base += f"; {verb}" if verb else f'; "{action}"'
    if not service.wait and not service.verify:
        failure = _started(host, argv)
        return _outcome(service, False, f"{base} {failure or 'in progress'}")
    failure = _ended(host, argv)
    if failure:
        return _outcome(service, False, f"{base} {failure}.")
    host.forget()
    if not service.verify:
        return _outcome(service, True, f"{base} succeeded.")
    if _ended(host, service_command(host, "status", service.name)):
        return _outcome(service, False, f"{base} succeeded but failed to start service {service.name}.")
    return _outcome(service, True, f"{base} succeeded; service {service.name} now running.")


def _outcome(service: Service, repaired: bool, message: str, evidence: Tuple[str, ...] = ()) -> Outcome:
    """WARN if the fault was repaired or is not to count, else CRIT."""
    reason = "ServiceForbidden" if message.startswith(f"{service.named}running") else "ServiceMissing"
    if repaired:
        return warn(reason, message, evidence=evidence)
    if service.nonfatal:
        return warn(reason, f"{message} (non-fatal)", evidence=evidence)
    return crit(reason, message, evidence=evidence, action=Action.RESTART_APP)


@check(
    "check_ps_service",
    flag("-0 --non-fatal", "nonfatal", "only warn"),
    flag("-S --start", "start", "start the service where it does not run", changes=True),
    flag("-r --restart", "restart", "restart it where it does not run", changes=True),
    flag("-c --cycle", "cycle", "stop it, wait 2 seconds and start it where it does not run", changes=True),
    flag("-s --stop", "stop", "it must not run: stop it where it does", changes=True),
    flag("-k --kill", "kill", "it must not run: kill its processes where it does (SIGKILL)", changes=True),
    opt("-e --exec", "action", text, "command for bash to run where it does not run", changes=True),
    opt(
        "-E --exec-found", "found_action", text, "it must not run: command for bash to run where it does", changes=True
    ),
    flag("-v --wait", "wait", "wait for the action, and only warn where it succeeds"),
    flag("-V --verify", "verify", "wait for the action, and only warn where its effect is seen"),
    opt("-d --daemon", "daemon", text, "name of its program, where that is not the service's"),
    opt("-m --match", "match", text, "match string of its program (default: *DAEMON)"),
    flag("-f --full", "full", "match the whole command line, not its first word"),
    opt("-u --user", "user", text, "match string of the users it must run as, or a number"),
    rest("words", text, "the service's name", required=True),
    timeout=30.0,
)
def check_ps_service(
    host: Host,
    words: Sequence[str],
    nonfatal: bool = False,
    start: bool = False,
    restart: bool = False,
    cycle: bool = False,
    stop: bool = False,
    kill: bool = False,
    action: Optional[str] = None,
    found_action: Optional[str] = None,
    wait: bool = False,
    verify: bool = False,
    daemon: Optional[str] = None,
    match: Optional[str] = None,
    full: bool = False,
    user: Optional[str] = None,
) -> Outcome:
    """A service runs, or with -s, -k or -E it does not; and where it should be otherwise, that is changed.

    Looks for a process whose first word ends in the service's name (-d another name, -m any match string,
    -f in the whole command line), and which belongs to the user given with -u. A rewritten title such as
    `sshd: /usr/sbin/sshd -D [listener]` counts as the program that it names. Where none is found, neither
    -d nor -m is given and systemd runs, the main process of an active unit of that name counts as well.

    Actions go through `systemctl` where systemd runs, else through `/sbin/service`. They are started and
    left alone, and the check fails; with -v it waits and only warns where the action succeeds, with -V
    where its effect is seen too.

    Example: * || check_ps_service -u root -S sshd
    """
    name = " ".join(words)
    program = daemon or name
    by_name = daemon is None and match is None
    user = user_name(host, int(user)) if user and user.isdecimal() else user
    service = Service(name, program, match or f"*{program}", full, user, by_name, wait, verify, nonfatal)
    unwanted = stop or kill or found_action is not None
    try:
        pids, hang = _matching(host, service)
    except OSError as error:
        return no_processes(error)
    if pids:
        if unwanted:
            return _unwanted(host, service, pids, kill, stop, found_action or "")
        return ok(f"{service.named}running (PID {pids[0]})")
    if hang:
        return cannot_read(hang, f"{service.named}not found")
    if unwanted:
        return ok(f"{service.named}not running")
    verb = "start" if start else "restart" if restart else "cycle" if cycle else ""
    return _missing(host, service, verb, action or "")
