"""PCI Express switches pass traffic between accelerators directly."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.node.facts.dmi import virtual
from nhc.node.facts.infiniband import addresses
from nhc.node.facts.pci import accelerator_functions, bridges, other_accelerators
from nhc.node.facts.pcie import DOWNSTREAM, REDIRECT, ROOT_PORT, ShortConfig, acs_names, acs_port

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Sequence


@check(
    "check_pcie_acs",
    flag("-c --critical", "critical", "a port that redirects is CRIT, not WARN"),
    flag("-n --adapters", "adapters", "only ports between an accelerator and an RDMA adapter below one switch"),
    flag("-r --root-ports", "roots", "root ports too, not only the ports of switches"),
    every=3600,
)
def check_pcie_acs(host: Host, critical: bool = False, roots: bool = False, adapters: bool = False) -> Judged:
    """PCIe switches above accelerators do not redirect traffic between devices (ACS).

    Reads the ACS control register of each switch port above an accelerator from configuration space. With request
    or completion redirect or egress control on, GPUs and network adapters below one switch reach each other by
    way of the root complex, at a fraction of the bandwidth, or not at all: NCCL's guide (Troubleshooting, PCI
    access control services) has it off on bare metal. Firmware or an IOMMU turns it on. WARN, with -c CRIT. SKIP
    in a virtual machine, where it has to be on, and where there is no accelerator below a switch; UNKNOWN where
    configuration space may not be read whole, as without root. With -n only ports count that lie between an
    accelerator and an RDMA adapter below the same switch: what they send each other passes no other.

    Example: * |every 1h| check_pcie_acs
    """
    devices = [f.address for f in (*host.fact(accelerator_functions), *host.fact(other_accelerators))]
    if not devices:
        return skip("NoAccelerator", "no accelerator on the PCI bus")
    if virtual(host):
        return skip("VirtualMachine", "a virtual machine's access control is the hypervisor's affair")
    wanted = (DOWNSTREAM, ROOT_PORT) if roots else (DOWNSTREAM,)
    try:
        above = _between(host, devices) if adapters else _above(host, devices)
        ports = [port for port in (acs_port(host, address) for address in above) if port.type in wanted]
    except ShortConfig:
        return unknown("NotPermitted", "PCI configuration space can be read by root alone")
    except OSError as error:
        return unknown("Unreadable", f"{error.filename}: {error.strerror}")
    if not ports:
        whose = "that an accelerator shares with an RDMA adapter" if adapters else "above an accelerator"
        return skip("NoSwitch", f"no PCIe switch {whose}")
    say = crit if critical else warn
    outcomes: List[Outcome] = [
        say("AcsRedirects", f"port {port.address} above an accelerator redirects traffic between devices "
            f"(ACSCtl {acs_names(port.control)})", target=port.address, action=Action.INSPECT)
        for port in ports
        if port.control is not None and port.control & REDIRECT
    ]  # fmt: skip
    return outcomes or ok(
        f"{len(ports)} ports above accelerators pass traffic on", metrics=(Metric("ports", len(ports)),)
    )


def _above(host: Host, devices: Sequence[str]) -> Iterable[str]:
    return dict.fromkeys(bridge for device in devices for bridge in bridges(host, device))


def _between(host: Host, devices: Sequence[str]) -> Iterable[str]:
    """The ports on the way between each device and each RDMA adapter below the same switch, the turning point left out.

    What they share begins with the root port; a switch that both are below adds its upstream port at least.
    """
    found: Dict[str, None] = {}
    adapters = [bridges(host, address) for address in addresses(host)]
    for device in devices:
        own = bridges(host, device)
        for other in adapters:
            pairs = list(zip(own, other))
            shared = next((place for place, (one, two) in enumerate(pairs) if one != two), len(pairs))
            if shared > 1:
                found.update(dict.fromkeys((*own[shared:], *other[shared:])))
    return found
