"""PCI Express: links run at what both ends can do, without errors, and switches pass traffic between accelerators."""

from __future__ import annotations

from fnmatch import fnmatchcase

from nhc.core.check import Judged, check, flag, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, skip, unknown, warn
from nhc.core.units import count, seconds, show_number, text
from nhc.node.facts import pcie
from nhc.node.facts.dmi import virtual
from nhc.node.facts.history import amount, growth
from nhc.node.facts.pci import DEVICES, accelerator_functions, bridges, other_accelerators
from nhc.node.facts.pcie import DOWNSTREAM, REDIRECT, ROOT_PORT, ShortConfig, acs_names, acs_port

if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Optional, Sequence, Tuple

_JUDGED = {0x01: "storage", 0x02: "network", 0x03: "display", 0x12: "accelerator"}
"""Base classes whose links matter to jobs (PCI Code and ID Assignment Specification). Chipset functions
(USB, audio, AMD's instrumentation) report links that were never meant to train fully."""
_SAVES_POWER = (0x03, 0x12)
"""GPUs and accelerators lower their link's speed, not its width, while idle."""


@check(
    "check_pcie_link",
    opt("-d --device", "device", text, "only devices whose address (0000:41:00.0) or vendor:device (10de:2330)"
        " matches this shell pattern; may be repeated", many=True),
    flag("-s --speed", "gpu_speed", "judge the speed of GPUs and accelerators too: for a node under load"),
    flag("-W --warn-only", "warn_only", "a degraded link is WARN, not CRIT"),
)  # fmt: skip
def check_pcie_link(host: Host, device: Sequence[str] = (), gpu_speed: bool = False, warn_only: bool = False) -> Judged:
    """PCIe links have the width and speed that both of their ends can do.

    Compares current_link_width and current_link_speed in /sys/bus/pci/devices with the smaller maximum of
    the device and of the port above it, for storage, network, display and accelerator devices (-d judges
    any other). GPUs slow their links down while idle, so their speed counts only with -s; width counts
    always. A device in runtime suspend is left out. Below either maximum is CRIT: half the lanes is half
    the bandwidth, and gcm's and autopilot's PCI checks fail a node for it. SKIP where there is no PCIe link.

    Example: gpu* || check_pcie_link
    """
    links = pcie.links(host)
    if not links:
        return skip("NoPcieLink", "no device with a PCIe link that could be judged")
    chosen = [link for link in links if _chosen(link, device)]
    if not chosen:
        if device:
            return crit("PcieDeviceMissing", f"no PCIe device matches {', '.join(device)}", action=Action.INSPECT)
        return skip("NoPcieLink", "no storage, network, display or accelerator device with a PCIe link")
    bad = [outcome for link in chosen for outcome in [_judge_link(link, gpu_speed, warn_only)] if outcome]
    return bad or ok(f"{show_number(len(chosen), 'PCIe link')} at full width and speed")


def _chosen(link: pcie.PcieDeviceLink, patterns: Sequence[str]) -> bool:
    if not patterns:
        return link.base_class in _JUDGED
    ids = f"{link.vendor[2:]}:{link.device[2:]}"
    return any(fnmatchcase(link.address, each) or fnmatchcase(ids, each.lower()) for each in patterns)


def _judge_link(link: pcie.PcieDeviceLink, gpu_speed: bool, warn_only: bool) -> Optional[Outcome]:
    """What is wrong with a link, None if nothing is."""
    say = warn if warn_only else crit
    kind = _JUDGED.get(link.base_class, "device")
    who = f"{kind} {link.address}" + (f" ({link.driver})" if link.driver else "")
    metrics = (Metric("link_width", link.width), Metric("link_speed", link.speed, "GT/s"))
    state = f"x{link.width} of x{link.best_width}, {link.speed:g} of {link.best_speed:g} GT/s"
    evidence = (f"{link.address} {link.vendor}:{link.device} {state}",)
    if link.gone:
        return crit("PcieDeviceGone", f"{who} no longer answers on the bus", target=link.address,
                    metrics=metrics, evidence=evidence, action=Action.REBOOT)  # fmt: skip
    if not link.width:
        return unknown("PcieLinkUnknown", f"{who} has a link, but sysfs does not tell its width",
                       target=link.address, evidence=evidence)  # fmt: skip
    if link.width < link.best_width:
        return say("PcieWidthDegraded", f"{who} runs at x{link.width} of x{link.best_width}, which both ends can do",
                   target=link.address, metrics=metrics, evidence=evidence, action=Action.INSPECT)  # fmt: skip
    if link.base_class in _SAVES_POWER and not gpu_speed:
        return None
    if not link.speed or not link.best_speed:
        return unknown("PcieLinkUnknown", f"{who} has a link, but sysfs does not tell its speed",
                       target=link.address, evidence=evidence)  # fmt: skip
    if link.speed < link.best_speed:
        message = f"{who} runs at {link.speed:g} of {link.best_speed:g} GT/s, which both ends can do"
        return say("PcieSpeedDegraded", message,
                   target=link.address, metrics=metrics, evidence=evidence, action=Action.INSPECT)  # fmt: skip
    return None


@check(
    "check_pcie_aer",
    opt("-w --correctable", "correctable", count, "WARN from this many correctable errors of a device a minute on", 8),
    opt("-n --nonfatal", "nonfatal", count, "WARN from this many non-fatal errors within --per on", 1),
    opt("-f --fatal", "fatal", count, "CRIT from this many fatal errors since boot on", 1),
    opt("-p --per", "per", seconds, "the time over which non-fatal errors count", 86400.0),
)
def check_pcie_aer(host: Host, correctable: int = 8, nonfatal: int = 1, fatal: int = 1, per: float = 86400.0) -> Judged:
    """PCIe devices report no uncorrectable errors, and few correctable ones.

    Reads the Advanced Error Reporting counters aer_dev_fatal, aer_dev_nonfatal and aer_dev_correctable of
    every function. Fatal errors reset a link and count since boot; non-fatal ones, which probing at boot
    causes as well, by their growth over a day; correctable ones as a rate over the last ten minutes. The
    correctable limit, 8 a minute, is the replay rate from which DCGM's health watch warns. 0 turns a limit
    off. SKIP in a virtual machine whose kernel counts none, UNKNOWN on a physical node that does not
    (firmware keeps AER to itself, or the kernel is older than 4.19).

    Example: * || check_pcie_aer -w 60
    """
    counters, unread = pcie.aer(host)
    if not counters and not unread:
        if not host.names(DEVICES):
            return skip("NoPci", "no PCI bus on this node")
        if virtual(host):
            return skip("NoAer", "this virtual machine's PCI devices have no error counters")
        return unknown("AerNotCounted", "the kernel counts no PCIe errors here: AER is the firmware's or switched off")
    grown = growth(host, "pcie_aer_nonfatal", {at: float(n.get("nonfatal", 0)) for at, n in counters.items()}, per)
    rates = growth(
        host, "pcie_aer_correctable", {at: float(n.get("correctable", 0)) for at, n in counters.items()}, 600.0
    )
    limits = (fatal, nonfatal, correctable)
    outcomes = [
        unknown("Unreadable", f"{at} does not tell its PCIe errors: {why}", target=at) for at, why in unread.items()
    ]
    for at, counts in counters.items():
        fatals, nonfatals = float(counts.get("fatal", 0)), amount(grown, at)
        per_minute = amount(rates, at) / max(rates[at].seconds, 60.0) * 60
        evidence = tuple(f"{at} {name} {number}" for name, number in counts.items() if number)
        worst = _judge_aer(at, (fatals, nonfatals, per_minute), limits, evidence)
        if worst:
            outcomes.append(worst)
    return outcomes or ok(f"{len(counters)} PCIe functions without errors that count")


def _judge_aer(
    at: str, increases: Tuple[float, float, float], limits: Tuple[int, int, int], evidence: Tuple[str, ...]
) -> Optional[Outcome]:
    fatal, nonfatal, rate = increases
    metrics = (
        Metric("aer_fatal", fatal),
        Metric("aer_nonfatal", nonfatal),
        Metric("aer_correctable_rate", rate, "/min"),
    )
    if limits[0] and fatal >= limits[0]:
        message = f"{at} reported {fatal:g} fatal PCIe errors since boot"
        return crit("PcieFatalErrors", message, target=at, metrics=metrics, evidence=evidence)
    if limits[1] and nonfatal >= limits[1]:
        message = f"{at} reported {nonfatal:.0f} uncorrectable PCIe errors, none of them fatal"
        return warn("PcieNonfatalErrors", message, target=at, metrics=metrics, evidence=evidence, action=Action.INSPECT)
    if limits[2] and rate >= limits[2]:
        message = f"{at} reports {rate:.1f} correctable PCIe errors a minute, limit {limits[2]}"
        return warn(
            "PcieCorrectableErrors", message, target=at, metrics=metrics, evidence=evidence, action=Action.INSPECT
        )
    return None


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
    from nhc.node.facts.infiniband import addresses

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
