"""nhc itself fails in a hook: that is logged, left on the node as a comment, and the node is never marked for it."""

from __future__ import annotations

import sys

from nhc.light import TYPE_CHECKING
from nhc.state.store import State

if TYPE_CHECKING:
    from typing import Mapping, Optional

    from nhc.plan import Plan

MEMORY = "internal-error"

QUIET = 3600.0
"""Seconds for which the same internal error puts no second comment on the node."""
AGAIN = 60.0
"""Seconds after which a hook that holds up jobs tries again what the controller did not do."""


def require_a_line(plan: Plan, settings: Mapping[str, str], node: str) -> None:
    """Raise ConfigError where nhc.conf, which all hooks share, has no line for the node, in any context.

    A hook's own file (nhc-prolog.conf, -c) may be empty on purpose: that hook alone does nothing.
    """
    path = f"{settings['CONFDIR']}/nhc.conf"
    if not plan.items and settings["CONFFILE"] == path:
        from nhc.language.problems import ConfigError, Problem

        raise ConfigError([Problem(path, 0, 0, f"no line is for {node}, so it is never checked")])


def broken(
    context: str,
    error: BaseException,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    state: Optional[State] = None,
) -> int:
    """Say where the fleet can see it that nhc itself is broken here. Returns 0: the job starts, the node stays."""
    try:
        from nhc.planning.kept_verdict import forget

        forget(state or State())
        _leave_comment(context, error, environ, settings, state or State())
    except Exception as second:  # the last resort
        print(f"nhc: {context}: {type(error).__name__}: {error}; then {second!r}", file=sys.stderr)
    return 0


def _leave_comment(
    context: str, failure: BaseException, environ: Mapping[str, str], settings: Mapping[str, str], state: State
) -> None:
    """Log that nhc itself failed, and leave it on the node, once an hour at most."""
    import time

    from nhc.hooks.job_environment import BadArgument, node_name, watch_only
    from nhc.hooks.log import error
    from nhc.language.problems import ConfigError
    from nhc.language.trust import Untrusted
    from nhc.model import printable
    from nhc.planning.profiles import NoProfile

    if isinstance(failure, (ConfigError, NoProfile, BadArgument, Untrusted)):  # a person's mistake, not ours
        of = "arguments" if isinstance(failure, BadArgument) else "configuration"
        said = f"the {context}'s {of} cannot be used, nothing is checked: {failure}"
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
    from nhc.hooks.marking import scheduler
    from nhc.host import Host
    from nhc.ports.adapter import Comments

    name = node_name(environ, settings, Host().system.hostname())
    # Noted before the attempt: a controller that does not answer must not hold up every job. Tried again in a minute.
    state.update(MEMORY, lambda memory: memory.update({context: now - QUIET + AGAIN, "node": name}))
    adapter: object = None if watch_only(settings) else scheduler(environ, settings)
    if isinstance(adapter, Comments):
        adapter.comment(name, f"NHC: {printable(said, 200)}")
    state.update(MEMORY, lambda memory: memory.update({context: now}))


def works_again(context: str, environ: Mapping[str, str], settings: Mapping[str, str], state: State) -> None:
    """Take the comment away that an internal error left on the node: a health check any, another hook its own alone."""
    import time

    from nhc.hooks.job_environment import HEALTHCHECK, watch_only

    memory, now = state.load(MEMORY), time.time()
    if not memory or watch_only(settings):
        return
    if context != HEALTHCHECK:
        tried = memory.get("tried")
        lately = isinstance(tried, (int, float)) and 0 <= now - tried < AGAIN
        if lately or memory.keys() - {context, "node", "tried"}:
            return
        state.update(MEMORY, lambda memory: memory.update(tried=now))
    from nhc.hooks.log import warn
    from nhc.hooks.marking import scheduler
    from nhc.ports.adapter import AdapterError, Comments

    adapter: object = scheduler(environ, settings)
    if memory.get("node") and isinstance(adapter, Comments):
        try:
            adapter.comment(str(memory["node"]), "")
        except AdapterError as error:  # no fault of ours; tried again later
            warn(f"the comment that an internal error left on {memory['node']} stays: {error}")
            return
    state.update(MEMORY, lambda memory: memory.clear())
