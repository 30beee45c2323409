"""A kubelet that dies, on a real control plane: an episode, a power cycle, and its work may move once that is safe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator, List, Sequence

import pytest

from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc.remedy.actuators import Actuators
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RepairerSettings
from nhc.store import episodes
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.kube import Kube
from tests.support.kube_remedy import settings
from tests.support.new_store import new_store
from tests.support.waiting import until

TAINT = "node.kubernetes.io/out-of-service"
REASONS = '[reasons.NodeSilent]\nsettle = "0s"\n'


class Bmc:
    """Switches a machine off and on; its kubelet comes back when the test says so."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.sent = kube, []  # type: ignore[var-annotated]
        self.power = "on"
        self.seen_off: List[bool] = []
        """Whether the out-of-service taint stood when the machine was switched on again."""

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return "" if rung is Rung.POWER_CYCLE else "switches power only"

    def look(self, machine: Machine) -> Sighting:
        return Sighting(time.time(), machine.node, "", self.power)

    def send(self, order: Order) -> Sent:
        self.sent.append(order)
        self.power = "off"
        return Sent(Answer.ACCEPTED, "power off")

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        return Progress(Stage.HALFWAY, "power is off") if self.power == "off" else Progress(Stage.DONE, "power is on")

    def complete(self, order: Order, sent: Sent) -> Sent:
        self.seen_off.append(tainted(self.kube, order.machine.node))
        self.power = "on"
        return Sent(Answer.ACCEPTED, "power on")

    def rights(self) -> Sequence[Right]:
        return ()


def tainted(kube: Kube, node: str) -> bool:
    return any(one["key"] == TAINT for one in kube.get(node)["spec"].get("taints") or ())


class Site:
    """Three nodes; one of them has work, and its kubelet is dead."""

    def __init__(self, kube: Kube, base: Path, more: str) -> None:
        self.kube = kube
        self.node = kube.node("dead", fake=False)
        for other in ("a", "b", "c"):
            kube.node(other, fake=False)
        self.adapter = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(base))})
        self.adapter.cluster.selector = f"test={kube.prefix}"
        self.bmc, self.store = Bmc(kube), new_store(str(base))
        actuators = Actuators(
            self.adapter, Repairers([RepairerEntry(RepairerSettings("bmc", "bmc"), self.bmc)], (), (self.adapter,)), 0
        )
        self.loop = repair_loop(self.store, settings("power-cycle", more=REASONS + more), actuators,
                                     reports=self.adapter.condition_reports)  # fmt: skip

    def ready(self, status: str) -> None:
        """What the node controller says of the kubelet (Unknown), or the kubelet of itself."""
        reason = "NodeStatusUnknown" if status == "Unknown" else "KubeletReady"
        self.kube.set_condition(self.node, "Ready", status, reason, "Kubelet stopped posting node status.")

    def row(self) -> Any:
        with self.store.read() as connection:
            return next(iter(episodes.list_episodes(connection)), None)

    def until(self, so: Any, within: float = 20.0) -> None:
        def once() -> bool:
            self.loop.round()
            return bool(so())

        until(once, within, 0.1)


@pytest.fixture
def site(kube: Kube, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(kube, tmp_path, getattr(request, "param", ""))
    yield made
    made.store.close()
    made.adapter.close()


def test_a_dead_kubelet_opens_an_episode_and_its_pods_do_not_block_the_power_cycle(site: Site) -> None:
    site.kube.pod("work", site.node, running=False, grace=1)
    site.kube.admin.delete(f"/api/v1/namespaces/{site.kube.namespace}/pods/work")  # no kubelet will ever end it
    site.ready("Unknown")
    site.until(lambda: site.bmc.sent)
    assert site.row().cause == "cluster|NodeSilent|"
    site.until(lambda: site.row().state == "verifying")
    assert site.bmc.seen_off == [True]  # its work could move as soon as the machine was proved to be off
    site.ready("True")
    site.until(lambda: site.row().state == "returned")
    node = site.kube.get(site.node)
    assert not tainted(site.kube, site.node)
    assert not node["spec"].get("unschedulable")
    assert len(site.bmc.sent) == 1


def test_work_that_has_time_to_end_is_waited_for_since_a_dead_kubelet_may_leave_it_running(site: Site) -> None:
    site.kube.pod("work", site.node, running=False, grace=600)
    site.kube.admin.delete(f"/api/v1/namespaces/{site.kube.namespace}/pods/work")
    site.ready("Unknown")
    for _more in range(4):
        site.loop.round()
    assert (site.row().state, site.bmc.sent) == ("draining", [])  # its ten minutes to end are not over
    assert not tainted(site.kube, site.node)


@pytest.mark.parametrize("site", ["[silence]\nmove-work = false\n"], indirect=True)
def test_work_stays_bound_where_the_settings_say_so(site: Site) -> None:
    site.ready("Unknown")
    site.until(lambda: site.row() is not None and site.row().state == "verifying")
    assert site.bmc.seen_off == [False]
    assert not tainted(site.kube, site.node)


def test_a_kubelet_that_is_not_ready_itself_keeps_its_work(site: Site) -> None:
    site.ready("False")
    site.loop.round()
    assert site.row() is None  # five minutes are not over
    (state,) = site.adapter.nodes([site.node])
    assert state.silence is not None
    assert state.silence.heard
