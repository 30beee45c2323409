"""Accelerators and network adapters access memory without address translation."""

from __future__ import annotations

from nhc.core.check import Judged, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import ok, skip, unknown, warn
from nhc.node.facts.infiniband import addresses
from nhc.node.facts.kernel import cmdline
from nhc.node.facts.pci import DEVICES, FOR_GUESTS, accelerator_functions, other_accelerators

if TYPE_CHECKING:
    from typing import Dict, List

PASSES = ("identity",)
"""The kind of an IOMMU group that translates nothing (Documentation/ABI/testing/sysfs-kernel-iommu_groups)."""


@check("check_iommu", every=3600)
def check_iommu(host: Host) -> Judged:
    """The IOMMU lets accelerators and RDMA adapters through without translation.

    Reads the kind of each device's IOMMU group in sysfs. With `identity`, or without an IOMMU, a device reaches
    memory as it is; with DMA each transfer is looked up, which costs bandwidth and, under load, latency (NVIDIA's and
    the adapters' tuning guides ask for iommu=pt, on ARM iommu.passthrough=1). Translated is WARN: some sites want it.
    Devices that a virtual machine has are left out. UNKNOWN where the kernel does not tell the kind (before 5.11) and
    its command line does not ask for passthrough.

    Example: * |every 1h| check_iommu
    """
    devices = [f.address for f in (*host.fact(accelerator_functions), *host.fact(other_accelerators))]
    devices += addresses(host)
    if not devices:
        return skip("NoAccelerator", "neither an accelerator nor an RDMA adapter on the PCI bus")
    kinds: Dict[str, List[str]] = {}
    for address in dict.fromkeys(devices):
        base = f"{DEVICES}/{address}"
        if host.link_name(f"{base}/driver") in FOR_GUESTS:
            continue
        grouped = host.exists(f"{base}/iommu_group")
        kind = host.read_or(f"{base}/iommu_group/type", "unknown") if grouped else PASSES[0]
        kinds.setdefault(kind, []).append(address)
    if "unknown" in kinds and asked_for(cmdline(host)):
        kinds.setdefault(PASSES[0], []).extend(kinds.pop("unknown"))
    translated = {kind: on for kind, on in kinds.items() if kind not in (*PASSES, "unknown")}
    if translated:
        said = "; ".join(
            f"{kind}: {', '.join(on[:4])}{' ...' if len(on) > 4 else ''}" for kind, on in translated.items()
        )
        return warn("IommuTranslates", f"the IOMMU translates what devices read and write ({said})")
    if "unknown" in kinds:
        return unknown("IommuUnknown", f"the kernel does not tell the kind of {len(kinds['unknown'])} IOMMU groups")
    count = sum(map(len, kinds.values()))
    return ok(f"{count} devices without translation") if count else skip("NoAccelerator", "all are virtual machines'")


def asked_for(words: List[str]) -> bool:
    """Whether the kernel was started with passthrough (Documentation/admin-guide/kernel-parameters.txt)."""
    return any(word in words for word in ("iommu=pt", "iommu.passthrough=1", "intel_iommu=on,pt"))
