"""Mark or clear this node from a hook, through the adapter of its resource manager.

A node does this alone, without a fleet's policy, so it has one bound of its own: at most NHC_MAX_DRAINED nodes (`50%`
unless set; `20`, `10%`, `20 10%` for the lower of both, `none`) may carry our mark at once, of all nodes and of those
of each partition. The scheduler keeps the count, so no restart loses it.
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
"""Why there is no room, if several of the nodes that are out have the same fault."""
NO_ROOM = "NHC_MAX_DRAINED is"
"""Text in the answer for a node for which there is no room."""
WATCHING = "watch only (NHC_WATCH_ONLY): otherwise it would be"
TIMEOUT = 6.0
"""Seconds for one of the scheduler's commands: three of them, after the checks, stay inside slurmd's 60 s."""
NO_BOUNDS, NOTHING_OUT = Bounds({}), Usage({}, {})
TICK = 1.0
"""After so many seconds no other mark can get the time stamp of this one: Slurm stores a mark's time in seconds."""


def scheduler(environ: Mapping[str, str], settings: Mapping[str, str]) -> Optional[Marker]:
    """The adapter, None if marking is switched off or a hook can use none: the log says which."""
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

    `states` is the scheduler's latest answer about the node. `known` is what is stored about the last mark: its text
    and its cause (`nhc.hooks.healthcheck.remember_mark`).
    """
    seen = [_after_reboot(_with_cause(node_state, known)) for node_state in states or adapter.nodes([node])]
    state = next((node_state for node_state in seen if node_state.name == node), None)
    ask = MarkRequest(node, state, mark)
    bounds = _bounds(settings) if state is not None and state.available else NO_BOUNDS
    ruling = rule(ask, NO_BOUNDS, NOTHING_OUT, time.time())
    if ruling.may and bounds.radii:  # all nodes are queried only now
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
    """What NHC_MAX_DRAINED bounds: all nodes, and separately those of each partition or queue."""
    try:
        limit = read_limit(settings.get("NHC_MAX_DRAINED", "") or MAX_DRAINED)
    except ValueError as error:
        log.error(f"NHC_MAX_DRAINED: {error}; using {MAX_DRAINED}")
        limit = read_limit(MAX_DRAINED)
    radius = RadiusBounds(limit)
    return NO_BOUNDS if limit == Limit() else Bounds({FLEET: radius, PARTITION: radius})


def _no_room(full: FullRadius, everyone: Sequence[NodeState], mark: Mark) -> str:
    """Why there is no room for a mark, and how many of the nodes that are out share its fault."""
    alike = min(full.out, _alike(full, everyone, mark))  # some of the others may exceed the bound as well
    shared = f", {alike} of them for the same fault{f' ({LOGGED})' if alike > 1 else ''}" if alike else ""
    return f"{full.out} of {full.size} nodes{_of(full)} are marked already{shared}; {_setting(full)}"


def _alike(full: FullRadius, everyone: Sequence[NodeState], mark: Mark) -> int:
    """How many nodes any part of nhc has taken out with the same fault."""
    marks = [state.mark for state in everyone if out_by_nhc(state) and full.has(state) and state.mark is not None]
    return sum(same_cause(standing._replace(owner=mark.owner), mark) for standing in marks)


def _of(full: FullRadius) -> str:
    return f" of {full.radius[1]}" if full.radius[1] else ""


def _setting(full: FullRadius) -> str:
    return f"{NO_ROOM} {full.limit.show()}"


def _within(adapter: Marker, node: str, mark: Mark, bounds: Bounds) -> Optional[Applied]:
    """Count once more after the mark: nodes that fail together may all have found room. None if the mark stays."""
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
    """Log once that many nodes have the same fault: the node whose mark filled the bound does it."""
    alike = _alike(full, everyone, mark) if full is not None else 0
    if full is not None and alike > 1:
        check = mark.cause.partition("|")[0]
        log.warn(
            f"{check}: the same fault on {alike} of {full.size} nodes{_of(full)}, and {_setting(full)}: further nodes "
            "stay in service: look for a common cause"
        )


def _with_cause(state: NodeState, known: Mapping[str, object]) -> NodeState:
    """A node's state, and the cause of its mark if that is still the one that was set here."""
    if state.mark is None or not state.mark.ours or known.get("text") != mark_text(state.mark):
        return state
    return state._replace(mark=state.mark._replace(cause=str(known.get("cause", ""))))


def _after_reboot(state: NodeState) -> NodeState:
    """The state of a node after its reboot or power-up has ended, if its scheduler then puts it into service.

    A node whose hooks run is up: a mark disturbs nothing that its scheduler still waits for. Its current reason is that
    of the reboot.
    """
    return state._replace(available=True, hold="") if state.rebooting and state.returns else state


def put_back(
    adapter: Marker, node: str, settings: Mapping[str, str], states: Optional[Sequence[NodeState]] = None
) -> Applied:
    """Clear our mark from this node. `states` is the scheduler's latest answer about it. Raises AdapterError."""
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
    """Act, with a line in this node's ledger before and after; if it cannot be written, a sick node still goes out."""
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
