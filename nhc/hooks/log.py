"""Where hooks report: syslog and standard error, and for a broken nhc a comment on the node.

Slurm throws away what a prolog prints, so syslog is what an administrator finds.
"""

from __future__ import annotations

import sys

from nhc.light import TYPE_CHECKING
from nhc.model import printable
from nhc.state.store import State

if TYPE_CHECKING:
    from typing import Mapping

MEMORY = "internal-error"

QUIET = 3600.0
"""Seconds for which the same internal error puts no second comment on the node."""


def info(text: str) -> None:
    _log(6, text)


def warn(text: str) -> None:
    _log(4, text)


def error(text: str) -> None:
    _log(3, text)


def _log(level: int, text: str) -> None:
    import syslog

    text = printable(text, 1000)
    syslog.openlog("nhc", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(level, text)
    print(f"nhc: {text}", file=sys.stderr)


def internal_error(
    context: str, failure: BaseException, environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> None:
    """Log that nhc itself failed, and leave it on the node, once an hour at most."""
    import time

    from nhc.hooks import BadArgument, watch_only
    from nhc.language.loader import ConfigError
    from nhc.planning.profiles import NoProfile

    if isinstance(failure, (ConfigError, NoProfile, BadArgument)):  # a person's mistake, not ours
        of = "arguments" if isinstance(failure, BadArgument) else "configuration"
        said = f"the {context}'s {of} cannot be used: {failure}"
        error(said)
    else:
        from nhc.hosts.redaction import secrets
        from nhc.run.crash_report import keep

        said = secrets(f"internal error in the {context}: {type(failure).__name__}: {failure}")
        path = keep(f"nhc-{context}", failure)
        error(f"{said}; please report it with {path}" if path else said)
    now = time.time()
    last = state.load(MEMORY).get(context)
    if isinstance(last, (int, float)) and 0 <= now - last < QUIET:
        return
    from nhc.hooks.job_environment import node_name
    from nhc.hooks.marking import scheduler
    from nhc.host import Host

    name = node_name(environ, settings, Host().system.hostname())
    # Noted before the attempt: a controller that does not answer must not hold up every job. Tried again in a minute.
    state.update(MEMORY, lambda memory: memory.update({context: now - QUIET + 60.0, "node": name}))
    adapter = None if watch_only(settings) else scheduler(environ, settings)
    if adapter is not None and hasattr(adapter, "comment"):
        adapter.comment(name, f"NHC: {printable(said, 200)}")
    state.update(MEMORY, lambda memory: memory.update({context: now}))


def works_again(environ: Mapping[str, str], settings: Mapping[str, str], state: State) -> None:
    """Take the comment away that an internal error left on the node."""
    from nhc.hooks import watch_only

    memory = state.load(MEMORY)
    if not memory or watch_only(settings):
        return
    from nhc.hooks.marking import scheduler

    adapter = scheduler(environ, settings)
    if memory.get("node") and adapter is not None and hasattr(adapter, "comment"):
        adapter.comment(str(memory["node"]), "")
    state.update(MEMORY, lambda memory: memory.clear())
