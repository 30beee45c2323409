"""What one run of a collective over several nodes says: a figure, a proven failure, or nothing. Pure.

Its exit status alone proves nothing. A figure counts once the run is proved: one header, all ranks, the row of the
size that was asked for, every value checked, the last line, and data that travelled by the fabric.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Callable, Dict, FrozenSet, NamedTuple, Optional, Sequence, Tuple

from nhc.deep.group_test import GroupOutcome
from nhc.node.checks import deep_collective
from nhc.node.checks.deep_collective import NETWORKS, unproven, wrong_values

# How a tool is restricted to one rail: the variables that it reads, and the proof that it went that way. Pure.
#
# A rail is an adapter by its name, the same on each node: mlx5_3, or an interface as eth3. Sources: NCCL's
# documentation of NCCL_IB_HCA and NCCL_SOCKET_IFNAME ("=" before a name: exactly this one), UCX's of UCX_NET_DEVICES
# (device:port), Open MPI's of btl_tcp_if_include.


def _hca(rail: str) -> Tuple[str, ...]:
    # Without NCCL_CROSS_NIC=0 rings may change rails between nodes; there is but one here, and it says so.
    return (f"NCCL_IB_HCA=={rail}", f"UCX_NET_DEVICES={rail if ':' in rail else f'{rail}:1'}", "NCCL_CROSS_NIC=0")


def _interface(rail: str) -> Tuple[str, ...]:
    return ("NCCL_IB_DISABLE=1", f"NCCL_SOCKET_IFNAME=={rail}", f"UCX_NET_DEVICES={rail}",
            f"OMPI_MCA_btl_tcp_if_include={rail}")  # fmt: skip


WAYS: Dict[str, Callable[[str], Tuple[str, ...]]] = {"hca": _hca, "interface": _interface}
"""`hca`: RDMA adapters, for nccl-tests, rccl-tests and UCX's perftest; `interface`: network interfaces, for sockets."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_USING = re.compile(r"NET/(?:IB|Socket|gIB)\s*: Using (.*)")
_DEVICE = re.compile(r"\[\d+\]([A-Za-z0-9_.-]+)")


def held(argv: Sequence[str], rail: str, way: str) -> Tuple[str, ...]:
    """The command that runs on this rail alone; as it is where there is none. Raises KeyError for an unknown way."""
    if not rail:
        return tuple(argv)
    variables = WAYS[way](rail)
    # env(1) takes the last of a name: what is asked for comes after what the command sets itself.
    if argv and argv[0] == "env":
        at = next((place for place, argument in enumerate(argv[1:], 1) if "=" not in argument), len(argv))
        return (*argv[:at], *variables, *argv[at:])
    return ("env", *variables, *argv)


def used(output: str) -> FrozenSet[str]:
    """The adapters or interfaces that NCCL names: `NET/IB : Using [0]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`."""
    adapters = set()
    for match in _USING.finditer(output):
        adapters.update(_DEVICE.findall(match[1].partition("OOB")[0]))
    return frozenset(adapters)


def strayed(output: str, rail: str) -> str:
    """Why a run proves nothing about this rail, "" where it does: it used another one as well, or names none."""
    names = used(output)
    if not rail or names == {rail.partition(":")[0]}:
        return ""
    if not names:
        return f"nothing says by which adapter the data travelled (no NCCL INFO lines): rail {rail} is not proved"
    return f"the data travelled by {', '.join(sorted(names))}, not by rail {rail} alone"


KILLED = 124
"""`timeout` says so of a command that it ended; 128 and more are signals."""


class AskedMeasurement(NamedTuple):
    """What is judged: the collective, the size in bytes, ranks on each node, whether the fabric has to be proved."""

    collective: str
    size: int
    tasks: int
    fabric: bool = True


class GroupOutput(NamedTuple):
    """A test that came to its end: the tool's exit status, and what it printed."""

    status: int
    output: str


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
        printed = deep_collective.parse_collective(done.output)
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
    path = deep_collective.transport(done.output)
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
