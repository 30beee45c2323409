"""What the doctor asks of single devices: whether the cluster can take one out, and whose devices it knows."""

from __future__ import annotations

from typing import Iterator, Tuple

from nhc_adapters.kubernetes.devices.rules import find_api
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.doctor.installation import OK, PROBLEM, WARN, Check, DoctorFinding, Installation
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin


def devices(site: Installation) -> Iterator[DoctorFinding]:
    if not site.settings.devices.on:
        return
    api = find_api(site.client)
    if api is None:
        yield DoctorFinding(
            PROBLEM,
            "devices",
            "[devices] keep = device, and the cluster serves no DeviceTaintRule: faults of devices mark their nodes",
            "Kubernetes 1.37 serves it; before, the API server needs --runtime-config and the gate DRADeviceTaintRules",
        )
        return
    watch = DeviceWatch(site.client)
    watch.load()
    nodes = watch.slices.nodes()
    count = sum(len(watch.slices.physical(name)) for name in nodes)
    if nodes:
        yield DoctorFinding(OK, "devices", f"{len(nodes)} nodes publish {count} devices; rules are {api.rules}")
    else:
        yield DoctorFinding(
            WARN, "devices", "no ResourceSlice names a device by UUID or PCI address: each fault marks its node",
            "install a DRA driver, or set [devices] keep = node",
        )  # fmt: skip
    both = [str(node["metadata"]["name"]) for node in site.nodes if device_plugin(node)]
    both = sorted(set(both) & set(nodes))
    if both:
        more = f" and {len(both) - 1} more" if len(both) > 1 else ""
        yield DoctorFinding(
            WARN, "devices", f"{both[0]}{more}: a device plugin gives devices out as well: each fault marks its node",
            "leave the devices of a node to one of the two",
        )  # fmt: skip


CHECKS: Tuple[Check, ...] = (devices,)
