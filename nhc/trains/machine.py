"""The states of a node in a train, as tables. Pure.

Each state is in the store before what it says is done: MARKING before the mark is set, ACTING before the work is begun,
RETURNING before the mark is cleared. Work that is found in ACTING by another process may have been begun; it is watched
and never begun again. `docs/maintenance.md` shows these tables.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, FrozenSet, List, Mapping, Tuple


class TrainState(str, Enum):
    """Where a train is. The last two are ends."""

    PLANNED = "planned"
    RUNNING = "running"
    HELD = "held"
    STOPPED = "stopped"
    ABORTING = "aborting"
    DONE = "done"
    ABORTED = "aborted"


class Stop(str, Enum):
    """Where a node of a train is. The last four are ends."""

    WAITING = "waiting"
    MARKING = "marking"
    DRAINING = "draining"
    ACTING = "acting"
    WATCHING = "watching"
    VERIFYING = "verifying"
    RETURNING = "returning"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    LEFT = "left"


TRAIN_ENDS: FrozenSet[TrainState] = frozenset({TrainState.DONE, TrainState.ABORTED})
STOP_ENDS: FrozenSet[Stop] = frozenset({Stop.DONE, Stop.SKIPPED, Stop.FAILED, Stop.LEFT})
"""States in which a node is done with; nothing leads out of them."""

AT_WORK: FrozenSet[Stop] = frozenset({Stop.ACTING, Stop.WATCHING, Stop.VERIFYING})
"""States that count against the bounds on repairs at one time."""

TRAIN_MEANING: Mapping[TrainState, str] = {
    TrainState.PLANNED: "Written down; persons must agree before it begins.",
    TrainState.RUNNING: "Nodes begin, wave by wave, as the bounds allow.",
    TrainState.HELD: "A person holds it: no node begins and no work begins. Nodes that are at work are finished.",
    TrainState.STOPPED: "Too many nodes failed. As held, until a person resumes or aborts it.",
    TrainState.ABORTING: "A person aborts it: no work begins; nodes that are at work are finished, others put back.",
    TrainState.DONE: "End. Every node is done with.",
    TrainState.ABORTED: "End. A person aborted it, and no node is at work any more.",
}

STOP_MEANING: Mapping[Stop, str] = {
    Stop.WAITING: "Its turn has not come, or a bound has no room.",
    Stop.MARKING: "Written down: the mark is about to be set. A hold keeps the remedy loop off the node.",
    Stop.DRAINING: "Our mark stands. Running work may end; then everything is read again.",
    Stop.ACTING: "Written down, with its key: work is about to begin, or was being begun when we stopped.",
    Stop.WATCHING: "Work was begun, or may have been. Its effect is looked for; it is not begun again.",
    Stop.VERIFYING: "Waiting for a report newer than the work, and for the node to stay healthy for a time.",
    Stop.RETURNING: "Written down: our mark is about to be cleared.",
    Stop.DONE: "End. Everything was done, and the node is back in service.",
    Stop.SKIPPED: "End. No work was begun on it, or nothing beyond what is said; it is in service as before.",
    Stop.FAILED: "End. It stays out of service: work failed, or the node is not healthy after it.",
    Stop.LEFT: "End. Somebody else has taken the node in hand; its mark and its state are theirs.",
}

TRANSITIONS: Mapping[Tuple[Stop, Stop], str] = {
    (Stop.WAITING, Stop.MARKING): "its wave has begun and every bound has room",
    (Stop.WAITING, Stop.SKIPPED): "it is faulty, out of service, unknown or in an episode; or the train is aborted",
    (Stop.MARKING, Stop.DRAINING): "the node carries our mark",
    (Stop.MARKING, Stop.LEFT): "the mark is not ours to set, or a person ended the hold",
    (Stop.MARKING, Stop.RETURNING): "the train is aborted, or the mark could not be set for too long",
    (Stop.DRAINING, Stop.ACTING): "idle, ours, nobody else at work, room in every bound",
    (Stop.DRAINING, Stop.LEFT): "our mark or our hold is gone, an episode has the node, or it is faulty by now",
    (Stop.DRAINING, Stop.RETURNING): "work did not end in time, or the train is aborted: put back as it was",
    (Stop.DRAINING, Stop.FAILED): "the train is aborted between two pieces of work, or the next one is refused",
    (Stop.ACTING, Stop.WATCHING): "the answer is an acceptance, or is ambiguous",
    (Stop.ACTING, Stop.DRAINING): "proof that nothing was begun, and it may be asked again",
    (Stop.ACTING, Stop.RETURNING): "proof that nothing was begun, with the first piece of work",
    (Stop.ACTING, Stop.FAILED): "proof that nothing was begun, after other work had been done",
    (Stop.WATCHING, Stop.DRAINING): "the effect was seen, and there is more work",
    (Stop.WATCHING, Stop.VERIFYING): "the effect was seen, and it was the last",
    (Stop.WATCHING, Stop.FAILED): "the work failed, or showed no effect in time",
    (Stop.VERIFYING, Stop.RETURNING): "healthy for the whole time asked for, and the deep suite passed",
    (Stop.VERIFYING, Stop.FAILED): "a report newer than the work shows a fault, or none came in time",
    (Stop.VERIFYING, Stop.LEFT): "our mark or our hold is gone",
    (Stop.RETURNING, Stop.DONE): "our mark is gone, and everything was done",
    (Stop.RETURNING, Stop.SKIPPED): "our mark is gone, and nothing was done",
    (Stop.RETURNING, Stop.LEFT): "somebody else has marked it",
    (Stop.RETURNING, Stop.FAILED): "the mark could not be cleared for too long",
}


def allowed(before: Stop, following: Stop) -> bool:
    """Whether a node may go from one state to the other."""
    return (before, following) in TRANSITIONS


def tables() -> str:
    """The tables in Markdown, as docs/maintenance.md has them."""
    lines = ["| train | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {TRAIN_MEANING[state]} |" for state in TrainState]
    lines += ["", "| node | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {STOP_MEANING[state]} |" for state in Stop]
    lines += ["", "| in | when | next |", "|---|---|---|"]
    lines += [f"| `{one.value}` | {why} | `{two.value}` |" for (one, two), why in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"


def by_state(states: List[str]) -> Dict[str, int]:
    """How many nodes are in each state, in the order of the states."""
    return {one.value: states.count(one.value) for one in Stop if one.value in states}


if __name__ == "__main__":
    print(tables(), end="")
