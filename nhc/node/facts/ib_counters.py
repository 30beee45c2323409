"""Counters of RDMA ports: link errors, transport errors, traffic; and what adapters say of themselves.

`ports/N/counters` are the subnet management's port counters (InfiniBand Architecture Specification,
PortCounters), `ports/N/hw_counters` the driver's own: the kernel's
Documentation/ABI/stable/sysfs-class-infiniband lists both.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.infiniband import CLASS, Port

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, Sequence

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


def read_counters(host: Host, port: Port, names: Sequence[str], group: str = "counters") -> Dict[str, int]:
    """Those of the named counters that the port has and that could be read (not `N/A (no PMA)`)."""
    return host.numbers(_directory(port, group), names)


def unread_counters(host: Host, port: Port, names: Sequence[str], group: str = "counters") -> Dict[str, str]:
    """Why those of the named counters that are there cannot be read, by name."""
    return host.unread(_directory(port, group), names)


def _directory(port: Port, group: str) -> str:
    return f"{CLASS}/{port.device}/ports/{port.port}/{group}"


def adapter(host: Host, device: str) -> RdmaAdapter:
    base = f"{CLASS}/{device}"
    firmware, board, model, guid = (
        host.read_or(f"{base}/{x}") for x in ("fw_ver", "board_id", "hca_type", "node_guid")
    )
    return RdmaAdapter(device, firmware, board, model, guid, host.link_name(f"{base}/device/driver"))


def gids(host: Host, port: Port, limit: int = 256) -> Dict[int, str]:
    """The port's addresses by index, the empty ones left out."""
    base = f"{CLASS}/{port.device}/ports/{port.port}/gids"
    addresses: Dict[int, str] = {}
    for index in sorted(int(name) for name in host.names(base) if name.isdigit())[:limit]:
        gid = host.read_or(f"{base}/{index}")
        if gid.replace(":", "").strip("0"):
            addresses[index] = gid
    return addresses


def pkeys(host: Host, port: Port) -> FrozenSet[int]:
    """The port's partition keys, the empty places of the table left out."""
    base = f"{CLASS}/{port.device}/ports/{port.port}/pkeys"
    texts = (host.read_or(f"{base}/{index}") for index in host.names(base))
    return frozenset(filter(None, (int(text, 16) for text in texts if text[:2] == "0x")))


def gid_type(host: Host, port: Port, index: int) -> str:
    """`IB/RoCE v1` or `RoCE v2`; "" where the kernel gives none."""
    return host.read_or(f"{CLASS}/{port.device}/ports/{port.port}/gid_attrs/types/{index}")
