"""Network adapters by their role: each is compared with its peers.

The role of each RDMA port is found without configuration. The port of a default route is for management. A port whose
adapter is on the same PCI root as an accelerator is for compute: what NCCL calls PIX, PXB and PHB. The others are for
storage. A virtual machine shows every device below one root: there the largest group of one model is for compute, as
there is one for each accelerator or for two. Sources: /proc/net/route, /proc/net/ipv6_route, /sys/class/net/*/lower_*,
/sys/devices.
"""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, warn
from nhc.node.facts.infiniband import CLASS, EFA_LAYER, adapter, ports
from nhc.node.facts.pci import DEVICES, accelerator_functions, other_accelerators

if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Set, Tuple

    from nhc.node.facts.infiniband import Port

COMPUTE, STORAGE, MANAGEMENT = "compute", "storage", "management"
ROLES = (COMPUTE, STORAGE, MANAGEMENT)


class PortRole(NamedTuple):
    """A port, its role, and its peers: ports of one role, model, layer and place on the adapter.

    The second port of an adapter is compared with second ports: many sites use the first alone.
    """

    port: Port
    role: str
    model: str
    place: str


def default_interfaces(host: Host) -> FrozenSet[str]:
    """The interfaces of the default routes, with the interfaces below them: members, a VLAN's base."""
    found: Set[str] = set()
    for line in host.read_or("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            found.add(fields[0])
    for line in host.read_or("/proc/net/ipv6_route").splitlines():
        fields = line.split()
        if len(fields) == 10 and fields[1] == "00" and not fields[0].strip("0") and fields[9] != "lo":
            found.add(fields[9])
    waiting = list(found)
    while waiting:
        base = f"/sys/class/net/{waiting.pop()}"
        below = {name[len("lower_") :] for name in host.names(base) if name.startswith("lower_")} - found
        found |= below
        waiting += below
    return frozenset(found)


def roles(host: Host) -> Tuple[PortRole, ...]:
    """Every InfiniBand and RoCE port with its role, by device and number."""
    managed = default_interfaces(host)
    accelerators = (*host.fact(accelerator_functions), *host.fact(other_accelerators))
    near = {_root(host, f"{DEVICES}/{function.address}") for function in accelerators} - {""}
    listed = [port for port in host.fact(ports) if port.link_layer != EFA_LAYER]
    models: Dict[str, str] = {}
    roots: Dict[str, str] = {}
    for name in dict.fromkeys(port.device for port in listed):
        one = adapter(host, name)
        models[name] = one.board or one.model
        roots[name] = _root(host, f"{CLASS}/{name}/device")
    told_apart = any(root and root not in near for root in roots.values()) or len(near) > 1
    free = [models[port.device] for port in listed if port.netdev not in managed]
    most = max(free, key=lambda model: (free.count(model), model), default="")

    def role(port: Port) -> str:
        if port.netdev in managed:
            return MANAGEMENT
        by_place = roots[port.device] in near if told_apart else models[port.device] == most
        return COMPUTE if near and by_place else STORAGE

    return tuple(PortRole(port, role(port), models[port.device], _place(host, port)) for port in listed)


def _root(host: Host, path: str) -> str:
    """The PCI root of a device: `pci0000:40` of /sys/devices/pci0000:40/...; "" for none."""
    return next((part for part in host.realpath(path).split("/") if part[:3] == "pci" and ":" in part), "")


def _place(host: Host, port: Port) -> str:
    """Which port of its adapter it is: a number of the device's own, or a PCI function of its own."""
    function = host.realpath(f"{CLASS}/{port.device}/device").rpartition(".")[2]
    return f"{function if function.isdigit() else ''}:{port.port}"


PEERS = 3
"""The fewest ports of one kind that must be up for a port that is down to stand out."""


@check("check_nic_roles", flag("-c --critical", "critical", "a port without a link beside its peers is CRIT, not WARN"))
def check_nic_roles(host: Host, critical: bool = False) -> Judged:
    """Every RDMA port has a link as its peers of the same role have.

    Finds what each port is for: management where a default route leads through it, compute where its adapter is near
    an accelerator on the PCI bus, else storage. Ports of one role, model, link layer and place on the adapter are
    peers. One without a link beside three or more with one, which are the most of them, has no cable, or a bad one:
    WARN, with -c CRIT. Nothing needs to be configured, and a port that no node of this type uses stays unmentioned,
    as its peers have no link either. check_ib_ports says how many there have to be; check_ib_state sees a link that
    was lost.

    Example: * || check_nic_roles
    """
    every = roles(host)
    if not every:
        return skip("NoRdmaPort", "no RDMA port on this node")
    alike: Dict[Tuple[str, str, str, str], List[PortRole]] = {}
    for one in every:
        alike.setdefault((one.role, one.model, one.port.link_layer, one.place), []).append(one)
    say = crit if critical else warn
    outcomes: List[Outcome] = []
    for (role, *_), peers in alike.items():
        up = [one for one in peers if one.port.up]
        if len(up) < PEERS or 2 * len(up) <= len(peers):
            continue
        for one in peers:
            if not one.port.up and not one.port.state_unread:
                state = f"{one.port.fault()} ({one.port.phys_state})"
                message = f"{state}: no link, {len(up)} {role} ports like it have one"
                outcomes.append(say("NicNoLink", message, target=one.port.name, action=Action.INSPECT))
    if outcomes:
        return outcomes
    named = {role: [one.port.name for one in every if one.role == role] for role in ROLES}
    listing = "; ".join(f"{role}: {' '.join(names)}" for role, names in named.items() if names)
    return ok(listing, metrics=tuple(Metric(f"nic_{role}_ports", len(names)) for role, names in named.items()))
