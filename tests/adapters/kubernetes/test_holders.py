"""Only the job that holds the lost GPU is moved, with a device plugin too; what a proved GPU's driver still says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Sequence

import pytest

from nhc.core.model import DeviceId
from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, Effect, Mark
from nhc_adapters.kubernetes.api.client import STRATEGIC, namespaced
from nhc_adapters.kubernetes.nodes.drain import DrainRules, devices_at_fault, may_hold
from nhc_adapters.kubernetes.nodes.drains import DONE, read_drain
from nhc_adapters.kubernetes.plugin import Adapter
from tests.adapters.kubernetes.test_controller import cordoned, running, settings
from tests.support.dra import Cluster, device, gpu
from tests.support.kube import Kube
from tests.support.waiting import until

GPUS = "nvidia.com/gpu"


def allocated(*devices: str, name: str = GPUS) -> list[dict[str, Any]]:
    """What the kubelet says of a container's devices (KEP-4680)."""
    return [{"name": name, "resources": [{"resourceID": one, "health": "Healthy"} for one in devices]}]


def pod(statuses: Sequence[Mapping[str, Any]] = (), limits: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits or {}}}]},
            "status": {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": list(statuses)}]}}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        (pod(allocated("GPU-a", "GPU-b"), {GPUS: "2"}), True),
        (pod(allocated("GPU-b::3"), {GPUS: "1"}), True),
        (pod(allocated("GPU-c"), {GPUS: "1"}), False),
        (pod((), {"cpu": "1"}), False),
        (pod((), {GPUS: "1"}), True),  # nothing says which
        (pod(allocated("gpu-0", name="claim:gpu"), {GPUS: "1"}), True),  # a driver's name is no UUID
        ({"spec": {"resourceClaims": [{"name": "gpu"}]}}, True),
        ({"spec": 5, "status": {"containerStatuses": [None, {"allocatedResourcesStatus": [7]}]}}, False),
    ],
)
def test_which_pods_may_hold_a_device(asked: Mapping[str, Any], holds: bool) -> None:
    assert may_hold(asked, [DeviceId("", "GPU-b")]) is holds


def marked(sources: str, *messages: str) -> dict[str, Any]:
    conditions = [{"type": f"C{number}", "status": "True", "message": text} for number, text in enumerate(messages)]
    return {"metadata": {"annotations": {"nhc/source": sources}}, "status": {"conditions": conditions}}


TAG = "check: lost [device: 0000:3b:00.0 GPU-b GpuLost reboot] [action: reboot]"


@pytest.mark.parametrize(
    ("node", "devices"),
    [
        (marked("C0=True", TAG), ["GPU-b"]),
        (marked("C0=True C1=True", TAG, TAG.replace("GPU-b", "GPU-c")), ["GPU-b", "GPU-c"]),
        (marked("C0=True C1=False", TAG, "over"), ["GPU-b"]),
        (marked("C0=True C1=True", TAG, "check: the node's own"), []),
        (marked("C0=True report", TAG), []),
        (marked("C0=True", TAG.replace("GPU-b", "-")), []),
        (marked("", TAG), []),
    ],
)
def test_of_which_devices_a_mark_speaks(node: Mapping[str, Any], devices: Sequence[str]) -> None:
    assert [one.uuid for one in devices_at_fault(node)] == devices


def test_a_drain_of_holders_moves_one_job_and_the_others_of_the_node_work_on(kube: Kube) -> None:
    node = kube.node("n1", capacity={GPUS: "8"})
    kube.ready(node)
    for name, one in (("lost", 3), ("well", 4)):
        body = pod((), {GPUS: "1"})["spec"]
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [
            {**body["containers"][0], "image": "none"}]}  # fmt: skip
        kube.admin.post(namespaced(kube.namespace, "pods"), {"metadata": {"name": name}, "spec": spec})
        until(lambda name=name: kube.phase(name) == "Running")  # type: ignore[misc]
        status = {"containerStatuses": [{"name": "c", "image": "none", "imageID": "", "ready": True, "restartCount": 0,
                                         "allocatedResourcesStatus": allocated(gpu(node, one).uuid)}]}  # fmt: skip
        kube.admin.patch(f"{namespaced(kube.namespace, 'pods', name)}/status", {"status": status}, STRATEGIC)
    kube.pod("plain", node)
    faulty = gpu(node, 3)
    with running(kube, settings(kube, drain=True, rules=DrainRules(force=True, holders=True))):
        tag = f"[device: {faulty.pci} {faulty.uuid} GpuLost reboot]"
        kube.set_condition(node, "NhcHealthy", "False", "GpuLost", f"check_gpu_lost: gpu3: gone {tag} [action: reboot]")
        until(lambda: cordoned(kube, node))
        until(lambda: read_drain(kube.get(node)) == DONE)
        assert kube.pods() == ["plain", "well"]


def test_a_proved_device_whose_driver_still_taints_it_is_said_with_the_way_to_clear_it(
    kube: Kube, tmp_path: Path
) -> None:
    cluster = Cluster(kube)
    node = cluster.node("n1", fake=True, count=1)
    kube.ready(node)
    kube.pod("nvidia-dra-driver-gpu-kubelet-plugin-x", node)
    adapter = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path)), OWNER_SETTING: REMEDY_OWNER})
    try:
        adapter.nodes([node])
        for taints, offered in (
            ((), False),
            (({"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"},), True),
        ):
            cluster.drivers[node].publish([device("gpu-0", gpu(node, 0), taints=taints)])
            assert adapter.mark_device(node, gpu(node, 0), Mark("gone", cause="c|GpuLost|")).effect is Effect.CHANGED
            assert adapter.clear_device(node, gpu(node, 0)).effect is Effect.CHANGED
            adapter.show_steps([])
            events = kube.plane.kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].message}",
                                        "--field-selector", f"involvedObject.name={node}").stdout  # fmt: skip
            assert ("delete pod nvidia-dra-driver-gpu-kubelet-plugin-x" in events) is offered
    finally:
        adapter.close()
        cluster.close()
