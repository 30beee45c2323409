"""The states of an episode and the ways between them, as tables. Pure: nothing here reads a clock or a file.

An episode is one loop over one node: from a fault to a node back in service, or to an escalation that says what was
tried. Each step is written down in its state *before* it is taken: MARKING before the mark is set, ACTING before the
repair is sent, RETURNING before the mark is cleared. So a controller that is killed anywhere finds, when it starts
again, either that nothing was begun or that something may have been; it never has to guess which step it was at.

`docs/remedy.md` shows these tables; `tests/remedy/test_machine.py` holds that they agree.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Tuple


class State(str, Enum):
    """Where an episode is. The last four are ends."""

    DETECTED = "detected"
    MARKING = "marking"
    MARKED = "marked"
    DRAINING = "draining"
    EVIDENCE = "evidence"
    RECHECK = "recheck"
    AWAITING_APPROVAL = "awaiting-approval"
    ACTING = "acting"
    WATCHING = "watching"
    VERIFYING = "verifying"
    RETURNING = "returning"
    RETURNED = "returned"
    ESCALATED = "escalated"
    WITHDRAWN = "withdrawn"
    ABORTED = "aborted"


class Event(str, Enum):
    """What moves an episode on."""

    MARK_ALLOWED = "mark-allowed"
    MARK_SET = "mark-set"
    MARK_REFUSED = "mark-refused"
    MARK_LOST = "mark-lost"
    REPAIR_PLANNED = "repair-planned"
    DRAINED = "drained"
    DRAIN_OVERDUE = "drain-overdue"
    BUSY_AGAIN = "busy-again"
    COLLECTED = "collected"
    CONFIRMED = "confirmed"
    APPROVAL_NEEDED = "approval-needed"
    APPROVED = "approved"
    DENIED = "denied"
    SENT = "sent"
    REFUSED = "refused"
    EFFECT_SEEN = "effect-seen"
    NO_EFFECT = "no-effect"
    HEALTHY_AGAIN = "healthy-again"
    STILL_FAULTY = "still-faulty"
    PROVED_HEALTHY = "proved-healthy"
    MARK_CLEARED = "mark-cleared"
    LADDER_ENDED = "ladder-ended"
    GIVEN_UP = "given-up"
    FAULT_GONE = "fault-gone"
    NODE_GONE = "node-gone"
    ABORT = "abort"


ENDS: FrozenSet[State] = frozenset({State.RETURNED, State.ESCALATED, State.WITHDRAWN, State.ABORTED})
"""States in which an episode has ended; nothing leads out of them."""

OUT: FrozenSet[State] = frozenset(State) - ENDS - {State.DETECTED}
"""States in which the node counts as out of service because of us."""

REPAIRING: FrozenSet[State] = frozenset({State.ACTING, State.WATCHING, State.VERIFYING})
"""States in which a repair is under way: these count against the bounds on repairs at one time."""

MARKED_BY_US: FrozenSet[State] = OUT - {State.MARKING, State.RETURNING}
"""States in which our mark must stand on the node; where it does not, somebody else has decided."""

CANCELLABLE: FrozenSet[State] = OUT - {State.ACTING, State.WATCHING, State.RETURNING}
"""States in which nothing destructive is on its way, so that a healthy node or a lost mark may end the repair."""

MEANING: Mapping[State, str] = {
    State.DETECTED: "A fault was seen. Nothing has been done; the bounds decide when the node may be marked.",
    State.MARKING: "Written down: the mark is about to be set.",
    State.MARKED: "Our mark stands, so no new work starts. The next repair is chosen.",
    State.DRAINING: "Waiting until running work has ended, at most until the drain's deadline.",
    State.EVIDENCE: "Collecting what the repair would destroy: logs, console output, the scheduler's view.",
    State.RECHECK: "Reading everything again: still faulty? still our mark? nobody else at work? room in the bounds?",
    State.AWAITING_APPROVAL: "Waiting for the persons that the policy asks for.",
    State.ACTING: "Written down, with its key: the repair is about to be sent, or was being sent when we stopped.",
    State.WATCHING: "The repair was sent, or may have been. Its effect is looked for; nothing is sent again.",
    State.VERIFYING: "Waiting for a report newer than the repair, and for the node to stay healthy for a time.",
    State.RETURNING: "Written down: our own mark is about to be cleared.",
    State.RETURNED: "End. The node is back in service, or the new node that replaced it is.",
    State.ESCALATED: "End. A person must look; the node stays out, and the episode says what was tried.",
    State.WITHDRAWN: "End. The fault went by itself, or somebody else has taken the node in hand.",
    State.ABORTED: "End. A person stopped the episode; the node stays as it is.",
}

CAUSE: Mapping[Event, str] = {
    Event.MARK_ALLOWED: "the action is enabled and every bound has room",
    Event.MARK_SET: "the node carries our mark",
    Event.MARK_REFUSED: "the mark is not ours to set: somebody else took the node out",
    Event.MARK_LOST: "our mark is gone or is somebody else's now",
    Event.REPAIR_PLANNED: "the ladder has a next repair",
    Event.DRAINED: "no work runs on the node, or policy lets the repair go on past the deadline",
    Event.DRAIN_OVERDUE: "work still runs after the drain's deadline",
    Event.BUSY_AGAIN: "work runs on the node again",
    Event.COLLECTED: "the evidence is stored, or its collection failed and that is written down",
    Event.CONFIRMED: "faulty, ours, idle, nobody else at work, room in every bound",
    Event.APPROVAL_NEEDED: "the policy asks for a person's consent",
    Event.APPROVED: "enough persons have agreed; everything is read again",
    Event.DENIED: "a person has refused",
    Event.SENT: "the answer is an acceptance, or is ambiguous",
    Event.REFUSED: "proof that nothing was begun",
    Event.EFFECT_SEEN: "positive proof: another boot, another instance, a finished job",
    Event.NO_EFFECT: "the repair failed, or showed no effect before its deadline",
    Event.HEALTHY_AGAIN: "a fresh report says that the node is healthy",
    Event.STILL_FAULTY: "a report newer than the repair shows the fault",
    Event.PROVED_HEALTHY: "healthy for the whole time asked for, and every deep check passed",
    Event.MARK_CLEARED: "our mark is gone from the node, or the node itself is gone and its successor works",
    Event.LADDER_ENDED: "no repair is left, or the next one is not enabled",
    Event.GIVEN_UP: "a deadline, a limit of attempts or a person's refusal",
    Event.FAULT_GONE: "the fault ended before anything was done",
    Event.NODE_GONE: "the node is no longer in the cluster",
    Event.ABORT: "`nhc remedy abort`",
}

_FORWARD: Dict[Tuple[State, Event], State] = {
    (State.DETECTED, Event.MARK_ALLOWED): State.MARKING,
    (State.DETECTED, Event.FAULT_GONE): State.WITHDRAWN,
    (State.DETECTED, Event.MARK_REFUSED): State.WITHDRAWN,
    (State.DETECTED, Event.GIVEN_UP): State.ESCALATED,
    (State.MARKING, Event.MARK_SET): State.MARKED,
    (State.MARKING, Event.MARK_REFUSED): State.WITHDRAWN,
    (State.MARKING, Event.GIVEN_UP): State.ESCALATED,
    (State.MARKED, Event.REPAIR_PLANNED): State.DRAINING,
    (State.MARKED, Event.LADDER_ENDED): State.ESCALATED,
    (State.MARKED, Event.GIVEN_UP): State.ESCALATED,
    (State.DRAINING, Event.DRAINED): State.EVIDENCE,
    (State.DRAINING, Event.DRAIN_OVERDUE): State.ESCALATED,
    (State.EVIDENCE, Event.COLLECTED): State.RECHECK,
    (State.RECHECK, Event.BUSY_AGAIN): State.DRAINING,
    (State.RECHECK, Event.APPROVAL_NEEDED): State.AWAITING_APPROVAL,
    (State.RECHECK, Event.CONFIRMED): State.ACTING,
    (State.RECHECK, Event.LADDER_ENDED): State.ESCALATED,
    (State.RECHECK, Event.GIVEN_UP): State.ESCALATED,
    (State.AWAITING_APPROVAL, Event.APPROVED): State.RECHECK,
    (State.AWAITING_APPROVAL, Event.DENIED): State.ESCALATED,
    (State.AWAITING_APPROVAL, Event.GIVEN_UP): State.ESCALATED,
    (State.ACTING, Event.SENT): State.WATCHING,
    (State.ACTING, Event.REFUSED): State.MARKED,
    (State.WATCHING, Event.EFFECT_SEEN): State.VERIFYING,
    (State.WATCHING, Event.NO_EFFECT): State.MARKED,
    (State.WATCHING, Event.GIVEN_UP): State.ESCALATED,
    (State.VERIFYING, Event.STILL_FAULTY): State.MARKED,
    (State.VERIFYING, Event.PROVED_HEALTHY): State.RETURNING,
    (State.VERIFYING, Event.GIVEN_UP): State.ESCALATED,
    (State.RETURNING, Event.MARK_CLEARED): State.RETURNED,
    (State.RETURNING, Event.STILL_FAULTY): State.MARKED,
    (State.RETURNING, Event.MARK_LOST): State.WITHDRAWN,
    (State.RETURNING, Event.GIVEN_UP): State.ESCALATED,
}


def _transitions() -> Dict[Tuple[State, Event], State]:
    found = dict(_FORWARD)
    for state in MARKED_BY_US & CANCELLABLE:
        found[state, Event.MARK_LOST] = State.WITHDRAWN
    for state in MARKED_BY_US & CANCELLABLE - {State.VERIFYING}:
        found[state, Event.HEALTHY_AGAIN] = State.VERIFYING
    for state in frozenset(State) - ENDS - {State.ACTING, State.WATCHING}:
        found[state, Event.NODE_GONE] = State.WITHDRAWN
    for state in frozenset(State) - ENDS:
        found[state, Event.ABORT] = State.ABORTED
    return found


TRANSITIONS: Mapping[Tuple[State, Event], State] = _transitions()


class BadTransition(Exception):
    """An event that a state does not know: a mistake of the caller, and nothing may be done."""


def after(state: State, event: Event) -> State:
    """The state that an event leads to. Raises BadTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise BadTransition(f"an episode in {state.value} knows no {event.value}") from None


class AttemptState(str, Enum):
    """How far one attempt is, and how it ended: what the store keeps as its state and outcome.

    AMBIGUOUS is not the last word: the effect is looked for, and the attempt is resolved into another of the ends.
    """

    WRITTEN = "written"
    SENT = "sent"
    AMBIGUOUS = "ambiguous"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REFUSED = "refused"
    SUPERSEDED = "superseded"


ATTEMPT_MEANING: Mapping[AttemptState, str] = {
    AttemptState.WRITTEN: "Written down with its key; not known to be sent.",
    AttemptState.SENT: "The other side accepted it. Its effect is looked for.",
    AttemptState.AMBIGUOUS: "No answer, or one that proves nothing. The effect is looked for; it is not sent again.",
    AttemptState.SUCCEEDED: "End. The effect was seen. Whether the node is healthy is another question.",
    AttemptState.FAILED: "End. The other side says so, or no effect was seen before the deadline.",
    AttemptState.REFUSED: "End. Proof that nothing was begun.",
    AttemptState.SUPERSEDED: "End. A person stopped the episode, or it ended, while the effect was looked for.",
}


class Row(NamedTuple):
    """One line of the table of transitions."""

    state: State
    event: Event
    next: State


def rows() -> List[Row]:
    """All transitions in the order of states and events."""
    states, events = list(State), list(Event)
    return [Row(state, event, TRANSITIONS[state, event]) for state in states for event in events
            if (state, event) in TRANSITIONS]  # fmt: skip


def tables() -> str:
    """The tables of states, transitions and attempts in Markdown, as docs/remedy.md has them."""
    lines = ["| state | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {MEANING[state]} |" for state in State]
    lines += ["", "| in | when | next |", "|---|---|---|"]
    lines += [f"| `{row.state.value}` | {CAUSE[row.event]} (`{row.event.value}`) | `{row.next.value}` |"
              for row in rows()]  # fmt: skip
    lines += ["", "| attempt | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {ATTEMPT_MEANING[state]} |" for state in AttemptState]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
