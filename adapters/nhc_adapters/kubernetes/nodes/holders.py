"""Which pods hold a device of a node that is at fault: so that only they are moved, and the others work on.

The kubelet says in each pod's status which devices its containers have been given (KEP-4680, allocatedResourcesStatus;
on by default from Kubernetes 1.36), with device plugins too. NVIDIA's name a GPU by its UUID, with `::N` behind it
where it is shared. Pure.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from nhc.core.json_values import objects_of, text_of
from nhc.core.model import DeviceId
from nhc_adapters.kubernetes.api.objects import get
from nhc_adapters.kubernetes.nodes.accelerators import is_accelerator
from nhc_adapters.kubernetes.nodes.conditions import read_conditions
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags
from nhc_adapters.kubernetes.nodes.evidence import read_sources
from nhc_adapters.kubernetes.nodes.pods import resources_of


def devices_at_fault(node: Mapping[str, Any]) -> Tuple[DeviceId, ...]:
    """The devices for which our mark stands on a node; none where one of its sources speaks of the node itself."""
    conditions = read_conditions(node)
    found: Dict[str, DeviceId] = {}
    for source in read_sources(node):
        kind, is_condition, bad = source.partition("=")
        condition = conditions.get(kind)
        if not is_condition or condition is None:
            return ()
        if condition.status != bad:
            continue  # it has ended
        tags = read_device_tags(condition.message)[1]
        if not tags or not all(tag.device.uuid for tag in tags):
            return ()
        found.update((tag.device.uuid, tag.device) for tag in tags)
    return tuple(found.values())


def may_hold(pod: Mapping[str, Any], devices: Sequence[DeviceId]) -> bool:
    """Whether a pod holds one of these devices, or asks for accelerators and nothing says which it has."""
    held = _held(pod)
    if not held:
        return any(map(is_accelerator, resources_of(pod))) or bool(get(pod, "spec", "resourceClaims"))
    return any(device.uuid and device.uuid == name for device in devices for name in held)


def _held(pod: Mapping[str, Any]) -> List[str]:
    """The devices that a pod's containers have, as their plugins name them; none where a claim's are among them: a DRA
    driver's names are no UUIDs.
    """
    status = get(pod, "status") or {}
    containers = (*objects_of(get(status, "initContainerStatuses")), *objects_of(get(status, "containerStatuses")))
    entries = [entry for one in containers for entry in objects_of(one.get("allocatedResourcesStatus"))]
    if any(text_of(entry.get("name")).startswith("claim:") for entry in entries):
        return []
    return [text_of(one.get("resourceID")).partition("::")[0]
            for entry in entries if is_accelerator(text_of(entry.get("name")))
            for one in objects_of(entry.get("resources"))]  # fmt: skip
