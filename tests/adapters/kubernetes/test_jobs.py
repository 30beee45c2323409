"""Jobs on a real control plane, restarted after infrastructure faults by the whole loop over a real store."""

import json
import time

import pytest
import yaml

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.jobs.restart_rounds import JobLoop
from nhc.jobs.settings import parse
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobName, JobOrder, JobView, Phase, Submission, Wish
from nhc.marks.ports.repair import Answer
from nhc.store import job_restarts as store_jobs
from nhc.store import reports as store_reports
from nhc.store.connect import open_store
from nhc.store.intake import Incoming
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, namespaced
from nhc_adapters.kubernetes.jobs.controller import KubernetesJobController
from tests.support.kube import REPOSITORY
from tests.support.kube_jobs import Operator, api, install
from tests.support.run import nhc
from tests.support.waiting import until

SETTINGS = """
[actions]
restart = "on"
make-anew = "on"
[limits]
cooldown = "0s"
[evidence]
settle = "0s"
[controllers.kubernetes]
"""
RUNNING = SETTINGS.replace('settle = "0s"', 'settle = "0s"\nrunning = "1s"')
"""As SETTINGS; a job that runs on a faulty node is taken off it."""
POD = {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}


class JobCorner:
    """The loop over one namespace, with three nodes of its own."""

    def __init__(self, kube, store, settings=SETTINGS):
        self.kube, self.store = kube, store
        self.nodes = [kube.node(f"n{number}", fake=False) for number in (1, 2, 3)]
        kube.ready(*self.nodes)
        client = kube.strict()
        client.retry_for = 2.0  # a failed pod's log is asked for, and no kubelet of these nodes will ever give it
        self.controller = KubernetesJobController({"namespaces": kube.namespace}, client=client)
        self.loop = JobLoop(store, parse(settings), {"kubernetes": self.controller})
        self.operator = Operator(kube.client(kube.plane.token), kube.namespace)
        self.said = []

    def template(self, **spec):
        spread = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "j"}}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}}
        return {"metadata": {"labels": {"app": "j"}},
                "spec": {**POD, "nodeSelector": {"test": self.kube.prefix}, "affinity": affinity, **spec}}  # fmt: skip

    def job(self, **spec):
        """A Job of two pods on two nodes, that asks to be restarted."""
        return self.make("apis/batch/v1", "jobs", {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "annotations": {"nhc/restart": "2", "nhc/checkpoint": "/ckpt"}},
            "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": self.template(), **spec},
        })  # fmt: skip

    def make(self, group, plural, body):
        return self.kube.strict().post(namespaced(self.kube.namespace, plural, group=group), body)

    def get(self, group="apis/batch/v1", plural="jobs"):
        return self.kube.admin.get(namespaced(self.kube.namespace, plural, "j", group))

    def pods(self):
        found = self.kube.admin.items(namespaced(self.kube.namespace, "pods"))
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def running_on(self, count=2):
        """The nodes of the running pods, once there are so many."""

        def nodes():
            on = sorted(pod["spec"].get("nodeName", "") for pod in self.pods() if pod["status"]["phase"] == "Running")
            return on if len(on) == count else None

        return until(nodes, 60)

    def fail_pod(self, node, **status):
        """What a kubelet would say of the pod on a node."""
        pod = next(one for one in self.pods() if one["spec"].get("nodeName") == node)
        path = namespaced(self.kube.namespace, "pods", pod["metadata"]["name"])
        self.kube.admin.patch(f"{path}/status", {"status": {"phase": "Failed", **status}}, MERGE_PATCH)

    def exit(self, node, code=1, reason="Error"):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
        state = {"name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 0,
                 "state": {"terminated": ended}}  # fmt: skip
        self.fail_pod(node, containerStatuses=[state])

    def report(self, node):
        now = time.time()
        result = CheckResult("check_gpu", Outcome(Verdict.CRIT, "GpuLost", "GPU 3 has fallen off the bus", "gpu3"))
        with self.store.write() as connection:
            store_reports.receive(connection, [Incoming(Report(node, "b", now, 1.0, (result,)), "agent", now)])

    def round(self):
        done = self.loop.round()
        assert done.problems == ()
        self.said += [f"{one.what}: {one.why}" for one in done.events]
        return done

    def until(self, condition, within=60):
        return until(lambda: self.round() and condition(), within, every=0.2)

    def restarts(self):
        with self.store.read() as connection:
            found = store_jobs.list_jobs(connection, is_open=None)
            (row,) = [one for one in found if one.namespace == self.kube.namespace]
            return store_jobs.restarts(connection, row.id)

    def outcomes(self):
        return [one.outcome for one in self.restarts()]


@pytest.fixture
def corner(kube, tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    made = JobCorner(kube, store)
    made.operator.start()
    yield made
    made.operator.stop()
    store.close()
    assert made.operator.problems == []


def excluded(template):
    required = template["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [row["values"] for term in terms for row in term["matchExpressions"]]


def test_a_job_that_a_lost_gpu_failed_is_made_anew_off_the_node(corner):
    before = corner.job()
    bad, good = corner.running_on()
    corner.round()
    corner.report(bad)
    corner.exit(bad)
    until(lambda: any(c["type"] == "Failed" for c in corner.get()["status"].get("conditions", [])))
    corner.until(lambda: corner.outcomes() == ["restarted"])

    after = corner.get()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert bad not in corner.running_on()
    assert good in corner.running_on()
    assert excluded(after["spec"]["template"]) == [[bad]]
    notes = after["metadata"]["annotations"]
    assert (notes["nhc/restarts"], notes["nhc/checkpoint"], json.loads(notes["nhc/avoids"])) == ("1", "/ckpt", [bad])
    assert corner.said[0] == f"restart: 1 of 2: {bad}: GpuLost: GPU 3 has fallen off the bus"


def test_an_exit_on_healthy_nodes_and_a_memory_limit_are_left_alone(corner):
    before = corner.job()
    bad, _good = corner.running_on()
    corner.round()
    corner.exit(bad, 137, "OOMKilled")
    until(lambda: any(c["type"] == "Failed" for c in corner.get()["status"].get("conditions", [])))
    for _ in range(3):
        corner.round()

    assert corner.get()["metadata"]["uid"] == before["metadata"]["uid"]
    assert [line.split(": ")[0] for line in corner.said] == ["left"]
    assert "used more memory than its limit" in corner.said[0]


def test_a_running_job_is_suspended_and_resumed_off_the_node_and_its_users_retries_stay(corner):
    corner.loop.settings = parse(RUNNING)
    own = [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]
    template = corner.template()
    template["spec"]["affinity"]["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": own}]}}  # fmt: skip
    corner.job(template=template)
    bad, _good = corner.running_on()
    uid = corner.get()["metadata"]["uid"]
    corner.round()
    corner.report(bad)
    corner.until(lambda: corner.outcomes() == ["restarted"])

    after = corner.get()
    assert after["metadata"]["uid"] == uid
    assert "nhc/held" not in after["metadata"]["annotations"]
    assert after["status"].get("failed", 0) == 0
    terms = after["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]  # fmt: skip
    assert terms == [{"matchExpressions": [*own, {"key": "kubernetes.io/hostname", "operator": "NotIn",
                                                  "values": [bad]}]}]  # fmt: skip
    assert bad not in corner.running_on()


def test_a_restart_waits_until_enough_nodes_are_ready(corner):
    corner.job()
    bad, _good = corner.running_on()
    corner.round()
    third = next(node for node in corner.nodes if node not in corner.running_on())
    corner.kube.admin.patch(f"/api/v1/nodes/{third}", {"spec": {"unschedulable": True}}, MERGE_PATCH)
    corner.report(bad)
    corner.exit(bad)
    corner.until(lambda: [one.state for one in corner.restarts()] == ["held"])
    waits = [one.why for one in corner.round().waiting]
    assert waits == ["it needs 2 healthy nodes, and there are 1"]
    corner.kube.admin.patch(f"/api/v1/nodes/{third}", {"spec": {"unschedulable": None}}, MERGE_PATCH)
    corner.until(lambda: corner.outcomes() == ["restarted"])
    assert bad not in corner.running_on()


def test_the_rights_that_we_publish_are_enough_and_no_more(corner, operator):
    """The loop as the account of adapters/kubernetes/jobs: every kind listed, one restarted, pods not deleted."""
    rights = yaml.safe_load_all((REPOSITORY / "adapters/kubernetes/jobs/rbac.yaml").read_text())
    account, role, binding = rights
    namespace = corner.kube.namespace
    account["metadata"]["namespace"] = binding["subjects"][0]["namespace"] = namespace
    role["metadata"]["name"] = binding["metadata"]["name"] = binding["roleRef"]["name"] = f"nhc-jobs-{namespace}"
    corner.kube.admin.post(namespaced(namespace, "serviceaccounts"), account)
    for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
        corner.kube.admin.post(f"/apis/rbac.authorization.k8s.io/v1/{plural}", body)
    client = corner.kube.client(corner.kube.token("nhc-jobs", namespace))
    corner.controller.client = client
    corner.controller.namespaces = ()
    corner.job()
    bad, _good = corner.running_on()
    corner.round()
    corner.report(bad)
    corner.exit(bad)
    corner.until(lambda: corner.outcomes() == ["restarted"])
    with pytest.raises(AdapterError, match="403 Forbidden"):
        client.delete(namespaced(namespace, "pods", corner.pods()[0]["metadata"]["name"]))


def test_somebody_elses_suspension_is_not_taken_away(corner):
    corner.job()
    corner.running_on()
    corner.round()
    job = corner.get()
    path = namespaced(corner.kube.namespace, "jobs", "j", "apis/batch/v1")
    corner.kube.admin.patch(path, {"spec": {"suspend": True}}, MERGE_PATCH)
    view = until(lambda: _phase(corner, Phase.HELD))
    assert (view.held, view.busy_elsewhere) == (False, "somebody else has suspended it")
    order = JobOrder("k", 1, view, (), "x")
    assert corner.controller.release(order).message == "it is released already"
    assert corner.get()["spec"]["suspend"] is True
    assert job["metadata"]["uid"] == view.job.uid


def _phase(corner, phase):
    (job,) = corner.controller.jobs()
    return job if job.phase is phase else None


@pytest.fixture
def operator(corner):
    """The other kinds of jobs, and who runs them."""
    install(corner.kube.admin, corner.kube.namespace)
    corner.operator.runtime = corner.template()
    corner.operator.kinds = True
    return corner.operator


def replicas(corner, specs):
    role = "Worker"
    return {"runPolicy": {"backoffLimit": 1}, specs: {
        role: {"replicas": 2, "restartPolicy": "Never", "template": corner.template()}}}  # fmt: skip


def spec_of(corner, kind):
    if kind == "PyTorchJob":
        return replicas(corner, "pytorchReplicaSpecs")
    if kind == "MPIJob":
        return replicas(corner, "mpiReplicaSpecs")
    if kind == "JobSet":
        inner = {"parallelism": 1, "template": corner.template()}
        return {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": inner}}],
                "failurePolicy": {"maxRestarts": 1}}  # fmt: skip
    if kind == "TrainJob":
        return {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}
    return {"tasks": [{"name": "w", "replicas": 2, "template": corner.template()}], "maxRetry": 3}


def make(corner, kind, spec=None, **labels):
    group, plural = api(kind)
    body = {
        "apiVersion": group.partition("/")[2], "kind": "Job" if kind == "VolcanoJob" else kind,
        "metadata": {"name": "j", "annotations": {"nhc/restart": ""}, "labels": labels},
        "spec": spec or spec_of(corner, kind),
    }  # fmt: skip
    return corner.make(group, plural, body)


@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob"])
def test_a_gang_with_a_lost_node_is_suspended_and_resumed_off_it(corner, operator, kind):
    make(corner, kind)
    bad, _good = corner.running_on()
    corner.round()
    corner.fail_pod(bad, reason="NodeLost", message="the node is gone")
    corner.until(lambda: corner.outcomes() == ["restarted"])

    assert bad not in corner.running_on()
    after = corner.get(*api(kind))
    specs = after["spec"]["pytorchReplicaSpecs" if kind == "PyTorchJob" else "mpiReplicaSpecs"]
    assert excluded(specs["Worker"]["template"]) == [[bad]]
    assert after["spec"]["runPolicy"] == {"backoffLimit": 1, "suspend": False}


def children(corner):
    found = corner.kube.admin.items(namespaced(corner.kube.namespace, "jobs", group="apis/batch/v1"))
    return [one for one in found if not one["metadata"].get("deletionTimestamp")]


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_a_kind_that_is_made_of_jobs_is_kept_off_the_node_through_them(corner, operator, kind):
    corner.loop.settings = parse(RUNNING)
    make(corner, kind)
    bad, _good = corner.running_on()
    uid = corner.get(*api(kind))["metadata"]["uid"]
    corner.round()
    corner.report(bad)
    corner.until(lambda: corner.outcomes() == ["restarted"])

    assert bad not in corner.running_on()
    after = corner.get(*api(kind))
    assert (after["metadata"]["uid"], after["spec"]["suspend"]) == (uid, False)
    assert [excluded(one["spec"]["template"]) for one in children(corner)] == [[[bad]]] * len(children(corner))
    jobset = corner.get(*api("JobSet"))
    assert excluded(jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]) == []


@pytest.mark.parametrize("kind", ["JobSet", "VolcanoJob"])
def test_a_job_that_cannot_be_kept_off_a_node_waits_until_the_node_is_out_of_service(corner, operator, kind):
    corner.loop.settings = parse(RUNNING)
    spec = spec_of(corner, kind)
    if kind == "JobSet":  # a Job that will be made later, from the JobSet's own template
        inner = {"parallelism": 1, "template": corner.template()}
        spec["replicatedJobs"].append({"name": "then", "template": {"spec": inner},
                                       "dependsOn": [{"name": "w", "status": "Complete"}]})  # fmt: skip
    make(corner, kind, spec)
    bad, _good = corner.running_on()
    corner.round()
    corner.report(bad)
    corner.until(lambda: [one.state for one in corner.restarts()] == ["held"])
    assert [one.why for one in corner.round().waiting] == [
        f"{bad} must be out of service first: this job cannot be kept off nodes by their names"
    ]
    corner.kube.admin.patch(f"/api/v1/nodes/{bad}", {"spec": {"unschedulable": True}}, MERGE_PATCH)
    corner.until(lambda: corner.outcomes() == ["restarted"])

    assert bad not in corner.running_on()
    if kind == "VolcanoJob":
        assert corner.get(*api(kind))["status"]["retryCount"] == 1


@pytest.mark.parametrize("kind", ["JobSet", "VolcanoJob", "TrainJob"])
def test_a_job_that_is_made_anew_is_kept_off_the_node_whatever_its_kind(corner, operator, kind):
    make(corner, kind)
    bad, _good = corner.running_on()
    (job,) = corner.controller.jobs()
    order = JobOrder("key", 1, job, (bad,), "n1: gone", corner.controller.manifest(job))
    group, plural = api(kind)
    corner.kube.admin.delete(namespaced(corner.kube.namespace, plural, "j", group))
    until(lambda: corner.controller.look(job.job) is None)
    for pod in corner.pods() if kind == "VolcanoJob" else ():  # the garbage collector's part
        corner.kube.admin.delete(namespaced(corner.kube.namespace, "pods", pod["metadata"]["name"]))
    assert corner.controller.release(order).message == "made anew"
    if kind == "TrainJob":  # its Jobs come from its runtime: it starts once they are there and kept off
        until(lambda: corner.controller.jobs()[0].excludes)
        until(lambda: corner.pods() == [])
        (held,) = corner.controller.jobs()
        assert corner.controller.healthy(order._replace(job=held, manifest="")) == set(corner.nodes)
        assert corner.controller.release(order).message == "resumed"
    until(lambda: all(bad != pod["spec"].get("nodeName") for pod in corner.pods()))
    assert bad not in corner.running_on()
    assert corner.controller.release(order).message == "it is released already"


def test_a_volcano_job_without_a_retry_left_is_not_touched(corner, operator):
    make(corner, "VolcanoJob")
    bad, _good = corner.running_on()
    group, plural = api("VolcanoJob")
    path = namespaced(corner.kube.namespace, plural, "j", group)
    corner.kube.admin.patch(f"{path}/status", {"status": {"retryCount": 2}}, MERGE_PATCH)
    corner.round()
    corner.fail_pod(bad, reason="NodeLost", message="the node is gone")
    assert [one.why for one in corner.round().waiting] == ["Volcano counts each restart: 2 of maxRetry 3 are used"]


def test_under_kueue_the_workload_is_stopped_and_the_suspended_job_is_kept_off_the_node(corner, operator):
    job = make(corner, "PyTorchJob", **{"kueue.x-k8s.io/queue-name": "team"})
    corner.make("apis/kueue.x-k8s.io/v1beta2", "workloads", {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}},
        "spec": {"queueName": "team", "podSets": [{"template": corner.template()}]},
    })  # fmt: skip
    workload = namespaced(corner.kube.namespace, "workloads", "w", "apis/kueue.x-k8s.io/v1beta2")
    path = namespaced(corner.kube.namespace, "pytorchjobs", "j", "apis/kubeflow.org/v1")
    bad, _good = corner.running_on()
    corner.round()
    corner.fail_pod(bad, reason="NodeLost", message="the node is gone")
    corner.until(lambda: corner.kube.admin.get(workload)["spec"]["active"] is False)
    assert corner.get(*api("PyTorchJob"))["spec"]["runPolicy"]["suspend"] is False  # that is Kueue's to set
    corner.kube.admin.patch(path, {"spec": {"runPolicy": {"suspend": True}}}, MERGE_PATCH)
    corner.until(lambda: [one.state for one in corner.restarts()] == ["held"])
    corner.until(lambda: corner.kube.admin.get(workload)["spec"]["active"] is True)
    corner.kube.admin.patch(path, {"spec": {"runPolicy": {"suspend": False}}}, MERGE_PATCH)
    corner.until(lambda: corner.outcomes() == ["restarted"])
    assert bad not in corner.running_on()
    after = corner.get(*api("PyTorchJob"))
    assert excluded(after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]) == [[bad]]
    assert corner.kube.admin.get(workload)["spec"]["podSets"][0]["template"]["spec"]["affinity"].keys() == {
        "podAntiAffinity"
    }  # it is Kueue's, and Kueue compares no affinity


def test_what_belongs_to_another_or_to_hyperpod_is_not_touched(corner, operator):
    body = make(corner, "PyTorchJob")
    path = namespaced(corner.kube.namespace, "pytorchjobs", "j", "apis/kubeflow.org/v1")
    notes = {"sagemaker.amazonaws.com/enable-job-auto-resume": "true"}
    corner.kube.admin.patch(path, {"metadata": {"annotations": notes}}, MERGE_PATCH)
    bad, _good = corner.running_on()
    corner.round()
    corner.fail_pod(bad, reason="NodeLost", message="the node is gone")
    assert [one.why for one in corner.round().waiting] == ["HyperPod resumes it"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": body["metadata"]["uid"], "controller": True}
    corner.kube.admin.patch(path, {"metadata": {"ownerReferences": [owner]}}, MERGE_PATCH)
    assert corner.controller.jobs() == []


def test_a_second_call_changes_nothing(corner, operator):
    make(corner, "PyTorchJob")
    corner.running_on()
    (job,) = corner.controller.jobs()
    order = JobOrder("key", 1, job, (corner.nodes[0],), "n1: gone")
    assert [corner.controller.hold(order).answer for _ in range(2)] == [Answer.ACCEPTED] * 2
    until(lambda: _phase(corner, Phase.HELD))
    assert [corner.controller.release(order).message for _ in range(2)] == ["resumed", "it is released already"]
    after = corner.get(*api("PyTorchJob"))
    assert excluded(after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]) == [[corner.nodes[0]]]


def test_nodes_that_were_avoided_before_are_let_in_again(corner, operator):
    make(corner, "PyTorchJob")
    corner.running_on()
    for number, node in enumerate(corner.nodes[:2], 1):
        (job,) = corner.controller.jobs()
        order = JobOrder(f"key{number}", number, job, (node,), "gone")
        assert corner.controller.hold(order).answer is Answer.ACCEPTED
        until(lambda: _phase(corner, Phase.HELD))
        assert corner.controller.release(order).answer is Answer.ACCEPTED
        until(lambda: _phase(corner, Phase.RUNNING))
    after = corner.get(*api("PyTorchJob"))
    assert excluded(after["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]) == [[corner.nodes[1]]]


def test_a_cluster_that_is_away_is_one_line_and_ambiguous(kube):
    controller = KubernetesJobController({}, client=kube.client("t", "http://127.0.0.1:9", retry_for=0.1))
    with pytest.raises(AdapterError, match=r"[Cc]onnection refused"):
        controller.jobs()
    job = JobView(JobName("Job", "a", "b"), "0", Phase.FAILED)
    assert controller.hold(JobOrder("k", 1, job, (), "x")).answer is Answer.AMBIGUOUS
    with pytest.raises(AdapterError, match="kinds: 'Pod' is not one of Job"):
        KubernetesJobController({"kinds": "Pod"}, client=kube.admin)


def test_a_submitted_job_loses_no_retry_to_an_eviction(corner, tmp_path):
    """`backoffLimit: 0`: one failure that counts would end it."""
    manifest = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": corner.template()},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(manifest))
    path = corner.kube.kubeconfig(tmp_path)
    done = nhc("job", "submit", "--file", tmp_path / "job.yaml", "--max-restarts", "2", "--checkpoint", "/ckpt",
               "--kubeconfig", path)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"Job/{corner.kube.namespace}/j\n"), done.stderr
    job = corner.get()
    assert job["metadata"]["annotations"]["nhc/restart"] == "2"
    assert job["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "NHC_CHECKPOINT", "value": "/ckpt"}]

    first, _second = corner.running_on()
    pod = next(one["metadata"]["name"] for one in corner.pods() if one["spec"]["nodeName"] == first)
    path = namespaced(corner.kube.namespace, "pods", pod)
    corner.kube.admin.post(f"{path}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction",
                                                "metadata": {"name": pod}})  # fmt: skip
    until(lambda: all(one["metadata"]["name"] != pod for one in corner.pods()))
    corner.running_on()
    assert not any(one["type"] == "Failed" for one in corner.get()["status"].get("conditions", []))
    again = nhc("job", "submit", "--file", tmp_path / "job.yaml", "--kubeconfig", corner.kube.kubeconfig(tmp_path))
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert len(again.stderr.splitlines()) == 1


def test_a_submitted_jobset_restarts_for_disruptions_without_counting(corner, operator):
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"},
            "spec": spec_of(corner, "JobSet")}  # fmt: skip
    done = corner.controller.submit(Submission((), json.dumps(body), corner.kube.namespace, Wish(None, "s3://b/c")))
    assert done.jobs == (f"JobSet/{corner.kube.namespace}/j",), done.problem
    spec = corner.get(*api("JobSet"))["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 1, "restartStrategy": "Recreate", "rules": [{
        "name": "nhcInfrastructure", "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"]}]}  # fmt: skip
    inner = spec["replicatedJobs"][0]["template"]["spec"]
    assert inner["podFailurePolicy"]["rules"] == [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    ]
    assert inner["template"]["spec"]["containers"][0]["env"] == [{"name": "NHC_CHECKPOINT", "value": "s3://b/c"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "the manifests are no YAML"), ("", "the manifests hold nothing"),
        ('{"apiVersion": "v1", "kind": "Pod"}', "Pod is no kind of job that nhc knows (Job, "),
        ('{"apiVersion": "batch/v1", "kind": "Job"}', "the Job has no metadata.name or no spec"),
        ("- 1", "None is no kind of job"),
    ],
)  # fmt: skip
def test_manifests_that_are_none_are_one_line(kube, text, said):
    done = KubernetesJobController({}, client=kube.admin).submit(Submission((), text, "", Wish()))
    assert done.jobs == ()
    assert done.problem.startswith(said)
