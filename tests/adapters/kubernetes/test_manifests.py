"""What adapters/kubernetes ships: a real API server takes it, and the roles in it can do their work and no more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nhc import __version__
from nhc.agent import settings as agent_settings
from nhc.core.language import loader
from nhc.core.limits import read_limit, read_rate
from nhc.core.settings import settings_file
from nhc.marks.policy.devices import DEVICE, DeviceSettings
from nhc_adapters.kubernetes.api.client import JSON_PATCH, MERGE_PATCH, STRATEGIC, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.node_report import parse_fault
from nhc_adapters.kubernetes.controller.rights import of_controller
from nhc_adapters.kubernetes.controller.settings import make, read
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from nhc_adapters.kubernetes.nodes.conditions import Condition, write_conditions
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.support.crds import install
from tests.support.kube import REPOSITORY, Kube
from tests.support.other_user import become
from tests.support.waiting import until

MANIFESTS = REPOSITORY / "adapters/kubernetes"
SYSTEM = "nhc-system"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
COMPONENTS = ("prometheus", "no-runtimeclass", "least-privilege", "preflight-cert-manager")
WITHOUT_AGENTS = (
    "devices",
    "eviction-requests",
    "gate",
    "maintenance",
    "preflight",
    "preflight-gang",
    "remedy-devices",
)
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


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name not in COMPONENTS])
def test_the_api_server_takes_every_overlay(installed: Any, overlay: str) -> None:
    rendered = installed.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)).stdout

    said = installed.kubectl(
        "apply", "--dry-run=server", "--force-conflicts", "--server-side", "-f", "-", stdin=rendered
    )

    assert said.stdout.count("serverside-applied (server dry run)") == rendered.count("\nkind: ") + (
        rendered.startswith("kind: ")
    )
    role = "clusterrole.rbac.authorization.k8s.io/nhc-"
    roles = [one for one in WITHOUT_AGENTS if one != "gate"]
    what = {"gate": "daemonset.apps/nhc-gate ", **{one: f"{role}{one} " for one in roles}}
    assert what.get(overlay, "daemonset.apps/nhc-agent-") in said.stdout


@pytest.mark.parametrize("where", ["overlays/cpu", "remedy", "remedy-repairs", "jobs"])
def test_the_pod_monitor_finds_every_pod_that_serves_metrics(plane: Any, where: str) -> None:
    """An agent serves to the network with the component that brings the PodMonitor."""
    monitor = yaml.safe_load((MANIFESTS / "overlays/prometheus/podmonitor.yaml").read_text())
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    ports = {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]}
    found = []
    for document in yaml.safe_load_all(plane.kubectl("kustomize", str(MANIFESTS / where)).stdout):
        template = document.get("spec", {}).get("template")
        if document["kind"] not in ("Deployment", "StatefulSet", "DaemonSet") or not template:
            continue
        served = {port.get("name") for one in template["spec"]["containers"] for port in one.get("ports", ())}
        if served & ports or document["kind"] == "DaemonSet":
            found.append(wanted <= template["metadata"]["labels"].items())
    assert found
    assert all(found)


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


def test_the_api_server_takes_the_example_of_a_suite_before_a_job(kube: Kube) -> None:
    example = MANIFESTS / "examples/prejob-suite.yaml"
    kube.plane.kubectl(  # a pod's account, which no controller makes in time
        "apply", "-n", kube.namespace, "-f", "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
    )  # fmt: skip
    said = kube.plane.kubectl(
        "apply", "-n", kube.namespace, "--dry-run=server", "--validate=strict", "-f", str(example)
    )
    assert "pod/train created (server dry run)" in said.stdout
    (container,) = yaml.safe_load(example.read_text())["spec"]["initContainers"]
    argv = [sys.executable, "-m", "nhc", *container["command"][1:], "--help"]
    assert container["command"][:4] == ["nhc", "deep", "run", "prejob"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr  # every option of it is one that nhc has


def test_the_api_server_takes_the_rule_that_keeps_pods_off_a_node_until_it_was_judged(kube: Kube, plane: Any) -> None:
    example = MANIFESTS / "examples/node-readiness-rule.yaml"
    install(kube)
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(example))
    assert "nodereadinessrule.readiness.node.x-k8s.io/nhc created (server dry run)" in said.stdout
    spec = yaml.safe_load(example.read_text())["spec"]
    # Its condition is one that agents may write, and its taint keeps no agent off.
    allowed = (MANIFESTS / "base/admission.yaml").read_text()
    assert all(f"'{one['type']}'" in allowed for one in spec["conditions"])
    agents_of = [doc for doc in yaml.safe_load_all(rendered(plane, "nvidia")) if doc["kind"] == "DaemonSet"]
    assert agents_of
    assert all({"operator": "Exists"} in doc["spec"]["template"]["spec"]["tolerations"] for doc in agents_of)


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    """The example's gate before a job, run with checks of the test's own by somebody without rights."""
    job = yaml.safe_load((MANIFESTS / "examples/init-container.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    assert container["command"][:3] == ["nhc", "check", "local"]

    def run(checks: str, choice: str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "nhc", *container["command"][1:]]
        if choice:
            argv[argv.index("--on-unknown") + 1] = choice
        config = tmp_path / "nhc.conf"
        config.write_text(checks)
        nobody: dict[str, Any] = {"preexec_fn": lambda: become(65534)} if os.geteuid() == 0 else {}
        for path in (tmp_path, *tmp_path.parents):
            if os.geteuid() == 0 and path.stat().st_uid == 0 and path != Path("/"):
                path.chmod(path.stat().st_mode | 0o055)
        return subprocess.run(
            [*argv, "--profile", "none", "-c", str(config)],
            capture_output=True, text=True, check=False, timeout=60, **nobody,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "NHC_STATE_DIR": str(tmp_path / "none")},
        )  # fmt: skip

    return run


@pytest.mark.thorough
def test_the_gate_before_a_job_says_what_it_could_not_read_and_a_choice_decides(gate: Any) -> None:
    unread = "* || check_kmsg --source dmesg=/proc/1/environ\n"  # nobody but its owner may read that
    admitted = gate(unread)
    assert admitted.returncode == 0
    assert "could not tell: check_kmsg: /proc/1/environ cannot be read: Permission denied" in admitted.stderr
    assert "let in (--on-unknown admit)" in admitted.stderr
    refused = gate(unread, "refuse")
    assert refused.returncode == 1
    assert "not let in (--on-unknown refuse)" in refused.stderr
    assert gate(unread, "tell").returncode == 3


@pytest.mark.thorough
def test_the_gate_before_a_job_stops_sick_nodes_and_its_own_mistakes_whatever_the_choice(
    gate: Any, tmp_path: Path
) -> None:
    log = tmp_path / "dmesg"
    log.write_text("[    1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    sick = gate(f"* || check_kmsg --source dmesg={log}\n")
    assert sick.returncode == 1
    assert "Xid 79" in sick.stdout
    log.write_text("[    1.0] all is well\n")
    assert gate(f"* || check_kmsg --source dmesg={log}\n", "refuse").returncode == 0
    assert gate(f"* || check_kmsg --source dmesg={log}\n", "perhaps").returncode == 2


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

    until(denied)  # a policy takes effect some moments after it was made


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
    until(lambda: "kubelet's conditions" in refused(lambda: write_conditions(client, mine, [_now("Ready", "False")])))
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


IMAGE = "registry.example.com/nhc"
TEMPLATE = ("template", "nhc", str(MANIFESTS / "chart"), "-n", SYSTEM, "--kube-version", "1.35.0", "--skip-tests")


def chart(plane: Any, *options: str) -> str:
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def helm(plane: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(plane.directory)}
    return subprocess.run(
        [str(plane.binaries / "helm"), *arguments], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.parametrize(
    "options",
    [
        (),
        tuple(EVERYTHING),
        ("--set=controller.enabled=false",),
        ("--set=controller.podLogNamespaces={default}",),
        (
            "--set=controller.devices.keep=device",
            "--set=preflight.enabled=true,preflight.settings.timeout=20s,preflight.gang.command=run x",
            "--set=controller.maintenance={nhc,nvsentinel},controller.evictionRequests=true",
        ),
        ("--set=agent.metrics=true,agent.port=9100,agent.labels.site=x", "--set=scripts.site\\.nhc=x=1"),
    ],
    ids=["defaults", "every accelerator", "agents alone", "pod logs", "devices", "agents' own"],
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
        ("agent.vocabularies={nagios}", "/agent/vocabularies/0"),
        ("controller.vocabularies=", "/controller/vocabularies"),
        ("controller.conditions={GpuCount=True\\,soon}", "/controller/conditions/0"),
        ("controller.conditions={GpuCount=Maybe}", "/controller/conditions/0"),
        ("controller.ceilings.all=101%", "/controller/ceilings/all"),
        ("controller.ceilings.nozone=5", "nozone"),
        ("controller.rates.mark=5 per 1.2.3h", "/controller/rates/mark"),
        ("controller.devices.keep=fewer", "/controller/devices/keep"),
        ("controller.devices.effect=None", "/controller/devices/effect"),
        ("controller.maintenance={kured}", "/controller/maintenance/0"),
        ("preflight.suite=a b", "/preflight/suite"),
        ("preflight.settings.timeout=2m", "/preflight/settings/timeout"),
        ("preflight.enabled=true,controller.enabled=false", "controller.enabled"),
        ("networkPolicy.egressPorts={0}", "/networkPolicy/egressPorts/0"),
        ("agents.nvidia.runtimeClassName=No Good", "/agents/nvidia/runtimeClassName"),
        ("agent.settings.retry=soon", "/agent/settings/retry"),
        ("agent.settings.recover=0", "/agent/settings/recover"),
        ("agent.settings.listen=0.0.0.0:1", "listen"),
        ("scripts.mine=x", "mine"),
        ("podMonitor.enabled=true", "agent.metrics"),
        ("image.repository=", "image.repository"),
        ("admissionPolicy.conditions={Site'Fan}", "/admissionPolicy/conditions/0"),
    ],
)
def test_the_chart_refuses_values_that_make_no_sense(plane: Any, option: str, said: str) -> None:
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", "--set", option)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"controller": {"podLogNamespaces": ["train"], "extraSettings": "[podlogs]\npods = 2\n"}},
            "controller.extraSettings: the table [podlogs] is the chart's own",
        ),
        (
            {"remedy": {"enabled": True, "settings": '[actions]\nmark = "maybe" # later\n[effect]\nreboot = "9m"\n'}},
            'remedy.settings: [actions]: mark = "maybe" # later: an action is',
        ),
        ({"agent": {"extraSettings": "[labels]\nsite = 'x'\n"}}, "agent.extraSettings: the table [labels] is the"),
        ({"agent": {"extraSettings": "[ sinks . kubernetes ]\n"}}, "the table [sinks.kubernetes] is the chart's own"),
    ],
)
def test_a_table_that_the_chart_writes_itself_is_refused_in_one_line(
    plane: Any, tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", "-f", str(tmp_path / "values.yaml"))
    assert done.returncode != 0
    assert said in done.stderr


def test_settings_of_the_users_own_go_before_the_charts_tables(plane: Any, tmp_path: Path) -> None:
    values = {
        "controller": {
            "podLogNamespaces": ["train"],
            "extraSettings": 'selector = "pool=a"\n[loki]\nurl = "http://l"\n',
        }
    }
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    rendered = chart(plane, "-f", str(tmp_path / "values.yaml"))
    (data,) = [doc["data"] for doc in yaml.safe_load_all(rendered) if doc["metadata"]["name"] == "nhc-settings"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    settings = read(str(tmp_path / "kubernetes.toml"))
    assert (settings.selector, settings.loki.url, settings.podlogs.namespaces) == ("pool=a", "http://l", ("train",))


def _pattern(*place: str) -> str:
    found = json.loads((MANIFESTS / "chart/values.schema.json").read_text())
    for step in place:
        found = found[step]
    return str(found["pattern"])


CONTROLLER = ("properties", "controller", "properties")


@pytest.mark.thorough
@hypothesis_settings(max_examples=100, deadline=None)
@given(
    st.from_regex(_pattern(*CONTROLLER, "conditions", "items"), fullmatch=True),
    st.from_regex(_pattern(*CONTROLLER, "ceilings", "additionalProperties"), fullmatch=True),
    st.from_regex(_pattern(*CONTROLLER, "rates", "properties", "mark"), fullmatch=True),
)
def test_what_the_charts_schema_takes_the_controller_takes(condition: str, ceiling: str, rate: str) -> None:
    parse_fault(condition.rstrip("\n"))
    read_limit(ceiling)
    read_rate(rate.rstrip("\n"))


@pytest.mark.parametrize("how", ["chart", "mixed"])
def test_agents_of_the_chart_and_of_kustomize_run_on_the_same_nodes_and_no_node_has_two(plane: Any, how: str) -> None:
    def affinities(text: str) -> dict[str, Any]:
        return {
            doc["metadata"]["name"]: doc["spec"]["template"]["spec"]
            for doc in yaml.safe_load_all(text)
            if doc["kind"] == "DaemonSet"
        }

    found = affinities(rendered(plane, how))
    shipped = affinities(rendered(plane, "mixed"))
    assert {name: (spec["affinity"], spec.get("runtimeClassName")) for name, spec in found.items()} == {
        name: (spec["affinity"], spec.get("runtimeClassName")) for name, spec in shipped.items()
    }
    # Each label that gives a node an accelerator's agent keeps the plain one away.
    terms = {
        name: spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        for name, spec in found.items()
    }
    kept = {one["key"] for one in terms["nhc-agent-cpu"][0]["matchExpressions"]}
    chosen = {one["key"] for name, each in terms.items() if name != "nhc-agent-cpu" for term in each
              for one in term["matchExpressions"]}  # fmt: skip
    assert kept == chosen


def test_nodes_and_runtime_class_of_agents_can_be_chosen(plane: Any, tmp_path: Path) -> None:
    terms = [{"matchExpressions": [{"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}]}]
    values = {"agents": {"nvidia": {"runtimeClassName": "", "nodeSelectorTerms": terms}}}
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    documents = yaml.safe_load_all(chart(plane, "-f", str(tmp_path / "values.yaml")))
    (spec,) = [doc["spec"]["template"]["spec"] for doc in documents if doc["kind"] == "DaemonSet"]
    assert "runtimeClassName" not in spec
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == terms
    parts = {name: os.path.relpath(MANIFESTS / "overlays" / name, tmp_path) for name in ("nvidia", "no-runtimeclass")}
    overlay = {"resources": [parts["nvidia"]], "components": [parts["no-runtimeclass"]]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    text = plane.kubectl("kustomize", str(tmp_path)).stdout
    assert "kind: DaemonSet" in text
    assert "runtimeClassName" not in text


def _deployment(text: str) -> dict[str, Any]:
    (found,) = [doc for doc in yaml.safe_load_all(text) if doc["kind"] == "Deployment"]
    return dict(found)


@pytest.mark.parametrize("how", ["chart", "nvidia"])
def test_a_cluster_of_gpu_nodes_alone_can_place_the_controller(kube: Kube, installed: Any, how: str) -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
              {"key": "nhc/unhealthy", "value": "true", "effect": "NoSchedule"}]  # fmt: skip
    nodes = [kube.node(f"gpu{number}", labels=labels, spec={"taints": taints}) for number in range(2)]
    spec = _deployment(rendered(kube.plane, how))["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"test": kube.prefix}
    body = {
        "metadata": {"name": "controller", "namespace": kube.namespace},
        "spec": {**spec, "serviceAccountName": "default", "priorityClassName": ""},
    }
    kube.admin.post(f"/api/v1/namespaces/{kube.namespace}/pods", body)
    path = f"/api/v1/namespaces/{kube.namespace}/pods/controller"
    until(lambda: kube.admin.get(path)["spec"].get("nodeName") in nodes, within=60)


def test_the_settings_have_one_name_and_are_edited_with_kubectl_alone(
    kube: Kube, installed: Any, tmp_path: Path
) -> None:
    """The documented command, with an editor that writes what a person would."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/apply = false/apply = true/' \"$1\"\n")
    editor.chmod(0o755)
    command = "kubectl -n nhc-system edit configmap nhc-settings"
    assert command in (REPOSITORY / "docs/kubernetes.md").read_text()
    overlay = installed.kubectl("kustomize", str(MANIFESTS / "overlays/hyperpod")).stdout
    mounted = _deployment(overlay)["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert mounted == "nhc-settings"
    binary = [str(installed.binaries / "nhc-kube"), "kubectl", f"--kubeconfig={kube.kubeconfig(tmp_path)}"]
    done = subprocess.run([*binary, *command.split()[1:]], capture_output=True, text=True, check=False,
                          env={**os.environ, "KUBE_EDITOR": str(editor)}, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/nhc-settings"
    assert "apply = true" in kube.admin.get(path)["data"]["kubernetes.toml"]


def test_the_documented_installation_needs_kubectl_alone(plane: Any, tmp_path: Path) -> None:
    """The directory that docs/kubernetes.md has its reader write, built by kubectl."""
    text = (REPOSITORY / "docs/kubernetes.md").read_text()
    _before, _cat, rest = text.partition("cat > deployed/kustomization.yaml <<'END'\n")
    written = textwrap.dedent(rest.partition("    END\n")[0])
    assert "kubectl apply -k deployed" in text
    for tool in ("kustomize edit", "kustomize build"):
        assert tool not in text
    (tmp_path / "adapters").mkdir()
    shutil.copytree(MANIFESTS, tmp_path / "adapters/kubernetes")
    (tmp_path / "deployed").mkdir()
    (tmp_path / "deployed/kustomization.yaml").write_text(written)
    rendered = plane.kubectl("kustomize", str(tmp_path / "deployed")).stdout
    images = {line.split()[-1] for line in rendered.splitlines() if line.strip().startswith("image:")}
    (image,) = images
    assert f"newName: {image.rpartition(':')[0]}" in written
    assert "registry.example.com" not in image


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
    assert settings.policy.bounds.named["topology.kubernetes.io/zone=*"].share == 0.25


# What the agent is started with.


def agents(text: str) -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """The container of each of the agent's DaemonSets, and the files of its /etc/nhc."""
    documents = list(yaml.safe_load_all(text))
    maps = {doc["metadata"]["name"]: doc["data"] for doc in documents if doc["kind"] == "ConfigMap"}
    found = {}
    for doc in documents:
        if doc["kind"] == "DaemonSet" and doc["metadata"]["name"].startswith("nhc-agent"):
            spec = doc["spec"]["template"]["spec"]
            (source,) = [volume["configMap"]["name"] for volume in spec["volumes"] if volume["name"] == "checks"]
            found[doc["metadata"]["name"]] = (spec["containers"][0], maps[source])
    return found


def rendered(plane: Any, how: str, *options: str) -> str:
    if how == "chart":
        return chart(plane, *EVERYTHING, *options)
    return str(plane.kubectl("kustomize", str(MANIFESTS / "overlays" / how)).stdout)


def test_the_right_to_take_a_device_out_is_given_where_it_is_asked_for_and_is_the_same_in_both(plane: Any) -> None:
    def roles(text: str) -> dict[str, Any]:
        documents = list(yaml.safe_load_all(text))
        return {doc["metadata"]["name"]: doc["rules"] for doc in documents if doc["kind"] == "ClusterRole"}

    assert "nhc-devices" not in roles(chart(plane))
    assert "nhc-devices" not in roles(rendered(plane, "nvidia"))
    charted = roles(chart(plane, "--set=controller.devices.keep=device"))["nhc-devices"]
    assert charted == roles(rendered(plane, "devices"))["nhc-devices"]
    asked = of_controller(make(devices=DeviceRuleSettings(DeviceSettings(DEVICE))))
    given = {f"{verb} {resource}" for rule in charted for resource in rule["resources"] for verb in rule["verbs"]}
    assert {f"{one.verb} {one.resource}" for one in asked if one.group == "resource.k8s.io"} == given


@pytest.mark.parametrize("managed", [False, True], ids=["self-made", "cert-manager"])
def test_the_preflight_webhook_is_the_same_in_both_and_its_certificate_can_be_cert_managers(
    plane: Any, tmp_path: Path, managed: bool
) -> None:
    components = ["preflight", *(["preflight-cert-manager"] if managed else [])]
    paths = [os.path.relpath(MANIFESTS / "overlays" / one, tmp_path) for one in components]
    base = os.path.relpath(MANIFESTS / "overlays/nvidia", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(json.dumps({"resources": [base], "components": paths}))
    options = ("--set=preflight.enabled=true", f"--set=preflight.certManager={str(managed).lower()}")
    how = {"chart": chart(plane, *options), "kustomize": plane.kubectl("kustomize", str(tmp_path)).stdout}
    found = {}
    for name, text in how.items():
        ours = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] == "nhc-preflight"]
        by_kind = {one["kind"]: one for one in ours}
        container = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        webhooks = by_kind["MutatingWebhookConfiguration"]
        assert ("--certificate" in container["args"]) is managed
        assert ("annotations" in webhooks["metadata"]) is managed
        found[name] = (
            container["args"], webhooks["webhooks"], by_kind["Role"]["rules"], by_kind["ClusterRole"]["rules"],
            by_kind.get("Certificate", {}).get("spec"),
        )  # fmt: skip
    assert found["chart"] == found["kustomize"]


@pytest.mark.parametrize("how", ["chart", *[one for one in OVERLAYS if one not in COMPONENTS + WITHOUT_AGENTS]])
def test_an_agent_s_settings_and_checks_are_ones_it_takes(plane: Any, how: str, tmp_path: Path) -> None:
    for container, files in agents(rendered(plane, how)).values():
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        option, place = container["args"][2:4]
        assert (container["args"][:2], option, place) == (["serve", "agent"], "--settings", "/etc/nhc/agent.toml")
        found = agent_settings.parse(files["agent.toml"], "agent.toml")
        assert [*found.config] == ["/etc/nhc/nhc.conf", "/etc/nhc/accelerator.conf"]
        assert not loader.validate([str(tmp_path / Path(path).name) for path in found.config]).problems
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/etc/nhc", *found.scripts, found.state,
                                                                               "/host"}  # fmt: skip
        for vocabulary in found.sinks["kubernetes"]["vocabularies"]:
            load(vocabulary)


@pytest.mark.parametrize(
    ("how", "options", "address"),
    [
        ("cpu", (), "127.0.0.1:20258"),
        ("chart", (), "127.0.0.1:20258"),
        ("chart", ("--set=agent.metrics=true,agent.port=9100",), "0.0.0.0:9100"),
    ],
)
def test_the_probes_ask_where_the_agent_listens(plane: Any, how: str, options: tuple[str, ...], address: str) -> None:
    for container, files in agents(rendered(plane, how, *options)).values():
        assert agent_settings.parse(files["agent.toml"], "").listen == (address,)
        for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/healthz")):
            port = int(address.rpartition(":")[2])
            assert container[probe]["httpGet"] == {"host": "127.0.0.1", "path": path, "port": port}
        named = [port for port in container.get("ports", []) if port["name"] == "metrics"]
        assert [port["containerPort"] for port in named] == ([] if address.startswith("127") else [9100])


def test_who_is_scraped_serves_metrics_to_the_network(plane: Any, tmp_path: Path) -> None:
    parts = {kind: os.path.relpath(MANIFESTS / "overlays" / kind, tmp_path) for kind in ("mixed", "prometheus")}
    overlay = {"resources": [parts["mixed"]], "components": [parts["prometheus"]]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))

    text = plane.kubectl("kustomize", str(tmp_path)).stdout

    found = agents(text)
    assert len(found) == 5
    for container, _files in found.values():
        assert container["args"][-1] == "--listen=0.0.0.0:20258"
        assert container["ports"] == [{"name": "metrics", "containerPort": 20258}]
    assert "kind: PodMonitor" in text


def test_conditions_have_the_names_that_the_platform_knows(plane: Any) -> None:
    def names(text: str) -> dict[str, list[str]]:
        toml = {kind: agent_settings.parse(files["agent.toml"], "") for kind, (_c, files) in agents(text).items()}
        return {kind: found.sinks["kubernetes"]["vocabularies"] for kind, found in toml.items()}

    assert names(rendered(plane, "hyperpod")) == {
        "nhc-agent-nvidia": ["nhc", "hyperpod"], "nhc-agent-neuron": ["nhc", "neuron", "hyperpod"],
    }  # fmt: skip
    assert names(rendered(plane, "neuron")) == {"nhc-agent-neuron": ["nhc", "neuron"]}
    charted = names(rendered(plane, "chart", "--set=agent.vocabularies={nhc,aks}"))
    assert charted["nhc-agent-nvidia"] == ["nhc", "aks"]
    assert charted["nhc-agent-neuron"] == ["nhc", "aks", "neuron"]


def test_the_image_is_named_in_one_place_of_each_tool(plane: Any, tmp_path: Path) -> None:
    for how in ("mixed", "chart"):
        images = {line.split()[-1] for line in rendered(plane, how).splitlines() if line.strip().startswith("image:")}
        assert images == {f"{IMAGE}:{__version__}"}
    files = [path for path in MANIFESTS.rglob("*") if path.suffix in (".yaml", ".tpl") and IMAGE in path.read_text()]
    assert {str(path.relative_to(MANIFESTS)) for path in files} == {"image/kustomization.yaml",
                                                                    "examples/init-container.yaml"}  # fmt: skip


def test_the_chart_lets_any_setting_of_the_agent_be_given_and_no_other() -> None:
    schema = json.loads((MANIFESTS / "chart/values.schema.json").read_text())
    given = schema["properties"]["agent"]["properties"]["settings"]["properties"]
    ours = {"node", "root", "config", "scripts", "state", "listen", "socket"}  # the manifest's
    file = settings_file.parse("", "agent.toml")
    agent_settings.read(file)
    assert set(given) == file.table("agent").known - ours


# The image.


@pytest.mark.thorough
def test_what_the_containerfile_copies_is_what_the_package_needs(tmp_path: Path) -> None:
    """The steps of its first stage, up to what comes from the network."""
    steps = (MANIFESTS / "Containerfile").read_text().splitlines()
    for line in steps:
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            *sources, target = words[1:]
            for source in sources:
                place = tmp_path / (target if target != "./" else source)
                tree = REPOSITORY / source
                shutil.copytree(tree, place) if tree.is_dir() else shutil.copy(tree, place)

    done = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip

    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        (metadata,) = [content.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert {"nhc/node/hosts/container.py", "nhc_adapters/kubernetes/sink.py"} <= set(names)
    assert any(name.endswith(".data/scripts/nhc") for name in names)
    assert all(f"Provides-Extra: {extra}" in metadata for extra in ("console", "kubernetes", "remedy"))
    assert 'ENTRYPOINT ["nhc"]' in steps


def test_the_image_is_made_of_parts_that_are_named_by_their_digests() -> None:
    text = (MANIFESTS / "Containerfile").read_text().replace("\\\n", " ")
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    installs = re.findall(r"pip install ([^&\n]*)", text)
    assert len(installs) == 3
    for words in installs:
        assert "--no-deps" in words
        assert "--require-hashes" in words or "--no-index" in words
        for lock in re.findall(r"-r (\S+)", words):
            assert all("--hash=sha256:" in one for one in _locked(REPOSITORY / lock))
    assert text.rstrip().splitlines()[-2] == "USER 65532:65532", "the agent's DaemonSet alone makes it root"


def _locked(path: Path) -> list[str]:
    found = re.split(r"\n(?=\S)", path.read_text().strip())
    assert found
    return found
