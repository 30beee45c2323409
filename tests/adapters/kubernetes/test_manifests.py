"""What adapters/kubernetes ships: a real API server takes it, and the roles in it can do their work and no more."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from nhc_adapters.kubernetes.client import JSON_PATCH, MERGE_PATCH, STRATEGIC, Client, node_path
from nhc_adapters.kubernetes.conditions import Condition, write_conditions
from nhc_adapters.kubernetes.errors import ApiError
from nhc_adapters.kubernetes.settings import read
from tests.support.kube import REPOSITORY, Kube, eventually

MANIFESTS = REPOSITORY / "adapters/kubernetes"
SYSTEM = "nhc-system"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
MONITOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def installed(plane: Any) -> Iterator[Any]:
    """The plane with the base installed, for real."""
    rendered = plane.kubectl("kustomize", str(MANIFESTS / "base")).stdout
    # The controller itself is not started: no image can be pulled here, and the tests run it as a process.
    wanted = [doc for doc in yaml.safe_load_all(rendered) if doc["kind"] not in ("Deployment", "PodDisruptionBudget")]
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(_list(wanted)))
    yield plane
    plane.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=json.dumps(_list(wanted)))


def _list(items: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name != "prometheus"])
def test_the_api_server_takes_every_overlay(installed: Any, overlay: str) -> None:
    rendered = installed.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)).stdout

    said = installed.kubectl(
        "apply", "--dry-run=server", "--force-conflicts", "--server-side", "-f", "-", stdin=rendered
    )

    assert said.stdout.count("serverside-applied (server dry run)") == rendered.count("\nkind: ") + (
        rendered.startswith("kind: ")
    )
    assert "daemonset.apps/nhc-agent-" in said.stdout


def test_the_api_server_takes_the_pod_monitor_where_there_is_such_a_kind(installed: Any, tmp_path: Any) -> None:
    installed.kubectl("apply", "-f", "-", stdin=json.dumps(MONITOR))
    installed.kubectl("wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com", "--timeout=20s")
    monitor = MANIFESTS / "overlays/prometheus/podmonitor.yaml"

    said = installed.kubectl("apply", "--dry-run=server", "-f", str(monitor))

    assert "podmonitor.monitoring.coreos.com/nhc created (server dry run)" in said.stdout


def test_the_api_server_takes_the_example_of_a_gate_before_a_job(kube: Kube) -> None:
    example = MANIFESTS / "examples/init-container.yaml"
    said = kube.plane.kubectl("apply", "-n", kube.namespace, "--dry-run=server", "-f", str(example))
    assert "job.batch/train created (server dry run)" in said.stdout


@pytest.mark.parametrize("folder", ["base/config", "overlays/hyperpod"])
def test_the_settings_that_are_shipped_are_dry_and_valid(folder: str, tmp_path: Any) -> None:
    for name in ("base/config/policy.toml", f"{folder}/kubernetes.toml"):
        source = MANIFESTS / name
        (tmp_path / source.name).write_text(source.read_text())

    settings = read(str(tmp_path / "kubernetes.toml"))

    assert not settings.apply
    assert settings.policy.ceiling.share == 0.1


# The agent's role.


@pytest.fixture
def agent(kube: Kube, installed: Any) -> Iterator[tuple[Client, str]]:
    """A client with the token that the kubelet would give the agent's pod, and the node it runs on."""
    node = kube.node("mine")
    kube.ready(node)
    name = f"agent-{kube.prefix}"
    body = {
        "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "nhc-agent",
            "containers": [{"name": "agent", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    pod = kube.admin.post(f"/api/v1/namespaces/{SYSTEM}/pods", body)
    token = kube.token("nhc-agent", SYSTEM, pod)
    # The policy takes effect a moment after it was created.
    yield kube.client(token), node
    kube.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{name}")


def _now(kind: str = "NhcHealthy", status: str = "True") -> Condition:
    return Condition(kind, status, "Test", "", time.time(), time.time())


def refused(work: Any) -> str:
    """What the server said when it refused."""
    with pytest.raises(ApiError) as caught:
        work()
    assert caught.value.status in (403, 422), caught.value
    return caught.value.message


def test_an_agent_says_what_its_own_node_is_and_of_no_other(kube: Kube, agent: tuple[Client, str]) -> None:
    client, mine = agent
    other = kube.node("other")

    write_conditions(client, mine, [_now()])

    assert (kube.condition(mine, "NhcHealthy") or {})["status"] == "True"

    def denied() -> bool:
        try:
            write_conditions(client, other, [_now()])
        except ApiError as error:
            return f"nhc-agent on {mine} may not change node {other}" in error.message
        return False

    eventually(denied)  # a policy takes effect some moments after it was made


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON_PATCH, [{"op": "add", "path": "/spec/unschedulable", "value": True}]),
        (MERGE_PATCH, {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}),
        (MERGE_PATCH, {"metadata": {"labels": {"a": "b"}}}),
    ],
)
def test_an_agent_can_neither_cordon_nor_taint_nor_label(
    kube: Kube, agent: tuple[Client, str], kind: str, body: Any
) -> None:
    client, mine = agent
    refused(lambda: client.patch(node_path(mine), body, kind))


def test_an_agent_cannot_speak_for_the_kubelet(kube: Kube, agent: tuple[Client, str]) -> None:
    client, mine = agent
    status = f"{node_path(mine)}/status"
    write_conditions(client, mine, [_now()])
    eventually(
        lambda: "kubelet's conditions" in refused(lambda: write_conditions(client, mine, [_now("Ready", "False")]))
    )
    offers = {"status": {"allocatable": {"cpu": "1"}}}
    assert "only its conditions" in refused(lambda: client.patch(status, offers, STRATEGIC))
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert "labels or annotations" in refused(lambda: client.patch(status, labels, STRATEGIC))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods",
        "/api/v1/nodes",
        f"/api/v1/namespaces/{SYSTEM}/secrets",
        f"/api/v1/namespaces/{SYSTEM}/configmaps",
    ],
)
def test_an_agent_reads_nothing_but_a_node(kube: Kube, agent: tuple[Client, str], path: str) -> None:
    refused(lambda: agent[0].get(path))


# The controller's role.


def can(
    kube: Kube, verb: str, resource: str, namespace: str = "", name: str = "", group: str = "", sub: str = ""
) -> bool:
    """Whether the controller's account may do this, by the API server's own answer."""
    asked = {
        "verb": verb,
        "resource": resource,
        "namespace": namespace,
        "name": name,
        "group": group,
        "subresource": sub,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{SYSTEM}:nhc-controller", "resourceAttributes": asked},
    }
    answer = kube.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


def test_the_controller_may_do_its_work_and_no_more(kube: Kube, installed: Any) -> None:
    assert all(can(kube, verb, "nodes") for verb in ("get", "list", "watch", "patch"))
    assert can(kube, "create", "pods", kube.namespace, sub="eviction")
    assert can(kube, "update", "leases", SYSTEM, "nhc-controller", "coordination.k8s.io")
    assert can(kube, "patch", "configmaps", SYSTEM, "nhc-ledger")
    assert can(kube, "create", "events", "default")

    assert not can(kube, "delete", "nodes")
    assert not can(kube, "delete", "pods", kube.namespace)
    assert not can(kube, "get", "secrets", SYSTEM)
    assert not can(kube, "patch", "configmaps", SYSTEM, "nhc-settings")
    assert not can(kube, "update", "leases", "kube-system", "kube-scheduler", "coordination.k8s.io")
    assert not can(kube, "create", "pods", kube.namespace)


# The chart.

EVERYTHING = [f"--set=agents.{kind}.enabled=true" for kind in ("nvidia", "amd", "neuron", "gaudi", "cpu")]


def chart(plane: Any, *options: str) -> str:
    done = helm(plane, "template", "nhc", str(MANIFESTS / "chart"), "-n", SYSTEM, "--kube-version", "1.35.0", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def helm(plane: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(plane.directory)}
    return subprocess.run(
        [str(plane.binaries / "helm"), *arguments], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.parametrize(
    "options",
    [(), tuple(EVERYTHING), ("--set=controller.enabled=false",), ("--set=controller.podLogNamespaces={default}",)],
    ids=["defaults", "every accelerator", "agents alone", "pod logs"],
)
def test_the_api_server_takes_the_chart(installed: Any, options: tuple[str, ...]) -> None:
    rendered = chart(installed, *options)
    said = installed.kubectl(
        "apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", "-", stdin=rendered
    )
    assert said.stdout.count("serverside-applied (server dry run)") == len(list(yaml.safe_load_all(rendered)))


def test_the_chart_lints(plane: Any) -> None:
    done = helm(plane, "lint", "--strict", str(MANIFESTS / "chart"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("controler.replicas=1", "controler"),
        ("controller.replicas=0", "/controller/replicas"),
        ("controller.vocabularies={nagios}", "/controller/vocabularies/0"),
        ("controller.ceilings.all=lots", "/controller/ceilings/all"),
        ("controller.conditions={Gpu Xid}", "/controller/conditions/0"),
    ],
)
def test_the_chart_refuses_values_that_make_no_sense(plane: Any, option: str, said: str) -> None:
    done = helm(plane, "template", "nhc", str(MANIFESTS / "chart"), "--kube-version", "1.35.0", "--set", option)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_chart_and_kustomize_give_the_same_rights_and_policy(plane: Any) -> None:
    def rights(text: str) -> dict[str, Any]:
        found = {}
        for doc in yaml.safe_load_all(text):
            if doc["kind"] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ValidatingAdmissionPolicy"):
                kept = {key: value for key, value in doc.items() if key != "metadata"}
                found[f"{doc['kind']}/{doc['metadata']['name']}"] = kept
        return found

    ours = rights(plane.kubectl("kustomize", str(MANIFESTS / "base")).stdout)
    assert len(ours) == 9
    assert rights(chart(plane)) == ours


def test_the_charts_settings_are_what_the_controller_reads(plane: Any, tmp_path: Path) -> None:
    rendered = chart(plane, "--set=controller.apply=true", "--set=controller.conditions={GpuXid}")
    (data,) = [doc["data"] for doc in yaml.safe_load_all(rendered) if doc["metadata"]["name"] == "nhc-settings"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)

    settings = read(str(tmp_path / "kubernetes.toml"))

    assert settings.apply
    assert [fault.type for fault in settings.faults] == ["GpuXid"]
    assert settings.policy.groups["topology.kubernetes.io/zone=*"].share == 0.25
