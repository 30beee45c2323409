"""The devices that DRA drivers publish in ResourceSlices, by node and by physical device.

The driver chooses a device's name: `gpu-3` may be another GPU after a restart, one GPU may have two names, and a MIG
device is a part of one. So a device is found by its UUID and its PCI address; if these contradict each other, it is not
found.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from nhc.core.model import DeviceId

_UUID, _PARENT = "uuid", "parentUUID"
_PCI = ("pciBusID", "pciAddr", "pciAddress")
"""How attributes are called: by NVIDIA's driver and by Kubernetes (`resource.kubernetes.io/pciBusID`), by AMD's."""

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


Pool = Tuple[str, str]
"""A driver, and the name of a pool of its."""


class DriverTaint(NamedTuple):
    """A taint that a driver publishes on one of its devices."""

    key: str
    value: str
    effect: str


class SliceDevice(NamedTuple):
    """A device as a driver publishes it. `device` is the physical one: of a MIG device the GPU that it is a part of."""

    node: str
    driver: str
    pool: str
    name: str
    device: DeviceId
    taints: Tuple[DriverTaint, ...] = ()

    @property
    def selects(self) -> Tuple[str, str, str]:
        """As `DeviceRule.selects`."""
        return self.driver, self.pool, self.name

    @property
    def selector(self) -> Dict[str, str]:
        """What a rule selects it by."""
        return {"driver": self.driver, "pool": self.pool, "device": self.name}


class PhysicalDevice(NamedTuple):
    """A physical device, and every name under which drivers publish it or its parts."""

    device: DeviceId
    names: Tuple[SliceDevice, ...]


def pci_address(text: str) -> str:
    """An address as sysfs writes it (`0000:3b:00.0`), "" for what is none. NVIDIA's tools write 8 digits of domain."""
    match = _ADDRESS.fullmatch(text.strip())
    if not match:
        return ""
    return f"{int(match[1] or '0', 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def agree(device: DeviceId, other: DeviceId) -> bool:
    """Whether both surely name the same device: all that is known of both is equal, and something is."""
    both = [(a, b) for a, b in ((device.pci, other.pci), (device.uuid, other.uuid)) if a and b]
    return bool(both) and all(a == b for a, b in both)


def trim_slice(item: Mapping[str, Any]) -> Dict[str, Any]:
    """What is kept of a ResourceSlice: a GPU's attributes are a kilobyte, and two of them tell who it is."""
    spec = item.get("spec") or {}
    return {
        "metadata": {key: item["metadata"][key] for key in ("name", "resourceVersion") if key in item["metadata"]},
        "node": str(spec.get("nodeName") or ""),
        "driver": str(spec.get("driver", "")),
        "pool": spec.get("pool") or {},
        "devices": _devices(spec),
    }


def _devices(spec: Mapping[str, Any]) -> List[SliceDevice]:
    devices = []
    for entry in spec.get("devices") or ():
        node = str(entry.get("nodeName") or spec.get("nodeName") or "")
        attributes = {key.rpartition("/")[2]: value for key, value in (entry.get("attributes") or {}).items()}
        uuid = _text(attributes.get(_PARENT)) or _text(attributes.get(_UUID))
        pci = next(
            (address for address in map(pci_address, (_text(attributes.get(key)) for key in _PCI)) if address), ""
        )
        if node and (uuid or pci):
            taints = tuple(
                DriverTaint(str(taint.get("key", "")), str(taint.get("value") or ""), str(taint.get("effect", "")))
                for taint in entry.get("taints") or ()
            )
            pool = str((spec.get("pool") or {}).get("name", ""))
            names = (node, str(spec.get("driver", "")), pool, str(entry.get("name", "")))
            devices.append(SliceDevice(*names, DeviceId(pci, uuid), taints))
    return devices


def _text(value: Any) -> str:
    return str(value.get("string") or "") if isinstance(value, dict) else ""


class Slices:
    """All slices of a cluster, as last seen. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: Dict[str, Mapping[str, Any]] = {}
        self._pools: Dict[Pool, Set[str]] = {}
        self._nodes: Dict[str, Set[str]] = {}
        """The names of the slices of each pool, and of those that tell of each node."""
        self._known: Dict[str, Tuple[Tuple[SliceDevice, ...], Tuple[PhysicalDevice, ...]]] = {}

    def put(self, name: str, item: Optional[Mapping[str, Any]]) -> List[str]:
        """A slice (of `trim_slice`) is new, different, or gone (None). Returns the nodes whose devices it tells of."""
        with self._lock:
            if item is not None and _version(item) < _version(self._slices.get(name)):
                return []  # the watch is behind what was read meanwhile
            before = self._slices.pop(name, None)
            touched: Set[str] = set()
            for either in (before, item):
                for other in self._pools.get(_pool(either), ()) if either is not None else ():
                    # A new generation of a pool ends the one before, in whichever slices that is.
                    touched |= _nodes(self._slices.get(other))
            if before is not None:
                _discard(self._pools, _pool(before), name)
                for node in _nodes(before):
                    _discard(self._nodes, node, name)
            if item is not None:
                self._slices[name] = item
                self._pools.setdefault(_pool(item), set()).add(name)
                for node in _nodes(item):
                    self._nodes.setdefault(node, set()).add(name)
            touched |= _nodes(before) | _nodes(item)
            for node in touched:
                self._known.pop(node, None)
        return sorted(touched)

    def replace(self, node: str, items: Sequence[Mapping[str, Any]], version: int) -> None:
        """All slices of one node alone, as they were in this version of the cluster."""
        listed = {str(item["metadata"]["name"]) for item in items}
        with self._lock:
            known = [(name, self._slices[name]) for name in self._nodes.get(node, ()) if name not in listed]
        for name, item in known:
            if item["node"] == node and _version(item) <= version:  # one of several nodes is not among those asked for
                self.put(name, None)
        for item in items:
            self.put(str(item["metadata"]["name"]), item)

    def published(self, node: str) -> List[str]:
        """The names of the slices that tell of a node."""
        with self._lock:
            return sorted(self._nodes.get(node, ()))

    def names(self, node: str) -> Sequence[SliceDevice]:
        """The devices of a node under all their names, of each pool's newest generation."""
        return self._of(node)[0]

    def nodes(self) -> List[str]:
        """The nodes of which slices tell."""
        with self._lock:
            return list(self._nodes)

    def physical(self, node: str) -> Tuple[PhysicalDevice, ...]:
        """The physical devices of a node. What contradicts itself is left out."""
        return self._of(node)[1]

    def find(self, node: str, device: DeviceId) -> Optional[PhysicalDevice]:
        """The physical device of a node, None if none, or more than one, may be meant."""
        matches = [physical for physical in self.physical(node) if agree(physical.device, device)]
        return matches[0] if len(matches) == 1 else None

    def _of(self, node: str) -> Tuple[Tuple[SliceDevice, ...], Tuple[PhysicalDevice, ...]]:
        with self._lock:
            known = self._known.get(node)
            if known is None:
                names = tuple(
                    device for name in sorted(self._nodes.get(node, ())) for device in self._newest(name, node)
                )
                known = self._known[node] = (names, tuple(group(names)))
            return known

    def _newest(self, name: str, node: str) -> Sequence[SliceDevice]:
        """What a slice says of a node, unless its pool has a newer generation."""
        item = self._slices[name]
        newest = max(_generation(self._slices[other]) for other in self._pools[_pool(item)])
        return [device for device in item["devices"] if device.node == node] if _generation(item) == newest else ()


def _version(item: Optional[Mapping[str, Any]]) -> int:
    return int(item["metadata"].get("resourceVersion") or 0) if item is not None else 0


def _discard(table: Dict[Any, Set[str]], key: object, name: str) -> None:
    table[key].discard(name)
    if not table[key]:
        del table[key]


def _nodes(item: Optional[Mapping[str, Any]]) -> Set[str]:
    return {device.node for device in item["devices"]} if item is not None else set()


def whole(items: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are all slices that their pools have, as far as they know it themselves."""
    newest: Dict[Pool, List[int]] = {}
    for item in items:
        newest.setdefault(_pool(item), []).append(_generation(item))
    return all(
        newest[_pool(item)].count(_generation(item)) == item["pool"].get("resourceSliceCount")
        for item in items if _generation(item) == max(newest[_pool(item)])
    )  # fmt: skip


def _pool(item: Mapping[str, Any]) -> Pool:
    return item["driver"], str(item["pool"].get("name", ""))


def _generation(item: Mapping[str, Any]) -> int:
    return int(item["pool"].get("generation") or 0)


def group(names: Sequence[SliceDevice]) -> List[PhysicalDevice]:
    """The names of one node's devices, by the physical device that each is."""
    groups: List[List[SliceDevice]] = []
    for name in names:
        related = [group for group in groups if any(_related(name.device, other.device) for other in group)]
        groups = [group for group in groups if group not in related]
        groups.append([*(other for group in related for other in group), name])
    devices = []
    for group in groups:
        addresses = {name.device.pci for name in group} - {""}
        uuids = {name.device.uuid for name in group} - {""}
        if len(addresses) <= 1 and len(uuids) <= 1:
            device = DeviceId(next(iter(addresses), ""), next(iter(uuids), ""))
            devices.append(PhysicalDevice(device, tuple(sorted(group, key=lambda name: name.name))))
    return devices


def _related(device: DeviceId, other: DeviceId) -> bool:
    return bool((device.pci and device.pci == other.pci) or (device.uuid and device.uuid == other.uuid))
