"""Mark or clear this node from a hook, through the adapter of its resource manager.

A node does this alone, without a fleet's policy, so it carries one bound of its own: no more than
NHC_MAX_DRAINED nodes (`50%` unless set; `20`, `10%`, `20 10%` for the lower of both, `none`) may carry our
mark at once, of all nodes and of those of each partition. The count is the scheduler's own, so no restart of anything
forgets it.
"""

from __future__ import annotations

import os
import time

from nhc.core.light import TYPE_CHECKING
from nhc.core.limits import Limit, read_limit
from nhc.hooks import log
from nhc.hooks.job_environment import watch_only
from nhc.marks.policy.bounds import FLEET, PARTITION, Bounds, FullRadius, RadiusBounds, Usage, full_radius, usage_of
from nhc.marks.policy.door import MarkRequest, one_too_many, rule
from nhc.marks.ports.adapter import (
    WORK_SETTING,
    AdapterError,
    Applied,
    Effect,
    Mark,
    Marker,
    NodeState,
    Operation,
    PlannedOperation,
)
from nhc.marks.ports.marks import mark_text, out_by_nhc, same_cause

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional, Sequence

MAX_DRAINED = "50%"
LOGGED = "one of them has logged it for all"
"""Why there is no room, where several of the nodes that are out have what this one has."""
NO_ROOM = "NHC_MAX_DRAINED is"
"""What is in the answer for a node for which there is no room."""
WATCHING = "watch only (NHC_WATCH_ONLY): otherwise it would be"
TIMEOUT = 6.0
"""Seconds for one of the scheduler's commands: three of them, after the checks, stay inside slurmd's 60 s."""
NO_BOUNDS, NOTHING_OUT = Bounds({}), Usage({}, {})
TICK = 1.0
"""Seconds after which no mark can be set any more in the second of this one: Slurm keeps a mark's time in seconds."""


def scheduler(environ: Mapping[str, str], settings: Mapping[str, str]) -> Optional[Marker]:
    """The adapter, None where marking is switched off, or there is none that a hook can use: the log says which."""
    if settings.get("MARK_OFFLINE", "1") == "0":
        return None
    from nhc.core.host import Host
    from nhc.core.plugins import NoAdapter
    from nhc.core.resource_manager import NO_HOOK_ADAPTERS, detect
    from nhc.marks.plugins import open_adapter

    name, how, _unsure = detect(environ, settings, Host())
    if not name:
        log.info(f"nothing is marked: {how}")
        return None
    problem = NO_HOOK_ADAPTERS.get(name, "")
    try:
        adapter: Any = None if problem else open_adapter(name, {**settings, WORK_SETTING: "flags"}, environ, TIMEOUT)
        # Not isinstance(found, Marker): with a Protocol that loads the module `inspect`.
        missing = [method for method in ("nodes", "mark", "clear") if not hasattr(adapter, method)]
        if not problem and not missing:
            marker: Marker = adapter
            return marker
        problem = problem or f"the adapter {name} cannot {' and '.join(missing)}, so no hook can use it"
    except (NoAdapter, AdapterError) as error:
        problem = str(error)
    log.error(f"nothing is marked: {problem} (found by {how})")
    return None


def take_out(
    adapter: Marker,
    node: str,
    mark: Mark,
    settings: Mapping[str, str],
    known: Mapping[str, object] = {},
    states: Optional[Sequence[NodeState]] = None,
) -> Applied:
    """Mark this node unless enough others are marked already. Raises AdapterError.

    `states` is what the scheduler has just said of the node. `known` is what is kept of the mark set last: its text and
    its cause (`nhc.hooks.healthcheck.remember_mark`).
    """
    seen = [_after_reboot(_with_cause(node_state, known)) for node_state in states or adapter.nodes([node])]
    state = next((node_state for node_state in seen if node_state.name == node), None)
    ask = MarkRequest(node, state, mark)
    bounds = _bounds(settings) if state is not None and state.available else NO_BOUNDS
    ruling = rule(ask, NO_BOUNDS, NOTHING_OUT, time.time())
    if ruling.may and bounds.radii:  # only then all nodes are asked for
        everyone = adapter.nodes()
        usage = usage_of(everyone, (other.name for other in everyone if other.name != node and out_by_nhc(other)))
        ruling = rule(ask, bounds, usage, time.time())
        full = full_radius(bounds, usage, node)
        if not ruling.may and full is not None:
            return Applied(node, Effect.REFUSED, _no_room(full, everyone, mark))
    if not ruling.may:
        return Applied(node, ruling.effect, ruling.why)
    if watch_only(settings):
        return Applied(node, Effect.REFUSED, f"{WATCHING} marked")
    applied = audited(Operation.MARK, node, mark.why, lambda: adapter.mark({node: mark}, seen)[0])
    return _within(adapter, node, mark, bounds) or applied if applied.effect is Effect.CHANGED else applied


def _bounds(settings: Mapping[str, str]) -> Bounds:
    """What NHC_MAX_DRAINED bounds: all nodes, and those of each partition or queue by themselves."""
    try:
        limit = read_limit(settings.get("NHC_MAX_DRAINED", "") or MAX_DRAINED)
    except ValueError as error:
        log.error(f"NHC_MAX_DRAINED: {error}; using {MAX_DRAINED}")
        limit = read_limit(MAX_DRAINED)
    radius = RadiusBounds(limit)
    return NO_BOUNDS if limit == Limit() else Bounds({FLEET: radius, PARTITION: radius})


def _no_room(full: FullRadius, everyone: Sequence[NodeState], mark: Mark) -> str:
    """Why there is no room for a mark, and how many of those that are out share its fault."""
    alike = min(full.out, _alike(full, everyone, mark))  # some of the others may be too many as well
    shared = f", {alike} of them for the same fault{f' ({LOGGED})' if alike > 1 else ''}" if alike else ""
    return f"{full.out} of {full.size} nodes{_of(full)} are marked already{shared}; {_setting(full)}"


def _alike(full: FullRadius, everyone: Sequence[NodeState], mark: Mark) -> int:
    """How many nodes are out by nhc, whichever part of it, with the same fault."""
    marks = [state.mark for state in everyone if out_by_nhc(state) and full.has(state) and state.mark is not None]
    return sum(same_cause(standing._replace(owner=mark.owner), mark) for standing in marks)


def _of(full: FullRadius) -> str:
    return f" of {full.radius[1]}" if full.radius[1] else ""


def _setting(full: FullRadius) -> str:
    return f"{NO_ROOM} {full.limit.show()}"


def _within(adapter: Marker, node: str, mark: Mark, bounds: Bounds) -> Optional[Applied]:
    """Look once more after the mark: nodes that fail together have all found room before. None where the mark stays."""
    if not bounds.radii:
        return None
    time.sleep(TICK)
    try:
        everyone = adapter.nodes()
        full = one_too_many(everyone, node, bounds)
        if full is None:
            _log_shared(one_too_many(everyone, node, bounds, itself=True), everyone, mark)
            return None
        why = _no_room(full, [state for state in everyone if state.name != node], mark)
        back = audited(Operation.CLEAR, node, why, lambda: adapter.clear([node])[0])
    except AdapterError as error:
        log.error(f"NHC_MAX_DRAINED: {error}; the mark stays")
        return None
    return Applied(node, Effect.REFUSED, why) if back.effect is Effect.CHANGED else None


def _log_shared(full: Optional[FullRadius], everyone: Sequence[NodeState], mark: Mark) -> None:
    """Log once for all nodes that many have the same fault: by the one whose mark has filled the bound."""
    alike = _alike(full, everyone, mark) if full is not None else 0
    if full is not None and alike > 1:
        check = mark.cause.partition("|")[0]
        log.warn(
            f"{check}: the same fault on {alike} of {full.size} nodes{_of(full)}, and {_setting(full)}: further nodes "
            "stay in service: look for a common cause"
        )


def _with_cause(state: NodeState, known: Mapping[str, object]) -> NodeState:
    """A node's state, its mark with the cause that it was set for, where it is still the one that was set here."""
    if state.mark is None or not state.mark.ours or known.get("text") != mark_text(state.mark):
        return state
    return state._replace(mark=state.mark._replace(cause=str(known.get("cause", ""))))


def _after_reboot(state: NodeState) -> NodeState:
    """The state that a node has when its reboot, or its power-up, is over, of one that its scheduler then puts into
    service.

    A node whose hooks run is up: nothing that its scheduler still waits for is disturbed by a mark. What stands as a
    reason there is the reboot's.
    """
    return state._replace(available=True, hold="") if state.rebooting and state.returns else state


def put_back(
    adapter: Marker, node: str, settings: Mapping[str, str], states: Optional[Sequence[NodeState]] = None
) -> Applied:
    """Clear our mark from this node. `states` is what the scheduler has just said of it. Raises AdapterError."""
    seen = states or adapter.nodes([node])
    state = next((node_state for node_state in seen if node_state.name == node), None)
    ruling = rule(MarkRequest(node, state), NO_BOUNDS, NOTHING_OUT, time.time())
    if not ruling.may or state is None or state.mark is None:
        return Applied(node, ruling.effect, ruling.why)
    if watch_only(settings):
        return Applied(node, Effect.REFUSED, f"{WATCHING} put back")
    return audited(
        Operation.CLEAR, node, f"healthy again; was: {state.mark.why}", lambda: adapter.clear([node], seen)[0]
    )


def audited(operation: Operation, node: str, because: str, act: Callable[[], Applied]) -> Applied:
    """Act, with a line in this node's ledger before and after; one that cannot be written keeps no sick node in."""
    from nhc.marks.policy.ledger import Ledger, LedgerError

    ledger = Ledger(by="hook")
    try:
        os.makedirs(ledger.directory, mode=0o755, exist_ok=True)
        ledger.begin([PlannedOperation(node, operation, because)], time.time())
        applied = act()
        ledger.end(operation, [applied], time.time())
    except (LedgerError, OSError) as error:
        log.error(str(error))
        return act()  # both operations may be repeated
    return applied
