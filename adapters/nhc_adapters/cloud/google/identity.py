"""Which Compute Engine instance stands behind a node's name."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from nhc.marks.ports.repair import Machine

_PROVIDER = re.compile(r"^gce://([a-z0-9.:-]+)/([a-z0-9-]+)/([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)$")


class InstanceName(NamedTuple):
    """An instance by name. Google names a recreated instance as it named the one before."""

    project: str
    zone: str
    name: str

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"


def place(machine: Machine) -> Optional[InstanceName]:
    """From the provider id `gce://PROJECT/ZONE/NAME`, or the settings `project`, `zone` and `instance` of the node."""
    match = _PROVIDER.match(machine.provider_id)
    if match:
        return InstanceName(*match.groups())
    given = [machine.settings.get(key, "") for key in ("project", "zone", "instance")]
    return InstanceName(*given) if all(given) and not machine.provider_id else None
