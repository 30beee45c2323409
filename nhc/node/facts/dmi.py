"""The SMBIOS (DMI) tables as dmidecode prints them."""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import List, Tuple

_HANDLE = re.compile(r"Handle (0[xX][0-9A-Fa-f]{1,8}), DMI type (\d{1,4}),")


class Structure(NamedTuple):
    """One table entry. `lines` are its properties, each prefixed with its headings.

    `BIOS Information: Characteristics: PCI is supported` is how LBNL NHC spells a property.
    """

    handle: int
    type: int
    name: str
    lines: Tuple[str, ...]


class NoDmi(Exception):
    """No SMBIOS tables on this machine (many virtual machines and ARM boards)."""


class DmiUnreadable(Exception):
    """dmidecode could not read the tables; the text says why."""


def parse_dmidecode(text: str) -> Tuple[Structure, ...]:
    """The entries in dmidecode's output, in its order; what comes before the first handle is left out."""
    entries: List[Structure] = []
    lines: List[str] = []
    header: Tuple[int, int] = (-1, -1)
    name = ""
    parents: List[str] = []

    def finish() -> None:
        if header[0] >= 0:
            entries.append(Structure(header[0], header[1], name, tuple(lines)))

    for line in text.splitlines():
        match = _HANDLE.match(line)
        if match:
            finish()
            header, name, lines, parents = (int(match[1], 16), int(match[2])), "", [], []
            continue
        content = line.strip()
        if header[0] < 0 or not content:
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            name, parents = content, []
        else:
            del parents[depth:]
            lines.append(" ".join([*parents, content]))
        parents.append(content if content.endswith(":") else content + ":")
    finish()
    return tuple(entries)


def dmidecode(host: Host) -> str:
    """The whole output of dmidecode.

    Raises FileNotFoundError if it is not installed, NoDmi where the machine has no tables,
    DmiUnreadable where it failed, for example for want of root.
    """
    ended = host.run(["dmidecode"])
    if "No SMBIOS nor DMI entry point found" in ended.output:
        raise NoDmi
    if ended.timed_out:
        raise DmiUnreadable("dmidecode timed out")
    if ended.status or "Handle 0x" not in ended.stdout:
        reason = "".join(ended.tail(1)).strip() or "no output"
        raise DmiUnreadable(f"dmidecode returned {ended.status}: {reason}")
    return ended.stdout


def structures(host: Host) -> Tuple[Structure, ...]:
    """The node's entries. Raises as `dmidecode` does."""
    return parse_dmidecode(host.fact(dmidecode))


_DMI_VENDORS = ("QEMU", "KVM", "VMware", "Xen", "Bochs", "innotek", "OpenStack", "Parallels", "Google", "Alibaba")
"""sys_vendor of virtual machines; Google's is that of its bare-metal nodes only with another product name."""
_DMI_PRODUCTS = ("Virtual Machine", "KVM", "VirtualBox", "HVM domU", "Google Compute Engine", "OpenStack", "VMware")


def virtual(host: Host) -> bool:
    """By the processor's hypervisor flag (x86), else by what the firmware calls the machine."""
    try:
        # The flags stand in the first processor's paragraph: the whole file takes seconds on many cores.
        head = host.read("/proc/cpuinfo", limit=8192)
    except OSError:
        head = ""
    for line in head.splitlines():
        if line.startswith("flags"):
            return " hypervisor" in line
    if host.read_or("/sys/hypervisor/type"):
        return True
    product = host.read_or("/sys/class/dmi/id/product_name")
    if product.endswith(".metal"):
        return False
    vendor = host.read_or("/sys/class/dmi/id/sys_vendor")
    if vendor == "Amazon EC2":
        return True
    if vendor == "Google" and product != "Google Compute Engine":
        return False
    return vendor.startswith(_DMI_VENDORS) or product.startswith(_DMI_PRODUCTS)
