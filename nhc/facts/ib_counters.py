"""Counters of RDMA ports: link errors, transport errors, traffic; and what adapters say of themselves.

`ports/N/counters` are the subnet management's port counters (InfiniBand Architecture Specification,
PortCounters), `ports/N/hw_counters` the driver's own: the kernel's
Documentation/ABI/stable/sysfs-class-infiniband lists both.
"""

from __future__ import annotations

import re

from nhc.facts.infiniband import CLASS, Port, ports
from nhc.host import Host
from nhc.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, Optional, Sequence, Tuple

CEILING: Dict[str, int] = {
    "symbol_error": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "port_rcv_errors": 0xFFFF,
    "port_rcv_remote_physical_errors": 0xFFFF,
    "port_rcv_switch_relay_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "port_xmit_constraint_errors": 0xFF,
    "port_rcv_constraint_errors": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
    "VL15_dropped": 0xFFFF,
}
"""Where the specification's counters stop: they do not wrap, so one that is full no longer tells anything."""

EFA_LAYER = "Unknown"
"""What sysfs calls the link layer of Amazon's Elastic Fabric Adapter, which is neither InfiniBand nor Ethernet."""

_COUNT = re.compile(r"\d{1,20}")


class RdmaAdapter(NamedTuple):
    """An RDMA device as it describes itself; a field is empty where it says nothing.

    `board` names the model (Mellanox' PSID, as MT_0000000838), `driver` the kernel's.
    """

    name: str
    firmware: str
    board: str
    model: str
    node_guid: str
    driver: str


def number(text: str) -> Optional[int]:
    """A counter's value; None for text that is none (`N/A (no PMA)`)."""
    text = text.strip()
    return int(text) if _COUNT.fullmatch(text) else None


def read_counters(host: Host, port: Port, names: Sequence[str], group: str = "counters") -> Dict[str, int]:
    """Those of the named counters that the port has and that could be read."""
    base = f"{CLASS}/{port.device}/ports/{port.port}/{group}"
    found: Dict[str, int] = {}
    for name in names:
        value = number(host.read_or(f"{base}/{name}"))
        if value is not None:
            found[name] = value
    return found


def device_counters(host: Host, device: str, names: Sequence[str]) -> Dict[str, int]:
    """Counters that a driver keeps for a device as a whole (EFA's, since Linux 5.14)."""
    found: Dict[str, int] = {}
    for name in names:
        value = number(host.read_or(f"{CLASS}/{device}/hw_counters/{name}"))
        if value is not None:
            found[name] = value
    return found


def adapter(host: Host, device: str) -> RdmaAdapter:
    base = f"{CLASS}/{device}"
    try:
        driver = host.readlink(f"{base}/device/driver").rsplit("/", 1)[-1]
    except OSError:
        driver = ""
    return RdmaAdapter(
        device,
        host.read_or(f"{base}/fw_ver"),
        host.read_or(f"{base}/board_id"),
        host.read_or(f"{base}/hca_type"),
        host.read_or(f"{base}/node_guid"),
        driver,
    )


def adapters(host: Host) -> Tuple[RdmaAdapter, ...]:
    """Every RDMA device with a port."""
    return tuple(adapter(host, name) for name in dict.fromkeys(port.device for port in host.fact(ports)))


def gids(host: Host, port: Port, limit: int = 256) -> Dict[int, str]:
    """The port's addresses by index, the empty ones left out."""
    base = f"{CLASS}/{port.device}/ports/{port.port}/gids"
    try:
        names = host.listdir(base)
    except OSError:
        return {}
    found: Dict[int, str] = {}
    for index in sorted(int(name) for name in names if name.isdigit())[:limit]:
        gid = host.read_or(f"{base}/{index}")
        if gid.replace(":", "").strip("0"):
            found[index] = gid
    return found


def gid_type(host: Host, port: Port, index: int) -> str:
    """`IB/RoCE v1` or `RoCE v2`; "" where the kernel gives none."""
    return host.read_or(f"{CLASS}/{port.device}/ports/{port.port}/gid_attrs/types/{index}")
