"""The states of an episode and the transitions between them, as tables. Pure: nothing here reads a clock or a file.

An episode is one loop over one node: from a fault, or its turn for maintenance, to a node back in service, or to an
escalation that says what was tried. Each step is written down in its state *before* it is taken: MARKING before the
mark is set, ACTING before the repair is sent, RETURNING before the mark is cleared. So a controller that was killed at
any point finds at its next start either that nothing was begun or that something may have been; it always knows which
step it was at.

`docs/remedy.md` shows these tables; `tests/remedy/test_machine.py` holds that they agree.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, FrozenSet, Mapping, Tuple

from nhc.store.attempts import AttemptStatus


class EpisodeState(str, Enum):
    """Where an episode is. The last five are ends. Maintenance begins in PLANNED, a repair in DETECTED."""

    PLANNED = "planned"
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
    SKIPPED = "skipped"


class EpisodeEvent(str, Enum):
    """What moves an episode on."""

    MARK_ALLOWED = "mark-allowed"
    MARK_SET = "mark-set"
    MARK_REFUSED = "mark-refused"
    MARK_LOST = "mark-lost"
    REPAIR_PLANNED = "repair-planned"
    DRAINED = "drained"
    NOTHING_TO_COLLECT = "nothing-to-collect"
    DRAIN_OVERDUE = "drain-overdue"
    BUSY_AGAIN = "busy-again"
    COLLECTED = "collected"
    CONFIRMED = "confirmed"
    APPROVAL_NEEDED = "approval-needed"
    APPROVED = "approved"
    DENIED = "denied"
    SENT = "sent"
    REFUSED = "refused"
    NOT_BEGUN = "not-begun"
    STEP_DONE = "step-done"
    EFFECT_SEEN = "effect-seen"
    NO_EFFECT = "no-effect"
    HEALTHY_AGAIN = "healthy-again"
    STILL_FAULTY = "still-faulty"
    PROVED_HEALTHY = "proved-healthy"
    BOOTED_AGAIN = "booted-again"
    MARK_CLEARED = "mark-cleared"
    PUT_BACK = "put-back"
    WIDENED = "widened"
    SKIP = "skip"
    LADDER_ENDED = "ladder-ended"
    GIVEN_UP = "given-up"
    FAULT_GONE = "fault-gone"
    NODE_GONE = "node-gone"
    ABORT = "abort"


ENDS: FrozenSet[EpisodeState] = frozenset({
    EpisodeState.RETURNED, EpisodeState.ESCALATED, EpisodeState.WITHDRAWN, EpisodeState.ABORTED, EpisodeState.SKIPPED,
})  # fmt: skip
"""States in which an episode has ended; nothing leads out of them."""

NOT_BEGUN: FrozenSet[EpisodeState] = frozenset({EpisodeState.DETECTED, EpisodeState.PLANNED})
"""States in which nothing has been done to the node."""

OUT: FrozenSet[EpisodeState] = frozenset(EpisodeState) - ENDS - NOT_BEGUN
"""States in which the node counts as out of service because of us."""

REPAIRING: FrozenSet[EpisodeState] = frozenset({EpisodeState.ACTING, EpisodeState.WATCHING, EpisodeState.VERIFYING})
"""States in which a repair is under way: these count against the bounds on repairs at one time."""

MARKED_BY_US: FrozenSet[EpisodeState] = OUT - {EpisodeState.MARKING, EpisodeState.RETURNING}
"""States in which our mark must be set on the node; if it is not, somebody else has decided."""

CANCELLABLE: FrozenSet[EpisodeState] = OUT - {EpisodeState.ACTING, EpisodeState.WATCHING, EpisodeState.RETURNING}
"""States in which nothing destructive is on its way, so that a healthy node or a lost mark may end the repair."""

MEANING: Mapping[EpisodeState, str] = {
    EpisodeState.PLANNED: "Maintenance: the turn of its wave has not come, or a bound has no room.",
    EpisodeState.DETECTED: "A fault was seen. Nothing has been done; the bounds decide when the node may be marked.",
    EpisodeState.MARKING: "Written down: the mark is about to be set.",
    EpisodeState.MARKED: "Our mark stands, so no new work starts. The next repair is chosen.",
    EpisodeState.DRAINING: "Waiting until running work has ended, at most until the drain's deadline.",
    EpisodeState.EVIDENCE: "Collecting what the repair would destroy: logs, console output, the scheduler's view.",
    EpisodeState.RECHECK: (
        "Reading everything again: still faulty? still our mark? nobody else at work? room in the bounds?"
    ),
    EpisodeState.AWAITING_APPROVAL: "Waiting for the persons that the policy asks for.",
    EpisodeState.ACTING: (
        "Written down, with its key: the repair is about to be sent, or was being sent when we stopped."
    ),
    EpisodeState.WATCHING: "The repair was sent, or may have been. Its effect is looked for; nothing is sent again.",
    EpisodeState.VERIFYING: "Waiting for a report newer than the repair, and for the node to stay healthy for a time.",
    EpisodeState.RETURNING: "Written down: our own mark is about to be cleared.",
    EpisodeState.RETURNED: "End. The node is back in service, or the new node that replaced it is.",
    EpisodeState.ESCALATED: "End. A person must look; the node stays out, and the episode says what was tried.",
    EpisodeState.WITHDRAWN: "End. The fault went by itself, or somebody else has taken the node in hand.",
    EpisodeState.ABORTED: "End. A person stopped the episode; the node stays as it is.",
    EpisodeState.SKIPPED: "End. Maintenance was not done, and nothing else; the node is in service as before.",
}

CAUSE: Mapping[EpisodeEvent, str] = {
    EpisodeEvent.MARK_ALLOWED: "the action is enabled and every bound has room",
    EpisodeEvent.MARK_SET: "the node carries our mark",
    EpisodeEvent.MARK_REFUSED: "the mark is not ours to set: somebody else took the node out",
    EpisodeEvent.MARK_LOST: "our mark is gone or is somebody else's now",
    EpisodeEvent.REPAIR_PLANNED: "the ladder has a next repair",
    EpisodeEvent.DRAINED: "no work runs on the node, or policy lets the repair go on past the deadline",
    EpisodeEvent.NOTHING_TO_COLLECT: "no work runs, or it is forced; maintenance needs no evidence",
    EpisodeEvent.DRAIN_OVERDUE: "work still runs after the drain's deadline",
    EpisodeEvent.BUSY_AGAIN: "work runs on the node again",
    EpisodeEvent.COLLECTED: "the evidence is stored, or its collection failed and that is written down",
    EpisodeEvent.CONFIRMED: "faulty, ours, idle, nobody else at work, room in every bound",
    EpisodeEvent.APPROVAL_NEEDED: "the policy asks for a person's consent",
    EpisodeEvent.APPROVED: "enough persons have agreed; everything is read again",
    EpisodeEvent.DENIED: "a person has refused",
    EpisodeEvent.SENT: "the answer is an acceptance, or is ambiguous",
    EpisodeEvent.REFUSED: "proof that nothing was begun, and asking again is of no use",
    EpisodeEvent.NOT_BEGUN: "proof that nothing was begun, and the same repair may be sent later",
    EpisodeEvent.STEP_DONE: "the effect was seen, and the maintenance has more steps",
    EpisodeEvent.EFFECT_SEEN: "positive proof: another boot, another instance, a finished job",
    EpisodeEvent.NO_EFFECT: "the repair failed, or showed no effect before its deadline",
    EpisodeEvent.HEALTHY_AGAIN: "a fresh report says that the node is healthy",
    EpisodeEvent.STILL_FAULTY: "a report newer than the repair shows the fault",
    EpisodeEvent.PROVED_HEALTHY: "healthy for the whole time asked for, and every deep check passed",
    EpisodeEvent.BOOTED_AGAIN: "the machine boots, or has booted, since it was proved: the new boot is proved",
    EpisodeEvent.MARK_CLEARED: "our mark is gone from the node, or the node itself is gone and its successor works",
    EpisodeEvent.PUT_BACK: "maintenance is not done and nothing was begun: train aborted, no time, or refused",
    EpisodeEvent.WIDENED: "the repair of one device becomes the node's: more fails, or a reset has not helped",
    EpisodeEvent.SKIP: "nothing was done to the node for maintenance, and it is in service",
    EpisodeEvent.LADDER_ENDED: "no repair is left or known, or the next one is not enabled",
    EpisodeEvent.GIVEN_UP: "a deadline, a limit of attempts or a person's refusal",
    EpisodeEvent.FAULT_GONE: "the fault ended before anything was done",
    EpisodeEvent.NODE_GONE: "the node is no longer in the cluster",
    EpisodeEvent.ABORT: "`nhc abort episode`",
}

_FORWARD: Dict[Tuple[EpisodeState, EpisodeEvent], EpisodeState] = {
    (EpisodeState.PLANNED, EpisodeEvent.MARK_ALLOWED): EpisodeState.MARKING,
    (EpisodeState.PLANNED, EpisodeEvent.SKIP): EpisodeState.SKIPPED,
    (EpisodeState.MARKING, EpisodeEvent.PUT_BACK): EpisodeState.RETURNING,
    (EpisodeState.MARKED, EpisodeEvent.PUT_BACK): EpisodeState.RETURNING,
    (EpisodeState.DRAINING, EpisodeEvent.PUT_BACK): EpisodeState.RETURNING,
    (EpisodeState.RECHECK, EpisodeEvent.PUT_BACK): EpisodeState.RETURNING,
    (EpisodeState.DRAINING, EpisodeEvent.NOTHING_TO_COLLECT): EpisodeState.RECHECK,
    (EpisodeState.DRAINING, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.WATCHING, EpisodeEvent.STEP_DONE): EpisodeState.MARKED,
    (EpisodeState.RETURNING, EpisodeEvent.SKIP): EpisodeState.SKIPPED,
    (EpisodeState.DETECTED, EpisodeEvent.MARK_ALLOWED): EpisodeState.MARKING,
    (EpisodeState.DETECTED, EpisodeEvent.FAULT_GONE): EpisodeState.WITHDRAWN,
    (EpisodeState.DETECTED, EpisodeEvent.MARK_REFUSED): EpisodeState.WITHDRAWN,
    (EpisodeState.DETECTED, EpisodeEvent.LADDER_ENDED): EpisodeState.ESCALATED,
    (EpisodeState.DETECTED, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.MARKING, EpisodeEvent.MARK_SET): EpisodeState.MARKED,
    (EpisodeState.MARKING, EpisodeEvent.MARK_REFUSED): EpisodeState.WITHDRAWN,
    (EpisodeState.MARKING, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.MARKED, EpisodeEvent.REPAIR_PLANNED): EpisodeState.DRAINING,
    (EpisodeState.MARKED, EpisodeEvent.LADDER_ENDED): EpisodeState.ESCALATED,
    (EpisodeState.MARKED, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.DRAINING, EpisodeEvent.DRAINED): EpisodeState.EVIDENCE,
    (EpisodeState.DRAINING, EpisodeEvent.DRAIN_OVERDUE): EpisodeState.ESCALATED,
    (EpisodeState.EVIDENCE, EpisodeEvent.COLLECTED): EpisodeState.RECHECK,
    (EpisodeState.RECHECK, EpisodeEvent.BUSY_AGAIN): EpisodeState.DRAINING,
    (EpisodeState.RECHECK, EpisodeEvent.APPROVAL_NEEDED): EpisodeState.AWAITING_APPROVAL,
    (EpisodeState.RECHECK, EpisodeEvent.CONFIRMED): EpisodeState.ACTING,
    (EpisodeState.RECHECK, EpisodeEvent.LADDER_ENDED): EpisodeState.ESCALATED,
    (EpisodeState.RECHECK, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.AWAITING_APPROVAL, EpisodeEvent.APPROVED): EpisodeState.RECHECK,
    (EpisodeState.AWAITING_APPROVAL, EpisodeEvent.DENIED): EpisodeState.ESCALATED,
    (EpisodeState.AWAITING_APPROVAL, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.ACTING, EpisodeEvent.SENT): EpisodeState.WATCHING,
    (EpisodeState.ACTING, EpisodeEvent.REFUSED): EpisodeState.MARKED,
    (EpisodeState.ACTING, EpisodeEvent.NOT_BEGUN): EpisodeState.RECHECK,
    (EpisodeState.WATCHING, EpisodeEvent.NOT_BEGUN): EpisodeState.RECHECK,
    (EpisodeState.WATCHING, EpisodeEvent.EFFECT_SEEN): EpisodeState.VERIFYING,
    (EpisodeState.WATCHING, EpisodeEvent.NO_EFFECT): EpisodeState.MARKED,
    (EpisodeState.WATCHING, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.VERIFYING, EpisodeEvent.STILL_FAULTY): EpisodeState.MARKED,
    (EpisodeState.VERIFYING, EpisodeEvent.PROVED_HEALTHY): EpisodeState.RETURNING,
    (EpisodeState.VERIFYING, EpisodeEvent.BOOTED_AGAIN): EpisodeState.VERIFYING,
    (EpisodeState.VERIFYING, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
    (EpisodeState.RETURNING, EpisodeEvent.MARK_CLEARED): EpisodeState.RETURNED,
    (EpisodeState.RETURNING, EpisodeEvent.STILL_FAULTY): EpisodeState.MARKED,
    (EpisodeState.RETURNING, EpisodeEvent.BOOTED_AGAIN): EpisodeState.VERIFYING,
    (EpisodeState.RETURNING, EpisodeEvent.MARK_LOST): EpisodeState.WITHDRAWN,
    (EpisodeState.RETURNING, EpisodeEvent.GIVEN_UP): EpisodeState.ESCALATED,
}


def _transitions() -> Dict[Tuple[EpisodeState, EpisodeEvent], EpisodeState]:
    transitions = dict(_FORWARD)
    for state in MARKED_BY_US & CANCELLABLE:
        transitions[state, EpisodeEvent.MARK_LOST] = EpisodeState.WITHDRAWN
        transitions[state, EpisodeEvent.WIDENED] = EpisodeState.MARKING
    for state in MARKED_BY_US & CANCELLABLE - {EpisodeState.VERIFYING}:
        transitions[state, EpisodeEvent.HEALTHY_AGAIN] = EpisodeState.VERIFYING
    for state in frozenset(EpisodeState) - ENDS - {EpisodeState.ACTING, EpisodeState.WATCHING}:
        transitions[state, EpisodeEvent.NODE_GONE] = EpisodeState.WITHDRAWN
    for state in frozenset(EpisodeState) - ENDS:
        transitions[state, EpisodeEvent.ABORT] = EpisodeState.ABORTED
    return transitions


TRANSITIONS: Mapping[Tuple[EpisodeState, EpisodeEvent], EpisodeState] = _transitions()


class BadTransition(Exception):
    """A state has no transition for this event: a mistake of the caller, and nothing may be done."""


def after(state: EpisodeState, event: EpisodeEvent) -> EpisodeState:
    """The state that an event leads to. Raises BadTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise BadTransition(f"an episode in {state.value} knows no {event.value}") from None


ATTEMPT_MEANING: Mapping[AttemptStatus, str] = {
    AttemptStatus.WRITTEN: "Written down with its key; not known to be sent.",
    AttemptStatus.SENT: "The other side accepted it. Its effect is looked for.",
    AttemptStatus.AMBIGUOUS: "No answer, or one that proves nothing. The effect is looked for; it is not sent again.",
    AttemptStatus.SUCCEEDED: "End. The effect was seen. Whether the node is healthy is another question.",
    AttemptStatus.FAILED: "End. The other side says so, or no effect was seen before the deadline.",
    AttemptStatus.REFUSED: "End. Proof that nothing was begun.",
    AttemptStatus.SUPERSEDED: "End. A person stopped the episode, or it ended, while the effect was looked for.",
}


def tables() -> str:
    """The tables of states and attempts in Markdown, as docs/remedy.md has them."""
    lines = ["| state | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {MEANING[state]} |" for state in EpisodeState]
    lines += ["", "| attempt | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {ATTEMPT_MEANING[state]} |" for state in AttemptStatus]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
