"""The states of a train, as a table. Pure. Its nodes are episodes, with the states of `nhc.remedy.machine`."""

from __future__ import annotations

from enum import Enum
from typing import Dict, FrozenSet, List, Mapping

from nhc.remedy.machine import EpisodeState


class TrainState(str, Enum):
    """Where a train is. The last two are ends."""

    PLANNED = "planned"
    RUNNING = "running"
    HELD = "held"
    STOPPED = "stopped"
    ABORTING = "aborting"
    DONE = "done"
    ABORTED = "aborted"


TRAIN_ENDS: FrozenSet[TrainState] = frozenset({TrainState.DONE, TrainState.ABORTED})

TRAIN_MEANING: Mapping[TrainState, str] = {
    TrainState.PLANNED: "Written down; persons must agree before it begins.",
    TrainState.RUNNING: "Nodes begin, wave by wave, as the bounds allow.",
    TrainState.HELD: "A person holds it: no node begins and no work begins. Nodes that are at work are finished.",
    TrainState.STOPPED: "Too many nodes failed. As held, until a person resumes or aborts it.",
    TrainState.ABORTING: "A person aborts it: no work begins; nodes that are at work are finished, others put back.",
    TrainState.DONE: "End. Every node is done with.",
    TrainState.ABORTED: "End. A person aborted it, and no node is at work any more.",
}


def tables() -> str:
    """The table in Markdown, as docs/maintenance.md has them."""
    lines = ["| train | meaning |", "|---|---|"]
    lines += [f"| `{state.value}` | {TRAIN_MEANING[state]} |" for state in TrainState]
    return "\n".join(lines) + "\n"


def by_state(states: List[str]) -> Dict[str, int]:
    """How many nodes are in each state, in the order of the states."""
    return {state.value: states.count(state.value) for state in EpisodeState if state.value in states}


if __name__ == "__main__":
    print(tables(), end="")
