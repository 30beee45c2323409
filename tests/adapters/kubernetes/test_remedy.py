"""The remedy loop on a real control plane: a condition, a cordon, an eviction, a repair, a proof, back in service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Sequence

import pytest

from nhc.core.limits import Limit
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.ports.adapter import ConditionReports, Evicts, Mark
from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc.remedy.actuators import Actuators
from nhc.remedy.remedy_site import verdicts_by_cluster
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RepairerSettings
from nhc.store import attempts, episodes
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.controller.controller import Controller
from nhc_adapters.kubernetes.controller.settings import make
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.kube import Kube
from tests.support.kube_remedy import ends, settings
from tests.support.new_store import new_store
from tests.support.waiting import until

EVICT = "[drain]\nevict = true"


class Rebooter:
    """Reboots a node of the plane: its kubelet says another boot id, and its condition is well again."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.sent = kube, []  # type: ignore[var-annotated]

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return "" if rung is Rung.REBOOT else "reboots only"

    def look(self, machine: Machine) -> Sighting:
        return Sighting(time.time(), machine.node, boot(self.kube, machine.node))

    def send(self, order: Order) -> Sent:
        self.sent.append(order)
        body = {"status": {"nodeInfo": {"bootID": f"boot-{order.key}"}}}
        path = f"/api/v1/nodes/{order.machine.node}/status"
        self.kube.admin.patch(path, body, "application/strategic-merge-patch+json")
        self.agents()
        return Sent(Answer.AMBIGUOUS, "the answer was lost")

    def agents(self) -> None:
        """The agents of the nodes that were rebooted say that they are well."""
        for order in self.sent:
            self.kube.set_condition(order.machine.node, "NhcHealthy", "True", "NodeIsHealthy")

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        done = boot(self.kube, order.machine.node) != before.boot
        return Progress(Stage.DONE if done else Stage.WORKING, "as its boot id says")

    def rights(self) -> Sequence[Right]:
        return ()


def boot(kube: Kube, node: str) -> str:
    return str(kube.get(node)["status"].get("nodeInfo", {}).get("bootID", ""))


@pytest.fixture
def adapter(kube: Kube, tmp_path: Path) -> Any:
    made = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path))})
    made.cluster.selector = f"test={kube.prefix}"
    yield made
    made.close()


def test_from_a_condition_to_a_returned_node(kube: Kube, adapter: Adapter, tmp_path: Path) -> None:
    sick, well = kube.node("sick"), kube.node("well")
    kube.ready(sick, well)
    owner = kube.admin.post(f"/api/v1/namespaces/{kube.namespace}/configmaps", {"metadata": {"name": "owner"}})
    controller = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    kube.pod("job", sick, owner={**controller, "uid": owner["metadata"]["uid"]})
    kube.set_condition(sick, "NhcHealthy", "False", "Xid95", "check_gpu_xid: Xid 95 on gpu3 [action: reboot]")
    kube.set_condition(well, "NhcHealthy", "True", "NodeIsHealthy")
    assert isinstance(adapter, ConditionReports)
    assert isinstance(adapter, Evicts)
    store, rebooter = new_store(str(tmp_path)), Rebooter(kube)
    actuators = Actuators(adapter, Repairers([RepairerEntry(RepairerSettings("test", "test"), rebooter)]), workers=0)
    loop = repair_loop(store, settings("reboot", more=EVICT), actuators, reports=adapter.condition_reports)

    try:
        until(ends(loop, store, rebooter.agents), 60.0, 0.3)
        with store.read() as connection:
            (row,) = episodes.list_episodes(connection)
            (attempt,) = attempts.attempts_of(connection, row.id)
    finally:
        store.close()
    assert (row.node, row.state) == (sick, "returned")
    assert (attempt.rung, attempt.outcome, len(rebooter.sent)) == ("reboot", "succeeded", 1)
    assert kube.pods() == []  # the pod was evicted before
    node = kube.get(sick)
    assert not node["spec"].get("unschedulable")
    # The controller manager takes its own taint of a cordoned node away, a moment after the cordon.
    until(lambda: not kube.get(sick)["spec"].get("taints"), 60, what="the taints to go")
    assert not kube.get(well)["spec"].get("unschedulable")


def marked(kube: Kube, node: str) -> bool:
    found = kube.get(node)
    return "nhc/mark" in (found["metadata"].get("annotations") or {}) and bool(found["spec"].get("unschedulable"))


def test_the_controller_beside_the_loop_leaves_the_mark_until_the_loop_has_proved_the_node(
    kube: Kube, adapter: Adapter, tmp_path: Path
) -> None:
    """The controller marked first; its condition is good right after the reboot, before anything is proved."""
    sick, witness = kube.node("sick"), kube.node("witness")
    kube.ready(sick, witness)
    store, rebooter = new_store(str(tmp_path)), Rebooter(kube)
    actuators = Actuators(adapter, Repairers([RepairerEntry(RepairerSettings("test", "test"), rebooter)]), workers=0)
    wanted = settings("reboot", more=EVICT, out=2)
    loop = repair_loop(store, wanted, actuators, reports=adapter.condition_reports)
    lease = Lease(kube.admin, kube.namespace, every=0.2, duration=30.0, renew_within=20.0)
    policy = Policy().with_ceiling(Limit(share=1.0))
    chosen = make(apply=True, policy=policy, namespace=kube.namespace, selector=f"test={kube.prefix}")
    controller = Controller(kube.client(kube.plane.token, connections=36), chosen, lease=lease)
    controller.start()

    def sent() -> bool:
        loop.round()
        return bool(rebooter.sent)

    try:
        kube.set_condition(sick, "NhcHealthy", "False", "Xid95", "check_gpu_xid: Xid 95 on gpu3 [action: reboot]")
        until(lambda: marked(kube, sick), 60.0, 0.1)
        until(sent, 60.0, 0.3)
        kube.set_condition(witness, "NhcHealthy", "False", "Xid95", "check_gpu_xid: Xid 95 on gpu1 [action: reboot]")
        until(lambda: marked(kube, witness), 60.0, 0.1)
        kube.set_condition(witness, "NhcHealthy", "True", "NodeIsHealthy")
        until(lambda: not marked(kube, witness), 60.0, 0.1)  # the controller has cleared what is its own
        assert marked(kube, sick)
        until(ends(loop, store, rebooter.agents), 60.0, 0.3)
    finally:
        controller.close()
        store.close()
    assert not marked(kube, sick)
    assert len(rebooter.sent) == 1


def test_the_work_of_a_namespace_that_ends_by_itself_is_waited_for(kube: Kube, tmp_path: Path) -> None:
    sick = kube.node("sick")
    kube.ready(sick)
    kube.pod("training", sick)
    given = {"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path)), "NHC_KUBE_EVICT": "force"}
    for more, left in ({"NHC_KUBE_EVICT_NOT": f"other,{kube.prefix[:4]}*"}, ["training"]), ({}, []):
        made = Adapter({**given, **more})
        made.mark({sick: Mark("check_gpu_xid: Xid 95")})
        for _more in range(3):
            said = made.evict([sick])[sick]
        until(lambda left=left: kube.pods() == left)
        assert ("the work of its namespace is waited for" in said) is bool(left)
        made.close()


def test_the_clusters_own_view_counts_where_no_store_has_a_report(kube: Kube, tmp_path: Path, monkeypatch: Any) -> None:
    sick, well = kube.node("sick"), kube.node("well")
    kube.ready(sick, well)
    kube.set_condition(sick, "NhcHealthy", "False", "Xid79", "check_kmsg: Xid 79")
    kube.set_condition(well, "NhcHealthy", "True", "NodeIsHealthy")
    monkeypatch.setenv("NHC_KUBECONFIG", str(kube.kubeconfig(tmp_path)))
    found = verdicts_by_cluster(settings(), time.time())
    assert found.get("CRIT", 0) >= 1, found
    assert found.get("OK", 0) >= 1, found
