"""What one run of a collective over several nodes says: a figure, a proven failure, or nothing. Pure.

Its exit status alone proves nothing. A figure counts once the run is proved: one header, all ranks, the row of the
size that was asked for, every value checked, the last line, and data that travelled by the fabric.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

from nhc.checks.deep_collective import NETWORKS, unproven, wrong_values
from nhc.deep.group_test import GroupOutcome
from nhc.deep.rails import strayed
from nhc.facts.tools import collective
from nhc.ports.group_launch import GroupOutput

KILLED = 124
"""`timeout` says so of a command that it ended; 128 and more are signals."""


class AskedMeasurement(NamedTuple):
    """What is judged: the collective, the size in bytes, ranks on each node, whether the fabric has to be proved."""

    collective: str
    size: int
    tasks: int
    fabric: bool = True


class MeasuredGroup(NamedTuple):
    """`value` in GB/s where the run is proved; else `seen` is BAD or UNKNOWN, and `why` says it.

    `missing` are nodes without a rank in the output.
    """

    value: Optional[float]
    seen: GroupOutcome = GroupOutcome.UNKNOWN
    why: str = ""
    missing: Tuple[str, ...] = ()


def read(done: GroupOutput, nodes: Sequence[str], asked: AskedMeasurement, rail: str = "") -> MeasuredGroup:
    """What a run says. With a `rail` it must have gone by that one alone, where the way has to be proved."""
    try:
        found = collective.parse(done.output)
    except ValueError as error:
        said = "the tool was ended" if done.status >= KILLED else f"the output cannot be read: {error}"
        return MeasuredGroup(None, why=f"{said} (status {done.status})")
    ranks = asked.tasks * len(nodes)
    hosts = {rank.host.partition(".")[0] for rank in found.ranks}
    missing = tuple(node for node in nodes if node.partition(".")[0] not in hosts) if hosts else ()
    wrong = wrong_values(found)
    if wrong:
        return MeasuredGroup(None, GroupOutcome.BAD, wrong)
    if done.status >= KILLED:
        return MeasuredGroup(None, why=f"the tool was ended (status {done.status})", missing=missing)
    if found.broken and found.headers == 1 and len(found.ranks) == ranks:
        return MeasuredGroup(None, GroupOutcome.BAD, found.broken)
    row = found.row(asked.size)
    why = unproven(asked.collective, asked.size, ranks, found, row)
    if why or row is None:
        said = f"; {found.failures[0]}" if found.failures else ""
        return MeasuredGroup(None, why=f"no proof that the test ran: {why}{said}", missing=missing)
    if done.status:
        return MeasuredGroup(None, why=f"the tool ended with status {done.status}")
    path = collective.transport(done.output)
    names = path.names
    if asked.fabric and (path.fell_back or not names & NETWORKS):
        by = f"by {', '.join(sorted(names))}" if names else "in a way that nothing says (no NCCL INFO lines)"
        return MeasuredGroup(None, why=f"the data travelled {by}, not by the fabric")
    stray = strayed(done.output, rail) if asked.fabric else ""
    return MeasuredGroup(None, why=stray) if stray else MeasuredGroup(row.busbw)


def judged(values: Sequence[float], value: float, floor: float, share: float) -> Tuple[GroupOutcome, str]:
    """Whether a figure is good: against the floor, or, where that is 0, a share of the median of all such figures."""
    if floor:
        return (
            (GroupOutcome.GOOD, "")
            if value >= floor
            else (GroupOutcome.BAD, f"{value:g} GB/s, at least {floor:g} expected")
        )
    if len(values) < FEW:
        return GroupOutcome.UNKNOWN, f"{value:g} GB/s: {len(values)} figures are too few to compare with: give a floor"
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if value >= share * middle:
        return GroupOutcome.GOOD, ""
    return GroupOutcome.BAD, f"{value:g} GB/s, below {share:.0%} of the median {middle:g}"


FEW = 4
"""Fewer figures than this have no median that one bad node among them would not move."""
