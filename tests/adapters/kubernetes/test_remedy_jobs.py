"""The remedy loop on a real control plane, repairing by Jobs: from a fault, or a request, to a node in service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from nhc.remedy.actuators import Actuators
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RemedySettings, RepairerSettings
from nhc.store import attempts, audit, episodes
from nhc.store.attempts import Attempt
from nhc.store.episodes import Episode
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.repair.repairer import KubernetesJobs
from tests.adapters.kubernetes.test_drain import budget
from tests.support.gpu_node import UUID, GpuNode
from tests.support.kube import Kube
from tests.support.kube_remedy import settings
from tests.support.kubelet import Kubelet
from tests.support.new_store import new_store
from tests.support.waiting import until

SETTINGS = settings(
    "reboot", "reload-driver", "reset-device", "replace", more="[approval]\nreplace = 0\n[drain]\nevict = true"
)

HEALTH = "sagemaker.amazonaws.com/node-health-status"


class Loop:
    """The loop over one node of the plane, whose kubelet runs Jobs."""

    def __init__(self, kube: Kube, base: Path, requests: str = "nhc", wanted: RemedySettings = SETTINGS) -> None:
        self.kube = kube
        self.gpus = GpuNode(base / "node")
        self.gpus.gpus(2, recovery="GPU Reset Required")
        self.node = kube.node("sick", fake=False, spec={"providerID": "aws:///us-east-1a/i-1"})
        kube.admin.patch(f"{node_path(self.node)}/status", {"status": {"nodeInfo": {"systemUUID": UUID}}}, MERGE_PATCH)
        self.kubelet = Kubelet(kube.admin, self.node, self.gpus.root, self.gpus.path, kube.namespace, self.healthy)
        self.kubelet.gate.set()
        config = str(kube.kubeconfig(base))
        given = {"NHC_KUBECONFIG": config, "NHC_KUBE_REQUESTS": requests, "NHC_KUBE_EVICT": "force"}
        self.adapter = Adapter(given, {}, 10.0)
        self.adapter.cluster.selector = f"test={kube.prefix}"
        repairer = KubernetesJobs(
            {"image": "nhc@sha256:" + "0" * 64, "namespace": kube.namespace, "kubeconfig": config, "wait": "5"},
            {},
            10.0,
        )
        entry = RepairerEntry(RepairerSettings("kubernetes", "kubernetes"), repairer)
        self.store = new_store(str(base))
        self.controller = repair_loop(
            self.store, wanted, Actuators(self.adapter, Repairers([entry], (), (self.adapter,)), workers=0),
            reports=self.adapter.condition_reports,
        )  # fmt: skip
        self.problems: List[str] = []
        self.agent = True
        """Whether the node's agent runs: it renews what it said, and says that the node is well after a boot."""
        self.said: Tuple[str, ...] = ()
        self.since = 0.0

    def healthy(self) -> None:
        if self.agent:
            self.say("True", "NodeIsHealthy")

    def say(self, *words: str) -> None:
        """What the agent says of the node from now on: the status of its condition, the reason, the message."""
        if words[:1] != self.said[:1]:
            self.since = time.time()
        self.said = words
        self.kube.set_condition(self.node, "NhcHealthy", *words, since=self.since)

    def sick(self, message: str = "check_gpu_xid: Xid 95 on gpu1 [action: reboot]") -> None:
        self.say("False", "Xid95", message)

    def ask(self, **notes: Any) -> None:
        self.kube.admin.patch(node_path(self.node), {"metadata": {"annotations": notes}}, MERGE_PATCH)

    def rows(self) -> List[Tuple[Episode, List[Attempt]]]:
        with self.store.read() as connection:
            return [(row, list(attempts.attempts_of(connection, row.id)))
                    for row in episodes.list_episodes(connection)]  # fmt: skip

    def round(self) -> None:
        if self.agent and self.said:
            self.say(*self.said)
        self.problems += self.controller.round().problems

    def until(self, so: Callable[[], object], within: float = 60.0) -> None:
        def once() -> bool:
            self.round()
            return bool(so())

        until(once, within, 0.1)

    def ended(self, count: int = 1) -> bool:
        rows = self.rows()
        return len(rows) >= count and all(row.ended is not None for row, _tries in rows)

    def meta(self) -> Dict[str, Any]:
        return dict(self.kube.get(self.node)["metadata"])


@pytest.fixture
def loop(kube: Kube, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = Loop(kube, tmp_path, getattr(request, "param", "nhc"))
    with made.kubelet:
        yield made
    made.store.close()
    made.adapter.close()


def test_from_a_condition_over_a_job_to_a_returned_node(loop: Loop) -> None:
    loop.kube.pod("work", loop.node)
    before = loop.kube.get(loop.node)["status"]["nodeInfo"]["bootID"]
    loop.sick()
    loop.until(loop.ended)
    ((row, (attempt,)),) = loop.rows()
    assert (row.state, attempt.rung, attempt.outcome) == ("returned", "reboot", "succeeded")
    assert (attempt.repairer, len(loop.kubelet.started)) == ("kubernetes", 1)
    node = loop.kube.get(loop.node)
    assert node["status"]["nodeInfo"]["bootID"] != before
    assert not node["spec"].get("unschedulable")
    # The controller manager takes its own taint of a cordoned node away, a moment after the cordon.
    until(lambda: not loop.kube.get(loop.node)["spec"].get("taints"), 60, what="the taints to go")
    assert "work" not in loop.kube.pods()


def test_a_device_that_no_reset_cures_is_followed_by_a_reboot(loop: Loop) -> None:
    loop.gpus.note("no-cure", "1")
    loop.sick("check_gpu_ecc: gpu1: row remap pending on gpu1 [action: reset-device]")
    loop.until(loop.ended, 90.0)
    ((row, tries),) = loop.rows()
    assert row.state == "returned"
    assert [(one.rung, one.outcome) for one in tries][-1] == ("reboot", "succeeded")
    assert len(tries) >= 2


def test_a_drain_that_waits_writes_a_row_only_when_something_has_changed(loop: Loop) -> None:
    loop.kube.pod("kept", loop.node, labels={"app": "web"})
    budget(loop.kube, 1)
    loop.sick()
    loop.until(lambda: "waits for" in loop.rows()[0][0].detail)

    def rows() -> int:
        with loop.store.read() as connection:
            return len(audit.entries(connection, episode=loop.rows()[0][0].id, what="episode.waits"))

    before = rows()
    began = time.monotonic()
    until(lambda: loop.round() or time.monotonic() - began > 6.5)  # longer than a budget is waited for
    assert rows() == before
    assert loop.rows()[0][0].state == "draining"
    loop.kube.admin.delete(f"/apis/policy/v1/namespaces/{loop.kube.namespace}/poddisruptionbudgets/b")
    loop.until(loop.ended)
    assert loop.rows()[0][0].state == "returned"


def test_another_actor_on_the_node_holds_the_repair_with_its_name(loop: Loop) -> None:
    label = {"metadata": {"labels": {"nvidia.com/mig.config.state": "pending"}}}
    loop.kube.admin.patch(node_path(loop.node), label, MERGE_PATCH)
    loop.sick()
    loop.until(lambda: "mig-manager" in loop.rows()[0][0].detail)
    assert (loop.rows()[0][0].state, loop.kubelet.started) == ("recheck", [])
    label["metadata"]["labels"]["nvidia.com/mig.config.state"] = "success"
    loop.kube.admin.patch(node_path(loop.node), label, MERGE_PATCH)
    loop.until(loop.ended)
    assert loop.rows()[0][0].state == "returned"


# What persons ask for on the node.


def test_a_person_asks_for_a_reboot_once_and_is_answered(loop: Loop) -> None:
    loop.healthy()
    loop.ask(**{"nhc/request": "reboot"})
    loop.until(lambda: loop.ended() and "nhc/answered" in loop.meta()["annotations"])
    ((row, (attempt,)),) = loop.rows()
    assert (row.state, attempt.rung, attempt.outcome) == ("returned", "reboot", "succeeded")
    notes = loop.meta()["annotations"]
    assert "nhc/request" not in notes
    assert notes["nhc/answered"].startswith(f"reboot: episode {row.id} returned")
    for _more in range(3):
        loop.round()
    assert len(loop.rows()) == 1
    loop.ask(**{"nhc/request": "reboot"})  # the same words after an answer are a new request
    loop.until(lambda: loop.ended(2))
    assert [(row.state, len(tries)) for row, tries in loop.rows()] == [("returned", 1)] * 2
    assert loop.problems == []


def test_nothing_harder_follows_than_what_was_asked_for(loop: Loop) -> None:
    loop.healthy()
    loop.gpus.note("fail-modprobe--r", "modprobe: FATAL: Module nvidia is in use.")
    loop.ask(**{"nhc/request": "reload-driver"})
    loop.until(lambda: loop.ended() and "nhc/answered" in loop.meta()["annotations"])
    ((row, tries),) = loop.rows()
    assert (row.state, [(one.rung, one.outcome) for one in tries]) == ("escalated", [("reload-driver", "failed")])
    assert "escalated" in loop.meta()["annotations"]["nhc/answered"]
    for _more in range(3):
        loop.round()
    assert len(loop.rows()) == 1


def test_a_request_that_is_taken_back_ends_without_a_repair(loop: Loop) -> None:
    loop.healthy()
    loop.kube.pod("protected", loop.node,
                  annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})  # fmt: skip
    loop.ask(**{"nhc/request": "reboot"})
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "draining")
    loop.ask(**{"nhc/request": None})
    loop.until(loop.ended)
    ((row, tries),) = loop.rows()
    assert (row.state, tries, loop.kubelet.started) == ("returned", [], [])


def test_words_that_make_no_sense_are_named_and_do_nothing(loop: Loop) -> None:
    loop.healthy()
    loop.ask(**{"nhc/request": "reboot now"})
    loop.round()
    assert any("nhc/request: 'reboot now' is not one of" in line for line in loop.problems), loop.problems
    assert loop.rows() == []


@pytest.mark.parametrize("loop", ["nhc,hyperpod"], indirect=True)
def test_hyperpods_label_is_a_request_where_the_site_says_so(loop: Loop) -> None:
    loop.healthy()
    asked = {"metadata": {"labels": {HEALTH: "UnschedulablePendingReboot"}}}
    loop.kube.admin.patch(node_path(loop.node), asked, MERGE_PATCH)
    loop.until(lambda: loop.ended() and loop.meta()["labels"].get(HEALTH) == "Schedulable")
    ((row, (attempt,)),) = loop.rows()
    assert (row.state, attempt.rung) == ("returned", "reboot")
    for _more in range(3):
        loop.round()
    assert (len(loop.rows()), len(loop.kubelet.started)) == (1, 1)


def test_hyperpods_label_is_hyperpods_mark_otherwise(loop: Loop) -> None:
    loop.healthy()
    asked = {"metadata": {"labels": {HEALTH: "UnschedulablePendingReboot"}}}
    loop.kube.admin.patch(node_path(loop.node), asked, MERGE_PATCH)
    for _more in range(3):
        loop.round()
    assert loop.rows() == []
    (state,) = loop.adapter.nodes([loop.node])
    assert (state.available, state.mark.owner if state.mark else "") == (False, "hyperpod")
