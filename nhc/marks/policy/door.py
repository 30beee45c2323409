"""The one door: every part that takes a node out of service, or puts one back, asks here first. Pure.

Hooks, syncs, sweeps, the controller, the remedy loop and trains differ in where reports come from and in who marks.
They ask the same questions in the same order. Who owns the node's state (a person, another tool, on hold)? Does
something block all nodes like it (the open breaker, a cause that nodes share, the first minutes of a boot)? Is there
room in the bounds? Does its report count (the newest, of this boot, of this machine)?

`nhc.marks.policy.mark_decision.reconcile` asks for all nodes of a round by their reports.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence

from nhc.core.limits import Mode
from nhc.core.timestamps import is_recent
from nhc.marks.policy import bounds as bounding
from nhc.marks.policy.bounds import MARK, RUNGS, BegunAction, Bounds, FullRadius, Held, Usage
from nhc.marks.ports.adapter import OWNER, Effect, Mark, NodeState, Operation
from nhc.marks.ports.marks import left_alone, may_clear, may_mark, out_by_nhc

CLEAR = Operation.CLEAR.value

ALWAYS = float("-inf")
"""Since when marking counts as enabled if the first day has no bound of its own."""

WAVERS = 5.0
"""Seconds by which a scheduler may be wrong about when a boot began: it computes that from an uptime."""


class MarkRequest(NamedTuple):
    """What is asked for one node. `state` is its state in the scheduler now, None if the scheduler does not know it.

    `mark` is to be set; None: the node is to be put back. `held` is what blocks it even if there is room: the first
    that gives a reason counts. `doubts` are the reasons why its report does not count. `again`: the same operation was
    begun on it within the time of a rate, and does not count twice.
    """

    node: str
    state: Optional[NodeState]
    mark: Optional[Mark] = None
    owner: str = OWNER
    held: Sequence[Held] = ()
    doubts: Sequence[Held] = ()
    again: bool = False


class Ruling(NamedTuple):
    """CHANGED: do it. UNCHANGED: nothing to do. REFUSED: not ours to change, or, with a `bound`, not now. FAILED: the
    scheduler does not know the node. `why` is one line for a person.
    """

    effect: Effect
    why: str = ""
    bound: str = ""

    @property
    def may(self) -> bool:
        """Whether to do it."""
        return self.effect is Effect.CHANGED

    @property
    def held(self) -> Optional[Held]:
        """What prevents it now; None if it is never ours to change, or may be done."""
        return Held(self.bound, self.why) if self.bound else None


NODE = "node"
"""The bound of a node that must not be touched now: it is on hold, it reboots."""


def rule(ask: MarkRequest, bounds: Bounds, usage: Usage, now: float, enabled_at: Optional[float] = ALWAYS) -> Ruling:
    """Whether what is asked may be done now. Counts nothing: the caller that does it counts it in `usage`.

    `enabled_at`: since when marking is enabled here (None: never until now), for the bound of the first day.
    """
    ruling = _whose(ask)
    if not ruling.may or ask.state is None:
        return ruling
    held = bounding.protected(bounds, ask.node) or _first(ask.held)
    if held is None and ask.mark is None:
        held = bounding.never_now(bounds, CLEAR, ask.node, now)
        held = held or (None if ask.again else bounding.rate(bounds, usage, ask.node, (CLEAR,), now))
    elif held is None and not ask.state.out_by_us:  # one that is out by us already only gets another reason
        held = bounding.may_mark(bounds, usage, ask.node, now, enabled_at, ask.again)
    held = held or _first(ask.doubts)
    return Ruling(Effect.REFUSED, held.why, held.bound) if held is not None else ruling


def nobody(_name: str) -> str:
    """Nobody holds anything."""
    return ""


def enabled(_action: str) -> Mode:
    """Every action is enabled."""
    return Mode.ON


class Bars(NamedTuple):
    """What may prevent an action from beginning, as it was read for one pass. The loop of all flows asks it
    (`nhc.store.rounds.loop`); no flow has to.

    `held` says who holds a node, `breaker` why the breaker is open, "" if it is not. `usage` counts what is out and was
    begun. `enabled_at` is since when marking is enabled, None for never until now.
    """

    bounds: Bounds
    usage: Usage
    breaker: str = ""
    held: Callable[[str], str] = nobody
    mode: Callable[[str], Mode] = enabled
    enabled_at: Optional[float] = ALWAYS

    def against(self, node: str, action: str, now: float) -> Optional[Held]:
        """What prevents it from beginning now, None if nothing does."""
        held = self.held(node)
        if held:
            return Held("hold", held)
        if self.mode(action) is not Mode.ON:
            return Held("dry-run", f"would {action}, which is not enabled")
        if self.breaker:
            return Held("breaker", self.breaker)
        if action == MARK:
            return bounding.may_mark(self.bounds, self.usage, node, now, self.enabled_at)
        if action in RUNGS:
            return bounding.may_repair(self.bounds, self.usage, node, RUNGS[action], now)
        return bounding.never_now(self.bounds, action, node, now)

    def begin(self, taken: BegunAction) -> None:
        """Count what begins."""
        if taken.action == MARK:
            self.usage.count_out(taken.node)
        elif taken.action in RUNGS:
            self.usage.count_repairing(taken.node)
        self.usage.begin(taken)


def _whose(ask: MarkRequest) -> Ruling:
    state, mark = ask.state, ask.mark
    effect, why = may_clear(state, ask.owner) if mark is None else may_mark(state, mark._replace(owner=ask.owner))
    on_hold = state is not None and bool(state.hold) and why == left_alone(state)
    return Ruling(effect, why, NODE if on_hold else "")


def _first(held: Sequence[Held]) -> Optional[Held]:
    return next((each for each in held if each.why), None)


def report_doubts(at: float, boot: str, state: Optional[NodeState], now: float, max_age: float) -> List[Held]:
    """Why a report, whose run began `at` in the boot `boot`, does not count for its node now: it is too old, dated
    ahead of our clock, or of a boot that ended.
    """
    age = now - at
    why = ""
    if not is_recent(at, now, max_age):
        old = f"{age:.0f} s old; at most {max_age:.0f} s count"
        why = f"its report is {old if age > 0 else f'from {-age:.0f} s in the future: check the clock of the node'}"
    elif state is not None and ((state.boot_id and boot and state.boot_id != boot) or state.booted > at + WAVERS):
        why = "it has booted since its report"
    return [Held("report", why)] if why else []


def one_too_many(
    states: Sequence[NodeState], node: str, bounds: Bounds, itself: bool = False
) -> Optional[FullRadius]:  # fmt: skip
    """The radius for which a node's mark, already set, is one too many; None if it is among the first that the bounds
    have room for, by the time of the mark and the name. Nodes that fail together have all found room before they
    marked, and all see the same order, so all agree on which marks stay. With the mark `itself` counted: the radius
    that it has filled, which is true for one node only.
    """
    usage = bounding.usage_of(states)
    marked = sorted((state.mark.since or 0.0, state.name) for state in states if state.mark and out_by_nhc(state))
    for _since, name in marked:
        if name != node or itself:
            usage.count_out(name)
        if name == node:
            return bounding.full_radius(bounds, usage, node)
    return None
