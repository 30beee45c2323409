"""Repairs by a Job pinned to the node, on a real API server with a real Job controller."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from nhc.lab.testing.repairers import KEY, RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Sent, Stage
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced
from nhc_adapters.kubernetes.nodes.drain import Drain, DrainRules
from nhc_adapters.kubernetes.repair.cluster import JOBS
from nhc_adapters.kubernetes.repair.pinned_job import COMPONENT, job_name, read_job
from nhc_adapters.kubernetes.repair.repairer import KubernetesJobs, needed
from tests.support.gpu_node import UUID, GpuNode
from tests.support.kube import Kube
from tests.support.kubelet import Kubelet
from tests.support.pod_kubelet import certificate
from tests.support.waiting import until
from tests.support.wire import Wire, error, reset

IMAGE = "registry.example.com/nhc@sha256:" + "0" * 64
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


def account(kube: Kube, rights: Any) -> str:
    """A token of an account that may do these things and no others."""
    rules: List[Any] = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in rights if one.namespace
    ]
    role = {"metadata": {"name": "repairs"}, "rules": rules}
    kube.admin.post(f"{RBAC}/{kube.namespace}/roles", role)
    cluster = {"metadata": {"name": f"{kube.prefix}-repairs"}, "rules": [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]}
        for one in rights if not one.namespace
    ]}  # fmt: skip
    kube.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", cluster)
    subject = {"kind": "ServiceAccount", "name": "repairs", "namespace": kube.namespace}
    kube.admin.post(f"/api/v1/namespaces/{kube.namespace}/serviceaccounts", {"metadata": {"name": "repairs"}})
    for path, kind, name in ((f"{RBAC}/{kube.namespace}/rolebindings", "Role", "repairs"),
                             ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "ClusterRole",
                              f"{kube.prefix}-repairs")):  # fmt: skip
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        kube.admin.post(path, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    return kube.token("repairs", kube.namespace)


class JobWorld(RepairerWorld):
    made_by = KubernetesJobs

    def __init__(self, kube: Kube, wire: Wire, base: Path, rung: Rung) -> None:
        self.kube, self.wire, self.rung = kube, wire, rung
        self.gpus = GpuNode(base / "node")
        self.gpus.gpus(2, recovery="GPU Reset Required")
        provider = f"aws:///us-east-1a/i-{kube.prefix[1:]}"
        name = kube.node("sick", fake=False, spec={"providerID": provider, "unschedulable": True})
        self.kubelet = Kubelet(kube.admin, name, self.gpus.root, self.gpus.path, kube.namespace,
                               tls=certificate(kube.plane))  # fmt: skip
        self.machine = Machine(name, provider, uuid=UUID)
        token = account(kube, needed(kube.namespace))
        self.secrets = (token,)
        config = base / "config"
        config.write_text(json.dumps(kube.plane.config(token, wire.url, kube.namespace)))
        self.repairer = KubernetesJobs(
            {"image": IMAGE, "namespace": kube.namespace, "kubeconfig": str(config), "wait": "5"}, {}, 10.0
        )

    def calls(self) -> List[str]:
        """What was sent that changes the machine: a Job that collects evidence does not."""
        found = [path for method, path in self.wire.seen
                 if method != "GET" and "selfsubject" not in path and "dryRun" not in path]  # fmt: skip
        collect = [job for job in self.jobs() if job["metadata"]["labels"][COMPONENT] == "evidence"] if found else []
        return found[len(collect) :]

    def lose_next_answer(self) -> None:
        self.wire.next(reset(after=True), "POST", "/jobs")

    def fail_next_call(self) -> None:
        self.wire.next(error(500, "InternalError", "etcd is away"), "POST", "/jobs")

    def throttle_next_call(self) -> None:
        self.wire.next(error(429, "TooManyRequests", "slow down", retry_after=7), "POST", "/jobs")

    def deny(self) -> None:
        self.kube.admin.delete(f"{RBAC}/{self.kube.namespace}/rolebindings/repairs")
        until(lambda: any(right.granted is False for right in self.repairer.rights()))
        self.wire.seen.clear()

    def vanish(self) -> None:
        self.wire.down(True)

    def stranger(self) -> Machine:
        return self.machine._replace(provider_id="aws:///us-east-1a/i-00000000000000000")

    def jobs(self) -> List[Any]:
        return list(self.kube.admin.items(namespaced(self.kube.namespace, "jobs", group=JOBS)))

    def take_effect(self) -> None:
        self.kubelet.gate.set()
        until(lambda: all(
            any(one["status"] == "True" and one["type"] in ("Complete", "Failed")
                for one in job["status"].get("conditions") or ()) for job in self.jobs()), 60.0)  # fmt: skip

    def effect_fails(self) -> bool:
        if self.rung is Rung.REBOOT:
            self.gpus.note("fail-systemctl-reboot", "Failed to connect to bus")
        else:
            self.gpus.note("fail-modprobe--r", "modprobe: FATAL: Module nvidia is in use.")
        self.take_effect()
        return True


@pytest.fixture
def made(kube: Kube, tmp_path: Path) -> Iterator[Any]:
    with Wire(kube.plane) as wire:
        kubelets = []

        def make(rung: Rung = Rung.RELOAD_DRIVER) -> JobWorld:
            world = JobWorld(kube, wire, tmp_path, rung)
            kubelets.append(world.kubelet.__enter__())
            return world

        yield make
        for kubelet in kubelets:
            kubelet.__exit__()


@pytest.fixture(params=[Rung.RELOAD_DRIVER, Rung.REBOOT], ids=lambda rung: rung.value)
def world(made: Any, request: pytest.FixtureRequest) -> Any:
    return made(request.param)


class TestJobs(RepairerContract):
    pass


def order(world: JobWorld, **changes: Any) -> Order:
    return Order(KEY, "17", 1, world.machine, world.rung, "GpuFallenOffBus: gpu3")._replace(**changes)


def test_a_device_is_reset_on_the_node_and_what_was_stopped_is_back(made: Any) -> None:
    world = made(Rung.RESET_DEVICE)
    world.gpus.unit("nvidia-persistenced.service")
    before = world.repairer.look(world.machine)
    todo = order(world, device="gpu1")
    sent = world.repairer.send(todo)
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, seen.message) == (Stage.DONE, "gpu1 reset")
    assert world.gpus.units() == {"nvidia-persistenced.service": "active"}
    assert len(world.kubelet.started) == 1


def test_the_job_s_pod_is_the_node_s_and_holds_no_token(made: Any) -> None:
    world = made(Rung.REBOOT)
    world.repairer.send(order(world, because="$(KUBERNETES_SERVICE_HOST) costs $100"))
    (job,) = world.jobs()
    spec = job["spec"]["template"]["spec"]
    assert (spec["nodeName"], spec["hostPID"]) == (world.machine.node, True)
    assert spec["automountServiceAccountToken"] is False
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 1200)
    assert job["spec"]["ttlSecondsAfterFinished"] == 86400
    (container,) = spec["containers"]
    assert container["image"] == IMAGE
    assert "$" not in container["args"][-1]  # Kubernetes would fill it in
    assert json.loads(container["args"][-1])["because"] == "$(KUBERNETES_SERVICE_HOST) costs $100"
    pods = until(lambda: list(world.kube.admin.items(f"/api/v1/namespaces/{world.kube.namespace}/pods")))
    assert [pod["spec"]["nodeName"] for pod in pods] == [world.machine.node]
    assert not [volume for volume in pods[0]["spec"]["volumes"] if "projected" in volume]


def test_the_same_order_again_makes_no_second_job(made: Any) -> None:
    world = made()
    assert world.repairer.send(order(world)).answer is Answer.ACCEPTED
    again = world.repairer.send(order(world))
    assert (again.answer, "was created before" in again.message) == (Answer.ACCEPTED, True)
    assert len(world.jobs()) == 1


def test_a_name_that_somebody_else_has_taken_is_refused(made: Any) -> None:
    world = made()
    world.repairer.send(order(world))
    (job,) = world.jobs()
    path = namespaced(world.kube.namespace, "jobs", job["metadata"]["name"], JOBS)
    world.kube.admin.patch(path, {"metadata": {"annotations": {"nhc/order": "another"}}}, MERGE_PATCH)
    assert world.repairer.send(order(world)).answer is Answer.REFUSED


def test_a_job_that_was_there_and_is_gone_may_have_done_its_work(made: Any) -> None:
    world = made()
    world.wire.next(error(409, "AlreadyExists", "it is there"), "POST", "/jobs")
    sent = world.repairer.send(order(world))
    assert (sent.answer, "is gone" in sent.message) == (Answer.AMBIGUOUS, True)


def test_a_repair_that_was_killed_is_put_back_by_another_job(made: Any) -> None:
    world = made()
    world.gpus.unit("nvidia-persistenced.service")
    world.gpus.note("gate", "")  # modprobe -r waits
    before = world.repairer.look(world.machine)
    todo = order(world)
    sent = world.repairer.send(todo)
    world.kubelet.gate.set()
    until(lambda: [line for line in world.gpus.calls("modprobe") if "-r" in line], 60.0)
    assert world.gpus.units() == {"nvidia-persistenced.service": "inactive"}
    world.kubelet.kill(signal.SIGKILL)
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert seen.stage is Stage.HALFWAY, seen
    (world.gpus.state / "gate").unlink()
    for _again in range(2):  # an answer that was lost: it is asked for again, and changes nothing
        assert world.repairer.complete(todo, sent).answer is Answer.ACCEPTED
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, "was put back" in seen.message) == (Stage.FAILED, True), seen
    assert world.gpus.units() == {"nvidia-persistenced.service": "active"}
    assert [job["metadata"]["name"] for job in world.jobs()] == [job_name(KEY), job_name(KEY, True)]


def test_a_repair_past_its_deadline_is_ended_and_puts_back_itself(made: Any) -> None:
    world = made()
    world.repairer.orders = world.repairer.orders._replace(hand=world.repairer.hand._replace(deadline=3))
    world.gpus.unit("nvidia-persistenced.service")
    world.gpus.process(99, "python", ["/dev/nvidia0"], unit="nvidia-persistenced.service")
    world.gpus.note("pid-nvidia-persistenced.service", "")  # it stays although its service is stopped
    before, todo = world.repairer.look(world.machine), order(world)
    world.repairer.wait = 600
    sent = world.repairer.send(todo)
    world.kubelet.gate.set()
    until(lambda: world.gpus.units() == {"nvidia-persistenced.service": "inactive"}, 30.0)
    world.take_effect()
    assert world.gpus.units() == {"nvidia-persistenced.service": "active"}
    # Its pod is deleted, and with it the answer: whether anything is left to put back, the node is asked.
    assert world.repairer.progress(todo, sent, before).stage is Stage.HALFWAY
    assert world.repairer.complete(todo, sent).answer is Answer.ACCEPTED
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, "was put back" in seen.message) == (Stage.FAILED, True), seen


def test_a_job_whose_pod_cannot_be_made_says_that_nothing_was_begun(made: Any) -> None:
    world = made(Rung.REBOOT)
    world.repairer.orders = world.repairer.orders._replace(hand=world.repairer.hand._replace(deadline=2))
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    path = f"/api/v1/namespaces/{world.kube.namespace}"
    world.kube.admin.patch(path, label, MERGE_PATCH)
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, seen.message.startswith("nothing was begun")) == (Stage.FAILED, True), seen
    assert world.gpus.calls() == []


def test_a_node_whose_kubelet_is_silent_is_not_sent_a_job(made: Any) -> None:
    world = made(Rung.REBOOT)
    world.kube.set_condition(world.machine.node, "Ready", "Unknown")
    sent = world.repairer.send(order(world))
    assert (sent.answer, sent.retry_after > 0, world.jobs()) == (Answer.REFUSED, True, [])


def test_a_second_repair_of_the_node_is_another_actor(made: Any) -> None:
    world = made()
    assert world.repairer.look(world.machine).actor == ""
    world.repairer.send(order(world))
    seen = world.repairer.look(world.machine)
    assert (seen.actor, job_name(KEY) in seen.doing) == ("nhc", True)
    world.take_effect()
    assert world.repairer.look(world.machine).actor == ""


def test_no_drain_ends_a_repair_half_way(made: Any) -> None:
    world = made()
    world.gpus.note("gate", "")
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.kubelet.gate.set()
    until(lambda: [line for line in world.gpus.calls("modprobe") if "-r" in line], 60.0)
    progress = Drain(world.kube.admin, world.machine.node, DrainRules(force=True, empty_dir=True)).step()
    assert (progress.evicted, progress.left) == (0, 1)
    assert "protected by its annotation" in progress.line()
    (world.gpus.state / "gate").unlink()
    world.take_effect()
    assert world.repairer.progress(todo, sent, before).stage is Stage.DONE


def test_an_order_that_found_its_device_held_is_a_failure_that_names_the_holder(made: Any) -> None:
    world = made()
    world.gpus.process(77, "python", ["/dev/nvidia0"])
    before, todo = world.repairer.look(world.machine), order(world)
    sent = world.repairer.send(todo)
    world.take_effect()
    seen = world.repairer.progress(todo, sent, before)
    assert (seen.stage, "python (pid 77)" in seen.message) == (Stage.FAILED, True), seen


def test_rights_name_the_rule_that_is_missing_and_a_tag_is_told(made: Any) -> None:
    world = made()
    world.deny()
    missing = [right for right in world.repairer.rights() if right.granted is False]
    assert {right.name for right in missing} >= {f"create jobs in {world.kube.namespace}"}
    assert any("add to a Role in namespace" in right.message for right in missing)
    settings = {"image": "nhc:1", "namespace": world.kube.namespace,
                "kubeconfig": str(world.kube.kubeconfig(world.gpus.base))}  # fmt: skip
    (tried,) = [one for one in KubernetesJobs(settings, {}, 5.0).rights() if "dry run" in one.name]
    assert (tried.granted, "tag" in tried.message) == (True, True)
    assert world.jobs() == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image": "i", "deadline": "soon"}, "deadline"),
        ({"image": "i", "pull-policy": "often"}, "pull-policy"),
        ({"image": "i", "services": "sshd; reboot"}, "services"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: Any, said: str) -> None:
    with pytest.raises(AdapterError, match=said):
        KubernetesJobs(settings)


def test_without_an_image_nothing_is_possible() -> None:
    machine = Machine("n1", boot_id="b1")
    assert KubernetesJobs().can(machine, Rung.REBOOT) == "no image is set up (image)"
    assert KubernetesJobs().send(Order(KEY, "1", 1, machine, Rung.REBOOT, "x")) == Sent(
        Answer.REFUSED, "not sent: no image is set up (image)"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "nothing", '{"answer": 1}', "x" * 5000])
def test_whatever_a_pod_leaves_behind_is_read(text: str) -> None:
    ended = {"containerStatuses": [{"state": {"terminated": {"exitCode": 1, "message": text}}}]}
    seen = read_job({"status": {}}, [{"metadata": {}, "status": ended}])
    assert seen.started
    assert len(seen.why) <= 400
