"""What one run of a collective over several nodes says: a figure, a proven failure, or nothing. Pure.

Its exit status alone proves nothing. A figure counts once the run is proved: one header, all ranks, the row of the
size that was asked for, every value checked, the last line, and data that travelled by the fabric.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple, Optional, Sequence, Tuple

from nhc.deep.group_test import GroupOutcome
from nhc.deep.rails import strayed
from nhc.marks.ports.group_launch import GroupOutput
from nhc.node.checks.deep_collective import NETWORKS, unproven, wrong_values
from nhc.node.facts.tools import collective

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
        printed = collective.parse(done.output)
    except ValueError as error:
        reason = "the tool was ended" if done.status >= KILLED else f"the output cannot be read: {error}"
        return MeasuredGroup(None, why=f"{reason} (status {done.status})")
    ranks = asked.tasks * len(nodes)
    hosts = {rank.host.partition(".")[0] for rank in printed.ranks}
    missing = tuple(node for node in nodes if node.partition(".")[0] not in hosts) if hosts else ()
    wrong = wrong_values(printed)
    if wrong:
        return MeasuredGroup(None, GroupOutcome.BAD, wrong)
    if done.status >= KILLED:
        return MeasuredGroup(None, why=f"the tool was ended (status {done.status})", missing=missing)
    if printed.broken and printed.headers == 1 and len(printed.ranks) == ranks:
        return MeasuredGroup(None, GroupOutcome.BAD, printed.broken)
    row = printed.row(asked.size)
    why = unproven(asked.collective, asked.size, ranks, printed, row)
    if why or row is None:
        failure = f"; {printed.failures[0]}" if printed.failures else ""
        return MeasuredGroup(None, why=f"no proof that the test ran: {why}{failure}", missing=missing)
    if done.status:
        return MeasuredGroup(None, why=f"the tool ended with status {done.status}")
    path = collective.transport(done.output)
    if asked.fabric and (path.fell_back or not path.names & NETWORKS):
        by = f"by {', '.join(sorted(path.names))}" if path.names else "in a way that nothing says (no NCCL INFO lines)"
        return MeasuredGroup(None, why=f"the data travelled {by}, not by the fabric")
    stray = strayed(done.output, rail) if asked.fabric else ""
    return MeasuredGroup(None, why=stray) if stray else MeasuredGroup(row.busbw)


def judged(values: Sequence[float], value: float, floor: float, share: float) -> Tuple[GroupOutcome, str]:
    """Whether a figure is good: against the floor, or, where that is 0, a share of the median of all such figures."""
    if floor:
        least, why = floor, f"at least {floor:g} expected"
    elif len(values) < FEW:
        return GroupOutcome.UNKNOWN, f"{value:g} GB/s: {len(values)} figures are too few to compare with: give a floor"
    else:
        middle = median(values)
        least, why = share * middle, f"below {share:.0%} of the median {middle:g}"
    return (GroupOutcome.GOOD, "") if value >= least else (GroupOutcome.BAD, f"{value:g} GB/s, {why}")


FEW = 4
"""Fewer figures than this have no median that one bad node among them would not move."""
