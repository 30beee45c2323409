"""The loop on a real control plane believes a condition as old as its heartbeat is, and of the boot that said it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from nhc.remedy.operators import decide, release
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from tests.adapters.kubernetes.test_remedy_jobs import Loop
from tests.support.kube import Kube
from tests.support.kube_remedy import settings
from tests.support.waiting import until

SHORT = 'healthy-for = "1s"\ndeadline = "4s"'
EVICT = "[drain]\nevict = true\n"


@pytest.fixture
def begun(kube: Kube, tmp_path: Path) -> Iterator[Callable[..., Loop]]:
    made: list[Loop] = []

    def begin(**more: Any) -> Loop:
        loop = Loop(kube, tmp_path, wanted=settings("reboot", "power-cycle", verify=SHORT, **more))
        loop.kubelet.__enter__()
        made.append(loop)
        return loop

    yield begin
    for loop in made:
        loop.kubelet.__exit__()
        loop.store.close()
        loop.adapter.close()


def test_a_node_whose_agent_never_comes_back_is_not_returned_on_a_heartbeat_of_before_the_reboot(
    begun: Callable[..., Loop],
) -> None:
    loop = begun(more=EVICT)
    loop.healthy()
    loop.kubelet.rebooted = lambda: setattr(loop, "agent", False)
    loop.ask(**{"nhc/request": "reboot"})
    loop.until(loop.ended)
    ((row, (attempt,)),) = loop.rows()
    assert (row.state, attempt.outcome) == ("escalated", "succeeded")
    assert "no healthy report" in row.outcome
    assert loop.kube.get(loop.node)["spec"].get("unschedulable")


def test_no_harder_repair_follows_on_the_failure_of_before_the_reboot(begun: Callable[..., Loop]) -> None:
    loop = begun(more=EVICT)
    loop.kubelet.rebooted = lambda: setattr(loop, "agent", False)
    loop.sick()
    loop.until(loop.ended)
    ((row, tries),) = loop.rows()
    assert [(one.rung, one.outcome) for one in tries] == [("reboot", "succeeded")]
    assert "no healthy report" in row.outcome


@pytest.mark.parametrize("agent", [True, False])
def test_a_machine_that_somebody_rebooted_while_it_waited_for_approval_is_not_rebooted_again(
    begun: Callable[..., Loop], agent: bool
) -> None:
    loop = begun(more=EVICT + "[approval]\nreboot = 1\n")
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "awaiting-approval")
    for _more in range(3):
        loop.round()
    loop.agent = False
    loop.kubelet.boot(str(uuid.uuid4()))
    until(lambda: loop.kube.get(loop.node)["status"]["nodeInfo"]["bootID"], 30)
    loop.round()
    decide(loop.store, loop.rows()[0][0].id, by="ann", agree=True, why="", now=loop.controller.clock())
    loop.until(lambda: "has booted since" in loop.rows()[0][0].detail)
    for _more in range(8):
        loop.round()
    ((row, tries),) = loop.rows()
    assert (row.state, tries, loop.kubelet.started) == ("recheck", [], [])
    loop.agent = True
    if agent:  # the fault stands in this boot, too: the repair goes on
        loop.until(lambda: loop.kubelet.started)
    else:
        loop.healthy()
        loop.until(loop.ended)
        assert (loop.rows()[0][0].state, loop.kubelet.started) == ("returned", [])


# A node that is deleted and registers again.


def register_again(loop: Loop) -> None:
    """What a kubelet does whose node was deleted: it registers anew, and its agent goes on saying how the node is."""
    name = loop.node.partition("-")[2]
    loop.kube.node(name, fake=False, spec={"providerID": "aws:///us-east-1a/i-1"})


@pytest.mark.parametrize("seen", [True, False])
def test_a_sick_node_that_is_deleted_and_registers_again_is_taken_out_again(
    begun: Callable[..., Loop], seen: bool
) -> None:
    loop = begun(more="[drain]\nevict = false\n")
    loop.kube.pod("work", loop.node)
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "draining")
    loop.agent = False
    loop.kube.admin.delete(node_path(loop.node))
    if seen:
        loop.until(loop.ended)
    register_again(loop)
    loop.agent = True
    loop.until(lambda: len(loop.rows()) == 2 and loop.kube.get(loop.node)["spec"].get("unschedulable"))
    assert "left to a person" not in " ".join(one.why for one in loop.controller.round().waiting)
    ((first, _none), _second) = loop.rows()
    assert (first.state, first.ended is not None) == ("withdrawn", True)


def test_a_node_that_was_left_to_a_person_and_that_registers_again_is_taken_out_again(
    begun: Callable[..., Loop],
) -> None:
    loop = begun(more="[drain]\nevict = false\n[approval]\nreboot = 1\n")
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "awaiting-approval")
    decide(loop.store, loop.rows()[0][0].id, by="ann", agree=False, why="not now", now=loop.controller.clock())
    loop.until(loop.ended)
    loop.agent = False
    loop.kube.admin.delete(node_path(loop.node))
    register_again(loop)
    loop.agent = True
    loop.until(lambda: len(loop.rows()) == 3 and loop.kube.get(loop.node)["spec"].get("unschedulable"))
    assert loop.rows()[1][0].outcome == "the node was deleted, and registered anew"


def test_a_node_that_a_person_released_and_that_registers_again_is_taken_out_again(begun: Callable[..., Loop]) -> None:
    loop = begun(more="[drain]\nevict = false\n[approval]\nreboot = 1\n")
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "awaiting-approval")
    decide(loop.store, loop.rows()[0][0].id, by="ann", agree=False, why="not now", now=loop.controller.clock())
    loop.until(loop.ended)
    loop.kube.pod("work", loop.node)
    release(loop.store, loop.node, by="ann", why="", now=loop.controller.clock())
    loop.until(lambda: loop.rows()[-1][0].state == "draining")
    loop.agent = False
    loop.kube.admin.delete(node_path(loop.node))
    register_again(loop)
    loop.agent = True
    loop.until(lambda: len(loop.rows()) == 3 and loop.kube.get(loop.node)["spec"].get("unschedulable"))
    assert loop.rows()[1][0].outcome == "the node was deleted, and registered anew"


def test_what_is_left_of_our_mark_is_taken_off_a_node_that_a_person_uncordoned(begun: Callable[..., Loop]) -> None:
    """The loop runs alone; the fault counts for nothing until it has ended once, and then as any other."""
    loop = begun(more="[drain]\nevict = false\n")
    loop.kube.pod("work", loop.node)
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "draining")
    loop.kube.put_back(loop.node)
    loop.until(lambda: "nhc/mark" not in loop.meta()["annotations"], 60)
    node = loop.kube.get(loop.node)
    assert [one for one in node["spec"].get("taints") or () if "nhc" in one["key"]] == []
    assert {"nhc/set", "nhc/source"}.isdisjoint(node["metadata"]["annotations"])
    for _more in range(3):
        loop.round()
    assert [row.state for row, _tries in loop.rows()] == ["withdrawn"]
    assert not loop.kube.get(loop.node)["spec"].get("unschedulable")
    loop.healthy()
    loop.until(lambda: "nhc/overruled" not in loop.meta()["annotations"], 60)
    until(lambda: time.time() > (loop.rows()[0][0].ended or 0) + 1.0)  # a condition's times are whole seconds
    loop.sick()
    loop.until(lambda: len(loop.rows()) == 2, 60)


def gpus(loop: Loop, capacity: int, allocatable: int) -> None:
    """What the node's kubelet says of its devices: after a boot there are none until their plugin has registered."""
    status = {"capacity": {"nvidia.com/gpu": str(capacity)}, "allocatable": {"nvidia.com/gpu": str(allocatable)}}
    loop.kube.admin.patch(f"{node_path(loop.node)}/status", {"status": status}, MERGE_PATCH)


@pytest.mark.parametrize("capacity", [8, 0])
def test_a_node_that_gives_out_none_of_its_gpus_is_not_returned(begun: Callable[..., Loop], capacity: int) -> None:
    loop = begun(more=EVICT)
    gpus(loop, 8, 8)

    def rebooted() -> None:
        gpus(loop, capacity, 0)
        loop.healthy()

    loop.kubelet.rebooted = rebooted
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "verifying")
    until(lambda: loop.round() or "could not tell" in loop.controller.round().waiting[0].why, 60)
    assert loop.rows()[0][0].state == "verifying"
    gpus(loop, 8, 8)
    loop.until(loop.ended)
    assert loop.rows()[0][0].state == "returned"
    assert "nhc/offered" not in loop.meta()["annotations"]


def test_kubectl_alone_tells_what_becomes_of_a_node(begun: Callable[..., Loop]) -> None:
    loop = begun(more='[drain]\nevict = false\ndeadline = "30m"\n')
    pod = loop.kube.pod("work", loop.node)
    kubectl = loop.kube.plane.kubectl
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "draining")
    shown = kubectl("get", "nodes", "-l", "nhc/remedy=draining", "-o", "name").stdout
    assert shown == f"node/{loop.node}\n"
    assert "draining since" in loop.meta()["annotations"]["nhc/remedy"]
    assert "work still runs on it" in loop.meta()["annotations"]["nhc/remedy"]
    loop.kube.admin.delete(f"/api/v1/namespaces/{loop.kube.namespace}/pods/{pod['metadata']['name']}")
    loop.until(loop.ended)
    said = kubectl("describe", "node", loop.node).stdout
    for reason in (
        "Marked",
        "Draining",
        "Evidence",
        "Recheck",
        "Acting",
        "Watching",
        "Verifying",
        "Returning",
        "Returned",
    ):
        assert f"NhcRemedy{reason}" in said, said
    assert "nhc/remedy" not in {**loop.meta()["labels"], **loop.meta()["annotations"]}
