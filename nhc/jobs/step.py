"""Chooses the nodes of an allocation for a job step's next run, after a node has failed it. Pure."""

from __future__ import annotations

from typing import AbstractSet, Mapping, NamedTuple, Sequence, Tuple, Union


class StepNodes(NamedTuple):
    """Run it on these nodes. `why` is what failed it before, "" for the first time."""

    nodes: Tuple[str, ...]
    why: str = ""


class StepEnds(NamedTuple):
    """It is not run again, and why."""

    why: str


def next_step(
    allocated: Sequence[str], wanted: int, used: Sequence[str], failed: AbstractSet[str], faults: Mapping[str, str],
    restarts: int, most: int,
) -> Union[StepNodes, StepEnds]:  # fmt: skip
    """The next step, or why there is none. `used` are the nodes of the last one, `failed` all that failed one."""
    guilty = [node for node in used if node in failed]
    why = "; ".join(f"{node}: {faults.get(node, 'it failed the step before')}" for node in guilty)
    if used and not guilty:
        return StepEnds("its nodes are healthy")
    if used and restarts >= most:
        return StepEnds(f"{restarts} of {most} restarts are used up ({why})")
    usable = [node for node in allocated if node not in failed]
    if len(usable) < wanted:
        return StepEnds(f"it needs {wanted} healthy nodes, and the allocation has {len(usable)}")
    stay = [node for node in used if node in usable]
    return StepNodes(tuple([*stay, *(node for node in usable if node not in stay)][:wanted]), why)
