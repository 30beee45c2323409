"""Complaints of drivers that no row of the catalogue knows: the device is asked, and only its answer convicts.

A driver has more words for trouble than a catalogue has rows, and most of its failures pass. So an error line of a
driver of a network adapter, a storage or graphics controller or an accelerator is degraded. On the node one question
tells more: does its configuration space answer, does the vendor's library say that it is well, has its interface lost
its link, can one block of its disk be read. A log that was brought to another machine cannot be asked about.
"""

from __future__ import annotations

import errno
import re

from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action
from nhc.node.facts.pci import ADDRESS, DEVICES
from nhc.node.kernlog import device_role
from nhc.node.kernlog.catalogue import spelled_out
from nhc.node.kernlog.match import DEGRADED, FATAL, Match, address

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.host import Host
    from nhc.node.facts.accelerator_values import Device
    from nhc.node.kernlog.state_types import Finding

CODE = "Complaint"
ANSWER = 5.0
"""Seconds that a disk has to give one block. One that takes longer is busy or in error handling: neither convicts."""

_SPEAKER = (
    r"^(?!pci |pci_|ahci |ata|vfio|iommu|platform |acpi )"
    r"(?:{{driver}}|(?:NVRM: GPU|nvidia|nouveau|amdgpu|nvme|efa|ena|habanalabs) (?P<device6>{{pci}})(?: [^:]{1,60})?: )"
)
_TROUBLE = (
    r"(?:\b[Ff]ail(?:ed|ure|s)?\b|\bFAIL(?:ED|URE)?\b|[Tt]im(?:ed|e|ing)?[ -]?outs?\b|TIME-?OUT|_timeout\b"
    r"|\b[Ee]rrors?\b|\bERROR\b|[Nn]ot respond|[Uu]nresponsive|[Uu]nrecover|\b[Hh](?:ung|ang)\b|\b[Ss]tuck\b"
    r"|\b[Ff]aults?\b|\bFAULT\b|\b[Ff]atal\b|\b[Cc]rash|\bpanic|\b[Aa]ssert|\b[Dd]ead\b|\b[Cc]orrupt"
    r"|\b[Aa]bort(?:ed|ing)\b|\b[Rr]eset: [Uu]nsucc)"
)
_HARMLESS = (
    r"\b(?:[Nn]o|0|without|[Cc]orrect(?:ed|able)|[Nn]on-?[Ff]atal) (?:\w+ )?(?:[Ee]rror|[Ff]ault|[Ff]ailure)"
    r"|[Ee]rror(?:s)? (?:[Rr]eport|[Hh]andl|[Rr]ecover|[Cc]orrect|[Dd]etect|[Ii]nject|[Cc]ount)"
    r"|[Nn]ot supported|[Uu]nsupported|EOPNOTSUPP|ENOTSUPP?|-95\b|-524\b|-517\b|error -16\b|[Dd]irect firmware load"
    r"|[Ff]irmware file not found|[Ff]all(?:ing|s)? ?back|[Rr]etr(?:y|ies|ying)|[Ii]gnor|\b[Oo]ptional|SUCCE|[Ss]ucce"
    r"|[Dd]isabled by|timeout(?: value| from| of|s? (?:is |are )?set|\s*[:=])|continuing|[Pp]ower(?:ed)? off"
    r"|completion polled"
    r"|:\s*(?:no|yes|none|on|off|[Ee]nabled|[Dd]isabled|\d+)\s*$"
)
"""What reads like trouble and is none: what is not there, what is tried again, what is a setting's name."""
_ASIDE = (
    r"\b(?:DCB|LLDP|ULP|DMC|GSC|HDCP|HuC|PTM|VPD|LEDs?|hwmon|WoL|EEE|eDP|ENCODER|CONNECTOR|CRTC|SR-?IOV|MSI-?X)\b"
    r"|_sriov|IGC_PTM|[Pp]romiscuous|\b[Ss]uspend|\b(?:action|steering) rule|\bflow rule|BW allocation|fence-MR"
    r"|[Ii]nterrupt for event|input was invalid|[Ii]nvalid request|sync-login|_transport_set_identify"
)
"""Parts and functions without which a device does its work, and requests that it rightly refused."""

_STORAGE, _NETWORK, _DISPLAY, _CO_PROCESSOR, _ACCELERATOR = 0x01, 0x02, 0x03, 0x0B, 0x12
_FIBRE_CHANNEL, _INFINIBAND = 0x0C04, 0x0C06
"""PCI Code and ID Assignment Specification: base classes, and two subclasses of serial buses."""
_CANNOT_ASK = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EBUSY, errno.ENOMEDIUM)


def complaint(line: str) -> Optional[Match]:
    """What a line that the catalogue does not know complains of, None for one that does not."""
    if not re.search(_TROUBLE, line) or re.search(_HARMLESS, line) or re.search(_ASIDE, line):
        return None
    speaker = re.match(spelled_out(_SPEAKER), line)
    if speaker is None:
        return None
    device = address(next((name for name in speaker.groupdict().values() if name), ""))
    message = "its driver complains in words that no row knows"
    return Match("driver", CODE, DEGRADED, Action.INSPECT, device, message, line)


def is_complaint(finding: Finding) -> bool:
    """Whether only the device's answer tells what a finding means."""
    return finding["kind"] == "driver" and finding["code"] == CODE and not finding.get("drill")


def answered(host: Host, finding: Finding) -> Optional[Finding]:
    """A complaint as its device answers: None if it is well or not needed, fatal where the answer convicts it."""
    device = finding["device"]
    if not ADDRESS.fullmatch(device) or not host.exists(f"{DEVICES}/{device}"):
        return finding
    kind = device_role.device_class(host, device)
    base = kind >> 8
    wanted = (_STORAGE, _NETWORK, _DISPLAY, _CO_PROCESSOR, _ACCELERATOR)
    if kind >= 0 and base not in wanted and kind not in (_FIBRE_CHANNEL, _INFINIBAND):
        return None
    if device_role.needless(host, device):
        return None
    if _reads_as_ones(host, device):
        return _convicted(finding, Action.REBOOT, "its configuration space reads as ones")
    if base in (_DISPLAY, _CO_PROCESSOR, _ACCELERATOR):
        return _asked_vendor(host, finding)
    if base == _NETWORK or kind == _INFINIBAND:
        return _asked_link(host, finding)
    return _asked_disk(host, finding)


def _convicted(finding: Finding, action: Action, why: str) -> Finding:
    message = f"{finding['message']}, and {why}"
    return {**finding, "severity": FATAL, "action": action.value, "message": message}


def _reads_as_ones(host: Host, device: str) -> bool:
    """Whether nothing answers in configuration space. Of a virtual function the vendor alone is ones (SR-IOV 9.3.4)."""
    try:
        head = host.read_bytes(f"{DEVICES}/{device}/config", 64)
    except OSError:
        return False
    return len(head) >= 16 and not head.strip(b"\xff")


def _asked_vendor(host: Host, finding: Finding) -> Optional[Finding]:
    clean = device_clean(host, finding["device"])
    if clean is None:
        return finding
    return None if clean else _convicted(finding, Action.RESET_DEVICE, "its vendor's library says that it is not well")


def _asked_link(host: Host, finding: Finding) -> Optional[Finding]:
    base = f"{DEVICES}/{finding['device']}"
    states = [
        host.read_or(f"{base}/infiniband/{name}/ports/{port}/state")
        for name in host.names(f"{base}/infiniband")
        for port in host.names(f"{base}/infiniband/{name}/ports")
    ]
    interfaces = [name for name in host.names(f"{base}/net") if device_role.in_use(host, name)]
    up = [name for name in interfaces if host.read_or(f"{base}/net/{name}/operstate") == "up"]
    if up or any("ACTIVE" in state for state in states):
        return None
    down = [name for name in interfaces if host.read_or(f"{base}/net/{name}/operstate") == "down"]
    if down and len(down) == len(interfaces):
        return _convicted(finding, Action.INSPECT, f"{', '.join(down)} has lost its link")
    return finding


def _asked_disk(host: Host, finding: Finding) -> Optional[Finding]:
    disk = _disk_behind(host, finding["device"])
    if not disk:
        return finding
    from nhc.core.system.children import ask_child
    from nhc.node.facts.write_probe import read_block

    path = f"/dev/{disk}"
    try:
        answer = host.system.ask(f"read {path}", lambda: ask_child(lambda: read_block(host.path(path)), ANSWER))
    except OSError:  # no process can be started, or nobody asked when this was recorded
        return finding
    if not isinstance(answer, int) or answer in _CANNOT_ASK:
        return finding
    if not answer:
        return None
    return _convicted(finding, Action.INSPECT, f"{disk} cannot be read ({errno.errorcode.get(answer)})")


def _disk_behind(host: Host, device: str) -> str:
    """A disk that is reached through a controller."""
    for path in sorted(host.glob("/sys/class/block/*")):
        name = path.rpartition("/")[2]
        if host.exists(f"{path}/partition") or host.number(f"{path}/removable"):
            continue
        if f"/{device}/" in host.realpath(path):
            return name
    return ""


def device_at(host: Host, address: str) -> Optional[Device]:
    """The accelerator at a PCI address, None if the vendor's library says nothing of it."""
    from nhc.node.facts.accelerator import answering

    try:
        inventory = answering(host)
    except OSError:
        return None
    return next((device for device in inventory.devices if device.pci == address), None)


def device_clean(host: Host, address: str) -> Optional[bool]:
    """Whether the vendor's library says that a device is well, None if it says nothing of it."""
    device = device_at(host, address)
    if device is None:
        return None
    remap = device.row_remap
    return not (device.fault or device.recovery or (remap and (remap.pending or remap.failed)))
