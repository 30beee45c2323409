"""Which virtual machine of Azure's stands behind a node's name."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple, Optional

from nhc.marks.ports.repair import Machine

_ID = re.compile(
    r"^(?:azure://)?/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute/"
    r"(?:virtualMachineScaleSets/([^/]+)/)?virtualMachines/([^/]+)$",
    re.IGNORECASE,
)
"""`azure:///subscriptions/…` as Kubernetes has it, or the resource id alone. Letter case differs between sources."""


class Vm(NamedTuple):
    """A machine by its resource id. `scale_set` is of one in a uniform scale set, where `name` is its number.

    One of a flexible scale set is a virtual machine with a name of its own.
    """

    subscription: str
    group: str
    scale_set: str
    name: str

    @property
    def path(self) -> str:
        kind = f"virtualMachineScaleSets/{self.scale_set}/virtualMachines" if self.scale_set else "virtualMachines"
        base = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/Microsoft.Compute"
        return f"{base}/{kind}/{self.name}"

    @property
    def label(self) -> str:
        return f"{self.scale_set}/{self.name}" if self.scale_set else self.name


def vm(machine: Machine) -> Optional[Vm]:
    """From the provider id, or from the node's setting `resource_id`."""
    match = _ID.match(machine.provider_id or machine.settings.get("resource_id", ""))
    if not match:
        return None
    subscription, group, scale_set, name = match.groups()
    return Vm(subscription, group, scale_set or "", name)


def same(product_uuid: str, vm_id: str) -> bool:
    """Whether the DMI product_uuid that a node shows is the machine's vmId.

    Firmware and kernel disagree on the byte order of its first three fields, so that either order is it.
    """
    try:
        reported, known = uuid.UUID(product_uuid), uuid.UUID(vm_id)
    except ValueError:
        return False
    return known in (reported, uuid.UUID(bytes_le=reported.bytes))
