"""Amazon's Elastic Fabric Adapters, as their driver shows them below /sys/class/infiniband.

They are called efa_0 by the kernel and rdmap16s27 by rdma-core's udev rules, so the driver tells, not the name.
Counters: drivers/infiniband/hw/efa/efa_verbs.c; the port's below ports/1/hw_counters, the device's below
hw_counters (all below the device before Linux 5.14).
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.ib_counters import EFA_LAYER, adapter, read_counters
from nhc.node.facts.infiniband import CLASS, Port, ports

if TYPE_CHECKING:
    from typing import Dict, Mapping, Tuple

TRAFFIC = ("rx_pkts", "rx_drops", "tx_pkts")
TROUBLE = (
    "no_completion_cmds", "cmds_err", "retrans_timeout_events", "unresponsive_remote_events",
    "impaired_remote_conn_events", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_pkts",
    "alloc_pd_err", "create_qp_err", "create_cq_err", "reg_mr_err", "create_ah_err", "mmap_err",
)  # fmt: skip


def devices(host: Host) -> Tuple[Port, ...]:
    """The port of each adapter."""
    return tuple(
        port
        for port in host.fact(ports)
        if adapter(host, port.device).driver == "efa" or port.device.startswith("efa_") or port.link_layer == EFA_LAYER
    )


def counters(host: Host, port: Port) -> Dict[str, int]:
    """The counters that the driver has; newer adapters have more."""
    names = (*TRAFFIC, *TROUBLE)
    of_device = host.numbers(f"{CLASS}/{port.device}/hw_counters", names)  # since Linux 5.14
    return {**of_device, **read_counters(host, port, names, "hw_counters")}


def unread_counters(host: Host, port: Port, read: Mapping[str, int]) -> Dict[str, str]:
    """Why counters of trouble that are there and not among those `read` cannot be read, by name."""
    missing = [name for name in TROUBLE if name not in read]
    of_port = f"{CLASS}/{port.device}/ports/{port.port}/hw_counters"
    return {**host.unread(f"{CLASS}/{port.device}/hw_counters", missing), **host.unread(of_port, missing)}


def functions(host: Host) -> int:
    """How many adapters are on the PCI bus, whether or not the driver shows them: Amazon's efa0 to efa3, and newer
    ones that the driver knows.
    """
    from nhc.node.facts.pci_index import INDEX, parse_index

    listed = parse_index(host.read_or(INDEX))
    return sum((vendor, device) in IDS or driver == "efa" for _place, vendor, device, _memory, driver in listed)


IDS = tuple((0x1D0F, 0xEFA0 + number) for number in range(4))
