"""Maintenance that others ask for and plan, and what of our own work the conditions of a node's lifecycle say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Mapping, Optional

import pytest

from nhc.core.limits import read_limit
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, Mark, NodeStep
from nhc_adapters.kubernetes.api.client import MERGE_PATCH
from nhc_adapters.kubernetes.controller.maintenance_requests import PATH, read_request
from nhc_adapters.kubernetes.nodes.drain import DrainRules
from nhc_adapters.kubernetes.nodes.drains import DONE, DRAINING
from nhc_adapters.kubernetes.nodes.maintenance import (
    DRAIN_IN_PROGRESS,
    DRAINED,
    IN_PROGRESS,
    MAINTENANCE,
    PLANNED,
    Maintenance,
    lifecycle_changes,
    maintained,
    planned,
    read_maintenance,
)
from nhc_adapters.kubernetes.nodes.manual import MANUAL
from nhc_adapters.kubernetes.nodes.own_marks import DRAIN, MARK, REMEDY, SET
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.repair.shown_on_nodes import of_node
from tests.adapters.kubernetes.test_commands import nhc
from tests.adapters.kubernetes.test_controller import cordoned, heal, marked, running, settings, sicken
from tests.support import crds, published
from tests.support.kube import Kube
from tests.support.waiting import until

__all__ = ["nhc"]

# What others ask for.


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("replace the PSU", Maintenance("replace the PSU")),
        ("PSU [until: 2026-12-01T10:00:00Z] [by: alice]", Maintenance("PSU", "alice", 1796119200.0)),
        ("PSU [by: alice] [until: 2026-12-01T10:00:00Z]", Maintenance("PSU", "alice", 1796119200.0)),
        ("", Maintenance("no reason given")),
        ("x [until: friday]", Maintenance("x ('friday' is no time such as 2026-12-01T10:00:00Z)")),
        ("\x1b[2J", Maintenance("[2J")),
        (None, None),
    ],
)
def test_the_annotation_says_why_until_when_and_who(text: Optional[str], asked: Optional[Maintenance]) -> None:
    assert read_maintenance({"metadata": {"annotations": {} if text is None else {MAINTENANCE: text}}}) == asked


def request(node: str = "n1", **more: Any) -> dict[str, Any]:
    event = {"version": 1, "agent": "facility", "checkName": "Power", "message": "PSU", "nodeName": node,
             "isHealthy": False, **more.pop("event", {})}  # fmt: skip
    return {"apiVersion": "nvsentinel.dgxc.nvidia.com/v1", "kind": "MaintenanceRequest",
            "metadata": {"name": "m1", **more.pop("metadata", {})}, "spec": {"healthEvent": event, **more}}  # fmt: skip


def test_a_request_stands_from_its_start_until_it_is_deleted() -> None:
    asked = read_request(request(startTime="2026-12-01T10:00:00Z"))
    assert asked == ("n1", Maintenance("PSU", "facility, MaintenanceRequest m1", None, 1796119200.0))
    assert read_request(request(metadata={"deletionTimestamp": "2026-12-01T10:00:00Z"})) is None
    assert read_request(request(event={"isHealthy": True})) is None
    for odd in (
        {},
        {"spec": 5},
        {"spec": {"healthEvent": {"nodeName": 7}}},
        {"metadata": 5, "spec": {"healthEvent": []}},
    ):
        assert read_request(odd) is None


# Conditions of the lifecycle.


def node(annotations: Mapping[str, str], *conditions: Mapping[str, str], **labels: str) -> dict[str, Any]:
    own = {MARK: "NHC: [node] gone", SET: json.dumps({"cordon": True})}
    return {
        "metadata": {"name": "n", "annotations": {**own, **annotations}, "labels": labels},
        "spec": {"unschedulable": True}, "status": {"conditions": list(conditions)},
    }  # fmt: skip


def drain(state: str) -> dict[str, str]:
    return {DRAIN: json.dumps({"state": state})}


def true(kind: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason}


@pytest.mark.parametrize(
    ("seen", "written"),
    [
        (node({}), {}),
        (node(drain(DRAINING)), {DRAIN_IN_PROGRESS: "True"}),
        (node(drain(DONE), true(DRAIN_IN_PROGRESS, "NhcDraining")), {DRAIN_IN_PROGRESS: "False", DRAINED: "True"}),
        (node({REMEDY: "x"}, **{REMEDY: "draining"}), {DRAIN_IN_PROGRESS: "True"}),
        (node({REMEDY: "x"}, **{REMEDY: "acting"}), {DRAINED: "True", IN_PROGRESS: "True"}),
        (node({REMEDY: "x"}, **{REMEDY: "awaiting-approval"}), {DRAINED: "True"}),
        (node({}, true(DRAINED, "NhcDrained"), **{REMEDY: "escalated"}), {DRAINED: "False"}),
        # Another's: neither written over nor taken back.
        (node(drain(DRAINING), true(DRAIN_IN_PROGRESS, "KubectlDrainStarted")), {}),
        (node({}, true(DRAINED, "KubectlDrainCompleted"), true(IN_PROGRESS, "Firmware")), {}),
        # Our mark is gone: what we said is taken back.
        ({"status": {"conditions": [true(DRAINED, "NhcDrained"), true(IN_PROGRESS, "Firmware")]}}, {DRAINED: "False"}),
    ],
)
def test_the_lifecycle_says_what_we_do_and_leaves_what_others_say(
    seen: Mapping[str, Any], written: Mapping[str, str]
) -> None:
    assert {one.type: one.status for one in lifecycle_changes(seen, 0.0)} == written


def test_what_others_plan_is_shown_and_what_they_do_is_theirs() -> None:
    by_plan = node({}, true(PLANNED, "Firmware"))
    assert planned(by_plan) == "MaintenancePlanned (Firmware)"
    assert (maintained(by_plan), of_node(by_plan)) == ("", [])
    at_work = node({}, true(IN_PROGRESS, "Firmware"))
    assert maintained(at_work)
    assert [claim.actor for claim in of_node(at_work)] == ["administrator"]
    assert of_node(node({}, true(IN_PROGRESS, "NhcRepair"))) == []


# On a real control plane.


def annotate(kube: Kube, name: str, text: Optional[str]) -> None:
    kube.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {MAINTENANCE: text}}}, MERGE_PATCH)


def status_of(kube: Kube, name: str, kind: str) -> str:
    return str((kube.condition(name, kind) or {}).get("status", ""))


def ended(kube: Kube, name: str) -> bool:
    """Whether the end of a node's maintenance is written on it."""
    return '"until"' in (kube.get(name)["metadata"].get("annotations") or {}).get(MANUAL, "")


def later(kube: Kube, name: str) -> None:
    """Heal a node with a heartbeat that is newer than anything yet: the API's times are whole seconds."""
    now = int(time.time())
    until(lambda: time.time() >= now + 1)
    heal(kube, name)


def test_an_annotated_node_is_drained_held_and_returned_when_a_later_report_proves_it(kube: Kube) -> None:
    name, other = kube.node("n1"), kube.node("n2")
    kube.ready(name, other)
    heal(kube, name, other)
    kube.pod("work", name)
    chosen = settings(kube, maintenance=("nhc",), lifecycle=True, rules=DrainRules(force=True))
    with running(kube, chosen) as controller:
        annotate(kube, name, "replace the PSU [by: alice]")
        until(lambda: status_of(kube, name, DRAINED) == "True")
        assert (cordoned(kube, name), kube.pods()) == (True, [])
        until(lambda: status_of(kube, name, IN_PROGRESS) == "True")
        assert status_of(kube, name, DRAIN_IN_PROGRESS) == "False"
        assert "replace the PSU (by alice)" in kube.get(name)["metadata"]["annotations"][MARK]
        heal(kube, name)  # healthy or not, it is held
        annotate(kube, name, None)
        until(lambda: ended(kube, name))
        assert controller.says(f"{name}: its maintenance has ended")
        assert cordoned(kube, name)
        later(kube, name)
        until(lambda: not cordoned(kube, name))
        until(lambda: status_of(kube, name, IN_PROGRESS) == "False")
        assert marked(kube) == set()


def test_a_maintenance_waits_for_room_and_a_node_that_comes_back_sick_stays_out(kube: Kube) -> None:
    first, second = kube.node("n1", fake=False), kube.node("n2", fake=False)
    heal(kube, first, second)
    with running(kube, settings(kube, maintenance=("nhc",), policy=Policy().with_ceiling(read_limit("1")))):
        annotate(kube, first, "firmware")
        until(lambda: cordoned(kube, first))
        annotate(kube, second, "firmware")
        sicken(kube, first)
        annotate(kube, first, None)
        until(lambda: "fell off the bus" in kube.get(first)["metadata"]["annotations"][MARK])
        assert (cordoned(kube, first), cordoned(kube, second)) == (True, False)
        later(kube, first)
        until(lambda: not cordoned(kube, first))
        until(lambda: cordoned(kube, second))


def test_nvsentinels_requests_are_read_where_the_kind_is_and_its_absence_is_one_line(kube: Kube) -> None:
    name = kube.node("n1", fake=False)
    heal(kube, name)
    chosen = settings(kube, maintenance=("nvsentinel",))
    with running(kube, chosen) as controller:
        until(lambda: controller.says("this cluster has no maintenancerequests"))
        sicken(kube, name)
        until(lambda: cordoned(kube, name))
        heal(kube, name)
        until(lambda: not cordoned(kube, name))
    published.install(kube.admin, [crds.MAINTENANCE.definition()])
    try:
        path = f"{PATH}/m-{kube.prefix}"
        kube.strict().post(PATH, request(name, metadata={"name": f"m-{kube.prefix}"}))
        with running(kube, chosen):
            until(lambda: cordoned(kube, name))
            assert "PSU (by facility" in kube.get(name)["metadata"]["annotations"][MARK]
            kube.admin.delete(path)
        with running(kube, chosen) as controller:  # another leader sees that it has ended
            until(lambda: ended(kube, name))
            later(kube, name)
            until(lambda: not cordoned(kube, name))
    finally:
        kube.plane.kubectl("delete", "--wait=false", "crd/maintenancerequests.nvsentinel.dgxc.nvidia.com")


def test_what_others_plan_is_no_fault_and_their_work_excuses_a_kubelet_that_is_away(kube: Kube, nhc: Any) -> None:
    away = kube.node("n1", fake=False)
    heal(kube, away)
    kube.set_condition(away, PLANNED, "True", "Firmware", "on Friday")
    kube.set_condition(away, IN_PROGRESS, "True", "Firmware", "now")
    kube.set_condition(away, "Ready", "Unknown", "NodeStatusUnknown", "the kubelet is away")
    with running(kube, settings(kube, faults=("NhcHealthy=False", "Ready=Unknown"), lifecycle=True)) as controller:
        until(lambda: controller.rounds.fleet.judgement(away))
        assert controller.rounds.fleet.sick() == []
        kube.set_condition(away, IN_PROGRESS, "False", "Firmware", "done")
        until(lambda: cordoned(kube, away))
        assert (kube.condition(away, PLANNED) or {})["reason"] == "Firmware"
    shown = nhc("status", "kubernetes", "--set", f"selector=test={kube.prefix}").stdout
    assert "MaintenancePlanned (on Friday)" in shown
    refused = nhc("status", "kubernetes", "--set", "faults=MaintenancePlanned")
    assert (refused.returncode, "is no fault" in refused.stderr) == (2, True)


def test_the_loop_says_its_repair_in_the_lifecycle_and_takes_it_back(kube: Kube, nhc: Any, tmp_path: Path) -> None:
    name = kube.node("n1", fake=False)
    settings_of = {"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path)), OWNER_SETTING: REMEDY_OWNER}
    for more, written in (({}, ""), ({"NHC_KUBE_LIFECYCLE": "1"}, "True")):
        adapter = Adapter({**settings_of, **more})
        try:
            adapter.nodes([name])
            adapter.mark({name: Mark("gone")})
            step = NodeStep(name, 7, "acting", "reboots", time.time())
            assert adapter.show_steps([step]) == []
            assert (status_of(kube, name, IN_PROGRESS), status_of(kube, name, DRAINED)) == (written, written)
            adapter.clear([name])
            assert adapter.show_steps([step._replace(state="returned", ends=True)]) == []
            assert status_of(kube, name, IN_PROGRESS) == ("False" if written else "")
            adapter.mark({name: Mark("gone")})
            adapter.show_steps([step])
            assert nhc("kubernetes", "uncordon", name).returncode == 0
            assert status_of(kube, name, IN_PROGRESS) == ("False" if written else "")
        finally:
            adapter.close()
