"""A whole gate on a real control plane: the startup taint stays until the suite has passed, pods wait for it.

The kubelets and the suite's tool are fake; the node's gate, its suite and `nhc sync gate` are real processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from nhc.core.state import gate_record as record
from nhc.core.timestamps import utc
from nhc.marks.ports.gates import GateNews, GroupOfNodes
from nhc.marks.ports.marks import out_by_nhc
from nhc_adapters.kubernetes import gates
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC
from nhc_adapters.kubernetes.gates import CONDITION, GATE, TAINT, GateMarks, condition_of, may_wait, plan
from nhc_adapters.kubernetes.nodes.view import node_state
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint
from tests.adapters.kubernetes.test_manifests import SYSTEM
from tests.adapters.test_slurm_gate import TOOL
from tests.support.kube import REPOSITORY, Kube
from tests.support.waiting import until

SETTINGS = """
scheduler = "kubernetes"
[adapter]
kubeconfig = "{kubeconfig}"
{adapter}
[groups.gpu]
nodes = "{prefix}-*"
suite = "{place}/suite.conf"
pause = "0s"
tries = 2
{more}
"""
BORN = {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}
HYPERPOD = "sagemaker.amazonaws.com/"


class Site:
    """One node's gate, and the cluster's."""

    def __init__(self, kube: Kube, place: Path, adapter: str = "", more: str = "") -> None:
        self.kube, self.place = kube, place
        (place / "triad").write_text(TOOL.format(place=place))
        (place / "triad").chmod(0o755)
        (place / "suite.conf").write_text(
            f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {place}/triad --floor 10\n"
        )
        config = kube.kubeconfig(place)
        self.settings = place / "gate.toml"
        self.settings.write_text(
            SETTINGS.format(kubeconfig=config, prefix=kube.prefix, place=place, adapter=adapter, more=more)
        )

    def gate(self, *words: str, status: int = 0) -> str:
        env = {
            **os.environ, "NHC_GATE_FILE": str(self.place / "gate.json"), "NHC_DEEP_DIR": str(self.place / "deep"),
            "NHC_STATE_DIR": str(self.place / "state"), "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/adapters",
        }  # fmt: skip
        argv = [sys.executable, "-m", "nhc", *words, "-s", str(self.settings)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def sync(self, *words: str) -> list[dict[str, Any]]:
        said = self.gate("sync", "gate", "-f", "json", *words)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def tainted(self, node: str, key: str = TAINT) -> bool:
        return key in [taint["key"] for taint in self.kube.get(node)["spec"].get("taints") or ()]

    def label(self, node: str, key: str = GATE) -> str | None:
        value: str | None = self.kube.get(node)["metadata"]["labels"].get(key)
        return value


@pytest.fixture
def site(kube: Kube, tmp_path: Path) -> Site:
    return Site(kube, tmp_path)


def waiting_pod(kube: Kube) -> None:
    """A pod that only this test's nodes suit."""
    kube.admin.post(f"/api/v1/namespaces/{kube.namespace}/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "work"},
        "spec": {"nodeSelector": {"test": kube.prefix}, "containers": [{"name": "c", "image": "i"}]},
    })  # fmt: skip


def placed(kube: Kube) -> str:
    pod = kube.admin.get(f"/api/v1/namespaces/{kube.namespace}/pods/work")
    return str(pod["spec"].get("nodeName", ""))


def ready(kube: Kube, name: str) -> None:
    until(lambda: any(one["type"] == "Ready" and one["status"] == "True"
                           for one in kube.get(name).get("status", {}).get("conditions", [])))  # fmt: skip


def test_a_new_node_takes_no_pod_until_its_suite_has_passed(kube: Kube, site: Site) -> None:
    name = kube.node(spec=BORN)
    ready(kube, name)
    waiting_pod(kube)
    assert [turn["what"] for turn in site.sync("--apply")] == ["show"]
    assert placed(kube) == ""
    said = site.gate("gate", "run", "-n", name, "--apply")
    assert "passed" in said
    assert site.tainted(name), "the node may not remove its own taint"
    assert placed(kube) == ""
    assert [(turn["what"], turn["done"]) for turn in site.sync()] == [("open", False)]
    assert site.tainted(name), "a dry run changes nothing"
    assert [(turn["what"], turn["done"]) for turn in site.sync("--apply")] == [("open", True)]
    assert not site.tainted(name)
    assert site.label(name) == "passed"
    until(lambda: placed(kube) == name)
    assert site.sync("--apply") == [], "a second round has nothing to do"


def test_a_node_that_came_without_the_taint_gets_it(kube: Kube, site: Site) -> None:
    name = kube.node()
    kube.ready(name)
    assert "would close" in site.gate("sync", "gate")
    assert "not held yet" in site.gate("gate", "run", "-n", name, "--apply", status=1)
    assert not (site.place / "runs").exists(), "no suite beside pods that may come"
    site.sync("--apply")
    assert site.tainted(name)
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    assert not site.tainted(name)


def test_a_slow_node_stays_out(kube: Kube, site: Site) -> None:
    name = kube.node(spec=BORN)
    (site.place / "slow").touch()
    site.gate("gate", "run", "-n", name, "--apply", status=1)
    site.sync("--apply")
    assert site.tainted(name)
    assert site.label(name) == "failed"
    found = kube.condition(name, CONDITION)
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "Failed")


def test_a_reboot_closes_the_gate_and_the_old_word_does_not_open_it(kube: Kube, site: Site) -> None:
    name = kube.node(fake=False, spec=BORN)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    info(kube, name, bootID=boot, kernelVersion="6.1")
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    assert not site.tainted(name)
    info(kube, name, bootID="another-boot", kernelVersion="6.1")
    (turn,) = site.sync("--apply")
    assert (turn["what"], turn["why"]) == ("close", "it has started anew")
    assert site.tainted(name)
    site.sync("--apply")
    assert site.tainted(name), "the word is of the boot before"
    info(kube, name, bootID=boot, kernelVersion="6.1")
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    assert not site.tainted(name)


def test_an_update_closes_the_gate_until_the_suite_has_passed_again(kube: Kube, site: Site) -> None:
    name = kube.node(fake=False, spec=BORN)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    info(kube, name, bootID=boot, kubeletVersion="1.35.0")
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    info(kube, name, bootID=boot, kubeletVersion="1.35.1")
    time.sleep(1.1)  # times in conditions have whole seconds
    (turn,) = site.sync("--apply")
    assert turn["why"] == "updated: kubeletVersion 1.35.0 -> 1.35.1"
    assert site.tainted(name)
    site.gate("gate", "run", "-n", name, "--apply")
    assert (site.place / "runs").read_text().split() == ["run", "run"]
    site.sync("--apply")
    assert not site.tainted(name)


def test_persons_open_and_close(kube: Kube, site: Site) -> None:
    name = kube.node(spec=BORN)
    (site.place / "slow").touch()
    site.gate("gate", "run", "-n", name, "--apply", status=1)
    site.gate("gate", "open", name, "--apply", "--why", "a known slow board", "--by", "anna")
    (turn,) = site.sync("--apply")
    assert turn["why"] == "opened by anna: a known slow board"
    assert not site.tainted(name)
    assert "a person opened it" in site.gate("gate", "run", "-n", name, "--apply")
    assert site.sync("--apply") == []
    time.sleep(1.1)
    site.gate("gate", "close", name, "--apply", "--why", "new firmware", "--by", "anna")
    site.sync("--apply")
    assert site.tainted(name)
    (site.place / "slow").unlink()
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    assert not site.tainted(name)


def test_others_taints_stay_and_hyperpods_words_are_ours_alone(kube: Kube, tmp_path: Path) -> None:
    site = Site(kube, tmp_path, adapter='hyperpod = "yes"')
    name = kube.node(
        fake=False, spec={"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    )
    site.sync("--apply")
    assert site.label(name, f"{HYPERPOD}deep-health-check-status") == "InProgress"
    assert site.tainted(name, f"{HYPERPOD}node-health-status")
    site.gate("gate", "run", "-n", name, "--apply")
    site.sync("--apply")
    # A node is born with a taint of the node controller's, which takes it away later.
    until(lambda: [taint["key"] for taint in kube.get(name)["spec"]["taints"]] == ["nvidia.com/gpu"])
    assert site.label(name, f"{HYPERPOD}deep-health-check-status") == "Passed"
    assert site.label(name, f"{HYPERPOD}node-health-status") == "Schedulable"


def test_pods_that_run_are_waited_for(kube: Kube, site: Site) -> None:
    name = kube.node()
    kube.ready(name)
    kube.pod("job", name)
    site.sync("--apply")
    assert "work still runs here" in site.gate("gate", "run", "-n", name, "--apply", status=1)
    assert not (site.place / "runs").exists()


def info(kube: Kube, name: str, **values: str) -> None:
    kube.admin.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": values}}, STRATEGIC)


# What autoscalers do, from objects of a real API.


@pytest.fixture
def karpenter(kube: Kube) -> Any:
    """Karpenter's NodePool as a kind of this API server, without its controller."""
    kube.admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nodepools.karpenter.sh"},
        "spec": {
            "group": "karpenter.sh", "scope": "Cluster",
            "names": {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
        },
    })  # fmt: skip
    until(lambda: _served(kube))
    yield
    kube.admin.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.karpenter.sh")


def _served(kube: Kube) -> bool:
    try:
        kube.admin.get(gates.NODEPOOLS)
    except Exception:
        return False
    return True


def test_the_doctor_names_what_would_not_wait(kube: Kube, tmp_path: Path, karpenter: Any) -> None:
    site = Site(kube, tmp_path, more='limit = "2h"')
    kube.admin.post(gates.NODEPOOLS, {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpu"},
        "spec": {"template": {"spec": {"expireAfter": "720h"}}},
    })  # fmt: skip
    container = {"name": "c", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0", "command": [
        "./cluster-autoscaler", "--max-node-startup-time=15m", "--scale-down-unready-time", "20m"]}  # fmt: skip
    kube.admin.post(f"/apis/apps/v1/namespaces/{kube.namespace}/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ca"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}},
    })  # fmt: skip
    said = site.gate("doctor", "gate", status=1)
    assert "problem  Karpenter NodePool gpu startupTaints" in said
    assert f"startupTaints: [{{key: {TAINT}, effect: NoSchedule}}]" in said
    assert "warn     cluster-autoscaler" in said, "35 minutes are less than two runs of two hours"
    kube.admin.patch(f"{gates.NODEPOOLS}/gpu", {"spec": {"template": {"spec": {"startupTaints": [
        {"key": TAINT, "effect": "NoSchedule"}]}}}}, MERGE_PATCH)  # fmt: skip
    assert "startupTaints" not in site.gate("doctor", "gate")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["./cluster-autoscaler"], 2100.0),
        (["./cluster-autoscaler", "--max-node-startup-time=3h", "--scale-down-unready-time=1h30m"], 16200.0),
        (["sh", "-c", "./cluster-autoscaler --max-node-startup-time=3h"], 12000.0),
    ],
)
def test_flags_of_the_cluster_autoscaler(words: list[str], seconds: float) -> None:
    (one,) = gates.autoscaler("ca", words, NodeTaint(TAINT))
    assert one.seconds == seconds


def test_a_taint_that_the_cluster_autoscaler_does_not_know() -> None:
    (one,) = gates.autoscaler("ca", ["./cluster-autoscaler"], NodeTaint("site/gate"))
    assert one.seconds is None
    (one,) = gates.autoscaler("ca", ["./cluster-autoscaler", "--startup-taint=site/gate"], NodeTaint("site/gate"))
    assert one.seconds == 2100.0


# The plan by itself.

GROUP = GroupOfNodes("gpu", lambda node: True, ("new", "start", "update", "demand"))


def an_object(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", **more.pop("metadata", {})},
            "spec": more.pop("spec", {}), "status": {"nodeInfo": {"bootID": "b1"}, **more}}  # fmt: skip


@pytest.mark.parametrize("state", [one.value for one in record.GateState])
@pytest.mark.parametrize("boot", ["b1", "b0"])
def test_only_a_word_that_lets_in_of_this_boot_opens(state: str, boot: str) -> None:
    manifest = condition_of(GateNews(state, "quick", "why", 1_800_000_000.0, boot))
    node = an_object(spec=BORN, conditions=[{**manifest.manifest(), "lastTransitionTime": utc(1.8e9)}])
    found = plan(node, GROUP, GateMarks(), 1_800_000_100.0)
    opens = found is not None and found.what == "open"
    assert opens is (state in ("passed", "opened") and boot == "b1")


@pytest.mark.parametrize(("seen", "order", "waits"), [
    ({"kernelVersion": "6.8"}, "", True),
    ({"bootID": "b0"}, "", False),
    ({"uid": "another"}, "", False),
    ({"kernelVersion": "6.8"}, f"close {utc(1.8e9)} by anna: look", False),
    (None, "", False),
])  # fmt: skip
def test_only_what_an_update_closes_may_wait_for_room(seen, order, waits) -> None:
    known = json.dumps({"seen": {"bootID": "b1", "uid": "u", **seen}, "opened": 1.7e9}) if seen is not None else ""
    node = an_object(metadata={"annotations": {"nhc/gate": known, "nhc/gate-order": order}})
    assert may_wait(node, GROUP) is waits
    assert plan(node, GROUP, GateMarks(), 1_800_000_100.0).what == "close"


def adoption(**more: Any) -> dict[str, Any]:
    order = f"adopt {utc(1.8e9)} by anna: in service since May"
    return an_object(metadata={"annotations": {"nhc/gate-order": order}}, **more)


def test_a_fleet_that_works_is_adopted_as_it_is() -> None:
    found = plan(adoption(), GROUP, GateMarks(), 1_800_000_100.0)
    assert found is not None
    assert (found.what, found.why) == ("note", "adopted as it is by anna: in service since May")
    found = plan(adoption(spec=BORN), GROUP, GateMarks(), 1_800_000_100.0)  # held before the order came
    assert found is not None
    assert found.what == "open"
    word = condition_of(GateNews("failed", "quick", "wrong sums", 1_800_000_000.0, "b1")).manifest()
    bad = adoption(spec=BORN, conditions=[{**word, "lastTransitionTime": utc(1.8e9)}])
    found = plan(bad, GROUP, GateMarks(), 1_800_000_100.0)
    assert found is None or found.what == "show"


def test_ceilings_see_a_node_behind_its_gate() -> None:
    for state, out in (("held", True), ("failed", True), ("passed", False), ("opened", False)):
        seen = node_state(an_object(metadata={"labels": {"nhc/gate": state}}))
        assert out_by_nhc(seen) is out
        assert seen.mark is None or not seen.mark.ours


def test_a_hold_of_an_operator_is_left_alone() -> None:
    node = an_object(metadata={"annotations": {"nhc/hold": "memory test"}})
    assert plan(node, GROUP, GateMarks(), 1.0) is None


# With the rights that the manifests give, and no more.


def test_the_component_is_taken_by_the_api_server_and_its_rights_suffice(
    kube: Kube, installed: Any, tmp_path: Path
) -> None:
    """The node's gate as the agent's account on its node, `sync` as the controller's; the admission policy in force."""
    (tmp_path / "deployed").mkdir()
    overlay = os.path.relpath(REPOSITORY / "adapters/kubernetes", tmp_path / "deployed")
    (tmp_path / "deployed/kustomization.yaml").write_text(
        f"resources: [{overlay}/base]\ncomponents: [{overlay}/overlays/gate, {overlay}/image]\n"
    )
    rendered = kube.plane.kubectl(
        "kustomize", "--load-restrictor=LoadRestrictionsNone", str(tmp_path / "deployed")
    ).stdout
    mine = [one for one in yaml.safe_load_all(rendered) if "nhc-gate" in one["metadata"]["name"]]
    assert sorted(one["kind"] for one in mine) == [
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment",
    ]  # fmt: skip
    rights = [one for one in mine if one["kind"].startswith("ClusterRole")]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": mine})
    assert "(server dry run)" in kube.plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=everything).stdout
    kube.plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": rights}))
    name = kube.node(fake=False, spec=BORN)
    pod = kube.admin.post(f"/api/v1/namespaces/{SYSTEM}/pods", {
        "metadata": {"name": f"gate-{kube.prefix}", "namespace": SYSTEM},
        "spec": {"nodeName": name, "serviceAccountName": "nhc-agent", "tolerations": [{"operator": "Exists"}],
                 "containers": [{"name": "gate", "image": "none"}]},
    })  # fmt: skip
    (tmp_path / "node").mkdir()
    (tmp_path / "sync").mkdir()
    node, cluster = Site(kube, tmp_path / "node"), Site(kube, tmp_path / "sync")
    # The pod itself stands on the node; a DaemonSet's, which is left alone, has such an owner.
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nhc-gate", "uid": "u", "controller": True}
    kube.admin.patch(f"/api/v1/namespaces/{SYSTEM}/pods/gate-{kube.prefix}",
                     {"metadata": {"ownerReferences": [owner]}}, MERGE_PATCH)  # fmt: skip
    try:
        for site, account, of in ((node, "nhc-agent", pod), (cluster, "nhc-controller", None)):
            (site.place / "rights").mkdir()
            config = kube.kubeconfig(site.place / "rights", kube.token(account, SYSTEM, of))
            text = site.settings.read_text()
            at = text.index("kubeconfig = ")
            site.settings.write_text(f'{text[:at]}kubeconfig = "{config}"{text[text.index(chr(10), at) :]}')
        assert "passed" in node.gate("gate", "run", "-n", name, "--apply")
        cluster.sync("--apply")
        assert not node.tainted(name)
    finally:
        kube.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/gate-{kube.prefix}", {"gracePeriodSeconds": 0})
        kube.plane.kubectl("delete", "clusterrole/nhc-gate", "clusterrolebinding/nhc-gate")
