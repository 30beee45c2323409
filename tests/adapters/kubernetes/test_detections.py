"""What the cluster's side finds itself: device errors in pod logs, kernel lines in Loki."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.parse
from http.server import HTTPServer
from typing import Any, Iterator

import pytest

from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client, namespaced, node_path
from nhc_adapters.kubernetes.controller.loki import LogLine, Loki, LokiError, LokiSettings, read_answer
from nhc_adapters.kubernetes.controller.loki_watch import KernelLogs
from nhc_adapters.kubernetes.controller.podlogs import Ending, Met, PodLogs, Reader, blame, endings
from nhc_adapters.kubernetes.nodes.conditions import JOB_ERROR, KERNEL_LOG, TRUE
from tests.adapters.kubernetes.test_commands import nhc
from tests.adapters.kubernetes.test_controller import heal, marked, running, settings
from tests.support.http_server import Reply, Request, answering, serving
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]

ERROR = "RuntimeError: CUDA error: invalid device ordinal"


# Pod logs.


def pod(name: str = "p", code: int = 1, wants: str = "nvidia.com/gpu", **more: Any) -> dict[str, Any]:
    ended = {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": code}}, **more}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"limits": {wants: "8"}}}]},
        "status": {"containerStatuses": [ended]},
    }


def test_only_containers_that_had_an_accelerator_and_failed_are_looked_at() -> None:
    assert [one.place for one in endings(pod())] == ["p/c/0"]
    assert list(endings(pod(code=0))) == []
    assert list(endings(pod(wants="example.com/licence"))) == []
    assert list(endings(pod(state={"running": {}}))) == []
    again = pod(restartCount=3, state={"running": {}}, lastState={"terminated": {"exitCode": 139}})
    assert [(one.restarts, one.previous) for one in endings(again)] == [(2, True)]


def test_a_pod_that_cannot_be_read_hides_no_other() -> None:
    odd: list[Any] = [{**pod("odd"), "spec": {"nodeName": "n1", "containers": [5]}}, pod("odd-2", restartCount="many")]

    def answer(request: Request) -> Reply:
        if request.path.partition("?")[0].endswith("/log"):
            return Reply(200, ERROR.encode())
        return Reply(200, json.dumps({"items": [*odd, pod()], "metadata": {}}).encode())

    said: list[str] = []
    with serving(answering(answer)) as server:
        client = Client(Access(f"http://127.0.0.1:{server.server_port}"), retry_for=0.1)
        blamed = Reader(client, PodLogs(namespaces=("ns",)), said.append).look()
    assert list(blamed) == ["n1"]
    assert len(said) == 1
    assert "odd" in said[0]
    assert "odd-2" in said[0]


def met(node: str, owner: str, uid: str, when: float = 0.0) -> Met:
    return Met(Ending("ns", uid, uid, "c", node, owner, 0, False, when), ERROR)


def test_a_node_is_blamed_for_its_jobs_errors_but_not_for_a_job_that_fails_everywhere() -> None:
    assert list(blame([met("n1", "Job/a", "1")], PodLogs())) == ["n1"]
    everywhere = [met(f"n{number}", "Job/wrong", str(number)) for number in range(5)]
    assert blame(everywhere, PodLogs()) == {}
    assert list(blame([*everywhere, met("n3", "Job/other", "x")], PodLogs())) == ["n3"]
    assert blame([met("n1", "Job/a", "1")], PodLogs(pods=2)) == {}


def test_a_job_is_at_fault_where_it_fails_on_many_nodes_at_about_the_same_time_and_not_over_weeks() -> None:
    week = 7 * 86400.0
    slowly = [met(f"n{number}", "Deployment/serving", str(number), number * week) for number in range(5)]
    assert len(blame(slowly, PodLogs())) == 5
    burst = [met(f"m{number}", "Deployment/serving", f"b{number}", 9 * week + number * 60) for number in range(4)]
    assert sorted(blame([*slowly, *burst], PodLogs())) == sorted(one.ending.node for one in slowly)
    assert sorted(blame(burst, PodLogs(window=30.0))) == sorted(one.ending.node for one in burst)


def test_what_was_acknowledged_blames_nobody_and_what_fails_anew_does() -> None:
    acks = {"1/c/0": 100.0}
    assert blame([met("n1", "Job/a", "1", 100.0)], PodLogs(), lambda node: acks) == {}
    again = met("n1", "Job/a", "2", 50.0)
    assert dict(blame([again], PodLogs(), lambda node: acks)["n1"].findings) == {"2/c/0": 50.0}
    assert blame([again], PodLogs(), lambda node: {"*": 60.0}) == {}


@pytest.fixture
def kubelet(kube: Kube) -> Iterator[tuple[HTTPServer, list[str]]]:
    """A kubelet that has logs to show, for the real API server to ask."""
    asked: list[str] = []

    def answer(request: Request) -> Reply:
        asked.append(request.path)
        if "gone" in request.path:
            return Reply(404, b"no such container")
        return Reply(200, f"epoch 1\n{ERROR}\n".encode())

    certificate = kube.plane.certificates
    with serving(answering(answer), (str(kube.plane.ca), str(certificate / "apiserver.key"))) as server:
        yield server, asked


def failed_pod(
    kube: Kube, node: str, kubelet: HTTPServer, name: str = "train", labels: dict[str, str] | None = None
) -> None:
    """A pod with GPUs that failed on a node whose kubelet is ours."""
    kube.admin.patch(
        f"{node_path(node)}/status",
        {
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.server_port}},
                "nodeInfo": {"bootID": "0123456789abcdef", **kube.get(node)["status"]["nodeInfo"], "machineID": ""},
            }
        },
        STRATEGIC,
    )
    base = f"/api/v1/namespaces/{kube.namespace}/pods"
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
    }
    kube.admin.post(base, body)
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": utc(time.time())}}
    status = {"name": "c", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    kube.admin.patch(f"{base}/{name}/status", {"status": {"phase": "Failed", "containerStatuses": [status]}}, STRATEGIC)


def test_a_device_error_in_a_pods_log_marks_the_node(kube: Kube, kubelet: tuple[HTTPServer, list[str]]) -> None:
    node, other = kube.node("sick", fake=False), kube.node("well", fake=False)
    failed_pod(kube, node, kubelet[0])
    chosen = settings(kube, podlogs=PodLogs((kube.namespace,), every=0.1))
    with running(kube, chosen):
        until(lambda: marked(kube) == {node})
        said = kube.condition(node, JOB_ERROR) or {}
        assert said["status"] == "True"
        assert f"pod {kube.namespace}/train: {ERROR}" in said["message"]
        assert kube.condition(other, JOB_ERROR) is None
        # The log was read once, at its end.
        assert len(kubelet[1]) == 1
        assert "tailLines=200" in kubelet[1][0]


def reboot(kube: Kube, node: str, boot: str) -> None:
    info = {**kube.get(node)["status"]["nodeInfo"], "bootID": boot}
    kube.admin.patch(f"{node_path(node)}/status", {"status": {"nodeInfo": info}}, STRATEGIC)


def job_error(kube: Kube, node: str) -> tuple[str, str]:
    found = kube.condition(node, JOB_ERROR) or {}
    return found.get("status", ""), found.get("reason", "")


def read_again(kube: Kube, kubelet: tuple[HTTPServer, list[str]], chosen: Any, node: str) -> None:
    """A new controller, which reads the logs that there are and has had the time to say what it makes of them."""
    before = len(kubelet[1])
    with running(kube, chosen) as controller:
        until(lambda: len(kubelet[1]) > before)
        controller.detections.read_pods(_Once())  # type: ignore[arg-type]  # a whole look, from reading to writing
        until(lambda: controller.rounds.fleet.judgement(node))


class _Once:
    """Something to stop by, after one look."""

    def __init__(self) -> None:
        self.asked = 0

    def wait(self, seconds: float) -> bool:
        self.asked += 1
        return self.asked > 1


def test_an_acknowledged_pods_error_stays_so_over_restarts_and_reboots(
    kube: Kube, kubelet: tuple[HTTPServer, list[str]], nhc: Any
) -> None:
    node = kube.node(fake=False)
    heal(kube, node)
    failed_pod(kube, node, kubelet[0])
    chosen = settings(kube, podlogs=PodLogs((kube.namespace,), every=0.1))
    with running(kube, chosen):
        until(lambda: marked(kube) == {node})
        assert nhc("ack", "kubernetes", "--by", "alice", node).returncode == 0
        until(lambda: marked(kube) == set())
    read_again(kube, kubelet, chosen, node)
    assert job_error(kube, node) == ("False", "Acknowledged")
    reboot(kube, node, "fedcba9876543210")
    read_again(kube, kubelet, chosen, node)
    assert job_error(kube, node) == ("False", "Acknowledged")
    assert marked(kube) == set()
    # Another pod that fails so is another finding.
    with running(kube, chosen):
        failed_pod(kube, node, kubelet[0], "another")
        until(lambda: marked(kube) == {node})


def test_a_pods_error_ends_with_the_restart_of_its_node_for_good(
    kube: Kube, kubelet: tuple[HTTPServer, list[str]]
) -> None:
    node = kube.node(fake=False)
    heal(kube, node)
    failed_pod(kube, node, kubelet[0])
    reboot(kube, node, "0123456789abcdef")
    chosen = settings(kube, podlogs=PodLogs((kube.namespace,), every=0.1))
    with running(kube, chosen):
        until(lambda: marked(kube) == {node})
    reboot(kube, node, "fedcba9876543210")  # while no controller looks
    with running(kube, chosen):
        until(lambda: job_error(kube, node) == ("False", "NodeRestarted"))
        until(lambda: marked(kube) == set())
    read_again(kube, kubelet, chosen, node)
    assert job_error(kube, node) == ("False", "NodeRestarted")


def test_a_node_is_excused_when_its_job_turns_out_to_fail_everywhere(
    kube: Kube, kubelet: tuple[HTTPServer, list[str]]
) -> None:
    nodes = [kube.node(f"n{number}", fake=False) for number in range(3)]
    heal(kube, *nodes)
    chosen = settings(kube, podlogs=PodLogs((kube.namespace,), every=0.1))
    labels = {"batch.kubernetes.io/job-name": "wrong"}
    with running(kube, chosen):
        failed_pod(kube, nodes[0], kubelet[0], "p0", labels)
        until(lambda: marked(kube) == {nodes[0]})
        for number in (1, 2):
            failed_pod(kube, nodes[number], kubelet[0], f"p{number}", labels)
        until(lambda: job_error(kube, nodes[0]) == ("False", "JobAtFault"))
        until(lambda: marked(kube) == set())


def test_a_pod_whose_log_is_gone_is_not_asked_for_again(kube: Kube, kubelet: tuple[HTTPServer, list[str]]) -> None:
    failed_pod(kube, kube.node(fake=False), kubelet[0], "gone")
    reader = Reader(kube.admin, PodLogs((kube.namespace,)))
    assert (reader.look(), reader.look()) == ({}, {})
    assert len(kubelet[1]) == 1


def test_why_pods_cannot_be_looked_at_is_told_once_and_the_end_of_it_too(kube: Kube) -> None:
    said: list[str] = []
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kube.namespace}"
    reader = Reader(kube.client(kube.token("default", kube.namespace)), PodLogs((kube.namespace,)), said.append)
    reader.look()
    reader.look()
    assert len(said) == 1
    assert "403 Forbidden" in said[0]
    role = {"metadata": {"name": "pods"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    kube.admin.post(f"{base}/roles", role)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": kube.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"}
    kube.admin.post(f"{base}/rolebindings", {"metadata": {"name": "p"}, "roleRef": reference, "subjects": [subject]})

    def again() -> bool:
        reader.look()
        return len(said) == 2

    until(again)
    assert said[1] == f"pods of {kube.namespace}: looked at again"


# Loki.


class FakeLoki:
    """Holds lines, answers query_range as Loki does, limits included, and can be away."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, Any]] = []
        self.status = 200
        self.max_query_length = 721 * 3600.0
        self.asked: list[tuple[float, float]] = []
        self.serving = contextlib.ExitStack()
        server = self.serving.enter_context(serving(answering(lambda request: Reply(*self.answer(request.path)))))
        self.url = f"http://127.0.0.1:{server.server_port}"

    def say(self, node: str, text: Any, when: float | None = None) -> None:
        """A line; a node of "" is a stream without the node's label."""
        self.lines.append((int((when or time.time()) * 1e9), node, text))

    def answer(self, path: str) -> tuple[int, bytes]:
        if self.status != 200:
            return self.status, b"too many outstanding requests"
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        assert asked["direction"] == ["forward"]
        begin, end, limit = (int(asked[name][0]) for name in ("start", "end", "limit"))
        self.asked.append((begin / 1e9, end / 1e9))
        if (end - begin) / 1e9 > self.max_query_length:
            return 400, b"the query time range exceeds the limit (query length: 800h0m0s, limit: 721h0m0s)"
        if limit > 5000:
            return 400, b"max entries limit per query exceeded, limit > max_entries_limit (6000 > 5000)"
        chosen = sorted((line for line in self.lines if begin <= line[0] < end), key=lambda line: line[0])[:limit]
        streams: dict[str, list[list[Any]]] = {}
        for when, node, text in chosen:
            streams.setdefault(node, []).append([str(when), text])
        result = [
            {"stream": {"job": "dmesg", **({"k8s_node_name": node} if node else {"host": "x"})}, "values": values}
            for node, values in streams.items()
        ]
        return 200, json.dumps({"status": "success", "data": {"resultType": "streams", "result": result}}).encode()


@pytest.fixture
def loki() -> Iterator[FakeLoki]:
    made = FakeLoki()
    yield made
    made.serving.close()


XID79 = "[12345.678] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
XID31 = "[12345.678] NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000"


def test_each_line_is_told_once_and_none_is_missed_over_an_outage(loki: FakeLoki) -> None:
    asking = Loki(LokiSettings(loki.url, "{}"), timeout=2.0)
    loki.say("n1", "one")
    assert [line.text for line in asking.look()] == ["one"]
    loki.say("n1", "two")
    loki.status = 500
    with pytest.raises(LokiError, match="500"):
        asking.look()
    loki.say("n2", "three")
    loki.status = 200
    assert [line.text for line in asking.look()] == ["two", "three"]
    assert asking.look() == []


def test_more_lines_than_a_page_come_whole(loki: FakeLoki) -> None:
    now = time.time()
    for number in range(2500):
        loki.say("n1", f"line {number}", now - 100 + number / 50)
    assert [line.text for line in Loki(LokiSettings(loki.url, "{}")).look()] == [
        f"line {number}" for number in range(2500)
    ]


def test_lines_of_the_last_hour_are_read_at_the_first_look_and_older_ones_are_no_news(loki: FakeLoki) -> None:
    loki.say("n1", "old", time.time() - 7200)
    loki.say("n1", "young", time.time() - 3000)
    assert [line.text for line in Loki(LokiSettings(loki.url, "{}")).look()] == ["young"]


@pytest.mark.thorough
def test_a_quiet_cluster_asks_for_no_more_each_day(loki: FakeLoki) -> None:
    now = [time.time()]
    asking = Loki(LokiSettings(loki.url, "{}"), clock=lambda: now[0])
    for _day in range(60):
        now[0] += 86400
        assert asking.look() == []
    now[0] += 10
    asking.look()
    assert loki.asked[-1][1] - loki.asked[-1][0] < 600
    assert max(end - begin for begin, end in loki.asked) <= 6 * 3600
    loki.say("n1", "at last", now[0])
    now[0] += 1
    assert [line.text for line in asking.look()] == ["at last"]


@pytest.mark.thorough
def test_a_server_that_allows_less_is_asked_for_less_and_nothing_is_lost(loki: FakeLoki) -> None:
    loki.max_query_length = 1800
    now = [time.time()]
    asking = Loki(LokiSettings(loki.url, "{}"), clock=lambda: now[0], since=int((now[0] - 86400) * 1e9))
    loki.say("n1", "yesterday", now[0] - 80000)
    found: list[str] = []
    for _look in range(10):
        with contextlib.suppress(LokiError):
            found += [line.text for line in asking.look()]
    assert found == ["yesterday"]
    assert asking.since == int(now[0] * 1e9)


def test_lines_that_name_no_node_are_set_aside_and_block_nothing(loki: FakeLoki) -> None:
    now = time.time()
    for number in range(1500):
        loki.say("", f"nobody's {number}", now - 100 + number / 100)
    loki.say("n1", "after them", now - 10)
    loki.say("n1", 42, now - 9)  # no text
    asking = Loki(LokiSettings(loki.url, "{}"))
    assert [line.text for line in asking.look()] == ["after them"]
    assert asking.aside == 1501
    assert asking.labels == ("host", "job")
    assert asking.look() == []
    assert asking.aside == 1501  # the overlap reads them again and counts them once


def test_a_thousand_lines_of_one_instant_end_no_reading(loki: FakeLoki) -> None:
    now = time.time()
    for number in range(1200):
        loki.say("n1", f"burst {number}", now - 50)
    loki.say("n1", "after", now - 10)
    assert [line.text for line in Loki(LokiSettings(loki.url, "{}")).look()][-1] == "after"


def test_a_late_line_is_still_read(loki: FakeLoki) -> None:
    asking = Loki(LokiSettings(loki.url, "{}"))
    loki.say("n1", "one")
    asking.look()
    loki.say("n2", "late", time.time() - 200)
    assert [line.text for line in asking.look()] == ["late"]


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"status": "error", "error": "parse error"}, {"status": "success", "data": {"resultType": "matrix"}},
     {"status": "success", "data": {"resultType": "streams", "result": [{"stream": 3, "values": [["x"]]}]}}],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_an_error_of_lokis(answer: Any) -> None:
    with pytest.raises(LokiError):
        read_answer(answer, "n")


def test_a_line_that_makes_no_sense_does_not_spoil_its_answer() -> None:
    values = [["x"], ["12", "fine"], [None, "no time"], ["13", None]]
    result = [{"stream": {"n": "n1"}, "values": values}]
    page = read_answer({"status": "success", "data": {"resultType": "streams", "result": result}}, "n")
    assert (page.lines, page.entries, len(page.aside)) == ((LogLine("n1", 12, "fine"),), 4, 3)


def test_a_fatal_line_speaks_against_its_node_and_an_applications_does_not() -> None:
    logs = KernelLogs()
    now = time.time()
    found = logs.take([LogLine("n1", int(now * 1e9), XID79), LogLine("n2", int(now * 1e9), XID31)], now)
    assert list(found) == ["n1"]
    assert (found["n1"].status, found["n1"].reason) == (TRUE, "Xid79")
    assert "0000:3b:00.0" in found["n1"].message


def test_a_burst_of_one_line_is_one_finding() -> None:
    logs = KernelLogs()
    now = time.time()
    lines = [LogLine("n1", int((now + number / 1000) * 1e9), XID79) for number in range(5000)]
    (said,) = logs.take(lines, now).values()
    assert "more)" not in said.message


def test_a_kernel_line_in_loki_marks_its_node_though_loki_was_away_at_first(kube: Kube, loki: FakeLoki) -> None:
    node, other = kube.node("sick", fake=False), kube.node("well", fake=False)
    loki.status = 503
    with running(kube, settings(kube, loki=LokiSettings(loki.url, "{}", every=0.1))) as controller:
        until(lambda: controller.says("reading Loki fails"))
        loki.say(node, XID79)
        loki.say(other, XID31)
        loki.say("not-a-node-here", XID79)
        loki.status = 200
        until(lambda: marked(kube) == {node})
        assert (kube.condition(node, KERNEL_LOG) or {})["reason"] == "Xid79"
        assert "[action: " in kube.get(node)["metadata"]["annotations"]["nhc/mark"]
        assert kube.condition(other, KERNEL_LOG) is None
        assert controller.says("Loki works again after")
        assert sum("reading Loki fails" in line for line in controller.said) == 1


def test_what_loki_held_while_no_controller_ran_is_read_by_the_next_and_nothing_twice(
    kube: Kube, loki: FakeLoki
) -> None:
    first, second = kube.node("first", fake=False), kube.node("second", fake=False)
    chosen = settings(kube, loki=LokiSettings(loki.url, "{}", every=0.1))
    loki.say(first, XID79, time.time() - 20)
    with running(kube, chosen):
        until(lambda: marked(kube) == {first})
        # The place is written down after the condition was.
        path = namespaced(kube.namespace, "configmaps", "nhc-cursors")
        held = until(lambda: [m for m in kube.admin.items(namespaced(kube.namespace, "configmaps")) if
                                   m["metadata"]["name"] == "nhc-cursors"])  # fmt: skip
    reached = json.loads(held[0]["data"]["loki"])["since"]
    assert reached > (time.time() - 30) * 1e9
    # Three hours without a controller, more than a first look goes back: the cursor is as old.
    old = {"data": {"loki": json.dumps({"query": "{}", "since": reached - 3 * 3600 * 10**9})}}
    kube.admin.patch(path, old, MERGE_PATCH)
    loki.lines.clear()
    loki.say(second, XID79, time.time() - 2 * 3600)
    with running(kube, chosen):
        until(lambda: marked(kube) == {first, second})


def test_an_acknowledged_kernel_line_does_not_come_back(kube: Kube, loki: FakeLoki, nhc: Any) -> None:
    """Not with the next line that means nothing bad, and not when a restart reads it again."""
    node = kube.node(fake=False)
    heal(kube, node)
    chosen = settings(kube, loki=LokiSettings(loki.url, "{}", every=0.1))
    begin = time.time() - 30
    loki.say(node, XID79, begin)
    with running(kube, chosen) as controller:
        until(lambda: marked(kube) == {node})
        assert nhc("ack", "kubernetes", "--by", "alice", node).returncode == 0
        until(lambda: marked(kube) == set())
        seen = controller.detections.loki.logs._nodes[node].state  # type: ignore[union-attr]
        loki.say(node, "NVRM: Xid (PCI:0000:9b:00): 48, pid=1, a fault of another device ends in a mark", begin + 1)
        until(lambda: marked(kube) == {node})
        assert (kube.condition(node, KERNEL_LOG) or {})["reason"] == "Xid48"
        assert "more)" not in (kube.condition(node, KERNEL_LOG) or {})["message"]
        assert len(seen["findings"]) == 2
        assert nhc("ack", "kubernetes", "--by", "alice", node).returncode == 0
        until(lambda: marked(kube) == set())
        loki.say(node, XID31, begin + 2)  # means nothing for the node
        until(lambda: seen["seen"].get("app"))
        assert (kube.condition(node, KERNEL_LOG) or {})["status"] == "False"
    base = f"/api/v1/namespaces/{kube.namespace}/configmaps/nhc-cursors"
    kube.admin.delete(base)  # the next one knows no cursor, and reads it all again
    with running(kube, chosen) as controller:
        until(lambda: controller.detections.loki.logs._nodes.get(node))  # type: ignore[union-attr]
        assert (kube.condition(node, KERNEL_LOG) or {})["reason"] == "Acknowledged"
        loki.say(node, XID79, begin + 3)  # the same error again is a new one
        until(lambda: marked(kube) == {node})


def test_what_stood_before_a_restart_stands_beside_what_comes_after_it(kube: Kube, loki: FakeLoki) -> None:
    node = kube.node(fake=False)
    heal(kube, node)
    chosen = settings(kube, loki=LokiSettings(loki.url, "{}", every=0.1))

    def said() -> dict[str, Any]:
        return kube.condition(node, KERNEL_LOG) or {}

    loki.say(node, XID79)
    with running(kube, chosen):
        until(lambda: marked(kube) == {node})
    with running(kube, chosen):
        link = "mlx5_core 0000:d2:00.0: poll_health:825: device's health compromised - reached miss count."
        loki.say(node, link)
        until(lambda: "(and 1 more)" in said().get("message", ""))
        # The one ends by its driver's word, the other stands.
        loki.say(node, "mlx5_core 0000:d2:00.0: mlx5_health_try_recover:337:(pid 8): health revovery succeded")
        until(lambda: said().get("reason") == "Xid79")
        assert said()["status"] == "True"
        assert "[action: " in said()["message"]
        assert marked(kube) == {node}
    with running(kube, chosen):
        loki.say(node, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024")
        until(lambda: said()["status"] == "False")
        until(lambda: marked(kube) == set())


@pytest.mark.parametrize("text", [XID79, "NEURON_HW_ERR=DMA_ERROR nd-id=2 nc-id=0",
                                  "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress error",
                                  "nvme nvme0: Disabling device after reset failure: -19"])  # fmt: skip
def test_a_finding_is_recalled_by_its_key_as_it_was(text: str) -> None:
    now = time.time()
    before = KernelLogs().take([LogLine("n1", int(now * 1e9), text)], now)["n1"]
    standing = dict(before.findings)
    again = KernelLogs(standing=lambda node: standing)
    quiet = again.take([LogLine("n1", int(now * 1e9), XID31)], now)
    assert quiet == {}  # what was said stays as it was said
    more = again.take([LogLine("n1", int(now * 1e9) - 1, "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, off")], now)["n1"]
    assert set(dict(more.findings)) == {*standing, "xid/79/0000:9b:00.0"}
    assert (more.reason, "(and 1 more)" in more.message) == (before.reason, True)
