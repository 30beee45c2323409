"""A DRA driver for tests: the ResourceSlices that NVIDIA's publishes for a node, and pods that hold its devices.

Names and attributes are those of kubernetes-sigs/dra-driver-nvidia-gpu: `gpu-<minor>`, `uuid`,
`resource.kubernetes.io/pciBusID`, and for a MIG device `parentUUID`. The scheduler, the claims and the eviction are the
plane's own.
"""

from __future__ import annotations

import hashlib
from typing import Any, Iterable, Mapping, Sequence

from nhc.core.model import DeviceId
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.devices.rules import SELECTOR, DeviceApi, find_api
from tests.support.kube import Kube
from tests.support.waiting import until

DRIVER = "gpu.nvidia.com"
GROUP = "resource.k8s.io"


def api_of(client: Client) -> DeviceApi:
    found = find_api(client)
    assert found is not None, "the plane serves no DeviceTaintRule"
    return found


def uuid_of(node: str, minor: int) -> str:
    digits = hashlib.sha256(f"{node}/{minor}".encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def gpu(node: str, minor: int) -> DeviceId:
    return DeviceId(f"0000:{0x10 + minor:02x}:00.0", uuid_of(node, minor))


def device(
    name: str, identity: DeviceId, *, parent: str = "", taints: Iterable[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """A device of a slice; with `parent` a MIG device of the GPU with that UUID."""
    attributes = {"type": {"string": "mig" if parent else "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}}
    if identity.uuid:
        attributes["uuid"] = {"string": identity.uuid}
    if identity.pci:
        attributes["resource.kubernetes.io/pciBusID"] = {"string": identity.pci}
    if parent:
        attributes["parentUUID"] = {"string": parent}
    made: dict[str, Any] = {"name": name, "attributes": attributes}
    listed = [dict(one) for one in taints]
    return {**made, "taints": listed} if listed else made


class FakeDriver:
    """The driver of one node."""

    def __init__(self, client: Client, node: str, count: int = 8, driver: str = DRIVER) -> None:
        self.client, self.node, self.driver = client, node, driver
        self.count, self.generation = count, 0
        self.api = api_of(client)

    @property
    def name(self) -> str:
        return f"{self.node}-{self.driver.replace('.', '-')}"

    def gpus(self) -> list[dict[str, Any]]:
        """Its GPUs, each under the name of its minor number."""
        return [device(f"gpu-{minor}", gpu(self.node, minor)) for minor in range(self.count)]

    def publish(self, devices: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Publish these devices in place of those before; by default its GPUs."""
        self.generation += 1
        body: dict[str, Any] = {
            "apiVersion": f"{GROUP}/{self.api.slices}",
            "kind": "ResourceSlice",
            "metadata": {"name": self.name},
            "spec": {
                "driver": self.driver,
                "nodeName": self.node,
                "pool": {"name": self.node, "generation": self.generation, "resourceSliceCount": 1},
                "devices": list(self.gpus() if devices is None else devices),
            },
        }
        path = self.api.slice_path()
        standing = self.client.find(f"{path}/{self.name}")
        if standing is None:
            self.client.post(path, body)
        else:
            body["metadata"]["resourceVersion"] = standing["metadata"]["resourceVersion"]
            self.client.put(f"{path}/{self.name}", body)

    def withdraw(self) -> None:
        """As at a restart of the plugin."""
        self.client.delete(f"{self.api.slice_path()}/{self.name}")


class Cluster:
    """What tests of devices do with the plane: nodes with drivers, faults, claims, rules."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.client = kube, kube.admin
        self.api = api_of(kube.admin)
        self.drivers: dict[str, FakeDriver] = {}

    def node(self, name: str = "n1", *, fake: bool = False, count: int = 8, **more: Any) -> str:
        full = self.kube.node(name, fake=fake, **more)
        self.drivers[full] = FakeDriver(self.client, full, count)
        self.drivers[full].publish()
        return full

    def fail(self, node: str, *minors: int, reason: str = "GpuEccUncorrectable", also: str = "") -> None:
        """The agent of a node says that these GPUs fail, and nothing else, in the words of its condition."""
        tags = "".join(
            f" [device: {one.pci} {one.uuid} {reason} reset-device]" for one in (gpu(node, minor) for minor in minors)
        )
        more = f" (and {len(minors) - 1} more)" if len(minors) > 1 else ""
        text = f"check_gpu_ecc: gpu{minors[0]}: uncorrectable errors{more} [action: reset-device]{also}{tags}"
        self.kube.set_condition(node, "NhcHealthy", "False", reason, text)

    def heal(self, *nodes: str) -> None:
        for node in nodes:
            self.kube.set_condition(node, "NhcHealthy", "True", "NhcHealthy")

    def rules(self, node: str = "") -> list[dict[str, Any]]:
        found = self.client.items(self.api.rule_path(), labelSelector=SELECTOR)
        ours = [
            one
            for one in found
            if one["metadata"]["ownerReferences"][0]["name"] in ({node} if node else set(self.kube.nodes))
        ]
        return sorted(ours, key=lambda one: str(one["metadata"]["name"]))

    def out(self, node: str) -> dict[str, str]:
        """The names that rules of ours select on a node, each with the effect."""
        return {
            one["spec"]["deviceSelector"]["device"]: one["spec"]["taint"]["effect"]
            for one in self.rules(node)
            if not one["metadata"]["name"].startswith("nhc-dry-run.")
        }

    def claim(self, name: str, *devices: str, count: int = 1) -> None:
        """A claim of so many GPUs; with names, of these alone."""
        exactly: dict[str, Any] = {"deviceClassName": self.device_class(), "count": count}
        if devices:
            listed = ", ".join(f'"{one}"' for one in devices)
            exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].uuid in [{listed}]'}}]
        body = {
            "apiVersion": f"{GROUP}/{self.api.slices}",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        self.client.post(f"/apis/{GROUP}/{self.api.slices}/namespaces/{self.kube.namespace}/resourceclaims", body)

    def device_class(self) -> str:
        name = f"{self.kube.prefix}-gpu"
        path = f"/apis/{GROUP}/{self.api.slices}/deviceclasses"
        if self.client.find(f"{path}/{name}") is None:
            chosen = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
            kind = {"apiVersion": f"{GROUP}/{self.api.slices}", "kind": "DeviceClass"}
            self.client.post(path, {**kind, "metadata": {"name": name}, "spec": {"selectors": chosen}})
        return name

    def pod(self, name: str, claim: str) -> None:
        """A pod that the scheduler places where its claim can be met, on nodes of this test."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.kube.namespace},
            "spec": {
                "nodeSelector": {"test": self.kube.prefix},
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            },
        }
        self.client.post(f"/api/v1/namespaces/{self.kube.namespace}/pods", body)

    def holds(self, claim: str) -> list[str]:
        """The devices that were given to a claim, as NODE/NAME."""
        path = f"/apis/{GROUP}/{self.api.slices}/namespaces/{self.kube.namespace}/resourceclaims/{claim}"
        given = (self.client.get(path).get("status") or {}).get("allocation") or {}
        return [f"{one['pool']}/{one['device']}" for one in (given.get("devices") or {}).get("results") or ()]

    def running(self, pod: str) -> None:
        until(lambda: self.kube.phase(pod) == "Running", 60)

    def close(self) -> None:
        for driver in self.drivers.values():
            if self.client.find(f"{self.api.slice_path()}/{driver.name}") is not None:
                driver.withdraw()
        for rule in self.rules():
            self.client.delete(self.api.rule_path(rule["metadata"]["name"]))
