"""Whether this node is a virtual machine: then much hardware is the hypervisor's to judge."""

from __future__ import annotations

from nhc.core.host import Host

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
