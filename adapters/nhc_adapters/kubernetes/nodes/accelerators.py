"""Accelerators that a node should be able to give out, and whether it can.

What the kubelet does (pkg/kubelet/cm/devicemanager): a device that its plugin finds unhealthy leaves `allocatable`
and stays in `capacity`. When a plugin stops, all of its devices leave `allocatable` at once; five minutes later
(endpointStopGracePeriod) `capacity` is 0, too. So a restart of a plugin shows 0 of 8 for some seconds or minutes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc_adapters.kubernetes.api.objects import get
from nhc_adapters.kubernetes.nodes.conditions import TRUE, read_conditions
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, labels_of

GRACE = 600.0
"""Seconds for which too few may be allocatable: twice what the kubelet waits for a plugin to come back."""

SHORT, NOT_REGISTERED, GOOD = "AllocatableBelowExpected", "DevicePluginNotRegistered", "AllAllocatable"

OFFERED = "nhc/offered"
"""Annotation of a node that is out: the accelerators that it had registered when it was marked (`nvidia.com/gpu=8`)."""

Expected = Sequence[Tuple[str, int]]


class DeviceOffer(NamedTuple):
    """What a node offers. `since` is the earliest moment (Unix time) from which that may be counted against it."""

    short: bool
    reason: str
    message: str
    since: float


def look(node: Mapping[str, Any], expected: Expected, asked: bool = False) -> Optional[DeviceOffer]:
    """What a node offers of what is expected of it, None if that cannot be judged.

    A node is judged only while its kubelet is Ready, counted from when it became Ready: before, allocatable says
    nothing. A resource whose plugin is not registered (no capacity) is judged only if it is `asked` for by name.
    """
    ready = read_conditions(node).get("Ready")
    if not expected or ready is None or ready.status != TRUE:
        return None
    status = node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    judged = False
    for resource, count in expected:
        registered = _count(capacity.get(resource)) or 0
        if not registered:
            if asked and count:
                message = f"0 of {count} {resource} can be given out: its device plugin is not registered"
                return DeviceOffer(True, NOT_REGISTERED, message, ready.since)
            continue
        offered = _count(allocatable.get(resource, "0"))
        if offered is None:
            continue
        judged = True
        if offered < count:
            return DeviceOffer(True, SHORT, f"{offered} of {count} {resource} can be given out", ready.since)
    return DeviceOffer(False, GOOD, "all accelerators can be given out", ready.since) if judged else None


def _count(text: object) -> Optional[int]:
    try:
        return int(str(text))
    except ValueError:
        return None


def registered(node: Mapping[str, Any]) -> Dict[str, int]:
    """How many accelerators a node's kubelet knows of, well or not, by resource."""
    capacity = get(node, "status", "capacity") or {}
    counts = {name: _count(count) for name, count in sorted(capacity.items()) if is_accelerator(name)}
    return {name: count for name, count in counts.items() if count is not None}


def offer_text(node: Mapping[str, Any]) -> str:
    """How many accelerators a node has registered now, in the form of the annotation OFFERED; "" for none.

    After a kubelet's restart none are registered until their plugin has started: until then only this shows what is
    missing.
    """
    return ",".join(f"{name}={count}" for name, count in registered(node).items() if count)


def offered_before(node: Mapping[str, Any]) -> Dict[str, int]:
    """How many accelerators a marked node had registered when it was marked; {} if that is not known."""
    pairs = (part.partition("=") for part in annotations_of(node).get(OFFERED, "").split(",") if part)
    return {name: int(count) for name, _equals, count in pairs if count.isdigit()}


def asked_for(node: Mapping[str, Any], configured: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    """What the settings expect of a node of this instance type by name, nothing if they do not say."""
    return configured.get(labels_of(node).get("node.kubernetes.io/instance-type", "")) or configured.get("*") or {}


def expected_accelerators(
    node: Mapping[str, Any], configured: Mapping[str, Mapping[str, int]]
) -> List[Tuple[str, int]]:
    """How many accelerators a node should have: by its instance type as configured, else by its own status.

    A device that its plugin finds unhealthy stays in `capacity`. The count that GPU feature discovery wrote counts
    where it is higher.
    """
    chosen = asked_for(node, configured)
    if chosen:
        return list(chosen.items())
    gpus = str(labels_of(node).get("nvidia.com/gpu.count", ""))
    expected = registered(node)
    if "nvidia.com/gpu" in expected and gpus.isdigit():
        # With sharing, one GPU is given out several times; then capacity is the larger number.
        expected["nvidia.com/gpu"] = max(expected["nvidia.com/gpu"], int(gpus))
    return list(expected.items())


def device_plugin(node: Mapping[str, Any]) -> str:
    """The resource under which a device plugin offers the node's accelerators, "" if none does."""
    for resource, count in ((node.get("status") or {}).get("allocatable") or {}).items():
        if is_accelerator(resource) and str(count) not in ("", "0"):
            return str(resource)
    return ""


def is_accelerator(resource: str) -> bool:
    domain, slash, name = resource.partition("/")
    return (bool(slash) and not name.startswith("hostdev") and domain in {
        "nvidia.com", "amd.com", "gpu.intel.com", "habana.ai", "google.com", "huawei.com",
    }) or resource in {
        "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "aws.amazon.com/neurondevice",
    }  # fmt: skip
