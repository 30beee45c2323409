"""Each right that is shipped is one that the code uses: a rule stands beside the call that asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, Set, Tuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "adapters/kubernetes"
CODE = ROOT / "adapters/nhc_adapters/kubernetes"

GET_NODE = ("nodes/adapter.py", "self.client.find(node_path(name))")
LIST_NODES = ("nodes/adapter.py", 'self.client.items("/api/v1/nodes"')
PATCH_NODE = ("nodes/marks.py", "client.change(node_path(name), plan")
PATCH_CONDITIONS = ("nodes/conditions.py", 'client.patch(f"{node_path(node)}/status"')
LIST_PODS = ("nodes/pods.py", 'client.items("/api/v1/pods"')
EVICT = ("nodes/drain.py", "self.client.post(path, body, retry=False)")
LEASE = {
    "create leases.coordination.k8s.io": ("api/lease.py", "self.client.post(self._path(), body)"),
    "get leases.coordination.k8s.io": ("api/lease.py", "self.client.get(path)"),
    "update leases.coordination.k8s.io": ("api/lease.py", "self.client.put(path, lease)"),
}
JOBS = ("jobs.batch", "pytorchjobs.kubeflow.org", "mpijobs.kubeflow.org", "jobsets.jobset.x-k8s.io",
        "trainjobs.trainer.kubeflow.org", "jobs.batch.volcano.sh")  # fmt: skip
GET_JOB = ("jobs/controller.py", "self.client.find(namespaced(job.namespace, kind.plural, job.name, kind.api))")
LIST_CHILDREN = ("jobs/child_jobs.py", "client.items(path, labelSelector")
KUEUE = {"list workloads.kueue.x-k8s.io": ("jobs/kueue.py", "client.items(path, labelSelector")}
JOB_CALLS = {
    "get": GET_JOB, "list": ("jobs/controller.py", "self.client.items(path)"),
    "patch": ("jobs/kinds.py", "client.change(path_of(kind, job), plan"),
    "create": ("jobs/controller.py", "self.client.post(namespaced(namespace, kind.plural, group=kind.api), whole)"),
    "delete": ("jobs/controller.py", "self.client.delete(path_of(kind, job), body)"),
}  # fmt: skip
ACTORS = ("repair/actor_kinds.py", "self.cluster.items(path)")
CREATE_JOB = ("repair/cluster.py", "def create_job(")

MEDIK8S = ("selfnoderemediation", "self-node-remediation.medik8s.io"), (
    "fenceagentsremediation", "fence-agents-remediation.medik8s.io")  # fmt: skip

USED: Dict[str, Dict[str, Tuple[str, str]]] = {
    "nhc-agent": {"get nodes": ("sink.py", "self.client.get(node_path(self.node))"),
                  "patch nodes/status": PATCH_CONDITIONS},
    "nhc-gate": {"list pods": LIST_PODS},
    "nhc-events": {"create events": ("api/events.py", 'self.client.post(namespaced(self.namespace, "events"), '),
                   "patch events": ("api/events.py", 'self.client.patch(namespaced(self.namespace, "events"')},
    "nhc-controller": {
        "get nodes": GET_NODE, "list nodes": LIST_NODES, "watch nodes": ("api/reflector.py", "self.client.watch("),
        "patch nodes": PATCH_NODE, "patch nodes/status": PATCH_CONDITIONS, "list pods": LIST_PODS,
        "create pods/eviction": EVICT, **LEASE,
        "create configmaps": ("controller/ledger.py", 'client.post(namespaced(self.namespace, "configmaps")'),
        "get configmaps": ("controller/loki_watch.py", 'client.find(namespaced(self.namespace, "configmaps", self.'),
        "patch configmaps": ("controller/ledger.py", 'client.patch(namespaced(self.namespace, "configmaps"'),
    },
    "nhc-devices": {
        "get resourceslices.resource.k8s.io": ("devices/watch.py", "self.client.find(api.slice_path(name))"),
        "list resourceslices.resource.k8s.io": ("devices/watch.py", "self.client.items(self.api.slice_path(),"),
        "watch resourceslices.resource.k8s.io": ("devices/watch.py", "self.client, api.slice_path(), self._take_slice"),
        "get devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.get(self.api.rule_path(name))"),
        "list devicetaintrules.resource.k8s.io": ("devices/watch.py", "self.client.items(self.api.rule_path()"),
        "watch devicetaintrules.resource.k8s.io": ("devices/watch.py", "self.client, api.rule_path(), self.take_rule"),
        "create devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.post(self.api.rule_path(), body)"),
        "patch devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.patch(self.api.rule_path("),
        "delete devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.delete(self.api.rule_path("),
    },
    "nhc-eviction-requests": {
        "create evictionrequests.lifecycle.k8s.io": ("nodes/drain.py", "self.client.post(path, body,"),
        "get evictionrequests.lifecycle.k8s.io": ("nodes/drain.py", "self.client.find(made.path)"),
        "delete evictionrequests.lifecycle.k8s.io": ("nodes/drain.py", "self.client.delete(request.path)"),
    },
    "nhc-maintenance": {
        "list maintenancerequests.nvsentinel.dgxc.nvidia.com": (
            "controller/maintenance_requests.py", "self.client.items(PATH)"),
    },
    "nhc-preflight": {
        "create secrets": ("preflight/certificate.py", "self.client.post(path, body, retry=False)"),
        "get secrets": ("preflight/certificate.py", 'self.client.find(namespaced(self.namespace, "secrets", self'),
        "patch secrets": ("preflight/certificate.py", 'self.client.patch(f"{path}/{self.name}"'),
        **{f"{verb} mutatingwebhookconfigurations.admissionregistration.k8s.io": (
            "preflight/certificate.py", "self.client.change(path, plan)") for verb in ("get", "patch")},
    },
    "nhc-preflight-gang": {
        "create tokenreviews.authentication.k8s.io": (
            "preflight/gang_server.py", "authentication.k8s.io/v1/tokenreviews"),
        "get pods": ("preflight/gang_server.py", 'self.client.find(namespaced(namespace, "pods", name))'),
        **{f"get {kind}": ("preflight/gang_server.py", "self.client.find(path)") for kind in (
            "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io", "podgroups.scheduling.volcano.sh",
            "jobsets.jobset.x-k8s.io")},
    },
    "nhc-deep": {
        "get nodes": GET_NODE, "list nodes": LIST_NODES, "list pods": LIST_PODS,
        **{f"get {kind}": GET_JOB for kind in JOBS}, "list jobs.batch": LIST_CHILDREN, **KUEUE,
        "create configmaps": ("deep_launch.py", 'self.client.request("POST", path, body=body'),
        "get configmaps": ("deep_launch.py", 'self.client.get(f"{path}/{owner_name(sweep)}")'),
        "delete configmaps": ("deep_launch.py", "self.client.delete(path, BACKGROUND)"),
        "create services": ("deep_launch.py", '"kind": "Service"'),
        "get pods/log": ("deep_launch.py", "self.client.text(path, container=CONTAINER"),
        **{f"{verb} {kind}": call for kind in ("jobs.batch", "mpijobs.kubeflow.org", "jobsets.jobset.x-k8s.io")
           for verb, call in {
               "create": ("deep_launch.py", 'self.client.request("POST", path, body=body'),
               "list": ("deep_launch.py", "self.client.items(self._path(kind.resource, kind.group)"),
               "delete": ("deep_launch.py", "self.client.delete(path, BACKGROUND)"),
           }.items()},
    },
    "nhc-jobs": {
        "get nodes": ("jobs/controller.py", "self.client.find(node_path(name))"),
        "list nodes": ("jobs/controller.py", 'self.client.items("/api/v1/nodes")'),
        "list pods": ("jobs/controller.py", "self.client.items(path, labelSelector=kind.selector(job))"),
        **{f"{verb} {kind}": call for kind in JOBS for verb, call in JOB_CALLS.items()},
        "patch jobs/status.batch": ("jobs/controller.py", 'self.client.patch(f"{path_of(kind, job)}/status"'),
        "create commands.bus.volcano.sh": ("jobs/controller.py", "self.client.post(path, body)"),
        **KUEUE, "patch workloads.kueue.x-k8s.io": ("jobs/kueue.py", 'client.patch(path, {"spec": {"active"'),
    },
    "nhc-jobs-logs": {
        "get pods/log": ("jobs/job_end.py", "client.text(path, retry=False, container=container"),
        "list events": ("jobs/job_end.py", 'client.items(namespaced(job.namespace, "events"), fieldSelector=selector)'),
    },
    "nhc-remedy": {
        "get nodes": GET_NODE, "list nodes": LIST_NODES, "watch nodes": ("api/reflector.py", "self.client.watch("),
        "patch nodes": PATCH_NODE, "patch nodes/status": PATCH_CONDITIONS, "list pods": LIST_PODS,
        "create pods/eviction": EVICT, **LEASE,
        **{f"list {kind}": ACTORS for kind in (
            "machines.cluster.x-k8s.io", "baremetalhosts.metal3.io",
            "selfnoderemediations.self-node-remediation.medik8s.io",
            "fenceagentsremediations.fence-agents-remediation.medik8s.io",
            "machinedeletionremediations.machine-deletion-remediation.medik8s.io",
            "nodemaintenances.nodemaintenance.medik8s.io", "nodeclaims.karpenter.sh",
            "rebootnodes.janitor.dgxc.nvidia.com", "terminatenodes.janitor.dgxc.nvidia.com",
            "gpuresets.janitor.dgxc.nvidia.com",
        )},
        "get daemonsets.apps": ("repair/shown_on_nodes.py", 'namespaced(namespace, "daemonsets", daemonset, APPS)'),
    },
    "nhc-remedy-devices": {
        "list resourceslices.resource.k8s.io": ("devices/watch.py", "self.client.items(self.api.slice_path(),"),
        "watch resourceslices.resource.k8s.io": ("devices/watch.py", "self.client, api.slice_path(), self._take_slice"),
        "list resourceclaims.resource.k8s.io": ("devices/watch.py", "self.client.items(self.api.claim_path())"),
        "watch resourceclaims.resource.k8s.io": ("devices/watch.py", "self.client, api.claim_path(), self._take_claim"),
        "get devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.get(self.api.rule_path(rule.name))"),
        "list devicetaintrules.resource.k8s.io": ("devices/watch.py", "self.client.items(self.api.rule_path()"),
        "watch devicetaintrules.resource.k8s.io": ("devices/watch.py", "self.client, api.rule_path(), self.take_rule"),
        "create devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.post(self.api.rule_path(), body)"),
        "patch devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.patch(self.api.rule_path("),
        "delete devicetaintrules.resource.k8s.io": ("devices/rules.py", "self.client.delete(self.api.rule_path("),
    },
    "nhc-remedy-suite": {"get nodes": ("gates.py", "self.client.find(node_path(node))"), "list pods": LIST_PODS},
    "nhc-remedy-jobs": {
        "create jobs.batch": CREATE_JOB, "get jobs.batch": ("repair/cluster.py", "def job(self"),
        "list jobs.batch": ("repair/repairer.py", 'self.cluster.items(namespaced(self.place.namespace, "jobs"'),
        "patch jobs.batch": ("repair/job_runner.py", 'self.cluster.patch(namespaced(self.place.namespace, "jobs"'),
        "get pods/log": ("repair/cluster.py", "self.client().text(path, container=container"),
    },
    "nhc-remedy-handoffs": {
        **{f"{verb} {kind}": (f"repair/{module}.py", f"self.objects.{method}(self._path(")
           for kind, module in (("machines.cluster.x-k8s.io", "cluster_api"), ("baremetalhosts.metal3.io", "handoff"))
           for verb, method in (("get", "find"), ("list", "items"))},
        **{f"patch {kind}": (f"repair/{module}.py", "annotate(self.objects, self._path(")
           for kind, module in (("machines.cluster.x-k8s.io", "cluster_api"), ("baremetalhosts.metal3.io", "handoff"))},
        **{f"{verb} {name}s.{group}": ("repair/handoff.py", f"self.objects.{method}(self._path(")
           for name, group in MEDIK8S
           for verb, method in (("get", "find"), ("create", "create"), ("delete", "delete"))},
        **{f"get {name}templates.{group}": ("repair/handoff.py", "self.objects.find(templates)")
           for name, group in MEDIK8S},
        "list nodeclaims.karpenter.sh": ("repair/handoff.py", "self.objects.items(self._path())"),
        "delete nodeclaims.karpenter.sh": ("repair/handoff.py", "self.objects.delete(self._path("),
    },
    "nhc-spares": {"get nodes": ("nodes/marks.py", "client.change(node_path(name), plan"),
                   "list nodes": ("spares.py", 'self.client.items("/api/v1/nodes"'), "patch nodes": PATCH_NODE,
                   "list pods": LIST_PODS},
}  # fmt: skip
"""What the code asks for with the account of a role, by the role's name: each verb with the call that needs it."""


def shipped() -> Dict[str, Set[str]]:
    """Every right of every role of the manifests, by the role's name."""
    found: Dict[str, Set[str]] = {}
    for path in sorted(MANIFESTS.rglob("rbac*.yaml")):
        if "templates" in path.parts:  # test_manifests: the chart gives the same rights
            continue
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] in ("Role", "ClusterRole"):
                found.setdefault(document["metadata"]["name"], set()).update(rights(document["rules"]))
    chart = (MANIFESTS / "chart/templates/rbac-remedy.yaml").read_text().partition("-remedy-handoffs")[2]
    rules = [yaml.safe_load(line)[0] for line in chart.splitlines() if "- {apiGroups" in line]
    found["nhc-remedy-handoffs"] = set(rights(rules))
    return found


def rights(rules: Any) -> Iterator[str]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from (f"{verb} {resource}{'.' if group else ''}{group}" for verb in rule["verbs"])


@pytest.mark.thorough
@pytest.mark.parametrize("role", sorted(USED))
def test_each_right_of_a_role_is_used_and_each_that_is_used_is_given(role: str) -> None:
    assert shipped()[role] == set(USED[role])


def test_every_role_is_looked_at() -> None:
    assert set(shipped()) == set(USED)


@pytest.mark.parametrize("role", sorted(USED))
def test_the_calls_are_in_the_code(role: str) -> None:
    gone = {
        right: place for right, place in USED[role].items()
        if "".join(place[1].split()) not in "".join((CODE / place[0]).read_text().split())
    }  # fmt: skip
    assert gone == {}
