"""Repairs that other controllers carry out, on a real API server with their kinds; the test plays the controllers."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping

import pytest

from nhc.lab.testing.repairers import KEY, RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Stage
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.repair.cluster import JOBS
from nhc_adapters.kubernetes.repair.handoff import KubernetesHandoff
from nhc_adapters.kubernetes.repair.pinned_job import is_active
from tests.support.crds import HOST, annotate, install, make, path_of, set_status
from tests.support.gpu_node import UUID, GpuNode
from tests.support.kube import Kube
from tests.support.kubelet import Kubelet
from tests.support.waiting import until
from tests.support.wire import Wire, error, reset

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POOL = "karpenter.sh/nodepool"


class HandoffWorld(RepairerWorld):
    """One actor in front of one node. Calls that change something go through a wire that can be spoilt."""

    made_by = KubernetesHandoff
    to = ""
    verb, path = "PATCH", ""
    provider = ""
    labels: Mapping[str, str] = MappingProxyType({})
    annotations: Mapping[str, str] = MappingProxyType({})

    def __init__(self, kube: Kube, wire: Wire, base: Path) -> None:
        self.kube, self.wire, self.base = kube, wire, base
        install(kube)
        self.provider = self.provider.replace("NS", kube.namespace) or f"aws:///us-east-1a/i-{kube.prefix[1:]}"
        self.name = kube.node("sick", fake=False, labels=dict(self.labels), spec={"providerID": self.provider})
        notes = {key: value.replace("NS", kube.namespace) for key, value in self.annotations.items()}
        kube.admin.patch(node_path(self.name), {"metadata": {"annotations": notes}}, MERGE_PATCH)
        self.boot("boot-1")
        self.machine = Machine(self.name, self.provider, uuid=UUID, labels=dict(self.labels))
        self.prepare()
        self.secrets = (self.account(),)
        config = base / "config"
        config.write_text(json.dumps(kube.plane.config(self.secrets[0], wire.url, kube.namespace)))
        self.repairer = KubernetesHandoff({"to": self.to, "kubeconfig": str(config), **self.settings()}, {}, 10.0)
        wire.seen.clear()

    def prepare(self) -> None:
        """The actor's objects, before anything is asked."""

    def settings(self) -> Dict[str, str]:
        return {}

    def account(self) -> str:
        """A token of an account that may do what the repairer says that it needs."""
        admin, name = self.kube.admin, f"{self.kube.prefix}-handoff"
        config = str(self.kube.kubeconfig(self.base))
        asks = KubernetesHandoff({"to": self.to, "kubeconfig": config, **self.settings()})
        assert asks.actor is not None
        rules: List[Any] = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
        rules += [{"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]}
                  for one in asks.actor.needed()]  # fmt: skip
        admin.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        admin.post(f"{RBAC}/clusterrolebindings", {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": self.kube.namespace}],
        })  # fmt: skip
        return self.kube.token("default", self.kube.namespace)

    def boot(self, boot: str, name: str = "") -> None:
        body = {"status": {"nodeInfo": {"bootID": boot}}}
        self.kube.admin.patch(f"{node_path(name or self.name)}/status", body, MERGE_PATCH)

    def calls(self) -> List[str]:
        return [path for method, path in self.wire.seen if method != "GET" and "selfsubject" not in path]

    def lose_next_answer(self) -> None:
        self.wire.next(reset(after=True), self.verb, self.path)

    def fail_next_call(self) -> None:
        self.wire.next(error(500, "InternalError", "etcd is away"), self.verb, self.path)

    def throttle_next_call(self) -> None:
        self.wire.next(error(429, "TooManyRequests", "slow down", retry_after=7), self.verb, self.path)

    def deny(self) -> None:
        self.kube.admin.delete(f"{RBAC}/clusterrolebindings/{self.kube.prefix}-handoff")
        until(lambda: any(right.granted is False for right in self.repairer.rights()))
        self.wire.seen.clear()

    def vanish(self) -> None:
        self.wire.down(True)

    def stranger(self) -> Machine:
        return self.machine._replace(
            provider_id="metal3://elsewhere/h/m" if "metal3" in self.provider else "aws:///x/i-0"
        )

    def there(self, kind: str, name: str) -> Any:
        try:
            return self.kube.admin.get(path_of(self.kube, kind, name))
        except ApiError:
            return None


class ClusterApiWorld(HandoffWorld):
    to, rung, path = "cluster-api", Rung.REPLACE, "/machines/"
    annotations = MappingProxyType({"cluster.x-k8s.io/machine": "m1", "cluster.x-k8s.io/cluster-namespace": "NS"})

    def machine_object(self, name: str, node: str, provider: str = "") -> None:
        owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "set1", "controller": True,
                 "uid": "6b1f0a52-5f3c-4b57-9a3f-000000000000"}  # fmt: skip
        spec = {"clusterName": "c", **({"providerID": provider} if provider else {})}
        make(self.kube, "Machine", name, spec)
        self.kube.admin.patch(
            path_of(self.kube, "Machine", name), {"metadata": {"ownerReferences": [owner]}}, MERGE_PATCH
        )
        checked = {"type": "HealthCheckSucceeded", "status": "True", "reason": "Succeeded"}
        set_status(self.kube, "Machine", name, {"nodeRef": {"name": node}, "phase": "Running", "conditions": [checked]})

    def prepare(self) -> None:
        self.machine_object("m1", self.name, self.provider)

    def take_effect(self) -> None:
        found = self.there("Machine", "m1")
        if found and "cluster.x-k8s.io/remediate-machine" in found["metadata"]["annotations"]:
            self.kube.admin.delete(path_of(self.kube, "Machine", "m1"))
            self.machine_object("m2", self.kube.node("new", fake=False))

    def effect_fails(self) -> bool:
        failed = {"type": "OwnerRemediated", "status": "False", "reason": "CannotBeRemediated",
                  "message": "quorum would be lost"}  # fmt: skip
        set_status(self.kube, "Machine", "m1", {"nodeRef": {"name": self.name}, "conditions": [failed]})
        return True


class Metal3World(HandoffWorld):
    to, rung, path = "metal3", Rung.POWER_CYCLE, "/baremetalhosts/"
    provider = "metal3://NS/host1/m1"

    def prepare(self) -> None:
        make(self.kube, "BareMetalHost", "host1", {"online": True}, HOST)

    def take_effect(self) -> None:
        found = self.there("BareMetalHost", "host1")
        if json.loads(found["metadata"]["annotations"].get("reboot.metal3.io", "{}")) == {"mode": "hard"}:
            annotate(self.kube, "BareMetalHost", "host1", **{"reboot.metal3.io": None})
            self.boot("boot-2")

    def effect_fails(self) -> bool:
        failed = {**HOST, "operationalStatus": "error", "errorType": "power management error",
                  "errorMessage": "BMC is gone"}  # fmt: skip
        set_status(self.kube, "BareMetalHost", "host1", failed)
        return True


class Medik8sWorld(HandoffWorld):
    to, rung, verb, path = "self-node-remediation", Rung.REBOOT, "POST", "/selfnoderemediations"

    def prepare(self) -> None:
        spec = {"template": {"spec": {"remediationStrategy": "OutOfServiceTaint"}}}
        make(self.kube, "SelfNodeRemediationTemplate", "ours", spec)

    def settings(self) -> Dict[str, str]:
        return {"template": f"{self.kube.namespace}/ours"}

    def conditions(self, succeeded: str) -> None:
        found = self.there("SelfNodeRemediation", self.name)
        assert found is None or found["spec"] == {"remediationStrategy": "OutOfServiceTaint"}
        if found is not None:
            ended = [{"type": "Processing", "status": "False", "reason": "RemediationFinished"}]
            ended.append({"type": "Succeeded", "status": succeeded, "message": "the node did not come back"})
            set_status(self.kube, "SelfNodeRemediation", self.name, {"conditions": ended})

    def take_effect(self) -> None:
        if self.there("SelfNodeRemediation", self.name) is not None:
            self.boot("boot-2")
            self.conditions("True")

    def effect_fails(self) -> bool:
        self.conditions("False")
        done = self.repairer.complete(Order(KEY, "17", 1, self.machine, self.rung, "x"), None)  # type: ignore[arg-type]
        assert done.answer is Answer.ACCEPTED
        assert self.there("SelfNodeRemediation", self.name) is None
        return False  # what follows is told by the answer, which the test below has


class KarpenterWorld(HandoffWorld):
    to, rung, verb, path = "karpenter", Rung.REPLACE, "DELETE", "/nodeclaims/"

    def __init__(self, *args: Any) -> None:
        self.pool = f"pool-{args[0].prefix}"
        self.labels = {POOL: self.pool}
        super().__init__(*args)

    def claim(self, name: str, node: str, provider: str) -> None:
        ready = {"type": "Ready", "status": "True"}
        make(self.kube, "NodeClaim", f"{self.kube.prefix}-{name}", {}, labels={POOL: self.pool},
             status={"nodeName": node, "providerID": provider, "conditions": [ready]})  # fmt: skip

    def prepare(self) -> None:
        self.claim("old", self.name, self.provider)
        finalizer = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
        self.kube.admin.patch(path_of(self.kube, "NodeClaim", f"{self.kube.prefix}-old"), finalizer, MERGE_PATCH)

    def take_effect(self) -> None:
        found = self.there("NodeClaim", f"{self.kube.prefix}-old")
        if found is not None and found["metadata"].get("deletionTimestamp"):
            path = path_of(self.kube, "NodeClaim", f"{self.kube.prefix}-old")
            self.kube.admin.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
            self.claim("new", self.kube.node("new", fake=False), "aws:///us-east-1a/i-new")


class KuredWorld(HandoffWorld):
    to, rung, verb, path = "kured", Rung.REBOOT, "POST", "/jobs"

    def prepare(self) -> None:
        self.gpus = GpuNode(self.base / "node")
        (self.gpus.root / "run").mkdir()
        self.kubelet = Kubelet(self.kube.admin, self.name, self.gpus.root, self.gpus.path, self.kube.namespace)
        self.kubelet.__enter__()
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"never": "there"}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        body = {"metadata": {"name": "kured"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        self.kube.admin.post(namespaced(self.kube.namespace, "daemonsets", group="apis/apps/v1"), body)

    def settings(self) -> Dict[str, str]:
        return {"image": "nhc@sha256:0", "namespace": self.kube.namespace, "daemonset": f"{self.kube.namespace}/kured"}

    def over(self) -> None:
        self.kubelet.gate.set()
        path = namespaced(self.kube.namespace, "jobs", group=JOBS)
        until(lambda: not any(is_active(job) for job in self.kube.admin.items(path)), 60.0)

    def take_effect(self) -> None:
        self.over()
        if (self.gpus.root / "run/reboot-required").exists():
            (self.gpus.root / "run/reboot-required").unlink()
            self.kubelet.boot("boot-after-kured")

    def effect_fails(self) -> bool:
        self.gpus.write("/sys/class/dmi/id/product_uuid", "another")
        self.over()
        return True


WORLDS: Dict[str, Callable[..., HandoffWorld]] = {
    "cluster-api": ClusterApiWorld, "metal3": Metal3World, "medik8s": Medik8sWorld, "karpenter": KarpenterWorld,
    "kured": KuredWorld,
}  # fmt: skip


@pytest.fixture
def build(kube: Kube, tmp_path: Path) -> Iterator[Any]:
    with Wire(kube.plane, strict=True) as wire:
        worlds: List[HandoffWorld] = []

        def made(name: str) -> HandoffWorld:
            worlds.append(WORLDS[name](kube, wire, tmp_path))
            return worlds[-1]

        yield made
        for world in worlds:
            if isinstance(world, KuredWorld):
                world.kubelet.__exit__()


@pytest.fixture(params=WORLDS)
def world(build: Any, request: pytest.FixtureRequest) -> Any:
    return build(request.param)


class TestHandoff(RepairerContract):
    pass


def order(world: HandoffWorld, **changes: Any) -> Order:
    return Order(KEY, "17", 1, world.machine, world.rung, "GpuFallenOffBus: gpu3")._replace(**changes)


def refused(world: HandoffWorld) -> str:
    sent = world.repairer.send(order(world))
    assert (sent.answer, world.calls()) == (Answer.REFUSED, []), sent
    return sent.message


@pytest.mark.parametrize("key", ["skip-remediation", "paused"])
def test_cluster_api_is_not_asked_for_a_machine_that_it_is_to_leave_alone(build: Any, key: str) -> None:
    world = build("cluster-api")
    annotate(world.kube, "Machine", "m1", **{f"cluster.x-k8s.io/{key}": ""})
    assert key in refused(world)


def test_cluster_api_is_not_asked_where_nobody_would_hear_or_replace(build: Any) -> None:
    world = build("cluster-api")
    set_status(world.kube, "Machine", "m1", {"nodeRef": {"name": world.name}, "conditions": []})
    assert "no MachineHealthCheck" in refused(world)
    path = path_of(world.kube, "Machine", "m1")
    world.kube.admin.patch(path, {"metadata": {"ownerReferences": None}}, MERGE_PATCH)
    assert "nothing would make another" in refused(world)


def test_the_new_machine_counts_once_its_node_is_ready(build: Any) -> None:
    world = build("cluster-api")
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.take_effect()
    new = f"{world.kube.prefix}-new"
    world.kube.set_condition(new, "Ready", "False")
    assert world.repairer.progress(todo, sent, before).stage is Stage.WORKING
    world.kube.set_condition(new, "Ready", "True")
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, seen.replacement) == (Stage.DONE, new)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"baremetalhost.metal3.io/paused": ""}, "paused"),
        ({"reboot.metal3.io/another": ""}, "rebooted already"),
    ],
)
def test_metal3_is_not_asked_for_a_host_that_others_hold(build: Any, change: Any, said: str) -> None:
    world = build("metal3")
    annotate(world.kube, "BareMetalHost", "host1", **change)
    assert said in refused(world)


def test_a_node_that_is_no_host_of_metal3s_is_not_its_to_repair(build: Any) -> None:
    world = build("metal3")
    assert "no host of Metal3" in world.repairer.can(Machine("n1", "aws:///a/i-1"), Rung.REBOOT)


def test_medik8s_own_remediation_of_a_node_is_left_alone(build: Any) -> None:
    world = build("medik8s")
    make(world.kube, "SelfNodeRemediation", world.name)
    sent = world.repairer.send(order(world))
    assert (sent.answer, sent.retry_after > 0) == (Answer.REFUSED, True)
    before = world.repairer.look(world.machine)
    world.boot("boot-2")
    assert world.repairer.complete(order(world), sent).answer is Answer.ACCEPTED
    assert world.there("SelfNodeRemediation", world.name) is not None, "not ours to delete"
    assert before.boot == "boot-1"


def test_a_remediation_that_was_given_up_is_deleted_and_is_a_failure(build: Any) -> None:
    world = build("medik8s")
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.conditions("False")
    assert world.repairer.progress(todo, sent, before).stage is Stage.HALFWAY
    sent = world.repairer.complete(todo, sent)
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, "did not come back" in seen.message) == (Stage.FAILED, True)
    assert world.there("SelfNodeRemediation", world.name) is None


def test_a_node_that_is_excluded_from_remediation_is_left_alone(build: Any) -> None:
    world = build("medik8s")
    label = {"metadata": {"labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}}}
    world.kube.admin.patch(node_path(world.name), label, MERGE_PATCH)
    assert "excluded" in refused(world)


@pytest.mark.parametrize("where", ["node", "claim"])
def test_karpenter_is_not_asked_to_disrupt_what_is_not_to_be(build: Any, where: str) -> None:
    world = build("karpenter")
    path = node_path(world.name) if where == "node" else path_of(world.kube, "NodeClaim", f"{world.kube.prefix}-old")
    note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    world.kube.admin.patch(path, note, MERGE_PATCH)
    assert "do-not-disrupt" in refused(world)


def test_kured_is_asked_by_its_sentinel_and_its_lock_is_told(build: Any) -> None:
    world = build("kured")
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.over()
    assert KEY in (world.gpus.root / "run/reboot-required").read_text()
    assert "not rebooted" in world.repairer.progress(todo, sent, before).message
    path = namespaced(world.kube.namespace, "daemonsets", "kured", "apis/apps/v1")
    lock = {"metadata": {"annotations": {"weave.works/kured-node-lock": json.dumps({"nodeID": world.name})}}}
    world.kube.admin.patch(path, lock, MERGE_PATCH)
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, "lock" in seen.message) == (Stage.WORKING, True)


def test_a_sentinels_job_that_was_there_and_is_gone_may_have_made_it(build: Any) -> None:
    world = build("kured")
    world.wire.next(error(409, "AlreadyExists", "it is there"), "POST", "/jobs")
    assert world.repairer.send(order(world)).answer is Answer.AMBIGUOUS


def test_where_there_is_no_kured_nobody_is_asked(build: Any) -> None:
    world = build("kured")
    world.kube.admin.delete(namespaced(world.kube.namespace, "daemonsets", "kured", "apis/apps/v1"))
    assert "nobody would reboot" in refused(world)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"to": "nobody"}, "to"),
        ({"to": "self-node-remediation"}, "template"),
        ({"to": "kured", "sentinel": "reboot-required"}, "sentinel"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: Any, said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        KubernetesHandoff(settings)
