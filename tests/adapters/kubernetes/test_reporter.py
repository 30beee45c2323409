"""What an agent writes of its node: conditions beside everybody else's, and events that do not multiply."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nhc.core.model import CheckResult, Report, crit, ok
from nhc.core.timestamps import utc
from nhc_adapters.kubernetes.api.events import BURST, NORMAL, SIMILAR_LIMIT, WARNING, EventRecorder
from nhc_adapters.kubernetes.nodes.conditions import FALSE, TRUE, Condition, NodeConditions
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from nhc_adapters.kubernetes.sink import Reporter
from tests.support.kube import Kube
from tests.support.waiting import until


def report(*outcomes: Any) -> Report:
    return Report("n", "b", time.time(), 0.0, tuple(CheckResult("check_gpu_lost", one) for one in outcomes))


def events(kube: Kube, node: str) -> list[dict[str, Any]]:
    path = "/api/v1/namespaces/default/events"
    return [event for event in kube.admin.items(path) if event["involvedObject"]["name"] == node]


def test_foreign_conditions_stay_as_they_are(kube: Kube) -> None:
    node = kube.node(fake=False)
    kube.set_condition(node, "KernelDeadlock", "False", "KernelHasNoDeadlock", "theirs")
    before = kube.condition(node, "KernelDeadlock")
    conditions = NodeConditions(kube.admin, node)
    conditions.say([Condition("NhcHealthy", TRUE, "NhcHealthy", "")])
    conditions.flush()
    assert kube.condition(node, "KernelDeadlock") == before
    assert (kube.condition(node, "NhcHealthy") or {})["status"] == "True"


def test_events_are_about_the_node_as_it_is_registered_now(kube: Kube) -> None:
    """`kubectl describe node` shows those alone."""
    node = kube.node(fake=False)
    conditions = NodeConditions(kube.admin, node, heartbeat=0.0)
    conditions.adopt(["NhcHealthy"])
    before = conditions.uid
    kube.admin.delete(f"/api/v1/nodes/{node}")
    kube.node(fake=False)
    conditions.say([Condition("NhcHealthy", TRUE, "NhcHealthy", "")])
    conditions.flush()
    now = kube.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    assert (conditions.uid, before == now) == (now, False)


def test_a_restart_neither_clears_a_fault_nor_makes_it_new(kube: Kube) -> None:
    node = kube.node(fake=False)
    long_ago = utc(time.time() - 5000)
    standing = {
        "type": "NhcHealthy",
        "status": "False",
        "reason": "GpuLost",
        "message": "old",
        "lastTransitionTime": long_ago,
    }
    kube.admin.patch(
        f"/api/v1/nodes/{node}/status", {"status": {"conditions": [standing]}}, "application/strategic-merge-patch+json"
    )
    reporter = Reporter(kube.admin, node, [load("nhc")])
    reporter.submit(report(crit("GpuLost", "fell off the bus")))
    reporter.flush()
    after = kube.condition(node, "NhcHealthy") or {}
    assert (after["status"], after["lastTransitionTime"]) == ("False", long_ago)
    assert [event["reason"] for event in events(kube, node) if "NhcHealthy" in event["message"]] == []


def test_changes_go_out_at_once_and_what_is_the_same_only_as_a_heartbeat(kube: Kube) -> None:
    node, now = kube.node(fake=False), [1000.0]
    conditions = NodeConditions(kube.admin, node, heartbeat=300.0, monotonic=lambda: now[0])
    conditions.say([Condition("NhcHealthy", TRUE, "NhcHealthy", "")])
    assert conditions.flush()
    conditions.say([Condition("NhcHealthy", TRUE, "NhcHealthy", "")])
    assert not conditions.flush()
    conditions.say([Condition("NhcHealthy", FALSE, "GpuLost", "x")])
    assert conditions.flush()
    now[0] += 299
    assert not conditions.flush()
    now[0] += 1
    assert conditions.flush()


def test_a_transition_is_an_event_and_a_state_is_not(kube: Kube) -> None:
    node = kube.node(fake=False)
    reporter = Reporter(kube.admin, node, [load("nhc")])
    for outcome in (ok(), ok(), crit("GpuLost", "gone"), crit("GpuLost", "gone"), ok()):
        reporter.submit(report(outcome))
        reporter.flush()
    told = [(e["type"], e["reason"]) for e in events(kube, node) if "NhcHealthy is now" in e["message"]]
    assert sorted(told) == [("Normal", "NhcHealthy"), ("Warning", "GpuLost")]
    (bad,) = [e for e in events(kube, node) if e["reason"] == "GpuLost" and "NhcHealthy is" in e["message"]]
    assert bad["message"].startswith("Node condition NhcHealthy is now: False, reason: GpuLost, message: ")
    assert bad["involvedObject"]["uid"] == kube.get(node)["metadata"]["uid"]


def test_a_reporter_in_its_thread_writes_within_moments(kube: Kube) -> None:
    node = kube.node(fake=False)
    reporter = Reporter(kube.admin, node, [load("nhc"), load("aks")])
    reporter.start()
    reporter.submit(report(crit("GpuLost", "gone")))
    until(lambda: kube.condition(node, "GpuCount"))
    reporter.submit(report(ok()))
    until(lambda: (kube.condition(node, "NhcHealthy") or {}).get("status") == "True")
    reporter.close()


# Aggregation.


class Deaf:
    """A client that takes everything."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.patches: list[dict[str, Any]] = []

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.posts.append(body)
        return body

    def patch(self, path: str, body: dict[str, Any], kind: str) -> dict[str, Any]:
        self.patches.append(body)
        return body


@pytest.fixture
def deaf() -> Deaf:
    return Deaf()


def recorder(deaf: Deaf, now: list[float]) -> EventRecorder:
    return EventRecorder(deaf, clock=lambda: now[0])  # type: ignore[arg-type]


def test_the_same_event_again_is_counted(deaf: Deaf) -> None:
    now = [1000.0]
    speaker = recorder(deaf, now)
    for _ in range(5):
        speaker.say(WARNING, "n1", "Xid79", "gone")
        speaker.flush()
        now[0] += 10
    assert len(deaf.posts) == 1
    assert [change["count"] for change in deaf.patches] == [2, 3, 4, 5]
    now[0] += 601
    speaker.say(WARNING, "n1", "Xid79", "gone")
    speaker.flush()
    assert len(deaf.posts) == 2


def test_events_that_differ_in_their_text_only_are_combined(deaf: Deaf) -> None:
    speaker = recorder(deaf, [1000.0])
    for number in range(40):
        speaker.say(NORMAL, "n1", "LinkFlap", f"flap number {number}")
        speaker.flush()
    assert len(deaf.posts) == SIMILAR_LIMIT + 1
    assert deaf.posts[-1]["message"].startswith("(combined from similar events): ")
    assert deaf.patches[-1]["count"] == 40 - SIMILAR_LIMIT


def test_a_flood_about_one_node_is_bounded_and_others_are_still_heard(deaf: Deaf) -> None:
    now = [1000.0]
    speaker = recorder(deaf, now)
    for number in range(500):
        speaker.say(WARNING, "n1", f"Reason{number}", "x")
    speaker.say(WARNING, "n2", "Other", "x")
    speaker.flush(limit=1000)
    assert sum(body["involvedObject"]["name"] == "n1" for body in deaf.posts) == BURST
    assert deaf.posts[-1]["involvedObject"]["name"] == "n2"
    assert speaker.dropped == 500 - BURST
    now[0] += 300
    speaker.say(WARNING, "n1", "Later", "x")
    speaker.flush()
    assert deaf.posts[-1]["reason"] == "Later"


def test_what_a_message_holds_is_made_printable(deaf: Deaf) -> None:
    speaker = recorder(deaf, [1000.0])
    speaker.say(WARNING, "n1", "R", "two\nlines\x1b[31m and more" + "x" * 5000)
    speaker.flush()
    assert deaf.posts[0]["message"].isprintable()
    assert len(deaf.posts[0]["message"]) <= 1000
