"""PCI Express switches pass traffic between accelerators directly."""

from __future__ import annotations

from nhc.core.check import Judged, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.node.facts import acs
from nhc.node.facts.pci import accelerator_functions, bridges, other_accelerators
from nhc.node.facts.virtualization import virtual

if TYPE_CHECKING:
    from typing import List


@check(
    "check_pcie_acs",
    flag("-c --critical", "critical", "a port that redirects is CRIT, not WARN"),
    flag("-r --root-ports", "roots", "root ports too, not only the ports of switches"),
    every=3600,
)
def check_pcie_acs(host: Host, critical: bool = False, roots: bool = False) -> Judged:
    """PCIe switches above accelerators do not redirect traffic between devices (ACS).

    Reads the ACS control register of each switch port above an accelerator from configuration space. With request
    or completion redirect or egress control on, GPUs and network adapters below one switch reach each other by
    way of the root complex, at a fraction of the bandwidth, or not at all: NCCL's guide (Troubleshooting, PCI
    access control services) has it off on bare metal. Firmware or an IOMMU turns it on. WARN, with -c CRIT. SKIP
    in a virtual machine, where it has to be on, and where there is no accelerator below a switch; UNKNOWN where
    configuration space may not be read whole, as without root.

    Example: * |every 1h| check_pcie_acs
    """
    devices = [f.address for f in (*host.fact(accelerator_functions), *host.fact(other_accelerators))]
    if not devices:
        return skip("NoAccelerator", "no accelerator on the PCI bus")
    if virtual(host):
        return skip("VirtualMachine", "a virtual machine's access control is the hypervisor's affair")
    wanted = (acs.DOWNSTREAM, acs.ROOT_PORT) if roots else (acs.DOWNSTREAM,)
    try:
        above = dict.fromkeys(bridge for device in devices for bridge in bridges(host, device))
        ports = [port for port in (acs.port(host, address) for address in above) if port.type in wanted]
    except acs.ShortConfig:
        return unknown("NotPermitted", "PCI configuration space can be read by root alone")
    except OSError as error:
        return unknown("Unreadable", f"{error.filename}: {error.strerror}")
    if not ports:
        return skip("NoSwitch", "no PCIe switch above an accelerator")
    say = crit if critical else warn
    outcomes: List[Outcome] = [
        say("AcsRedirects", f"port {port.address} above an accelerator redirects traffic between devices "
            f"(ACSCtl {acs.names(port.control)})", target=port.address, action=Action.INSPECT)
        for port in ports
        if port.control is not None and port.control & acs.REDIRECT
    ]  # fmt: skip
    return outcomes or ok(
        f"{len(ports)} ports above accelerators pass traffic on", metrics=(Metric("ports", len(ports)),)
    )
