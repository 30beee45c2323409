"""If nhc itself fails in a hook, it logs that and leaves a comment on the node; it never marks the node for it.

The same holds for a configuration line that cannot be run. Its verdict is UNKNOWN at every run, so until it is repaired
nhc marks no node and returns none to service.

Files record which comments are on a node: `broken/NODE` in the state directory has one for each hook that left a
comment, with the time when it did. The wrappers in adapters/slurm write the same files for hooks that do not even
start.
"""

from __future__ import annotations

import os
import sys

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict, describe, printable
from nhc.core.state.store import State
from nhc.hooks import log
from nhc.hooks.job_environment import HEALTHCHECK, NOTES, BadArgument, context_of, watch_only

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence, Tuple

    from nhc.core.plan import Plan

QUIET = 3600.0
"""A hook that left a comment leaves no second one for so many seconds. If it still fails then, it renews it."""
CANNOT_BE_RUN = (
    "NoSuchCheck", "BadArguments", "BadLine", "BadSetting", "NoExpectation", "TargetUndecided", "ShellSyntax",
    "ShellMissing", "ScriptExited", "CommandMissing", "CommandUnusable",
)  # fmt: skip
"""Reasons of an UNKNOWN that the line itself or a missing program causes: the next run gives the same."""
AGAIN = 60.0
"""Seconds after which a hook that delays jobs tries again what the controller did not do."""
_TRIED = ".tried"
"""The file with the time when a hook last tried to remove a comment."""


def require_a_line(plan: Plan, settings: Mapping[str, str], node: str) -> None:
    """Raise ConfigError if nhc.conf, which all hooks share, has no line for the node, in any context.

    A hook's own file (nhc-prolog.conf, -c) may be empty on purpose: that hook alone does nothing.
    """
    path = f"{settings['CONFDIR']}/nhc.conf"
    if not plan.items and settings["CONFFILE"] == path:
        from nhc.core.language.problems import ConfigError, Problem

        raise ConfigError([Problem(path, 0, 0, f"no line is for {node}, so it is never checked")])


def lines_that_cannot_run(report: Report) -> List[str]:
    """The configuration lines that cannot judge the node, each with its place and its problem."""
    return [
        f"{result.source}: {describe(result)}" if result.source not in describe(result) else describe(result)
        for result in report.results
        if result.verdict is Verdict.UNKNOWN and result.outcome.reason in CANNOT_BE_RUN
    ]


def tell_useless_lines(
    context: str, node: str, lines: Sequence[str], environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> None:
    """Report, in the log and in a comment on the node, that these lines cannot be run."""
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    message = f"the configuration has a line that cannot be run, so the {context} tells nothing: {lines[0]}{more}"
    from nhc.marks.ports.adapter import AdapterError

    try:
        _leave_comment(context, message, environ, settings, state)
    except AdapterError as error:
        log.warn(f"no comment could be left on {node}: {error}")


def broken(
    context: str,
    error: BaseException,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    state: Optional[State] = None,
) -> int:
    """Report, in the log and on the node, that nhc itself is broken here. Returns 0: the job starts, the node stays."""
    try:
        from nhc.node.planning.cached_verdict import drop_verdict

        drop_verdict(state or State())
        message, kept = _message_of(context, error)
        log.error(message + kept)
        _leave_comment(context, message, environ, settings, state or State(), log_too=False)
    except Exception as second:  # the last resort
        print(f"nhc: {context}: {type(error).__name__}: {error}; then {second!r}", file=sys.stderr)
    return 0


def _message_of(context: str, failure: BaseException) -> Tuple[str, str]:
    """The message for a person; for a fault of ours a report is stored, which the second text names."""
    from nhc.core.language.problems import ConfigError
    from nhc.core.language.trust import Untrusted
    from nhc.node.planning.profiles import NoProfile

    if isinstance(failure, (ConfigError, NoProfile, BadArgument, Untrusted)):  # a user's mistake, not ours
        of = "arguments" if isinstance(failure, BadArgument) else "configuration"
        return f"the {context}'s {of} cannot be used, nothing is checked: {failure}", ""
    from nhc.node.hosts.redaction import secrets
    from nhc.node.run.crash_report import write_crash_file

    message = secrets(f"internal error in the {context}: {type(failure).__name__}: {failure}")
    path = write_crash_file(f"nhc-{context}", failure)
    return message, f"; please report it with {path}" if path else ""


def _leave_comment(
    context: str, message: str, environ: Mapping[str, str], settings: Mapping[str, str], state: State,
    log_too: bool = True,
) -> None:  # fmt: skip
    """Leave it as a comment on the node, with `log_too` also in the log, once an hour at most."""
    import time

    if context_of(context, environ).endswith("-slurmctld"):
        return  # the controller's machine is not the node
    from nhc.core.host import Host
    from nhc.core.system.node_name import scheduler_name

    host = Host()
    now, name = time.time(), scheduler_name(environ, settings, host.system.hostname(), host.read_or)
    where = _notes_of(state, name)
    last = _read(where).get(context)
    if last is not None and abs(now - last) < QUIET:
        return
    if log_too:
        log.error(message)
    from nhc.hooks.marking import scheduler
    from nhc.marks.ports.adapter import Comments

    # Noted before the attempt: a controller that does not answer must not hold up every job. Tried again in a minute.
    _note(where, context, now - QUIET + AGAIN)
    adapter: object = None if watch_only(settings) else scheduler(environ, settings)
    if isinstance(adapter, Comments):
        adapter.comment(name, f"NHC: {printable(message, 200)}")
    _note(where, context, now)


def works_again(context: str, node: str, environ: Mapping[str, str], settings: Mapping[str, str], state: State) -> None:
    """Remove our comment from a node that `context` has just judged, unless another hook left one recently.

    A comment that was not renewed for an hour is from a hook that no longer runs here. A health check removes any.
    """
    import time

    if watch_only(settings):
        return
    where, now = _notes_of(state, node), time.time()
    notes = _read(where)
    tried = notes.pop(_TRIED, None)
    if context != HEALTHCHECK:
        _forget(where, context)
        if any(name != context and abs(now - at) < QUIET for name, at in notes.items()):
            return
        if tried is not None and abs(now - tried) < AGAIN:
            return
        _note(where, _TRIED, now)
    from nhc.hooks.marking import scheduler
    from nhc.marks.ports.adapter import AdapterError, Comments

    adapter: object = scheduler(environ, settings)
    if isinstance(adapter, Comments):
        try:
            adapter.comment(node, "")
        except AdapterError as error:  # no fault of ours; tried again later
            log.warn(f"the comment that an internal error left on {node} stays: {error}")
            return
    _forget(where, _TRIED, *notes)


def _notes_of(state: State, node: str) -> str:
    """The directory of one node's notes (several slurmd may share a host), "" if nothing can be stored."""
    return f"{state.directory}/{NOTES}/{node}" if state.usable() else ""


def _read(where: str) -> Dict[str, float]:
    notes = {}
    try:
        for name in os.listdir(where):
            notes[name] = os.stat(f"{where}/{name}").st_mtime
    except OSError:
        pass  # no note, or another hook is just removing them
    return notes


def _note(where: str, name: str, at: float) -> None:
    try:
        os.makedirs(where, mode=0o700, exist_ok=True)
        os.close(os.open(f"{where}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        os.utime(f"{where}/{name}", (at, at))
    except OSError:
        pass  # as with all stored state: if it cannot be stored, the next run starts without it


def _forget(where: str, *names: str) -> None:
    """Delete these notes, and if none is left, the record that there were any."""
    for path in (*(f"{where}/{name}" for name in names), where):
        try:
            (os.rmdir if path == where else os.unlink)(path)
        except OSError:
            pass
