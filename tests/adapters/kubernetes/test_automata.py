"""What automata change on a marked node is nobody's decision: the GPU Operator's driver manager, kured, AKS and GKE
uncordon at the end of their own work, whoever set the cordon.
"""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event
from typing import Any, Callable

import pytest

from nhc.core.timestamps import from_utc
from nhc.marks.policy.bounds import Bounds, usage_of
from nhc.marks.policy.door import MarkRequest, rule
from nhc.marks.ports.adapter import REMEDY_OWNER, Effect, Mark
from nhc.remedy.operators import decide
from nhc.store import audit
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.nodes.marks import Treatment, plan_mark
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, released
from nhc_adapters.kubernetes.nodes.view import node_state
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.adapters.kubernetes.test_commands import nhc
from tests.adapters.kubernetes.test_controller import cordoned, heal, marked, running, settings, sicken
from tests.adapters.kubernetes.test_hand import settled
from tests.adapters.kubernetes.test_remedy_boots import Loop, begun
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["begun", "nhc"]

OURS = "nhc/unhealthy"
NOW = 1_000_000.0


def uncordon(kube: Kube, node: str, manager: str = "k8s-driver-manager") -> None:
    kube.admin.patch(node_path(node), {"spec": {"unschedulable": None}}, MERGE_PATCH, fieldManager=manager)


def tainted(kube: Kube, node: str) -> bool:
    return any(taint["key"] == OURS for taint in kube.get(node)["spec"].get("taints") or ())


def untaint(kube: Kube, node: str) -> None:
    kube.plane.kubectl("taint", "node", node, f"{OURS}-")


def heard_at(kube: Kube, node: str) -> float:
    return from_utc((kube.condition(node, "NhcHealthy") or {})["lastHeartbeatTime"])


def reboot(kube: Kube, node: str, boot: str) -> None:
    kube.admin.patch(f"{node_path(node)}/status", {"status": {"nodeInfo": {"bootID": boot}}}, MERGE_PATCH)


def waits(loop: Loop) -> list[str]:
    with loop.store.read() as connection:
        return [entry.detail for entry in audit.entries(connection, what="episode.waits")]


@pytest.mark.parametrize(
    ("lost", "cordon", "taint"),
    [("cordon", True, True), ("cordon", True, False), ("taint", True, True), ("taint", False, True)],
)
def test_what_an_automaton_undoes_after_the_reboot_is_set_again_until_the_node_is_proved(
    begun: Callable[..., Loop], lost: str, cordon: bool, taint: bool
) -> None:
    """The driver manager uncordons in the new boot, before the agent has said anything."""
    loop = begun(more="[drain]\nevict = true\n")
    loop.adapter.cluster.treatment = replace(loop.adapter.cluster.treatment, cordon=cordon, taint=taint)
    undo = uncordon if lost == "cordon" else untaint
    undone = Event()

    def boots() -> None:
        loop.agent = False
        undo(loop.kube, loop.node)
        undone.set()

    loop.kubelet.rebooted = boots
    loop.sick()
    loop.until(undone.is_set)
    loop.until(lambda: any("marked anew" in line for line in waits(loop)))
    loop.until(lambda: [row.state for row, _tries in loop.rows()] == ["verifying"])
    loop.until(lambda: (cordoned(loop.kube, loop.node), tainted(loop.kube, loop.node)) == (cordon, taint))
    assert "nhc/overruled" not in loop.meta()["annotations"]
    undo(loop.kube, loop.node)  # the next driver pod of the same boot
    loop.until(lambda: (cordoned(loop.kube, loop.node), tainted(loop.kube, loop.node)) == (cordon, taint))
    loop.agent = True
    loop.healthy()
    loop.until(loop.ended)
    ((row, tries),) = loop.rows()
    assert (row.state, len(tries)) == ("returned", 1)
    assert (cordoned(loop.kube, loop.node), tainted(loop.kube, loop.node)) == (False, False)


def test_an_uncordon_before_the_repair_leaves_the_node_to_the_loop_by_its_taint(begun: Callable[..., Loop]) -> None:
    loop = begun(more="[drain]\nevict = true\n[approval]\nreboot = 1\n")
    loop.adapter.cluster.owner = REMEDY_OWNER
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "awaiting-approval")
    uncordon(loop.kube, loop.node, "kured")
    for _more in range(3):
        loop.round()
    assert [row.state for row, _tries in loop.rows()] == ["awaiting-approval"]
    assert (cordoned(loop.kube, loop.node), tainted(loop.kube, loop.node)) == (False, True)
    decide(loop.store, loop.rows()[0][0].id, by="ann", agree=True, why="", now=loop.controller.clock())
    loop.until(loop.ended)
    assert [(row.state, len(tries)) for row, tries in loop.rows()] == [("returned", 1)]


def test_a_person_takes_a_node_from_the_loop_between_its_repair_and_its_proof(begun: Callable[..., Loop]) -> None:
    loop = begun(more="[drain]\nevict = true\n")
    loop.kubelet.rebooted = lambda: setattr(loop, "agent", False)
    loop.sick()
    loop.until(lambda: loop.rows() and loop.rows()[0][0].state == "verifying")
    done = loop.adapter.cluster.release([loop.node], loop.adapter.readings.bad, time.time(), "ann")
    assert done[0].effect is Effect.CHANGED
    loop.until(loop.ended)
    assert [row.state for row, _tries in loop.rows()] == ["withdrawn"]
    assert not cordoned(loop.kube, loop.node)


@pytest.mark.parametrize("undo", [uncordon, untaint])
def test_the_controller_keeps_a_node_out_that_an_automaton_has_undone_one_part_of(
    kube: Kube, undo: Callable[[Kube, str], None]
) -> None:
    node = kube.node(fake=False)
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
        reboot(kube, node, "boot-2")
        undo(kube, node)
        settled(kube, controller, node)
        assert marked(kube) == {node}
        assert cordoned(kube, node) or tainted(kube, node)
        assert "nhc/overruled" not in annotations_of(kube.get(node))
        until(lambda: controller.says("keeps it out"))
        assert sum("keeps it out" in line for line in controller.said) == 1
        heal(kube, node)
        until(lambda: not cordoned(kube, node) and not tainted(kube, node) and not marked(kube))


@pytest.mark.parametrize(("part", "undo"), [("cordon", uncordon), ("taint", untaint)])
def test_the_controller_sets_a_mark_of_one_part_again_in_another_boot_and_then_obeys(
    kube: Kube, part: str, undo: Callable[[Kube, str], None]
) -> None:
    """kured, AKS and GKE uncordon at the end of their own reboot; the next who does decides about the node."""
    node = kube.node(fake=False)
    reboot(kube, node, "boot-1")

    def out() -> bool:
        parts = {"cordon": cordoned(kube, node), "taint": tainted(kube, node)}
        assert not parts.pop("taint" if part == "cordon" else "cordon"), "the other part is not nhc's to set here"
        return parts[part]

    with running(kube, settings(kube, cordon=part == "cordon", taint=part == "taint")) as controller:
        sicken(kube, node)
        until(out)
        reboot(kube, node, "boot-2")
        undo(kube, node)
        until(out)
        assert "nhc/overruled" not in annotations_of(kube.get(node))
        settled(kube, controller, node)
        undo(kube, node)
        until(lambda: "nhc/overruled" in annotations_of(kube.get(node)))
        settled(kube, controller, node)
        assert not out()
        assert not marked(kube)


def test_a_hold_that_a_template_does_not_know_ends_when_the_template_is_applied(kube: Kube) -> None:
    """As the documents say: the annotation is the hold. Nothing else that the template leaves out is lost."""
    node = kube.node(fake=False)
    template = kube.get(node)
    kube.plane.kubectl("annotate", "node", node, "nhc/hold=memory test")
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: controller.says("left alone: nhc/hold: memory test"))
        settled(kube, controller, node)
        assert not marked(kube)
        whole = {**template, "metadata": {**template["metadata"], "resourceVersion": ""}}
        kube.admin.put(node_path(node), whole)
        until(lambda: marked(kube) == {node} and cordoned(kube, node))
        held = {"metadata": {"annotations": {"nhc/hold": "memory test"}}}
        kube.admin.patch(node_path(node), held, MERGE_PATCH, fieldManager="cluster-template")
        heal(kube, node)
        settled(kube, controller, node)
        assert cordoned(kube, node), "a hold holds the return as well"
        kube.plane.kubectl("annotate", "node", node, "nhc/hold-")
        until(lambda: not cordoned(kube, node) and not marked(kube))


@pytest.mark.parametrize("left", ["cordon", "taint"])
def test_a_mark_of_one_part_is_set_again_once_in_a_boot_and_then_it_is_a_persons(left: str) -> None:
    treatment = Treatment((load("nhc"),), cordon=left == "cordon", taint=left == "taint")
    node: dict[str, Any] = {
        "metadata": {"name": "n1", "labels": {}, "annotations": {}},
        "spec": {}, "status": {"nodeInfo": {"bootID": "boot-1"}},
    }  # fmt: skip

    def mark() -> None:
        for op in plan_mark(node, Mark("check_x: bad", since=1.0), treatment):
            if op["op"] != "test":
                _, group, *rest = op["path"].split("/", 3)
                where, key = (node[group][rest[0]], rest[1]) if len(rest) > 1 else (node[group], rest[0])
                where[key.replace("~1", "/")] = op["value"]

    def undo() -> None:
        node["spec"].clear()

    mark()
    undo()
    assert released(node), "in the boot in which it was set it is a person's"
    mark()
    node["status"]["nodeInfo"]["bootID"] = "boot-2"
    undo()
    state = node_state(node)
    assert (released(node), state.undone, state.available) == (False, left, True)
    assert rule(MarkRequest("n1", state, Mark("check_x: bad")), Bounds({}), usage_of([state]), NOW).may
    mark()
    assert not released(node)
    undo()
    assert released(node), "the next one in this boot is a person's"


def test_what_a_person_overruled_counts_again_with_the_next_boot(kube: Kube, nhc: Any) -> None:
    node = kube.node(fake=False)
    reboot(kube, node, "boot-1")
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
        assert nhc("kubernetes", "uncordon", "--by", "alice", node).returncode == 0
        settled(kube, controller, node)
        sicken(kube, node)
        settled(kube, controller, node)
        assert not marked(kube)
        reboot(kube, node, "boot-2")
        settled(kube, controller, node)
        assert not marked(kube)  # what stands on the node was said before the boot
        until(lambda: time.time() > heard_at(kube, node) + 1.5)  # its times are whole seconds
        sicken(kube, node)  # the agent of the new boot finds it again
        until(lambda: marked(kube) == {node})
        assert "nhc/overruled" not in annotations_of(kube.get(node))
        assert cordoned(kube, node)
