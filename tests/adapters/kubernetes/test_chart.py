"""The chart as people install it: by helm, under the admission that clouds and distributions have, more than once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import yaml

from nhc_adapters.kubernetes.api.client import STRATEGIC, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.settings import read
from tests.adapters.kubernetes.test_manifests import EVERYTHING, IMAGE, MANIFESTS, TEMPLATE, chart, helm
from tests.adapters.kubernetes.test_manifests_remedy import ON
from tests.support.kube import REPOSITORY, Kube, environment, started
from tests.support.waiting import until

CHART = MANIFESTS / "chart"
WITH_ALL = (*EVERYTHING, *ON, "--set=jobs.enabled=true,jobs.readLogs=true,remedy.devices=true,remedy.handoffs={metal3}",
            "--set=controller.podLogNamespaces={default},controller.devices.keep=device,scripts.site\\.nhc=x=1",
            "--set=agent.metrics=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true",
            "--set=openshift.securityContextConstraints=always")  # fmt: skip
PARTS = ("agent", "controller", "remedy", "jobs", "server", "console")
SYSTEM_CLASSES = ["system-node-critical", "system-cluster-critical"]
ADMISSION = {
    "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
        {"name": "ResourceQuota", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
            "limitedResources": [{"resource": "pods", "matchScopes": [
                {"scopeName": "PriorityClass", "operator": "In", "values": SYSTEM_CLASSES}]}]}},
        {"name": "PodSecurity", "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "baseline", "enforce-version": "latest"}}},
    ],
}  # fmt: skip
"""What GKE asks of the system's priority classes, and what Talos enforces in namespaces without a label."""


def rendered(plane: Any, release: str, *options: str, tests: bool = False) -> List[Dict[str, Any]]:
    words = [release if word == "nhc" else word for word in TEMPLATE if not tests or word != "--skip-tests"]
    done = helm(plane, *words, f"--set=image.repository={IMAGE}", *options)
    assert done.returncode == 0, done.stderr
    return [doc for doc in yaml.safe_load_all(done.stdout) if doc]


def keys(documents: List[Dict[str, Any]]) -> set[Tuple[str, str, str]]:
    return {(doc["kind"], doc["metadata"].get("namespace", ""), doc["metadata"]["name"]) for doc in documents}


def pods_of(documents: List[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """The pods' templates, by the name of what makes them, and the pods of `helm test`."""
    kinds = ("Deployment", "StatefulSet", "DaemonSet")
    made = {doc["metadata"]["name"]: doc["spec"]["template"] for doc in documents if doc["kind"] in kinds}
    return {**made, **{doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "Pod"}}


@pytest.mark.parametrize(
    ("first", "second", "begins"),
    [
        ("nhc", "gpu", "gpu-nhc-"),
        (f"{'a' * 45}-one", f"{'a' * 45}-two", "aaaa"),
        ("a.b", "a-c", "a-c-nhc-"),
    ],
)
def test_two_releases_of_one_namespace_have_no_object_in_common(
    plane: Any, first: str, second: str, begins: str
) -> None:
    one, two = (rendered(plane, release, *WITH_ALL, tests=True) for release in (first, second))
    assert keys(one) & keys(two) == set()
    assert len(keys(one)) == len(keys(two)) == len(one)
    assert [name for _kind, _where, name in keys(two) if not f"{name}-".startswith(begins)] == []
    for doc in two:
        text = json.dumps(doc)
        behind = 11 if doc["kind"] == "StatefulSet" else 0  # a StatefulSet's pods have its revision in a label
        assert len(doc["metadata"]["name"]) + behind <= 63
        if first == "nhc" and doc["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            assert '"nhc-agent"' not in text
            assert '"nhc-controller"' not in text


def test_the_controllers_settings_name_its_own_objects(plane: Any, tmp_path: Path) -> None:
    documents = rendered(plane, "gpu", "--set=agentNamespace.name=nhc-agents")
    (data,) = [doc["data"] for doc in documents if doc["metadata"]["name"] == "gpu-nhc-settings"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    settings = read(str(tmp_path / "kubernetes.toml"))
    assert (settings.object_name("ledger"), settings.agent_namespace) == ("gpu-nhc-ledger", "nhc-agents")
    (role,) = [doc for doc in documents if doc["kind"] == "Role" and doc["metadata"]["name"] == "gpu-nhc-controller"]
    named = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
    assert named == {settings.object_name(part) for part in ("controller", "ledger", "cursors")}


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (("--set=nameOverride=health",), "nhc-health-"),
        (("--set=fullnameOverride=site",), "site-"),
    ],
)
def test_names_can_be_chosen(plane: Any, options: Tuple[str, ...], begins: str) -> None:
    names = [name for _kind, _where, name in keys(rendered(plane, "nhc", *WITH_ALL, *options))]
    assert [name for name in names if not f"{name}-".startswith(begins)] == []


def test_every_pod_has_what_its_site_asks_for(plane: Any, tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    values: Dict[str, Any] = {
        "image": {"digest": digest}, "imagePullSecrets": [{"name": "registry"}],
        "podLabels": {"team": "site", "app.kubernetes.io/component": "theirs"}, "podAnnotations": {"scan": "no"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}], "log": {"format": "json"},
    }  # fmt: skip
    for part in PARTS:
        values[part] = {
            "podLabels": {"team": part}, "podAnnotations": {"owner": part},
            "extraEnv": [{"name": "PART", "value": part}],
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": f"arn:{part}"}},
        }  # fmt: skip
        if part != "agent":
            values[part] |= {"nodeSelector": {"pool": part}, "tolerations": [{"key": part, "operator": "Exists"}]}
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    documents = rendered(plane, "nhc", *WITH_ALL, "-f", str(tmp_path / "values.yaml"), tests=True)
    accounts = {doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "ServiceAccount"}
    templates = pods_of(documents)
    assert len(templates) == 12
    for name, template in templates.items():
        *_nhc, kind, part = name.split("-") if "-test-" in name else name.split("-")[:2] * 2
        spec, labels = template["spec"], template["metadata"]["labels"]
        assert (labels["team"], labels["app.kubernetes.io/component"]) == (part, "test" if kind == "test" else part)
        assert labels["helm.sh/chart"].startswith("nhc-")
        assert {"scan": "no", "owner": part}.items() <= template["metadata"]["annotations"].items()
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        (container,) = spec["containers"]
        assert container["image"] == f"{IMAGE}@{digest}"
        shown = {one["name"]: one.get("value") for one in container["env"]}
        assert {"HTTPS_PROXY": "http://proxy:3128", "PART": part, "NHC_LOG_FORMAT": "json"}.items() <= shown.items()
        assert accounts[spec["serviceAccountName"]]["metadata"]["annotations"] == {
            "eks.amazonaws.com/role-arn": f"arn:{part}"
        }
        if part != "agent":
            assert spec["nodeSelector"] == {"pool": part}
            assert {"key": part, "operator": "Exists"} in spec["tolerations"]
    assert all(account["imagePullSecrets"] == [{"name": "registry"}] for account in accounts.values())
    for doc in documents:
        assert doc["metadata"]["labels"]["helm.sh/chart"].startswith("nhc-"), doc["metadata"]["name"]


def test_an_account_that_exists_is_bound_and_not_made(plane: Any) -> None:
    options = ("--set=controller.serviceAccount.create=false,controller.serviceAccount.name=theirs",
               "--set=agent.serviceAccount.name=their-agent")  # fmt: skip
    documents = rendered(plane, "nhc", *options)
    assert [doc["metadata"]["name"] for doc in documents if doc["kind"] == "ServiceAccount"] == ["their-agent"]
    assert pods_of(documents)["nhc-controller"]["spec"]["serviceAccountName"] == "theirs"
    bound = {
        doc["metadata"]["name"]: [one["name"] for one in doc["subjects"]] for doc in documents if "subjects" in doc
    }
    assert bound["nhc-agent"] == ["their-agent"]
    assert bound["nhc-controller"] == ["theirs"]
    assert bound["nhc-events"][:2] == ["their-agent", "theirs"]
    (policy,) = [doc for doc in documents if doc["kind"] == "ValidatingAdmissionPolicy"]
    assert policy["spec"]["matchConditions"][0]["expression"].endswith(":nhc-system:their-agent'")


def test_agents_and_repairs_can_have_a_namespace_apart(plane: Any) -> None:
    options = ("--set=agentNamespace.name=nhc-agents,agentNamespace.create=true", "--set=remedy.jobs=true", *ON)
    documents = rendered(plane, "nhc", *EVERYTHING, *options)
    apart = {(kind, name) for kind, where, name in keys(documents) if where == "nhc-agents"}
    assert {name for kind, name in apart if kind == "DaemonSet"} == set(pods_of(documents)) - {
        "nhc-controller", "nhc-remedy", "nhc-server", "nhc-console",
    }  # fmt: skip
    assert {name for kind, name in apart if kind == "ServiceAccount"} == {
        "nhc-agent", "nhc-remedy-suite", "nhc-remedy-repair",
    }  # fmt: skip
    assert {("NetworkPolicy", "nhc-repair"), ("Role", "nhc-remedy-jobs"), ("ResourceQuota", "nhc-critical")} <= apart
    (made,) = [doc for doc in documents if doc["kind"] == "Namespace"]
    assert made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    privileged = [name for name, template in pods_of(documents).items() if template["spec"].get("hostPID")]
    assert {("DaemonSet", name) for name in privileged} <= apart


def test_rules_and_dashboards_are_the_mixins(plane: Any) -> None:
    documents = rendered(plane, "gpu", *WITH_ALL, "--set=prometheusRule.runbooks=https://wiki.example.org/alerts",
                         "--set=prometheusRule.labels.release=prometheus")  # fmt: skip
    (rules,) = [doc for doc in documents if doc["kind"] == "PrometheusRule"]
    made = rules["spec"]["groups"]
    for group in made:
        for rule in group["rules"]:
            place = f"#{rule['alert'].lower()}"
            assert rule["annotations"].pop("runbook_url") == f"https://wiki.example.org/alerts{place}"
    assert made == json.loads((REPOSITORY / "adapters/prometheus/alerts.json").read_text())["groups"]
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    boards = {name: json.loads(text) for doc in documents if doc["metadata"]["name"].startswith("gpu-nhc-dashboard-")
              for name, text in doc["data"].items()}  # fmt: skip
    files = sorted((REPOSITORY / "adapters/prometheus/dashboards").glob("*.json"))
    assert boards == {f"nhc-{path.name}": json.loads(path.read_text()) for path in files}


@pytest.mark.parametrize("how", ["chart", "kustomize"])
def test_the_pod_monitor_gives_each_part_the_job_that_the_rules_know(plane: Any, how: str) -> None:
    """The operator's own job would be the PodMonitor's namespace and name, of which no rule knows."""
    if how == "chart":
        (monitor,) = [doc for doc in rendered(plane, "gpu", *WITH_ALL) if doc["kind"] == "PodMonitor"]
    else:
        monitor = yaml.safe_load((MANIFESTS / "overlays/prometheus/podmonitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    given = {one["regex"]: one["replacement"] for one in endpoint["relabelings"]}
    assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"job"}
    assert given == {"agent": "nhc", "controller": "nhc-kubernetes", "jobs": "nhc-job", "remedy": "nhc-remedy"}
    rules = (REPOSITORY / "adapters/prometheus/alerts.json").read_text()
    assert 'up{job=\\"nhc\\"}' in rules


SCC_FIELDS: Dict[str, Any] = {
    **{name: {"type": "boolean"} for name in (
        "allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
        "allowPrivilegeEscalation", "allowPrivilegedContainer", "readOnlyRootFilesystem")},
    **{name: {"type": "array", "items": {"type": "string"}} for name in (
        "allowedCapabilities", "defaultAddCapabilities", "requiredDropCapabilities", "groups", "users",
        "seccompProfiles", "volumes")},
    **{name: {"type": "object", "properties": {"type": {"type": "string"}}} for name in (
        "fsGroup", "runAsUser", "seLinuxContext", "supplementalGroups")},
    "priority": {"type": "integer"},
}  # fmt: skip
"""SecurityContextConstraints' fields that the chart writes (github.com/openshift/api, security/v1/types.go)."""
SCC_REQUIRED = ["allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
                "allowPrivilegedContainer", "allowedCapabilities", "defaultAddCapabilities", "priority",
                "readOnlyRootFilesystem", "requiredDropCapabilities", "volumes"]  # fmt: skip
SCC = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {"group": "security.openshift.io", "scope": "Cluster",
             "names": {"kind": "SecurityContextConstraints", "plural": "securitycontextconstraints"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "properties": SCC_FIELDS, "required": SCC_REQUIRED}}}]},
}  # fmt: skip


# On a plane with GKE's and Talos' admission.


@pytest.fixture(scope="module")
def strict_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    place = tmp_path_factory.mktemp("strict")
    (place / "admission.json").write_text(json.dumps(ADMISSION))
    with started(place / "plane", admission=place / "admission.json") as running:
        yield running


@pytest.fixture
def cluster(strict_plane: Any) -> Iterator[Kube]:
    """Two nodes with GPUs, of which the kubelets are played."""
    kube = Kube(strict_plane, None, "t", "default")  # type: ignore[arg-type]
    kube.admin = kube.client(strict_plane.token)
    kube.ready(*(kube.node(f"gpu{number}", labels={"nvidia.com/gpu.present": "true"}) for number in range(2)))
    yield kube
    for release in json.loads(helmed(kube, "list", "-A", "-a", "-o", "json").stdout):
        helmed(kube, "uninstall", release["name"], "-n", release["namespace"])
    for name in kube.nodes:
        kube.admin.delete(f"/api/v1/nodes/{name}")
    kube.admin.close()


def helmed(kube: Kube, *words: str) -> subprocess.CompletedProcess[str]:
    return helm(kube.plane, *words, "--kubeconfig", str(kube.plane.kubeconfig))


def install(kube: Kube, release: str, namespace: str, *options: str) -> str:
    done = helmed(kube, "install", release, str(CHART), "-n", namespace, "--create-namespace",
                  f"--set=image.repository={IMAGE},agents.nvidia.runtimeClassName=", *options)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ready(kube: Kube, kind: str, namespace: str, name: str) -> int:
    status = kube.admin.get(namespaced(namespace, kind, name, "apis/apps/v1")).get("status") or {}
    return int(status.get("numberReady") or status.get("readyReplicas") or 0)


def refusals(kube: Kube, namespace: str) -> str:
    events = kube.admin.items(namespaced(namespace, "events"), fieldSelector="reason=FailedCreate")
    return "\n".join(str(event.get("message")) for event in events)


def test_the_chart_runs_as_its_readme_installs_it(cluster: Kube) -> None:
    cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": "labelled"}})
    cluster.plane.kubectl("label", "namespace", "labelled", "pod-security.kubernetes.io/enforce=privileged")
    label = "kubectl label namespace nhc-system pod-security.kubernetes.io/enforce=privileged"
    assert label in (CHART / "README.md").read_text()
    notes = install(cluster, "gpu", "labelled")
    assert "kubectl label namespace labelled pod-security.kubernetes.io/enforce=privileged" in notes
    assert "deploy/gpu-nhc-controller -- nhc doctor kubernetes" in notes
    until(lambda: ready(cluster, "daemonsets", "labelled", "gpu-nhc-agent-nvidia") == 2, 60)
    until(lambda: ready(cluster, "deployments", "labelled", "gpu-nhc-controller") == 2, 60)


def test_without_the_label_or_the_quota_the_server_takes_no_pod(cluster: Kube) -> None:
    """What the test before this one rests on: the plane refuses, and says so."""
    install(cluster, "bare", "unlabelled", "--set=resourceQuota.enabled=false")
    until(lambda: "insufficient quota to match these scopes" in refusals(cluster, "unlabelled"), 60)
    helmed(cluster, "upgrade", "bare", str(CHART), "-n", "unlabelled", "--reset-then-reuse-values",
           "--set=resourceQuota.enabled=true")  # fmt: skip
    until(lambda: 'violates PodSecurity "baseline' in refusals(cluster, "unlabelled"), 60)
    until(lambda: ready(cluster, "deployments", "unlabelled", "bare-nhc-controller") == 2, 90)
    assert ready(cluster, "daemonsets", "unlabelled", "bare-nhc-agent-nvidia") == 0


def test_a_namespace_of_the_agents_own_keeps_all_others_restricted_and_two_releases_live_beside_each_other(
    cluster: Kube, tmp_path: Path
) -> None:
    body = {"metadata": {"name": "apart", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.admin.post("/api/v1/namespaces", body)
    for release in ("one", "two"):
        install(cluster, release, "apart", f"--set=agentNamespace.name={release}-agents,agentNamespace.create=true")
    for release in ("one", "two"):
        agents = f"{release}-agents"
        until(lambda: ready(cluster, "daemonsets", agents, f"{release}-nhc-agent-nvidia") == 2, 60)  # noqa: B023
        until(lambda: ready(cluster, "deployments", "apart", f"{release}-nhc-controller") == 2, 60)  # noqa: B023
    assert helm_test(cluster, "one", "apart", "one-nhc-controller", tmp_path).returncode == 0
    helmed(cluster, "upgrade", "one", str(CHART), "-n", "apart", "--reset-then-reuse-values",
           "--set=controller.extraSettings=nonsense = 1")  # fmt: skip
    failed = helm_test(cluster, "one", "apart", "one-nhc-controller", tmp_path)
    assert failed.returncode != 0, failed.stdout


def helm_test(kube: Kube, release: str, namespace: str, account: str, place: Path) -> subprocess.CompletedProcess[str]:
    """`helm test`, whose pod runs as a process here: its arguments, its account's token, its ConfigMap."""
    done: List[subprocess.CompletedProcess[str]] = []
    words = ("test", release, "-n", namespace, "--timeout", "60s")
    thread = threading.Thread(target=lambda: done.append(helmed(kube, *words)))
    thread.start()
    path = namespaced(namespace, "pods", f"{account.rpartition('-')[0]}-test-controller")
    pod = until(lambda: found(kube, path), 60)
    (container,) = pod["spec"]["containers"]
    (settings,) = [one["configMap"]["name"] for one in pod["spec"]["volumes"] if one["name"] == "settings"]
    for name, text in kube.admin.get(namespaced(namespace, "configmaps", settings))["data"].items():
        (place / name).write_text(text)
    config = kube.kubeconfig(place, kube.token(pod["spec"]["serviceAccountName"], namespace))
    argv = [str(place / Path(word).name) if word.startswith("/etc/nhc/") else word for word in container["args"]]
    run = subprocess.run(
        [sys.executable, "-m", "nhc", *argv], capture_output=True, text=True, check=False, timeout=60,
        env=environment(KUBECONFIG=str(config)), cwd=os.path.dirname(REPOSITORY),
    )  # fmt: skip
    phase = "Failed" if run.returncode else "Succeeded"
    kube.admin.patch(f"{path}/status", {"status": {"phase": phase}}, STRATEGIC)
    thread.join(90)
    return done[0]


def found(kube: Kube, path: str) -> Any:
    try:
        pod = kube.admin.get(path)
    except ApiError:
        return None
    return None if pod["metadata"].get("deletionTimestamp") else pod


def test_openshift_gets_constraints_for_agents_alone_where_it_has_the_kind(cluster: Kube) -> None:
    kube = cluster
    assert "SecurityContextConstraints" not in chart(kube.plane)
    kube.plane.kubectl("apply", "-f", "-", stdin=json.dumps(SCC))
    try:
        name = f"crd/{SCC['metadata']['name']}"  # type: ignore[index]
        kube.plane.kubectl("wait", "--for=condition=Established", name, "--timeout=20s")
        install(kube, "shift", "default")
        made = kube.admin.get("/apis/security.openshift.io/v1/securitycontextconstraints/shift-nhc-agent")
        assert made["users"] == ["system:serviceaccount:default:shift-nhc-agent"]
        assert {name for name in made if name not in ("apiVersion", "kind", "metadata")} == set(SCC_FIELDS)
        assert made["allowPrivilegedContainer"] is True
    finally:
        helmed(kube, "uninstall", "shift", "-n", "default")
        kube.plane.kubectl("delete", "crd", "securitycontextconstraints.security.openshift.io")


def test_the_readme_names_every_value() -> None:
    text, values = (CHART / "README.md").read_text(), yaml.safe_load((CHART / "values.yaml").read_text())
    assert [name for name in values if f"`{name}" not in text] == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("image.digest=sha256:short", "/image/digest"),
        ("imagePullSecrets[0].nam=x", "/imagePullSecrets/0"),
        ("imagePullSecrets={registry}", "/imagePullSecrets/0"),
        ("extraEnv[0].value=x", "/extraEnv/0"),
        ("fullnameOverride=No Good", "/fullnameOverride"),
        ("nameOverride=-x", "/nameOverride"),
        ("agent.serviceAccount.annotation=x", "/agent/serviceAccount"),
        ("openshift.securityContextConstraints=perhaps", "/openshift/securityContextConstraints"),
        ("agentNamespace.name=a.b", "/agentNamespace/name"),
        ("prometheusRule.runbooks=wiki", "/prometheusRule/runbooks"),
        ("podLabels.team=3", "/podLabels/team"),
    ],
)
def test_the_chart_refuses_values_that_make_no_sense(plane: Any, option: str, said: str) -> None:
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", "--set", option)
    assert done.returncode != 0
    assert said in done.stderr
