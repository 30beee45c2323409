"""What the device of a fault is, and whether the node needs it: a fault takes the node out only if it does.

A laptop's dock, a USB controller, a sound card, a Wi-Fi adapter or a management port that no traffic uses can die, and
the node works on. On the node /sys tells what a device is, and which devices are below a port. In a log that was
brought to another machine only the names of drivers tell.
"""

from __future__ import annotations

import re

from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.pci import ADDRESS, DEVICES, bridges, hexadecimal
from nhc.node.kernlog.catalogue import PERIPHERAL_DRIVERS
from nhc.node.kernlog.match import FATAL, address

if TYPE_CHECKING:
    from typing import List

    from nhc.core.host import Host
    from nhc.node.kernlog.match import Match
    from nhc.node.kernlog.state_types import Finding, LogState

KINDS = ("aer", "pcie", "driver", "mlx5")
"""Kinds of findings that any PCI device can have. An accelerator's own kinds need no question: it is an accelerator."""
BELOW = 60.0
"""Seconds within which a device that complains is one below the port that erred."""
SPEAKERS = 64
"""Devices whose drivers are remembered."""
_PORTS = ("pcieport", "pci", "from")

_BRIDGE = 0x0604
_NETWORK = 0x02
_PERIPHERALS = {
    0x0280: "a wireless adapter", 0x04: "a multimedia device", 0x07: "a serial or modem controller",
    0x0805: "a card reader", 0x09: "an input device", 0x0A: "a docking station", 0x0C00: "a FireWire controller",
    0x0C03: "a USB controller", 0x0C05: "an SMBus controller", 0x0C07: "a management controller's interface",
    0x0D: "a wireless adapter",
}  # fmt: skip
"""PCI Code and ID Assignment Specification, by class or by class and subclass. What is not here may be needed: Fibre
Channel (0c04) and InfiniBand's old number (0c06) are serial buses too."""
_MANAGEMENT_SCREENS = (0x1A03, 0x102B)
"""Vendors of the graphics of management controllers: ASPEED, Matrox."""


def note_driver(state: LogState, match: Match, when: float) -> None:
    """Remember which driver speaks for a device, and when: a line about a port does not say what is below it."""
    if ADDRESS.fullmatch(match.device):
        name = re.search(rf"([\w-]+) (?:[0-9a-f]{{4}}:)?{re.escape(match.device[5:])}\b", match.line)
        if name is not None and name[1] not in _PORTS:
            _note(state, match.device, name[1], when)


def note_peripheral(state: LogState, line: str, when: float) -> None:
    """The same of a line that means nothing to the catalogue: what it complains of, the node does without."""
    name = re.match(rf"((?:{PERIPHERAL_DRIVERS})[\w-]*) ?({ADDRESS.pattern}):", line)
    if name is not None:
        _note(state, address(name[2]), name[1], when)


def _note(state: LogState, device: str, driver: str, when: float) -> None:
    speakers = state.setdefault("speakers", {})
    speakers.pop(device, None)
    speakers[device] = (driver, when)
    while len(speakers) > SPEAKERS:
        del speakers[next(iter(speakers))]


def asked(finding: Finding) -> bool:
    """Whether it must be asked what the device of a finding is before the node is condemned for it."""
    return finding["kind"] in KINDS and finding["severity"] == FATAL and bool(ADDRESS.fullmatch(finding["device"]))


def is_there(host: Host, device: str) -> bool:
    """Whether a device, or what was below a port, is still in its place."""
    if not host.exists(f"{DEVICES}/{device}"):
        return False
    return device_class(host, device) != _BRIDGE or bool(_devices_below(host, device))


def expendable(host: Host, state: LogState, finding: Finding) -> str:
    """Why the node works on without the device of a finding; "" if it needs it, or nothing tells."""
    device = finding["device"]
    return needless(host, device) if is_there(host, device) else by_name(state, finding)


def needless(host: Host, device: str) -> str:
    """Why the node works on without a device that /sys has; "" if it needs it, or nothing tells."""
    return _without(host, device, 0)


def by_name(state: LogState, finding: Finding) -> str:
    """The same by the names of drivers alone: of the device, or of what complained below it at that time."""
    device = finding["device"]
    speakers = state.get("speakers", {})
    if device in speakers:
        return _named(speakers[device][0])
    if finding["kind"] not in ("aer", "pcie"):
        return ""
    below = [
        name for other, (name, when) in speakers.items()
        if other[:5] == device[:5] and other[5:7] > device[5:7] and abs(when - finding["last"]) <= BELOW
    ]  # fmt: skip
    names = [_named(name) for name in below]
    return names[0] if names and all(names) else ""


def _named(driver: str) -> str:
    return f"a device of {driver}, without which the node computes" if re.match(PERIPHERAL_DRIVERS, driver) else ""


def device_class(host: Host, device: str) -> int:
    """A device's class and subclass (0x0300 is a VGA controller), -1 if /sys has none."""
    return hexadecimal(host.read_or(f"{DEVICES}/{device}/class")) >> 8


def _devices_below(host: Host, port: str) -> List[str]:
    return [name for name in host.names(DEVICES) if name != port and port in bridges(host, name)]


def _without(host: Host, device: str, depth: int) -> str:
    """Why the node does without a device that /sys has."""
    number = device_class(host, device)
    if number == _BRIDGE:
        below = (
            [name for name in _devices_below(host, device) if device_class(host, name) != _BRIDGE] if not depth else []
        )
        reasons = [_without(host, name, depth + 1) for name in below]
        return f"below it is {reasons[0]}" if reasons and all(reasons) else ""
    if number >> 8 == _NETWORK:
        return _idle_adapter(host, device, number)
    if number == 0x0300 and hexadecimal(host.read_or(f"{DEVICES}/{device}/vendor")) in _MANAGEMENT_SCREENS:
        return "a management controller's screen"
    return _PERIPHERALS.get(number) or _PERIPHERALS.get(number >> 8) or ""


def _idle_adapter(host: Host, device: str, number: int) -> str:
    """A network adapter that carries none of the node's traffic."""
    interfaces = host.names(f"{DEVICES}/{device}/net")
    if host.names(f"{DEVICES}/{device}/infiniband") or any(in_use(host, name) for name in interfaces):
        return ""
    if host.read_or(f"{DEVICES}/{device}/removable") == "removable":
        return "a network adapter behind an external port"
    if number in _PERIPHERALS:
        return _PERIPHERALS[number]
    return f"a network adapter ({', '.join(interfaces)}) that no route uses" if interfaces else ""


def in_use(host: Host, interface: str) -> bool:
    """Whether traffic goes through an interface: by a route, by a bond or bridge, or by one that went with its link."""
    base = f"/sys/class/net/{interface}"
    if host.link_name(f"{base}/master") or any(name.startswith("upper_") for name in host.names(base)):
        return True
    if host.read_or(f"{base}/operstate") == "down" and host.number(f"{base}/carrier_up_count"):
        return True  # it had a link in this boot: its routes may have gone with it
    routes = [line.split() for line in host.read_or("/proc/net/route").split("\n")]
    routes6 = [line.split() for line in host.read_or("/proc/net/ipv6_route").split("\n")]
    if any(fields[:1] == [interface] for fields in routes):
        return True
    # fe80::/64 and ff00::/8 are there for every interface that is up (net/ipv6/addrconf.c)
    return any(fields[-1:] == [interface] and not fields[0].startswith(("fe80", "ff00")) for fields in routes6)
