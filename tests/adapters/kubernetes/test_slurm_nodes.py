"""Nodes that are Slurm's and Kubernetes' at once: a mark of one side shows on the other, and jobs are waited for."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

from nhc.core.model import Action
from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.marks import mark_text, read_mark_text
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, namespaced
from nhc_adapters.kubernetes.nodes.drain import SLURM_JOBS, DrainRules, sort_pods
from nhc_adapters.kubernetes.nodes.own_marks import MARK
from nhc_adapters.kubernetes.nodes.slurm_nodes import SUNK_DRAIN, SUNK_LOCK, drained_in_slurm, drains_of
from tests.adapters.kubernetes.test_controller import cordoned, heal, running, settings
from tests.support.kube import Kube
from tests.support.waiting import until

OURS = "NHC: [node] check_gpu_lost: gpu3: fell off the bus [action: reboot]"
SOPERATOR = (
    "[node_problem] gpu_health_check: XID 79 [hc_program]",
    "[user_problem] alloc_gpus_busy: 4 processes [prolog]",
    "[hardware_problem] gpu",
    "[compute_maintenance] node replacement process",
    "[compute_maintenance] node reboot process",
    "Kill task failed",
)
"""Reasons as soperator writes and reads them (internal/consts/slurm.go, slurm_scripts/check_runner.py), with the words
that it looks for anywhere in a reason, and acts upon."""

THEIRS = (
    *SOPERATOR,
    "k8s: cordon: maintenance",
    "slurm-operator: NHC: [node] gone",
    "alice",
    "",
)


def slurmd(reason: str, *states: str, node: str = "n1", **notes: str) -> dict[str, Any]:
    conditions = [{"type": f"SlurmNodeState{one}", "status": "True", "message": reason} for one in states]
    return {"metadata": {"name": "w", "namespace": "s", "uid": "u", "annotations": notes},
            "spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": conditions}}  # fmt: skip


def test_only_what_nhc_has_drained_in_slurm_is_its_mark_here() -> None:
    (mark,) = drains_of([slurmd(OURS, "Idle", "Drain")]).values()
    assert mark is not None
    assert (mark.action.value, "fell off the bus" in mark.why) == ("reboot", True)
    for reason in THEIRS:
        assert drains_of([slurmd(reason, "Idle", "Drain")]) == {"n1": None}
        assert drained_in_slurm({"metadata": {"annotations": {SUNK_DRAIN: reason}}}, {}) is None
    assert drains_of([slurmd(OURS, "Idle"), slurmd(OURS, "Drain", "Undrain")]) == {"n1": None}
    assert drains_of([slurmd(OURS, "Drain", node=""), slurmd("")]) == {}  # a pod of which nothing is known says nothing
    noted = drained_in_slurm({"metadata": {"annotations": {SUNK_DRAIN: OURS}}}, {})
    assert noted is not None
    assert noted.mark == mark


def test_a_mark_of_ours_has_no_word_by_which_soperator_takes_it_for_its_own() -> None:
    words = {reason.partition("]")[0] for reason in SOPERATOR}
    for kind in ("node", "user"):
        mark = Mark("check_gpu_lost: gone", action=Action.REBOOT, kind=kind)
        assert read_mark_text(mark_text(mark)) is not None
        assert not [word for word in words if word in mark_text(mark)]


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        (slurmd("", "Allocated"), True),
        (slurmd("", "Idle", "Completing"), True),
        (slurmd("", "Mixed", "Drain"), True),
        (slurmd("", "Idle", "Drain"), False),
        (slurmd("", **{SUNK_LOCK: "locked_strict"}), True),
        (slurmd("", **{SUNK_LOCK: "false"}), False),
    ],
)
def test_a_drain_waits_for_slurms_jobs(pod: Mapping[str, Any], waits: bool) -> None:
    found = sort_pods([pod], DrainRules(force=True))
    assert (list(found.block.values()), bool(found.evict)) == (([SLURM_JOBS], False) if waits else ([], True))


def say(kube: Kube, reason: str, *states: str) -> None:
    """What Slinky's operator writes of its pod."""
    conditions = slurmd(reason, *states)["status"]["conditions"]
    kept = {one["type"] for one in conditions}
    gone = [{"type": f"SlurmNodeState{one}", "$patch": "delete"} for one in ("Allocated", "Idle", "Drain", "Mixed")
            if f"SlurmNodeState{one}" not in kept]  # fmt: skip
    path = f"{namespaced(kube.namespace, 'pods', 'worker-0')}/status"
    kube.admin.patch(path, {"status": {"conditions": [*conditions, *gone]}}, STRATEGIC)


def test_a_drain_in_slurm_takes_the_node_out_its_job_ends_and_the_resume_puts_it_back(
    kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nhc_adapters.kubernetes.controller.controller.SLURM_EVERY", 0.2)
    node = kube.node("n1")
    kube.ready(node)
    heal(kube, node)
    kube.pod("worker-0", node, labels={"app.kubernetes.io/name": "slurmd"})
    say(kube, "", "Allocated")
    chosen = settings(
        kube, slurm=True, drain=True, vocabularies=("nhc", "slinky"), rules=DrainRules(force=True, deadline=600.0)
    )
    with running(kube, chosen) as controller:
        until(lambda: controller.rounds.fleet.judgement(node))
        say(kube, "k8s: cordon: theirs", "Allocated", "Drain")
        say(kube, OURS, "Allocated", "Drain")
        until(lambda: cordoned(kube, node))
        notes = kube.get(node)["metadata"]["annotations"]
        assert notes[MARK].startswith("NHC: [node] slurm: check_gpu_lost: gpu3: fell off the bus [action: reboot]")
        assert notes["nodeset.slinky.slurm.net/node-cordon-reason"].startswith("NHC: ")
        until(lambda: SLURM_JOBS in kube.get(node)["metadata"]["annotations"].get("nhc/drain", ""))
        assert kube.pods() == ["worker-0"]
        say(kube, OURS, "Idle", "Drain")
        until(lambda: kube.pods() == [])
        until(lambda: node not in controller.rounds.fleet.slurm.of_nodes)
        until(lambda: controller.rounds.fleet.judgement(node).report.verdict.name == "UNKNOWN")  # silence ends nothing
        assert cordoned(kube, node)
        kube.pod("worker-0", node, labels={"app.kubernetes.io/name": "slurmd"})
        say(kube, "", "Idle")
        until(lambda: not cordoned(kube, node))
        assert "nodeset.slinky.slurm.net/node-cordon-reason" not in kube.get(node)["metadata"].get("annotations", {})


def test_a_person_who_puts_the_node_back_is_not_undone_until_slurms_drain_has_ended_once(kube: Kube) -> None:
    node = kube.node("n1", fake=False)
    heal(kube, node)

    def drained(reason: str | None) -> None:
        kube.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {SUNK_DRAIN: reason}}}, MERGE_PATCH)

    with running(kube, settings(kube, slurm=True)):
        drained(OURS)
        until(lambda: cordoned(kube, node))
        kube.put_back(node)
        until(lambda: MARK not in kube.get(node)["metadata"]["annotations"])
        drained(OURS + " ")
        until(lambda: kube.get(node)["metadata"]["annotations"].get("nhc/put-back") == "slurm-annotation")
        assert not cordoned(kube, node)
        drained(None)
        until(lambda: "nhc/put-back" not in kube.get(node)["metadata"]["annotations"])
        drained(OURS)
        until(lambda: cordoned(kube, node))
