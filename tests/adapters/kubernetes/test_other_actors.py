"""Who else acts on a node: what the node shows, and the kinds of others on a real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import HasRights, KnowsMachines, Machine, OtherActors
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.repair.cluster import machine_of
from nhc_adapters.kubernetes.repair.shown_on_nodes import of_kured, of_node
from tests.support.crds import HOST, annotate, install, make, set_status
from tests.support.kube import Kube


def node(labels: Any = None, annotations: Any = None, taints: Any = (), conditions: Any = (), **meta: Any) -> Any:
    return {
        "metadata": {"name": "n1", "labels": labels or {}, "annotations": annotations or {}, **meta},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions]},
    }


@pytest.mark.parametrize(
    ("shown", "actor"),
    [
        (node({"dgxc.nvidia.com/nvsentinel-state": "draining"}), "nvsentinel"),
        (node({"nvidia.com/mig.config.state": "pending"}), "mig-manager"),
        (node({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}), "gpu-operator"),
        (node(taints=["medik8s.io/remediation"]), "medik8s"),
        (node(annotations={"weave.works/kured-reboot-in-progress": "2026-11-22T10:00:00Z"}), "kured"),
        (node(taints=["remediator.kubernetes.azure.com/unschedulable"]), "aks-auto-repair"),
        (node(taints=["karpenter.sh/disrupted"]), "karpenter"),
        (node({"cloud.google.com/perform-reboot": "true"}), "gke"),
        (node(annotations={"machineconfiguration.openshift.io/state": "Working"}), "machine-config-operator"),
        (node({"eks.amazonaws.com/compute-type": "auto"}, conditions=[("KernelReady", "False")]), "eks-auto-mode"),
        (node(conditions=[("SlurmNodeReboot", "True")]), "soperator"),
        (node(conditions=[("SlurmNodeDrain", "True"), ("SlurmNodeReboot", "False")]), "soperator"),
        (node(conditions=[("SoperatorChecksNodeMaintenance", "True")]), "soperator"),
        (node(deletionTimestamp="2026-11-22T10:00:00Z"), "cluster"),
    ],
)
def test_what_a_node_shows_of_others(shown: Any, actor: str) -> None:
    (claim,) = of_node(shown)
    assert claim.actor == actor
    assert claim.doing
    assert claim.source


@pytest.mark.parametrize(
    "shown",
    [
        node({"nvidia.com/mig.config.state": "success", "nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}),
        node({"dgxc.nvidia.com/nvsentinel-state": ""}),
        node({"eks.amazonaws.com/compute-type": "auto"}, conditions=[("KernelReady", "True"), ("Ready", "True")]),
        node({"karpenter.sh/nodepool": "gpu"}, conditions=[("KernelReady", "False")]),
        node(taints=["nhc/unhealthy", "nvidia.com/gpu", "node.kubernetes.io/unschedulable"]),
        {"status": {"conditions": [{"type": "SlurmNodeReboot", "status": "True", "reason": "NodeRebooted"}]}},
        node(conditions=[("SlurmNodeDrain", "False")]),
        {},
    ],
)
def test_what_is_only_installed_claims_nothing(shown: Any) -> None:
    assert of_node(shown) == []


def test_karpenter_claims_what_it_would_replace_where_its_gate_is_on() -> None:
    sick = node({"karpenter.sh/nodepool": "gpu"}, conditions=[("AcceleratedHardwareReady", "False")])
    (claim,) = of_node(sick, karpenter_repairs=True)
    assert (claim.actor, "AcceleratedHardwareReady" in claim.doing) == ("karpenter", True)


@pytest.mark.parametrize(
    ("lock", "claims"),
    [
        ("", 0),
        ('{"nodeID":"n1","metadata":{"unschedulable":false},"created":"2026-11-22T10:00:00Z","TTL":0}', 1),
        ('{"nodeID":"n2","created":"2026-11-22T10:00:00Z","TTL":0}', 0),
        ('{"maxOwners":2,"locks":[{"nodeID":"n2"},{"nodeID":"n1"}]}', 1),
        ("{", 1),
        ("[1]", 1),
    ],
)
def test_kureds_lock_names_who_reboots_next(lock: str, claims: int) -> None:
    daemonset = {"metadata": {"annotations": {"weave.works/kured-node-lock": lock}}}
    assert len(of_kured(daemonset, "n1")) == claims


# On the real API server, with the kinds of others installed.


@pytest.fixture
def adapter(kube: Kube, tmp_path: Path) -> Iterator[Adapter]:
    install(kube)
    made = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path)),
                    "NHC_KUBE_KURED": f"{kube.namespace}/kured"}, {}, 10.0)  # fmt: skip
    yield made
    made.close()


def actors(adapter: Adapter, name: str) -> List[str]:
    return sorted({claim.actor for claim in adapter.claims(Machine(name))})


def test_the_adapter_says_who_else_acts(kube: Kube, adapter: Adapter) -> None:
    for kind in (OtherActors, KnowsMachines, HasRights):
        assert isinstance(adapter, kind)
    provider = f"metal3://{kube.namespace}/host1/m1"
    name, other = kube.node("n1", fake=False, spec={"providerID": provider}), kube.node("n2", fake=False)
    assert actors(adapter, name) == []
    make(kube, "Machine", "m1", {"clusterName": "c"},
         {"nodeRef": {"name": name}, "conditions": [{"type": "OwnerRemediated", "status": "True"}]})  # fmt: skip
    make(kube, "BareMetalHost", "host1", {"online": True}, HOST)
    assert actors(adapter, name) == []
    annotate(kube, "Machine", "m1", **{"cluster.x-k8s.io/remediate-machine": ""})
    assert actors(adapter, name) == ["cluster-api"]
    annotate(kube, "BareMetalHost", "host1", **{"reboot.metal3.io/mco": ""})
    assert actors(adapter, name) == ["cluster-api", "metal3"]
    make(kube, "SelfNodeRemediation", name)
    assert actors(adapter, name) == ["cluster-api", "medik8s", "metal3"]
    make(kube, "RebootNode", f"{kube.prefix}-r", {"nodeName": name, "force": False})
    assert actors(adapter, name) == ["cluster-api", "medik8s", "metal3", "nvsentinel"]
    daemonset = {
        "metadata": {"name": "kured", "annotations": {"weave.works/kured-node-lock": json.dumps({"nodeID": name})}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"never": "there"}}}},
    }  # fmt: skip
    kube.admin.post(f"/apis/apps/v1/namespaces/{kube.namespace}/daemonsets", daemonset)
    assert actors(adapter, name) == ["cluster-api", "kured", "medik8s", "metal3", "nvsentinel"]
    assert actors(adapter, other) == []
    set_status(kube, "RebootNode", f"{kube.prefix}-r", {"completionTime": "2026-11-22T10:00:00Z"})
    assert "nvsentinel" not in actors(adapter, name)


def test_who_may_not_look_for_others_says_so(kube: Kube, adapter: Adapter, tmp_path: Path) -> None:
    name = kube.node("n1", fake=False)
    role = {"metadata": {"name": f"{kube.prefix}-nodes"}, "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}]}  # fmt: skip
    kube.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    binding = {
        "metadata": {"name": f"{kube.prefix}-nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{kube.prefix}-nodes"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}],
    }
    kube.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    (tmp_path / "b").mkdir()
    config = kube.kubeconfig(tmp_path / "b", kube.token("default", kube.namespace))
    blind = Adapter({"NHC_KUBECONFIG": str(config)}, {}, 10.0)
    with pytest.raises(AdapterError, match="403"):
        blind.claims(Machine(name))
    rights = {right.name: right for right in blind.rights()}
    assert rights["patch nodes"].granted
    assert rights["list machines"].granted is False
    assert 'apiGroups: ["cluster.x-k8s.io"]' in rights["list machines"].message
    blind.close()


def test_a_machine_without_a_uuid_of_its_own_is_known_by_its_boot() -> None:
    info = {"bootID": "b1", "machineID": "0" * 31 + "a", "systemUUID": "0" * 31 + "A"}
    assert machine_of({"metadata": {"name": "n1"}, "status": {"nodeInfo": info}}).uuid == ""


def test_the_machine_behind_a_node_is_what_the_cluster_says(kube: Kube, adapter: Adapter) -> None:
    name = kube.node("n1", fake=False, labels={"pool": "gpu"}, spec={"providerID": "aws:///a/i-1"})
    info = {"nodeInfo": {"bootID": "b1", "systemUUID": "4C4C4544-0042-3510-8052-B4C04F564433"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}  # fmt: skip
    kube.admin.patch(f"{node_path(name)}/status", {"status": info}, MERGE_PATCH)
    adapter.nodes([name])
    seen = adapter.machines()[name]
    assert (seen.provider_id, seen.boot_id, seen.address) == ("aws:///a/i-1", "b1", "10.0.0.7")
    assert (seen.uuid, seen.labels["pool"]) == ("4c4c4544-0042-3510-8052-b4c04f564433", "gpu")
