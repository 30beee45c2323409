"""The adapter contract on a real API server, and what Kubernetes has beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nhc.core.model import Action
from nhc.lab.testing.adapters import AdapterContract, AdapterWorld
from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, Effect, Mark, Marker, Operation
from nhc_adapters.kubernetes.api.access import Access, ClusterTls
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, node_path
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import UNKNOWN, Condition
from nhc_adapters.kubernetes.nodes.marks import Facts, Treatment
from nhc_adapters.kubernetes.nodes.own_marks import MARK, SET
from nhc_adapters.kubernetes.nodes.pods import list_work
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.kube import Kube

FAULT = Mark("check_gpu_lost: gpu3: fell off the bus", Action.REBOOT, 1_700_000_000.0)


class World(AdapterWorld):
    made_by = Adapter

    def __init__(self, kube: Kube, directory: Path) -> None:
        self.kube, self.kubeconfig = kube, str(kube.kubeconfig(directory))
        self.nodes = [kube.node(name, fake=False) for name in ("a", "b", "c")]
        self.adapter: Marker = Kubernetes(kube.admin, selector=f"test={kube.prefix}")

    def operator_takes_out(self, node: str, reason: str) -> None:
        change = {"metadata": {"annotations": {MARK: reason}}, "spec": {"unschedulable": True}}
        manager = "nhc" if reason.startswith("NHC: ") else "kubectl"
        self.kube.admin.patch(node_path(node), change, MERGE_PATCH, fieldManager=manager)

    def operator_puts_back(self, node: str) -> None:
        change = {
            "metadata": {"annotations": {MARK: None, SET: None}},
            "spec": {"unschedulable": None, "taints": None},
        }
        self.kube.admin.patch(node_path(node), change, MERGE_PATCH, fieldManager="kubectl")

    def broken(self) -> Marker:
        return Kubernetes(Client(Access("https://127.0.0.1:9", known_by=ClusterTls(verify=False)), retry_for=0.2))

    def acting_for(self, owner: str) -> Marker:
        made = Adapter({"NHC_KUBECONFIG": self.kubeconfig, OWNER_SETTING: owner}, {})
        made.cluster.selector = f"test={self.kube.prefix}"
        return made


class TestContract(AdapterContract):
    @pytest.fixture
    def world(self, kube: Kube, tmp_path: Path) -> World:
        return World(kube, tmp_path)


def spoken(*names: str, **options: Any) -> Treatment:
    return Treatment(tuple(load(name) for name in names), **options)


@pytest.mark.service
def test_kubectl_reads_what_a_mark_wrote(kube: Kube) -> None:
    node = kube.node(fake=False)

    Kubernetes(kube.admin).mark({node: FAULT})

    told = kube.plane.kubectl("describe", "node", node).stdout
    assert "Unschedulable:      true" in told
    assert "nhc/unhealthy=true:NoSchedule" in told
    assert "NHC: check_gpu_lost: gpu3: fell off the bus [action: reboot] [since: 2023-11-14T22:13:20Z]" in told
    assert "SchedulingDisabled" in kube.plane.kubectl("get", "node", node).stdout


@pytest.mark.parametrize(
    ("cause", "label"),
    [("check_gpu_lost|Xid79|gpu3", "Xid79"), ("train|kernel-6.12|", "kernel-6.12"), ("", "Unhealthy")],
)
def test_the_reason_of_a_mark_is_a_label_whoever_sets_it(kube: Kube, cause: str, label: str) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin)
    adapter.mark({node: FAULT}, facts={node: Facts(["Xid48"], ["NhcHealthy"], ["NhcHealthy=False"])})
    adapter.owner = REMEDY_OWNER

    assert adapter.mark({node: FAULT._replace(cause=cause)})[0].effect is Effect.CHANGED

    assert kube.get(node)["metadata"]["labels"]["nhc/reason"] == label


def test_a_taint_that_somebody_adds_at_the_same_moment_is_kept(kube: Kube) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin)
    stale = kube.get(node)
    theirs = {"key": "example.com/theirs", "value": "x", "effect": "NoExecute"}
    kube.admin.patch(node_path(node), {"spec": {"taints": [theirs]}}, MERGE_PATCH)

    (applied,) = adapter.mark({node: FAULT}, objects={node: stale})

    assert applied.effect is Effect.CHANGED
    assert {taint["key"] for taint in kube.get(node)["spec"]["taints"]} >= {"example.com/theirs", "nhc/unhealthy"}


def test_clearing_leaves_what_others_set_and_what_they_changed(kube: Kube) -> None:
    node = kube.node(fake=False, labels={"team": "a"})
    adapter = Kubernetes(kube.admin, spoken("nhc", "konduktor"))
    theirs = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    adapter.mark({node: FAULT})
    standing = kube.get(node)["spec"]["taints"]
    assert {taint["key"] for taint in standing} >= {"trainy.konduktor.ai/faulty", "nhc/unhealthy"}
    kept = [taint for taint in standing if taint["key"] != theirs["key"]]
    change = {
        "metadata": {"labels": {"nhc/health": "theirs-now"}},
        "spec": {"taints": [*kept, {**theirs, "value": "no"}]},
    }
    kube.admin.patch(node_path(node), change, MERGE_PATCH)

    adapter.release([node], frozenset(), 0.0, "ann")

    after = kube.get(node)
    assert after["metadata"]["labels"]["nhc/health"] == "theirs-now"
    assert after["metadata"]["labels"]["team"] == "a"
    assert [taint["value"] for taint in after["spec"]["taints"] if taint["key"] == theirs["key"]] == ["no"]
    assert "nhc/unhealthy" not in {taint["key"] for taint in after["spec"]["taints"]}
    assert not after["spec"].get("unschedulable")


def test_a_node_that_an_operator_cordoned_is_tainted_by_nobody_and_stays_cordoned(kube: Kube) -> None:
    node = kube.node(fake=False)
    kube.plane.kubectl("cordon", node)
    adapter = Kubernetes(kube.admin)

    assert adapter.mark({node: FAULT})[0].effect is Effect.REFUSED
    assert adapter.clear([node])[0].effect is Effect.REFUSED
    assert kube.get(node)["spec"]["unschedulable"] is True


def test_a_cordon_that_an_operator_set_again_after_ours_stays(kube: Kube) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin)
    adapter.mark({node: FAULT})
    kube.plane.kubectl("uncordon", node)
    kube.plane.kubectl("cordon", node)

    (applied,) = adapter.clear([node])

    assert applied.effect is Effect.CHANGED
    after = kube.get(node)
    assert after["spec"]["unschedulable"] is True
    assert MARK not in after["metadata"]["annotations"]


def test_a_node_put_back_by_hand_is_not_taken_out_again_while_its_mark_stands(kube: Kube) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin)
    adapter.mark({node: FAULT})
    kube.put_back(node)

    (applied,) = adapter.mark({node: FAULT})

    assert applied.effect is Effect.REFUSED
    assert "by hand" in applied.message
    assert not kube.get(node)["spec"].get("unschedulable")


@pytest.mark.parametrize("name", ["hyperpod", "hyperpod-short"])
def test_hyperpod_is_spoken_and_its_repairs_are_asked_for_only_when_told(kube: Kube, name: str) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin, spoken(name))
    prefix = "sagemaker.amazonaws.com"

    adapter.mark({node: FAULT}, facts={node: Facts(("Xid79",), ("NvidiaErrorReboot",))})

    after = kube.get(node)
    labels, annotations = after["metadata"]["labels"], after["metadata"]["annotations"]
    assert labels[f"{prefix}/node-health-status"] == "Unschedulable"
    assert (labels[f"{prefix}/fault-types"], labels[f"{prefix}/fault-reasons"]) == ("NvidiaErrorReboot", "Xid79")
    assert '"reason": "Xid79"' in annotations[f"{prefix}/fault-details"]
    assert (f"{prefix}/node-health-status", "Unschedulable", "NoSchedule") in {
        (taint["key"], taint.get("value"), taint["effect"]) for taint in after["spec"]["taints"]
    }
    adapter.repair(Operation.REPLACE, [node], "three reboots did not help")
    spelt = {"hyperpod": "UnschedulablePendingReplacement", "hyperpod-short": "UnschedulablePendingReplace"}
    assert kube.get(node)["metadata"]["labels"][f"{prefix}/node-health-status"] == spelt[name]
    adapter.clear([node])
    labels = kube.get(node)["metadata"]["labels"]
    assert labels[f"{prefix}/node-health-status"] == "Schedulable"
    assert f"{prefix}/fault-types" not in labels


def _label(key: str, value: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key: value}}}


HEALTH = "sagemaker.amazonaws.com/node-health-status"
FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
BY_DRAINO = {"draino.planet.com/conditions": "GpuCount=True,0s"}


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ({"spec": {"taints": [FAULTY]}}, "konduktor"),
        (_label(HEALTH, "UnschedulablePendingReplace"), "hyperpod"),
        (_label(HEALTH, "UnschedulablePendingReplacement"), "hyperpod"),
        (_label("dgxc.nvidia.com/nvsentinel-state", "quarantined"), "nvsentinel"),
        ({"metadata": {"annotations": BY_DRAINO}, "spec": {"unschedulable": True}}, "draino"),
    ],
)
def test_other_tools_marks_are_recognised_and_left_alone(kube: Kube, change: dict[str, Any], owner: str) -> None:
    node = kube.node(fake=False)
    kube.admin.patch(node_path(node), change, MERGE_PATCH)
    adapter = Kubernetes(kube.admin)

    (state,) = adapter.nodes([node])

    assert state.mark is not None
    assert (state.available, state.mark.owner) == (False, owner)
    assert adapter.mark({node: FAULT})[0].effect is Effect.REFUSED
    assert adapter.clear([node])[0].effect is Effect.REFUSED


def test_a_node_with_work_is_busy(kube: Kube) -> None:
    node, idle = kube.node("busy"), kube.node("idle")
    kube.ready(node, idle)
    kube.pod("work", node)

    states = {state.name: state for state in Kubernetes(kube.admin).nodes([node, idle])}

    assert (states[node].busy, states[idle].busy) == (True, False)
    (item,), note = Kubernetes(kube.admin).work_on(node)
    assert (item.id, item.user, item.state, note) == (f"{kube.namespace}/work", kube.namespace, "Running", "")
    assert item.started is not None


def test_the_work_on_a_node_says_whose_it_is_and_how_many_pods_are_no_work() -> None:
    def pod(name: str, kind: str, of: str, api: str = "batch/v1", **more: Any) -> dict[str, Any]:
        owner = {"kind": kind, "name": of, "apiVersion": api, "controller": True}
        labels = {"jobset.sigs.k8s.io/jobset-name": "set"} if of.startswith("set") else {}
        return {"metadata": {"namespace": "team", "name": name, "ownerReferences": [owner], "labels": labels, **more},
                "status": {"phase": "Running", "startTime": "2023-11-14T22:13:20Z"}}  # fmt: skip

    items, note = list_work([
        pod("a", "PyTorchJob", "llama"), pod("b", "Job", "set-0"), pod("c", "Job", "v", "batch.volcano.sh/v1alpha1"),
        pod("d", "Job", "e\n", deletionTimestamp="2023-11-14T22:14:20Z"), pod("log", "DaemonSet", "fluent"),
        {"metadata": {"namespace": "team", "name": "by-hand"}}, {"metadata": {}, "status": {"phase": "Succeeded"}},
    ])  # fmt: skip
    assert [(one.id, one.name, one.user, one.state, one.started) for one in items] == [
        ("team/a", "PyTorchJob/llama", "team", "Running", 1.7e9), ("team/b", "Job/set-0", "team", "Running", 1.7e9),
        ("team/c", "VolcanoJob/v", "team", "Running", 1.7e9), ("team/d", "Job/e", "team", "Terminating", 1.7e9),
        ("team/by-hand", "", "team", "Unknown", None),
    ]  # fmt: skip
    assert [one.jobs for one in items[:3]] == [
        ("PyTorchJob/team/llama",), ("Job/team/set-0", "JobSet/team/set", "TrainJob/team/set"), ("VolcanoJob/team/v",),
    ]  # fmt: skip
    assert note == "Not listed: pods of DaemonSets, of the kubelet itself or of nhc (1)"


def test_a_report_does_not_clear_what_only_the_cluster_has_seen(kube: Kube) -> None:
    found, reported = kube.node("found", fake=False), kube.node("reported", fake=False)
    adapter = Kubernetes(kube.admin)
    adapter.mark({found: FAULT}, facts={found: Facts(sources=["NhcJobDeviceError=True"])})
    adapter.mark({reported: FAULT})
    assert kube.get(reported)["metadata"]["annotations"]["nhc/source"] == "report"

    applied = {one.node: one for one in adapter.clear([found, reported])}

    assert (applied[found].effect, applied[found].message) == (
        Effect.REFUSED,
        "marked for NhcJobDeviceError, of which no report speaks",
    )
    assert applied[reported].effect is Effect.CHANGED
    assert adapter.clear([found], judged={})[0].effect is Effect.CHANGED


def test_a_good_report_takes_off_what_is_left_on_a_node_that_was_put_back_and_a_bad_one_adds_nothing(
    kube: Kube,
) -> None:
    node = kube.node(fake=False)
    adapter = Kubernetes(kube.admin)
    adapter.mark({node: FAULT})
    kube.put_back(node)

    (state,) = adapter.nodes([node])
    assert (state.available, state.hold) == (True, "")
    assert adapter.mark({node: FAULT})[0].effect is Effect.REFUSED
    assert not kube.get(node)["spec"].get("unschedulable")
    assert adapter.clear([node])[0].effect is Effect.CHANGED
    after = kube.get(node)
    assert not any(taint["key"].startswith("nhc/") for taint in after["spec"].get("taints") or ())
    assert not any(key.startswith("nhc/") for key in after["metadata"].get("annotations") or {})


def test_silence_is_not_written_over_what_the_agent_has_said_meanwhile(kube: Kube) -> None:
    """The agent would repeat its condition five minutes later, and until then a sick node would count as unheard."""
    adapter, node = Kubernetes(kube.admin), kube.node(fake=False)
    kube.set_condition(node, "NhcHealthy", "True", "NhcHealthy", "")
    judged = kube.admin.get(node_path(node))
    kube.set_condition(node, "NhcHealthy", "False", "GpuLost", "fell off the bus")
    silence = {node: [Condition("NhcHealthy", UNKNOWN, "AgentSilent", "nothing heard")]}
    assert [done.effect for done in adapter.say(silence, {node: judged})] == [Effect.REFUSED]
    assert (kube.condition(node, "NhcHealthy") or {})["status"] == "False"
    assert [done.effect for done in adapter.say(silence, {node: kube.admin.get(node_path(node))})] == [Effect.CHANGED]
    assert (kube.condition(node, "NhcHealthy") or {})["status"] == "Unknown"
