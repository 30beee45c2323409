"""What the vendor's library says of the accelerator behind a finding."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Optional

    from nhc.core.host import Host
    from nhc.node.facts.accelerator_values import Device


def device_at(host: Host, address: str) -> Optional[Device]:
    """The accelerator at a PCI address, None where the vendor's library says nothing of it."""
    from nhc.node.facts.accelerator import answering

    try:
        inventory = answering(host)
    except OSError:
        return None
    return next((device for device in inventory.devices if device.pci == address), None)


def device_clean(host: Host, address: str) -> Optional[bool]:
    """Whether the vendor's library says that a device is well, None where it says nothing of it."""
    device = device_at(host, address)
    if device is None:
        return None
    remap = device.row_remap
    return not (device.fault or device.recovery or (remap and (remap.pending or remap.failed)))
