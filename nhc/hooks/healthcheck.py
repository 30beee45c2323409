"""After a periodic run: drain a node that is CRIT; return a node to service that our mark took out and that has
recovered.

A healthy node does not ask the controller every few minutes: it stores whether it carries our mark, and reads that
again after NHC_REREAD seconds (900), after a reboot, and when a hook here has marked it.
"""

from __future__ import annotations

import re
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Report, Verdict
from nhc.core.state.store import State
from nhc.hooks import log
from nhc.hooks.job_environment import watch_only
from nhc.marks.ports.adapter import AdapterError, Applied, Effect, Mark, Marker
from nhc.marks.ports.marks import mark_of, mark_text

if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

MEMORY = "mark"
_FIGURES = re.compile(r"\d+")
REREAD = 900.0
SAID, SAID_AGAIN = "said", 3600.0
"""The health check's last log line about an unchanged node, and the seconds after which it logs that again."""


def healthcheck(report: Report, environ: Mapping[str, str], settings: Mapping[str, str], state: State) -> int:
    """Returns 0, or 1 if the resource manager did not do what it was asked."""
    if report.verdict is Verdict.UNKNOWN:
        _log_untold(report, state)
        return 0  # could not tell: the node stays as it is
    healthy = report.verdict is not Verdict.CRIT
    if healthy and seconds_to_read(report, settings, state):
        return 0
    from nhc.hooks.marking import scheduler

    adapter = scheduler(environ, settings)
    if adapter is None:
        return 0
    return _act(adapter, report, settings, state)


def _act(adapter: Marker, report: Report, settings: Mapping[str, str], state: State, after_boot: bool = False) -> int:
    """Mark the node or return it to service. If its scheduler awaits its reboot, again when it registers."""
    from nhc.hooks.marking import WATCHING, put_back, take_out

    mark = mark_of(report)
    try:
        states = adapter.nodes([report.host])
        if mark is None:
            done = put_back(adapter, report.host, settings, states)
        else:
            done = take_out(adapter, report.host, mark, settings, remembered_mark(state, report.host), states)
    except AdapterError as error:
        log.error(f"{report.host} could not be {'put back' if mark is None else 'marked'}: {error}")
        return 0 if watch_only(settings) else 1
    # Figures of other nodes change each time: they make no new line.
    why = "" if mark is None else f"{mark.cause}: {_FIGURES.sub('', done.message)}"
    if done.effect is not Effect.REFUSED or mark is None or _is_new(report, why, state):
        log_marking(
            report, done.effect, f"{done.message}{_logged_elsewhere(adapter, report, mark, done, settings, state)}"
        )
    if done.effect is Effect.CHANGED and state.load(SAID).get(report.host):
        state.update(SAID, lambda memory: memory.pop(report.host, None))
    if done.effect is Effect.CHANGED or mark is None:
        from nhc.hooks.no_room import remove_comment

        remove_comment(adapter, report.host, state)
    if not after_boot and any(node_state.rebooting for node_state in states if mark or node_state.out_by_us):
        from nhc.hooks.after_boot import act_once_rejoined

        act_once_rejoined(adapter, report.host, state, lambda: _act(adapter, report, settings, state, after_boot=True))
    if watch_only(settings):
        if mark is None and not done.message.startswith(WATCHING):
            remember_mark(state, report, False)
        return 0
    if mark is None and done.effect is not Effect.FAILED:
        remember_mark(state, report, False)
    elif done.effect in (Effect.CHANGED, Effect.UNCHANGED):
        remember_mark(state, report, True, mark if done.effect is Effect.CHANGED else None)
    return 1 if done.effect is Effect.FAILED else 0


def _logged_elsewhere(
    adapter: Marker, report: Report, mark: Optional[Mark], done: Applied, settings: Mapping[str, str], state: State
) -> str:
    """That another node logs a fault for which the bound has no room; "" if this node logs it, or if there is room."""
    from nhc.hooks.marking import LOGGED, NO_ROOM

    if mark is None or done.effect is not Effect.REFUSED or NO_ROOM not in done.message or watch_only(settings):
        return ""
    from nhc.hooks.no_room import leave_comment

    state.update(MEMORY, lambda memory: memory.pop(report.host, None))  # the next healthy run removes the comment
    return "" if leave_comment(adapter, report.host, mark, state) else f" ({LOGGED})"


def _log_untold(report: Report, state: State) -> None:
    """Log that the node's state is unknown, if that or its reason is new, and once in SAID_AGAIN."""
    from nhc.hooks.outcome import unknown_cause

    why = unknown_cause(report)
    if _is_new(report, why, state):
        log.warn(f"healthcheck: could not tell whether {report.host} is healthy; it stays as it is{why}")


def _is_new(report: Report, why: str, state: State) -> bool:
    """Whether this was not logged for the node in the last SAID_AGAIN seconds; it then counts as logged."""
    now, last = time.time(), state.load(SAID).get(report.host)
    told, at = (last.get("why"), last.get("at")) if isinstance(last, dict) else (None, None)
    if told == why and isinstance(at, (int, float)) and 0 <= now - at < SAID_AGAIN:
        return False
    state.update(SAID, lambda memory: memory.update({report.host: {"why": why, "at": now}}))
    return True


def mark_here(adapter: Marker, report: Report, mark: Mark, settings: Mapping[str, str], state: State) -> Applied:
    """Take this node out, log the outcome, and store a mark that was set. Without an answer the outcome is FAILED."""
    from nhc.hooks.marking import take_out

    try:
        done = take_out(adapter, report.host, mark, settings, remembered_mark(state, report.host))
    except AdapterError as error:
        done = Applied(report.host, Effect.FAILED, str(error))
    log_marking(report, done.effect, done.message)
    if done.effect is Effect.CHANGED:
        remember_mark(state, report, True, mark)
    return done


def log_marking(report: Report, effect: Effect, message: str) -> None:
    """Log the outcome for a node."""
    mark = mark_of(report)
    what = f"unhealthy: {mark.why}" if mark else "healthy"
    if effect is Effect.CHANGED:
        log.warn(f"{report.host} is {what}; {'marked' if mark else 'put back'}{f' ({message})' if message else ''}")
    elif effect is Effect.REFUSED and mark:
        from nhc.hooks.marking import LOGGED

        (log.info if LOGGED in message else log.warn)(f"{report.host} is {what}; not marked: {message}")
    elif effect is Effect.REFUSED:
        log.info(f"{report.host} is {what}; stays out: {message}")
    elif effect is Effect.FAILED:
        log.error(f"{report.host} is {what}; could not be {'marked' if mark else 'put back'}: {message}")


def remembered_mark(state: State, node: str) -> Mapping[str, object]:
    """What is stored about this node's mark."""
    mark = state.load(MEMORY).get(node)
    return mark if isinstance(mark, dict) else {}


def remember_mark(state: State, report: Report, ours: bool, mark: Optional[Mark] = None) -> None:
    """Store whether this node carries our mark, and the text and cause of a mark that was just set."""
    now = time.time()
    if ours:
        from nhc.node.planning.cached_verdict import drop_verdict

        drop_verdict(state)  # the next health check finds out whether the node has recovered

    def change(memory: Dict[str, Any]) -> None:
        before = memory.get(report.host)
        kept = {name: before[name] for name in ("text", "cause") if name in before} if isinstance(before, dict) else {}
        if mark is not None:
            kept = {"text": mark_text(mark), "cause": mark.cause}
        memory[report.host] = {"ours": ours, "read": now, "boot": report.boot_id, **(kept if ours else {})}

    state.update(MEMORY, change)


def seconds_to_read(report: Report, settings: Mapping[str, str], state: State) -> float:
    """For how long the node is known to carry no mark of ours: 0 if its scheduler must be asked now."""
    last = remembered_mark(state, report.host)
    if last.get("ours") is not False or last.get("boot") != report.boot_id:
        return 0.0
    try:
        limit = float(settings.get("NHC_REREAD", REREAD))
    except ValueError:
        return 0.0
    read = last.get("read")
    age = time.time() - read if isinstance(read, (int, float)) else -1.0
    return limit - age if 0 <= age < limit else 0.0
