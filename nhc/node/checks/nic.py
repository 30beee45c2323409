"""Network adapters by what they are for, each like its peers."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, warn
from nhc.node.facts.nic_roles import ROLES, roles

if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from nhc.node.facts.nic_roles import PortRole

PEERS = 3
"""Ports of one kind that are up from which one that is down stands out."""


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
