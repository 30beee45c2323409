"""How a tool is restricted to one rail: the variables that it reads, and the proof that it went that way. Pure.

A rail is an adapter by its name, the same on each node: mlx5_3, or an interface as eth3. Sources: NCCL's documentation
of NCCL_IB_HCA and NCCL_SOCKET_IFNAME ("=" before a name: exactly this one), UCX's of UCX_NET_DEVICES (device:port),
Open MPI's of btl_tcp_if_include.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, FrozenSet, Sequence, Tuple


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
