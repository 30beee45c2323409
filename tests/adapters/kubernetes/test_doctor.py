"""`nhc doctor kubernetes` on installations that are sound and on ones that are not, on a real control plane."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Iterator

import pytest
import yaml

from nhc.core.timestamps import from_utc, utc
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.controller.settings import make
from nhc_adapters.kubernetes.doctor import doctor
from nhc_adapters.kubernetes.doctor.controller import Installation, _allows
from nhc_adapters.kubernetes.doctor.doctor import examine, sick
from nhc_adapters.kubernetes.nodes.scheduling import chooses
from tests.adapters.kubernetes.conftest import MANIFESTS
from tests.adapters.kubernetes.test_commands import nhc as nhc_fixture
from tests.support.kube import Kube
from tests.support.waiting import until

nhc = nhc_fixture
GPU = {"nvidia.com/gpu.present": "true"}
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Installed:
    """The nvidia overlay in the test's own namespace; what belongs to the whole cluster has the test's own names."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        rendered = kube.plane.kubectl("kustomize", str(MANIFESTS / "overlays/nvidia")).stdout
        documents = list(yaml.safe_load_all(rendered.replace("nhc-system", kube.namespace)))
        self.kinds: dict[str, list[dict[str, Any]]] = {}
        for document in documents:
            self.kinds.setdefault(document["kind"], []).append(document)
        for document in (*self.kinds["DaemonSet"], *self.kinds["Deployment"]):
            document["spec"]["template"]["spec"]["nodeSelector"] = {"test": kube.prefix}
        self.runtime = f"{kube.prefix}-nvidia"
        self.kinds["DaemonSet"][0]["spec"]["template"]["spec"]["runtimeClassName"] = self.runtime

    def apply(self, *kinds: str) -> None:
        chosen = [document for kind in kinds for document in self.kinds[kind]]
        self.kube.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": chosen}),
        )  # fmt: skip

    def bind(self) -> None:
        """The cluster's roles, for the accounts of this namespace."""
        for account in ("nhc-agent", "nhc-controller"):
            (role,) = [one for one in self.kinds["ClusterRole"] if one["metadata"]["name"] == account]
            name = f"{self.kube.prefix}-{account}"
            self.kube.admin.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": role["rules"]})
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            subject = {"kind": "ServiceAccount", "name": account, "namespace": self.kube.namespace}
            body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
            self.kube.admin.post(f"{RBAC}/clusterrolebindings", body)
        events = [one for one in self.kinds["RoleBinding"] if one["metadata"]["namespace"] == "default"]
        for one in events:
            one["metadata"] = {"name": f"{self.kube.prefix}-events", "namespace": "default"}
            self.kube.admin.post(f"{RBAC}/namespaces/default/rolebindings", one)

    def remove(self) -> None:
        for path in (
            *(f"{RBAC}/{kind}/{self.kube.prefix}-{account}" for kind in ("clusterroles", "clusterrolebindings")
              for account in ("nhc-agent", "nhc-controller")),
            f"{RBAC}/namespaces/default/rolebindings/{self.kube.prefix}-events",
            f"{RUNTIME}/{self.runtime}",
        ):  # fmt: skip
            with contextlib.suppress(Exception):
                self.kube.admin.delete(path)


@pytest.fixture
def here(kube: Kube, installed: Any) -> Iterator[Installed]:
    made = Installed(kube)
    yield made
    made.remove()


def asked(kube: Kube, nhc: Any) -> tuple[int, dict[str, list[str]]]:
    """The exit status, and what was found by its level."""
    done = nhc(
        "doctor",
        "kubernetes",
        "-f",
        "json",
        "--set",
        f"namespace={kube.namespace}",
        "--set",
        f"selector=test={kube.prefix}",
    )
    assert done.stderr == ""
    found: dict[str, list[str]] = {}
    for one in json.loads(done.stdout):
        found.setdefault(one["level"], []).append(f"{one['topic']}: {one['text']}")
    return done.returncode, found


def lease_of(kube: Kube, node: str, ahead: float) -> None:
    """A kubelet's Lease, renewed by a clock that is so many seconds ahead."""
    when = utc(time.time() + ahead)[:-1] + ".000000Z"
    body = {
        "metadata": {"name": node},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": when},
    }
    kube.admin.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", body)


def test_a_sound_installation_has_no_problem(kube: Kube, here: Installed, nhc: Any) -> None:
    nodes = [kube.node(f"gpu{number}", labels=GPU, capacity={"nvidia.com/gpu": "8"}) for number in range(2)]
    kube.ready(*nodes)
    kube.admin.post(RUNTIME, {"metadata": {"name": here.runtime}, "handler": "nvidia"})
    port = kube.plane.port
    here.kinds["NetworkPolicy"][0]["spec"]["egress"][0]["ports"].append({"port": port, "protocol": "TCP"})
    here.apply("ServiceAccount", "ConfigMap", "NetworkPolicy", "DaemonSet", "Deployment")
    own = [
        one for one in (*here.kinds["Role"], *here.kinds["RoleBinding"]) if one["metadata"]["namespace"] != "default"
    ]
    here.kinds["own"] = own
    here.apply("own")
    here.bind()
    for node in nodes:
        kube.set_condition(node, "NhcHealthy", "True", "NhcHealthy")
    lease = Lease(kube.admin, kube.namespace, duration=600.0)
    assert lease.attempt()
    until(lambda: asked(kube, nhc)[0] == 0, within=90, every=0.5)
    status, found = asked(kube, nhc)
    assert (status, found.get("problem")) == (0, None)
    said = "\n".join(found["ok"])
    for text in (
        "rights: nhc-controller has all ",
        "rights: nhc-agent has all 4 rights",
        "labels: nhc-agent-nvidia is for 2 nodes",
        "agents: nhc-agent-nvidia: all 2 are ready",
        "agents: all 2 nodes that should have an agent are heard of",
        f"runtime: nhc-agent-nvidia: the RuntimeClass {here.runtime} is there",
        "controller: nhc-controller: 2 of 2 ready",
        f"controller: {lease.holder} leads",
        "policy: at most 1 of 2 nodes may be out",
        "vocabularies: nobody else writes",
        "clocks: this machine's clock and the API server's agree",
        "admission: each agent is bound to its own node",
    ):
        assert text in said
    assert any("a dry run" in line for line in found["warn"])
    assert any("topology.kubernetes.io/zone=*: no node is in such a group" in line for line in found["warn"])


def test_what_keeps_an_installation_from_working_is_named_with_what_to_do(
    kube: Kube, here: Installed, nhc: Any
) -> None:
    plain = kube.node("unlabelled", fake=False, capacity={"nvidia.com/gpu": "8"})
    silent = kube.node("silent", fake=False, labels=GPU)
    rival = kube.node("rival", fake=False, labels=GPU)
    (settings,) = [one for one in here.kinds["ConfigMap"] if one["metadata"]["name"] == "nhc-settings"]
    settings["data"]["kubernetes.toml"] = 'vocabularies = ["nhc"]\naply = true\n'
    for one in here.kinds["ConfigMap"]:
        if "agent.toml" in one["data"]:
            one["data"]["agent.toml"] = one["data"]["agent.toml"].replace('["nhc"]', '["nhc", "npd"]')
    here.apply("ServiceAccount", "ConfigMap", "NetworkPolicy", "DaemonSet", "Deployment")
    lease_of(kube, silent, 3600.0)
    theirs = {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "message": ""}
    kube.admin.patch(f"/api/v1/nodes/{rival}/status", {"status": {"conditions": [theirs]}}, STRATEGIC,
                     fieldManager="node-problem-detector")  # fmt: skip
    kube.set_condition(rival, "NhcHealthy", "True", "NhcHealthy")

    status, found = asked(kube, nhc)

    assert status == 1
    problems = "\n".join(found["problem"])
    for text in (
        "settings: kubernetes.toml:2: aply: there is no such key: did you mean 'apply'?",
        "rights: nhc-controller: missing right: list nodes (to follow the nodes); add to a ClusterRole",
        "rights: nhc-agent: missing right: patch nodes/status",
        f"labels: no agent is for {plain}, which have accelerators",
        f"agents: nothing was ever heard of 1 nodes: {silent}",
        f"runtime: nhc-agent-nvidia: there is no RuntimeClass {here.runtime}",
        f"clocks: 1 nodes' clocks are wrong: {silent} ({silent} is 3600 s ahead)",
        f"vocabularies: KernelDeadlock is written by nhc and by node-problem-detector on 1 nodes: {rival}",
        "controller: nhc-controller: none of 2 is ready",
        "controller: nobody has led yet",
    ):
        assert text in problems, problems
    shown = nhc(
        "doctor", "kubernetes", "--set", f"namespace={kube.namespace}", "--set", f"selector=test={kube.prefix}"
    ).stdout
    assert "overlays/no-runtimeclass" in shown
    assert shown.splitlines()[-1].endswith(" warnings")

    # The labels that are looked for are gone, and a zone is one that there is not.
    for node in (silent, rival):
        kube.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {next(iter(GPU)): None}}}, MERGE_PATCH)
    problems = "\n".join(asked(kube, nhc)[1]["problem"])
    assert "nhc-agent-nvidia is for no node: none has a label that it looks for (" in problems
    assert "nvidia.com/gpu.present=true" in problems


def test_a_rule_file_whose_condition_the_policy_does_not_list_is_named(kube: Kube, here: Installed, nhc: Any) -> None:
    for one in here.kinds["ConfigMap"]:
        if "agent.toml" in one["data"]:
            one["data"]["agent.toml"] += (
                '[npd]\ncustom-plugin-monitor = ["/etc/nhc/site.json", "/etc/nhc/on-disk.json"]\n'
            )
            kinds = [{"type": kind, "reason": "Fine", "message": ""} for kind in ("GpuProblem", "DiskBadBlock")]
            one["data"]["site.json"] = json.dumps({"plugin": "custom", "conditions": kinds, "rules": []})
    here.apply("ServiceAccount", "ConfigMap", "DaemonSet", "Deployment")
    _status, found = asked(kube, nhc)
    refused = [line for line in found["problem"] if "does not list" in line]
    assert refused == [
        "admission: the policy nhc-agent does not list GpuProblem, which site.json has: no agent may write it"
    ]


@pytest.mark.parametrize(("why", "words", "advice"), [
    ("quota", "exceeded quota: none", "ResourceQuota"),
    ("pod-security", 'violates PodSecurity "restricted', "pod-security.kubernetes.io/enforce=privileged"),
])  # fmt: skip
def test_pods_that_the_server_does_not_take_are_named_with_its_words(
    kube: Kube, here: Installed, nhc: Any, why: str, words: str, advice: str
) -> None:
    """There is no pod to describe: only the events of its controllers say why."""
    node = kube.node("gpu", labels=GPU)
    kube.ready(node)
    kube.admin.post(RUNTIME, {"metadata": {"name": here.runtime}, "handler": "nvidia"})
    if why == "quota":
        body = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        kube.admin.post(f"/api/v1/namespaces/{kube.namespace}/resourcequotas", body)
    else:
        labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        kube.admin.patch(f"/api/v1/namespaces/{kube.namespace}", labels, MERGE_PATCH)
        for one in here.kinds["Deployment"]:
            one["spec"]["template"]["spec"]["hostNetwork"] = True
    here.apply("ServiceAccount", "ConfigMap", "NetworkPolicy", "DaemonSet", "Deployment")

    def told() -> list[str]:
        _status, found = asked(kube, nhc)
        return [line for line in found["problem"] if words in line]

    lines = until(lambda: len(told()) == 2 and told(), 90, 0.5)
    assert {line.partition(":")[0] for line in lines} == {"agents", "controller"}
    shown = nhc(
        "doctor", "kubernetes", "--set", f"namespace={kube.namespace}", "--set", f"selector=test={kube.prefix}"
    ).stdout
    assert shown.count(advice) >= 2


def test_who_may_not_look_is_told_what_could_not_be_looked_at(
    kube: Kube, here: Installed, nhc: Any, tmp_path: Any
) -> None:
    config = kube.kubeconfig(tmp_path, kube.token("default", kube.namespace))
    done = nhc("doctor", "kubernetes", "--kubeconfig", str(config), "--set", f"namespace={kube.namespace}")
    assert done.returncode == 0
    lines = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("unknown")]
    assert {topic for _level, topic in lines} >= {"nodes", "agents", "rights", "settings"}
    assert "Traceback" not in done.stderr


def test_in_the_controllers_own_pod_it_asks_for_its_own_rights(kube: Kube, installed: Any) -> None:
    client = kube.client(kube.token("nhc-controller", "nhc-system"))
    client.access.source = "in-cluster"
    found = examine(client, "nhc-system", make(selector=f"test={kube.prefix}"))
    said = {(one.level, one.text.partition(" has all ")[0]) for one in found if one.topic == "rights"}
    assert ("ok", "nhc-controller") in said
    assert any(one.level == "unknown" and one.text.startswith("nhc-agent: ") for one in found if one.topic == "rights")
    assert not sick([one for one in found if one.topic == "rights"])


def test_nothing_installed_is_said(kube: Kube, nhc: Any) -> None:
    status, found = asked(kube, nhc)
    assert status == 1
    assert f"labels: no agent is installed in {kube.namespace}" in found["problem"]


def node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {key.replace("_", "-"): value for key, value in labels.items()}}}


def spec(*terms: dict[str, Any], **selector: str) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}, "nodeSelector": selector}


@pytest.mark.parametrize(
    ("expression", "labels", "chosen"),
    [
        ({"operator": "In", "values": ["a", "b"]}, {"k": "b"}, True),
        ({"operator": "In", "values": ["a"]}, {}, False),
        ({"operator": "NotIn", "values": ["a"]}, {}, True),
        ({"operator": "NotIn", "values": ["a"]}, {"k": "a"}, False),
        ({"operator": "Exists"}, {"k": ""}, True),
        ({"operator": "DoesNotExist"}, {"k": ""}, False),
        ({"operator": "Gt", "values": ["7"]}, {"k": "8"}, True),
        ({"operator": "Lt", "values": ["7"]}, {"k": "8"}, False),
        ({"operator": "Gt", "values": ["7"]}, {"k": "many"}, False),
    ],
)
def test_nodes_are_chosen_as_the_scheduler_chooses(
    expression: dict[str, Any], labels: dict[str, str], chosen: bool
) -> None:
    assert chooses(spec({"matchExpressions": [{"key": "k", **expression}]}), node(**labels)) == chosen
    assert not chooses(spec({}), node(**labels))  # a term that says nothing chooses nothing
    assert chooses({}, node(**labels))
    assert not chooses(spec(k="elsewhere"), node(**labels))


@pytest.mark.parametrize(
    ("egress", "open_"),
    [
        ([], False),
        ([{}], True),
        ([{"ports": [{"port": 6443, "protocol": "TCP"}]}], True),
        ([{"ports": [{"port": 443}, {"port": 6443, "protocol": "UDP"}]}], False),
        ([{"ports": [{"port": 6000, "endPort": 7000, "protocol": "TCP"}]}], True),
        ([{"ports": [{"protocol": "TCP"}]}], True),
    ],
)
def test_a_network_policy_is_read_as_the_network_reads_it(egress: Any, open_: bool) -> None:
    assert _allows(egress, 6443) == open_


def test_a_loop_whose_pod_does_not_start_is_named_with_the_reason(kube: Kube, here: Installed, nhc: Any) -> None:
    labels = {"app.kubernetes.io/part-of": "nhc", "app.kubernetes.io/component": "remedy"}
    made = kube.pod("nhc-remedy-0", labels=labels, running=False)
    body = {
        "metadata": {"name": "nhc-remedy", "labels": labels},
        "spec": {
            "replicas": 0,
            "serviceName": "nhc-remedy",
            "selector": {"matchLabels": {"none": "none"}},
            "template": {
                "metadata": {"labels": {"none": "none"}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    }
    kube.admin.post(f"/apis/apps/v1/namespaces/{kube.namespace}/statefulsets", body)
    client = kube.client(kube.plane.token)
    now = from_utc(made["metadata"]["creationTimestamp"]) + 120.0
    found = Installation(client, kube.namespace, make(namespace=kube.namespace), lambda: now)
    said = [f"{one.level} {one.text}" for check in doctor.SERVICE_CHECKS for one in check(found)]
    assert "ok nhc-remedy: 0 of 0 ready" in said
    assert any(line.startswith("problem nhc-remedy-0 is Pending for 2 min: ") for line in said), said
