"""RDMA ports (InfiniBand, RoCE, iWARP, Omni-Path) as the kernel shows them below /sys/class/infiniband.

Formats: the kernel's Documentation/ABI/stable/sysfs-class-infiniband. Nothing here asks the hardware;
reading `state` and `rate` costs a query of the driver's cache, so it does not hang if a port is gone.

sysfs has the current rate of a port, not the highest it supports: that is in PortInfo, as smpquery(8) of
infiniband-diags prints it.

Amazon's Elastic Fabric Adapters are called efa_0 by the kernel and rdmap16s27 by rdma-core's udev rules, so they are
recognised by the driver, not by the name. Their counters: drivers/infiniband/hw/efa/efa_verbs.c; the port's below
ports/1/hw_counters, the device's below hw_counters (all below the device before Linux 5.14).

Counters tell link errors, transport errors and traffic: `ports/N/counters` are the subnet management's port counters
(InfiniBand Architecture Specification, PortCounters), `ports/N/hw_counters` the driver's own: the kernel's
Documentation/ABI/stable/sysfs-class-infiniband lists both.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

CLASS = "/sys/class/infiniband"

_DIGITS = regex(r"(\d+)")
_NUMBERED = regex(r"\s*\d+\s*:\s*(\S+)")
_RATE = regex(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec")


class Port(NamedTuple):
    """One port of an RDMA device.

    `state` is the logical link (`ACTIVE`, `INIT`, `DOWN` ...), `phys_state` the physical one (`LinkUp`,
    `Polling`, `Disabled` ...), both empty if the kernel gave none. `rate_gbps` is None if the driver
    could not name the rate (a kernel older than the link's speed answers EINVAL). `link_layer` is
    `InfiniBand` or `Ethernet`. `netdev` is the network interface on this port, empty if there is
    none. `counters` is the directory with the port's error counters. `unread` has why `state`, `phys_state`, `rate` or
    `link_layer` is there and cannot be read.
    """

    device: str
    port: int
    state: str
    phys_state: str
    rate_gbps: Optional[float]
    link_layer: str
    netdev: str
    counters: str
    unread: Mapping[str, str] = {}

    @property
    def name(self) -> str:
        """`mlx5_0:1`, the usual name of a port."""
        return f"{self.device}:{self.port}"

    def fault(self, rate: Optional[float] = None) -> str:
        """What is wrong with it if it should run at `rate` Gb/s: its state, or both rates; the same on each node."""
        if self.up and self.rate_gbps is not None and rate is not None:
            return f"{self.name} {self.rate_gbps:g} of {rate:g} Gb/s"
        return f"{self.name} {'rate unknown' if self.up else self.state or 'state unknown'}"

    @property
    def label(self) -> str:
        """The name of the link in logs: the network interface's if it has one, else the port's."""
        return self.netdev or self.name

    @property
    def state_unread(self) -> str:
        """Why nothing is known of the link's state: `state: Input/output error (EIO)`; "" if it is known."""
        return next((f"{leaf}: {self.unread[leaf]}" for leaf in ("state", "phys_state") if leaf in self.unread), "")

    @property
    def up(self) -> bool:
        """Whether the link carries traffic."""
        return self.state == "ACTIVE" and self.phys_state == "LinkUp"


def parse_state(text: str) -> str:
    """The name in `4: ACTIVE` or `5: LinkUp`; empty if the text is not of that form."""
    match = _NUMBERED.match(text)
    return match[1] if match else ""


def parse_rate(text: str) -> Optional[float]:
    """The number in `400 Gb/sec (4X NDR)`, None if the text is not of that form."""
    match = _RATE.match(text)
    return float(match[1]) if match else None


def ports(host: Host) -> Tuple[Port, ...]:
    """Every RDMA port, by device and number; none if the kernel has no RDMA devices."""
    try:
        devices = host.listdir(CLASS)
    except FileNotFoundError:
        return ()
    listed: List[Port] = []
    for device in sorted(devices, key=_natural):
        names = host.names(f"{CLASS}/{device}/ports")  # none if the device went away between the two calls
        numbers = sorted(int(name) for name in names if name.isdigit())
        listed.extend(_port(host, device, number) for number in numbers)
    return tuple(listed)


def addresses(host: Host) -> Tuple[str, ...]:
    """The PCI addresses of the RDMA devices, each once; devices without a PCI bus (soft RoCE) have none."""
    from nhc.node.facts.pci import ADDRESS

    places = (host.realpath(f"{CLASS}/{device}/device").rpartition("/")[2] for device in host.names(CLASS))
    return tuple(dict.fromkeys(place for place in places if ADDRESS.fullmatch(place)))


VERBS = "/sys/class/infiniband_verbs"


def without_verbs(host: Host) -> Dict[str, str]:
    """RDMA devices that no program can open, each with what is missing: without a uverbs device it cannot be used.

    Empty if the kernel shows no such devices at all, and in a container, whose /dev has what was put into it
    (its /dev is a tmpfs; a node's is a devtmpfs, where the kernel itself makes /dev/infiniband/uverbsN).
    """
    devices = host.names(CLASS)
    names = host.names(VERBS)
    of_device = {host.read_or(f"{VERBS}/{name}/ibdev"): name for name in names if name.startswith("uverbs")}
    for device in devices:
        for name in host.names(f"{CLASS}/{device}/device/infiniband_verbs"):
            of_device.setdefault(device, name)
    made = host.names("/dev/infiniband")
    if not (of_device or made) or _in_container(host):
        return {}
    if not of_device and not any(name.startswith("uverbs") for name in made):
        return dict.fromkeys(devices, "the module ib_uverbs is not loaded")
    missing: Dict[str, str] = {}
    for device in devices if of_device else ():
        known = of_device.get(device)
        if known is None:
            missing[device] = f"{VERBS} has none for it"
        elif not host.exists(f"/dev/infiniband/{known}"):
            missing[device] = f"there is no /dev/infiniband/{known}"
    return missing


def _in_container(host: Host) -> bool:
    from nhc.node.facts.mounts import at, mounts

    try:
        mount = at(mounts(host), "/dev")
    except OSError:
        return False
    return mount is not None and mount.type == "tmpfs"


def _port(host: Host, device: str, number: int) -> Port:
    base = f"{CLASS}/{device}/ports/{number}"
    told = {leaf: host.read_or(f"{base}/{leaf}") for leaf in ("state", "phys_state", "rate", "link_layer")}
    unread = {leaf: host.why_unread(f"{base}/{leaf}") for leaf, text in told.items() if not text}
    return Port(
        device,
        number,
        parse_state(told["state"]),
        parse_state(told["phys_state"]),
        parse_rate(told["rate"]),
        told["link_layer"],
        _netdev(host, device, number),
        f"{base}/counters",
        {leaf: why for leaf, why in unread.items() if why},
    )


def _netdev(host: Host, device: str, number: int) -> str:
    """The interface on a port.

    RoCE names it in the first entry of the GID table. IPoIB does not: there it is the interface below
    the same PCI device whose dev_port, counted from 0, is this port.
    """
    direct = host.read_or(f"{CLASS}/{device}/ports/{number}/gid_attrs/ndevs/0")
    if direct:
        return direct
    directory, place = f"{CLASS}/{device}/device/net", str(number - 1)
    names = host.names(directory)
    return next((name for name in names if host.read_or(f"{directory}/{name}/dev_port", "0") == place), "")


def _natural(name: str) -> Tuple[Tuple[int, str], ...]:
    """mlx5_2 before mlx5_10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name))


# Data rate of one lane in Gb/s by the signalling rate that smpquery prints (IBA volume 1, PortInfo): from FDR
# on 64b/66b coding, which the field's names for rates leave out (a 4X EDR link is "100 Gb/sec").
LANE = {"2.5": 2.5, "5.0": 5.0, "10.0": 10.0, "14.0625": 14.0, "25.78125": 25.0, "53.125": 50.0, "106.25": 100.0,
        "212.5": 200.0}  # fmt: skip

_LINE = regex(r"(\w+):\.+(.*)")
_WIDTH = regex(r"(\d+)X")
_SPEED = regex(r"(\d+(?:\.\d+)?) Gbps")


def parse_portinfo(text: str) -> Optional[float]:
    """The best data rate in Gb/s that a port supports; None if the text does not tell."""
    fields: Dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match:
            fields[match[1]] = match[2]
    widths = [int(value) for value in _WIDTH.findall(fields.get("LinkWidthSupported", ""))]
    speeds = [
        LANE[value]
        for name in ("LinkSpeedSupported", "LinkSpeedExtSupported", "LinkSpeedExtSupported2")
        for value in _SPEED.findall(fields.get(name, ""))
        if value in LANE
    ]
    if not widths or not speeds:
        return None
    # Adapters list the widths that they can be split into: 4X is the most that one port of a node uses.
    return min(max(widths), 4) * max(speeds)


def best_rate(host: Host, port: Port) -> Optional[float]:
    """The best rate that an InfiniBand port supports, None if nothing tells."""
    if port.link_layer != "InfiniBand" or not host.which("smpquery"):
        return None
    try:
        ended = host.run(["smpquery", "-C", port.device, "-P", str(port.port), "-D", "portinfo", "0"], timeout=3)
    except OSError:
        return None
    return parse_portinfo(ended.stdout) if ended.status == 0 else None


TRAFFIC = ("rx_pkts", "rx_drops", "tx_pkts")
TROUBLE = (
    "no_completion_cmds", "cmds_err", "retrans_timeout_events", "unresponsive_remote_events",
    "impaired_remote_conn_events", "rdma_read_wr_err", "rdma_write_wr_err", "retrans_pkts",
    "alloc_pd_err", "create_qp_err", "create_cq_err", "reg_mr_err", "create_ah_err", "mmap_err",
)  # fmt: skip


def efa_devices(host: Host) -> Tuple[Port, ...]:
    """The port of each adapter."""
    return tuple(
        port
        for port in host.fact(ports)
        if adapter(host, port.device).driver == "efa" or port.device.startswith("efa_") or port.link_layer == EFA_LAYER
    )


def efa_counters(host: Host, port: Port) -> Dict[str, int]:
    """The counters that the driver has; newer adapters have more."""
    names = (*TRAFFIC, *TROUBLE)
    of_device = host.numbers(f"{CLASS}/{port.device}/hw_counters", names)  # since Linux 5.14
    return {**of_device, **read_counters(host, port, names, "hw_counters")}


def unread_efa_counters(host: Host, port: Port, read: Mapping[str, int]) -> Dict[str, str]:
    """Why counters of trouble that are there and not among those `read` cannot be read, by name."""
    missing = [name for name in TROUBLE if name not in read]
    of_port = f"{CLASS}/{port.device}/ports/{port.port}/hw_counters"
    return {**host.unread(f"{CLASS}/{port.device}/hw_counters", missing), **host.unread(of_port, missing)}


def efa_functions(host: Host) -> int:
    """How many adapters are on the PCI bus, whether or not the driver shows them: Amazon's efa0 to efa3, and newer
    ones that the driver knows.
    """
    from nhc.node.facts.pci_index import INDEX, parse_index

    listed = parse_index(host.read_or(INDEX))
    return sum((vendor, device) in EFA_IDS or driver == "efa" for _place, vendor, device, _memory, driver in listed)


EFA_IDS = tuple((0x1D0F, 0xEFA0 + number) for number in range(4))


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
"""The highest value of the specification's counters: they do not wrap, so a full one no longer counts."""

EFA_LAYER = "Unknown"
"""What sysfs calls the link layer of Amazon's Elastic Fabric Adapter, which is neither InfiniBand nor Ethernet."""


class RdmaAdapter(NamedTuple):
    """An RDMA device as it describes itself; a field is empty if it says nothing.

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
    """`IB/RoCE v1` or `RoCE v2`; "" if the kernel gives none."""
    return host.read_or(f"{CLASS}/{port.device}/ports/{port.port}/gid_attrs/types/{index}")
