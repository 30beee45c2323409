"""RDMA ports (InfiniBand, RoCE, iWARP, Omni-Path) as the kernel shows them below /sys/class/infiniband.

Formats: the kernel's Documentation/ABI/stable/sysfs-class-infiniband. Nothing here asks the hardware;
reading `state` and `rate` costs a query of the driver's cache, so a port that is gone does not hang it.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple, regex

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

CLASS = "/sys/class/infiniband"

_DIGITS = regex(r"(\d+)")
_NUMBERED = regex(r"\s*\d+\s*:\s*(\S+)")
_RATE = regex(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec")


class Port(NamedTuple):
    """One port of an RDMA device.

    `state` is the logical link (`ACTIVE`, `INIT`, `DOWN` ...), `phys_state` the physical one (`LinkUp`,
    `Polling`, `Disabled` ...), both empty where the kernel gave none. `rate_gbps` is None where the driver
    could not name the rate (a kernel older than the link's speed answers EINVAL). `link_layer` is
    `InfiniBand` or `Ethernet`. `netdev` is the network interface on this port, empty where there is
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
        """`mlx5_0:1`, the way the field writes a port."""
        return f"{self.device}:{self.port}"

    def fault(self, rate: Optional[float] = None) -> str:
        """What is wrong with it where it is to run at `rate` Gb/s: its state, or both rates; the same on each node."""
        if self.up and self.rate_gbps is not None and rate is not None:
            return f"{self.name} {self.rate_gbps:g} of {rate:g} Gb/s"
        return f"{self.name} {'rate unknown' if self.up else self.state or 'state unknown'}"

    @property
    def label(self) -> str:
        """What logs call the link: the network interface's name where it has one, else the port's."""
        return self.netdev or self.name

    @property
    def state_unread(self) -> str:
        """Why nothing is known of the link's state: `state: Input/output error (EIO)`; "" where it is known."""
        return next((f"{leaf}: {self.unread[leaf]}" for leaf in ("state", "phys_state") if leaf in self.unread), "")

    @property
    def up(self) -> bool:
        """Whether the link carries traffic."""
        return self.state == "ACTIVE" and self.phys_state == "LinkUp"


def parse_state(text: str) -> str:
    """The name in `4: ACTIVE` or `5: LinkUp`; empty where the text is not of that form."""
    match = _NUMBERED.match(text)
    return match[1] if match else ""


def parse_rate(text: str) -> Optional[float]:
    """The number in `400 Gb/sec (4X NDR)`, None where the text is not of that form."""
    match = _RATE.match(text)
    return float(match[1]) if match else None


def ports(host: Host) -> Tuple[Port, ...]:
    """Every RDMA port, by device and number; none where the kernel has no RDMA devices."""
    try:
        devices = host.listdir(CLASS)
    except FileNotFoundError:
        return ()
    listed: List[Port] = []
    for device in sorted(devices, key=_natural):
        names = host.names(f"{CLASS}/{device}/ports")  # none where the device went away between the two calls
        numbers = sorted(int(name) for name in names if name.isdigit())
        listed.extend(_port(host, device, number) for number in numbers)
    return tuple(listed)


def addresses(host: Host) -> Tuple[str, ...]:
    """The PCI addresses of the RDMA devices, each once; those that hang on no PCI bus (soft RoCE) have none."""
    from nhc.node.facts.pci import ADDRESS

    places = (host.realpath(f"{CLASS}/{device}/device").rpartition("/")[2] for device in host.names(CLASS))
    return tuple(dict.fromkeys(place for place in places if ADDRESS.fullmatch(place)))


VERBS = "/sys/class/infiniband_verbs"


def without_verbs(host: Host) -> Dict[str, str]:
    """RDMA devices that no program can open, each with what is missing: without its uverbs device it is of no use.

    Empty where the kernel shows no such devices at all, and in a container, whose /dev has what was put into it
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
