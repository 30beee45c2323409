"""How a job of Kubernetes ended, by its pods and their logs; the API server is an HTTP server here."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from nhc.jobs.why import judge_end
from nhc.jobs.why_logs import JobLogs, record_clues
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.job_control import JobName, LossCause
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.jobs.job_end import event_selectors, read_end
from nhc_adapters.kubernetes.jobs.kinds import KINDS
from tests.support.http_server import Handler, serving

TRACEBACK = """Traceback (most recent call last):
  File "/train.py", line 3, in <module>
    step()
KeyError: 'lr'
"""


def pod(name, node, reason="Error", code=1, index="0", **status):
    ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-11-23T02:46:12Z"}
    return {
        "metadata": {"name": name, "labels": {"training.kubeflow.org/job-name": "llama",
                                              "training.kubeflow.org/replica-index": index}},
        "spec": {"nodeName": node, "containers": [{"name": "train"}]},
        "status": {"phase": "Failed", "startTime": "2026-11-23T02:00:00Z",
                   "containerStatuses": [{"name": "train", "state": {"terminated": ended}}], **status},
    }  # fmt: skip


def page(events, query):
    """What the API server's list has: field selectors as pkg/registry/core/event/strategy.go has them, and pages."""

    def fits(event):
        fields = {"reason": event["reason"], **{f"involvedObject.{k}": v for k, v in event["involvedObject"].items()}}
        return all(fields.get(name) == value for name, _, value in
                   (one.partition("=") for one in query.get("fieldSelector", "").split(",") if one))  # fmt: skip

    found, start, most = list(filter(fits, events)), int(query.get("continue", 0)), int(query.get("limit", 0))
    rest = {"continue": str(start + most)} if most and len(found) > start + most else {}
    return {"items": found[start : start + most] if most else found, "metadata": rest}


DEAD_KUBELET = '{"message": "Get https://10.0.0.7:10250/containerLogs/...: no route to host"}'


@pytest.fixture
def api():
    """An API server; `pods` and `logs` are what it has, a log of None is refused."""

    class Api(Handler):
        pods, logs, events, asked = [], {}, [], []

        def get(self):
            url = urlsplit(self.path)
            self.asked.append(self.path)
            if url.path.endswith("/log"):
                text = self.logs.get(url.path.split("/")[-2])
                refused = 500 if text == DEAD_KUBELET else 403
                self.answer(refused if text in (None, DEAD_KUBELET) else 200, text or '{"message": "forbidden"}')
                return
            if url.path.endswith("/events"):
                query = {name: value for name, [value] in parse_qs(url.query).items()}
                found = {"message": "forbidden"} if self.events is None else page(self.events, query)
                self.answer(403 if self.events is None else 200, json.dumps(found))
                return
            wanted = parse_qs(url.query).get("labelSelector", [""])[0].partition("=")
            found = [one for one in self.pods if one["metadata"]["labels"].get(wanted[0]) == wanted[2]]
            self.answer(200, json.dumps({"items": found, "metadata": {}}))

    Api.pods, Api.logs, Api.events, Api.asked = [], {}, [], []
    with serving(Api) as server:
        yield Api, Client(Access(f"http://127.0.0.1:{server.server_port}"), retry_for=0.1)


def test_a_log_that_a_dead_kubelet_keeps_is_asked_for_once(api):
    server, client = api
    client.retry_for = 60.0
    server.pods = [pod("llama-0", "n1", "OOMKilled", 137)]
    server.logs = {"llama-0": DEAD_KUBELET}
    record = read_end(client, "team/llama", "default")
    assert len([path for path in server.asked if "/log" in path]) == 1
    assert "no route to host" in record.missing[0]


@pytest.mark.parametrize("rank", ["9" * 5000, "\u00b2", "-1"], ids=["long", "superscript", "negative"])
def test_a_rank_that_is_no_number_costs_no_log(api, rank):
    server, client = api
    server.pods = [pod("llama-0", "n1", index=rank)]
    server.pods[0]["spec"]["containers"][0].update(
        env=[{"name": "RANK", "value": rank}], resources={"limits": {"nvidia.com/gpu": rank}}
    )
    server.logs = {"llama-0": TRACEBACK}
    record = read_end(client, "PyTorchJob/team/llama", "default")
    assert [(log.rank, log.text) for log in record.logs] == [(-1, TRACEBACK)]
    assert record.gpus == 0


def verdict(record):
    logs = JobLogs(record.nodes)
    for log in record.logs:
        logs.read(log.name, log.text.splitlines(), rank=log.rank)
    return judge_end(logs.clues() + record_clues(record), record.ended)


def test_a_rank_that_raised_is_the_cause_and_the_others_follow(api):
    server, client = api
    server.pods = [pod("llama-worker-0", "n1"), pod("llama-worker-1", "n2", index="1")]
    server.logs = {"llama-worker-0": "Connection closed by peer [10.0.0.2]:3123\n", "llama-worker-1": TRACEBACK}
    server.pods[1]["metadata"]["annotations"] = {"nhc/mail": "ann@example.org"}

    record = read_end(client, "PyTorchJob/team/llama", "default")
    found = verdict(record)

    assert (record.job.text(), record.nodes) == ("PyTorchJob/team/llama", ("n1", "n2"))
    assert record.mail == "ann@example.org"
    assert (found.cause, found.what, found.clues[0].rank) == ("program", "KeyError: 'lr'", 1)


def test_a_container_that_was_killed_for_memory_is_the_limit(api):
    server, client = api
    server.pods = [pod("llama-0", "n1", "OOMKilled", 137)]
    server.logs = {"llama-0": "step 3\nKilled\n"}

    found = verdict(read_end(client, "team/llama", "default"))

    assert (found.cause, found.sure) == ("memory", "established")


def test_a_pod_that_was_lost_with_its_node_is_the_nodes(api):
    server, client = api
    server.pods = [pod("llama-0", "n1", reason="NodeLost")]
    server.pods[0]["status"].update(reason="NodeShutdown", message="Pod was terminated in response to node shutdown")

    record = read_end(client, "llama", "team")

    assert [loss.cause for loss in record.losses] == [LossCause.NODE]
    assert verdict(record).cause == "node"
    assert record.missing, "a log that may not be read is said"


def test_the_pods_of_every_kind_that_is_restarted_are_found(api):
    server, client = api
    for kind in KINDS.values():
        server.pods = [labelled(pod("llama-0", "n1"), **{kind.label: "llama"})]
        record = read_end(client, f"{kind.kind}/team/llama", "default")
        assert (record.job.text(), record.nodes) == (f"{kind.kind}/team/llama", ("n1",))


def test_a_job_without_pods_is_none_and_a_strange_name_is_refused(api):
    _server, client = api
    assert read_end(client, "llama", "team") is None
    with pytest.raises(AdapterError, match="is no job"):
        read_end(client, "CronJob/team/llama", "team")


def event(kind, name, reason, message, at="2026-11-23T02:46:00Z"):
    return {"involvedObject": {"kind": kind, "name": name, "uid": f"uid-{name}"}, "reason": reason, "message": message,
            "lastTimestamp": at}  # fmt: skip


def labelled(one, **labels):
    """A pod of another kind of job."""
    one["metadata"] = {"name": one["metadata"]["name"], "uid": f"uid-{one['metadata']['name']}", "labels": labels}
    return one


JOB = {"batch.kubernetes.io/job-name": "llama"}
JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "llama", "batch.kubernetes.io/job-completion-index": "1"}


@pytest.mark.parametrize(
    ("reason", "message", "cause", "loss"),
    [
        ("Preempted", "Preempted by pod 7 on node n1", "scheduler", LossCause.PREEMPTED),
        ("TaintManagerEviction", "Marking for deletion Pod team/llama-x", "scheduler", LossCause.EVICTED),
        ("DeviceTaintManagerEviction", "Marking for deletion", "scheduler", LossCause.EVICTED),
        ("Evicted", "The node was low on resource: memory.", "scheduler", LossCause.EVICTED),
        ("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi.", "disk",
         LossCause.LIMIT),
        ("TaintManagerEviction", "Cancelling deletion of Pod team/llama-x", "unknown", LossCause.EXIT),
        ("DeviceTaintManagerEviction", "Cancelling deletion", "unknown", LossCause.EXIT),
        ("Unhealthy", "Readiness probe failed", "unknown", LossCause.EXIT),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("kind", "labels"), [("Job", JOB), ("JobSet", JOB_SET)])
def test_an_event_says_what_the_pods_status_does_not(api, kind, labels, reason, message, cause, loss):
    server, client = api
    server.pods = [labelled(pod("llama-x", "n1", code=143), **labels)]
    server.logs = {"llama-x": "step 3\n"}
    server.events = [event("Pod", "llama-x", reason, message), event("Pod", "other", "Preempted", "another job's")]

    record = read_end(client, "team/llama", "default")

    assert (record.job.kind, record.losses[0].cause, record.missing) == (kind, loss, ())
    assert all("another job's" not in one.detail for one in record.losses)
    assert verdict(record).cause == cause


def test_a_rank_that_raised_before_its_pod_was_taken_away_is_still_the_cause(api):
    server, client = api
    server.pods = [labelled(pod("llama-x", "n1"), **JOB_SET)]
    server.logs = {"llama-x": f"2026-11-23 02:40:00 step\n{TRACEBACK}"}
    server.events = [event("Pod", "llama-x", "Preempted", "Preempted by pod 7 on node n1")]

    found = verdict(read_end(client, "JobSet/team/llama", "default"))

    assert (found.cause, found.clues[0].rank) == ("program", 1)


def test_a_job_over_its_deadline_has_no_pods_left(api):
    server, client = api
    server.events = [event("Job", "llama", "DeadlineExceeded", "Job was active longer than specified deadline")]

    record = read_end(client, "team/llama", "default")

    assert verdict(record).cause == "time"
    assert record.missing == ("its pods are gone, and their logs with them",)
    assert read_end(client, "team/other", "default") is None


def test_events_that_may_not_be_read_are_said(api):
    server, client = api
    server.pods, server.logs, server.events = [pod("llama-0", "n1")], {"llama-0": TRACEBACK}, None

    [missing] = read_end(client, "team/llama", "default").missing

    assert missing.startswith("its Events: ")


@pytest.mark.thorough
def test_events_of_other_reasons_are_not_asked_for_and_those_of_one_reason_are_bounded(api):
    server, client = api
    server.pods = [labelled(pod("llama-x", "n1", code=143), **JOB)]
    server.logs = {"llama-x": "step 3\n"}
    server.events = [event("Pod", f"other-{number}", "Preempted", "by another") for number in range(2500)]
    server.events += [event("Pod", f"other-{number}", "Unhealthy", "Readiness probe failed") for number in range(5000)]
    server.events.append(event("Pod", "llama-x", "Evicted", "The node was low on resource: memory."))

    record = read_end(client, "team/llama", "default")

    assert record.losses[0].cause is LossCause.EVICTED
    assert record.missing == (
        "its Events: more than 2000 in its namespace with involvedObject.kind=Pod,reason=Preempted",
    )
    assert len([path for path in server.asked if "/events" in path]) == 9  # four pages of one reason, five reasons


def test_events_of_pods_are_not_asked_for_where_the_pods_say_why_they_ended(api):
    server, client = api
    server.pods, server.logs = [labelled(pod("llama-x", "n1", "OOMKilled", 137), **JOB)], {"llama-x": "step\n"}

    read_end(client, "team/llama", "default")

    assert len([path for path in server.asked if "/events" in path]) == 1


def test_one_refusal_is_enough_to_know_that_logs_may_not_be_read(api):
    server, client = api
    server.pods = [labelled(pod(f"llama-{number}", "n1"), **JOB) for number in range(40)]

    first, rest = read_end(client, "team/llama", "default").missing

    assert "403" in first
    assert rest == "the logs of 39 more pods were not read"
    assert len([path for path in server.asked if path.partition("?")[0].endswith("/log")]) == 1


def test_a_real_api_server_knows_the_selectors(kube):
    """And gives the Events of this pod alone, with the right that the loop's role has."""

    def body(name, reason, about):
        return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": kube.namespace},
                "involvedObject": {**about, "namespace": kube.namespace}, "reason": reason, "type": "Warning",
                "message": f"{reason} for {about['name']}", "lastTimestamp": "2026-11-23T02:46:00Z"}  # fmt: skip

    one = pod("llama-x", "n1", code=143)
    one["metadata"].update(uid="uid-llama-x", labels=JOB)
    said = [body("e1", "Preempted", {"kind": "Pod", "name": "llama-x", "uid": "uid-llama-x"}),
            body("e2", "Unhealthy", {"kind": "Pod", "name": "llama-x", "uid": "uid-llama-x"}),
            body("e3", "DeadlineExceeded", {"kind": "Job", "name": "llama"}),
            body("e4", "DeadlineExceeded", {"kind": "Job", "name": "other"})]  # fmt: skip
    path = namespaced(kube.namespace, "events")
    for event_body in said:
        kube.admin.post(path, event_body)

    selectors = event_selectors(JobName("Job", kube.namespace, "llama"), [one])
    found = [item for selector in selectors for item in kube.admin.items(path, fieldSelector=selector)]

    assert sorted(item["metadata"]["name"] for item in found) == ["e1", "e3"]


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "aws.amazon.com/neuron", "google.com/tpu", "vendor.example/npu"]
)
def test_gpus_are_those_of_the_jobs_members_and_one_made_anew_counts_once(api, resource):
    server, client = api
    limits = {resource: "8", "cpu": "64", "nvidia.com/gpumem": "4000", "nvidia.com/mig-1g.10gb": "3", "rdma/hca": "8"}
    server.pods = [labelled(pod(name, "n1", code=1), **JOB, **{"batch.kubernetes.io/job-completion-index": index})
                   for name, index in (("a", "0"), ("b", "1"), ("b-anew", "1"))]  # fmt: skip
    for one in server.pods:
        one["spec"]["containers"][0]["resources"] = {"limits": limits}
    server.logs = dict.fromkeys(("a", "b", "b-anew"), "")

    assert read_end(client, "team/llama", "default").gpus == 16
