"""The controller on a real cluster: from conditions to marks, within ceilings, through restarts and new leaders."""

from __future__ import annotations

import contextlib
import json
import random
import time
import urllib.request
from typing import Any, Iterator

import pytest

from nhc.core.limits import Limit, Rate
from nhc.core.timestamps import utc
from nhc.marks.policy.bounds import FLEET, Bounds, RadiusBounds
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.ports.adapter import Effect, Mark, Operation
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.lease import Lease
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.controller import Controller
from nhc_adapters.kubernetes.controller.fleet import Fleet
from nhc_adapters.kubernetes.controller.http_server import ControllerServer
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.settings import ControllerSettings, make
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.known_types import bad_statuses
from nhc_adapters.kubernetes.nodes.marks import Facts
from nhc_adapters.kubernetes.nodes.own_marks import MARK
from tests.support.kube import Kube
from tests.support.waiting import until

OPEN = Policy().with_ceiling(Limit(share=1.0))


def settings(kube: Kube, *, policy: Policy = OPEN, apply: bool = True, **more: Any) -> ControllerSettings:
    return make(apply=apply, policy=policy, namespace=kube.namespace, selector=f"test={kube.prefix}", **more)


class Running(Controller):
    def __init__(self, kube: Kube, chosen: ControllerSettings, **more: Any) -> None:
        self.said: list[str] = []
        lease = Lease(kube.admin, kube.namespace, every=0.2, duration=30.0, renew_within=20.0)
        client = kube.client(kube.plane.token, connections=36)
        super().__init__(client, chosen, lease=lease, log=self.said.append, **more)

    def says(self, text: str) -> bool:
        return any(text in line for line in self.said)


@contextlib.contextmanager
def running(kube: Kube, chosen: ControllerSettings | None = None, **more: Any) -> Iterator[Running]:
    controller = Running(kube, chosen or settings(kube), **more)
    controller.start()
    try:
        yield controller
    finally:
        controller.close()


def marked(kube: Kube, *names: str) -> set[str]:
    nodes = kube.admin.items("/api/v1/nodes", labelSelector=f"test={kube.prefix}")
    found = {n["metadata"]["name"] for n in nodes if MARK in (n["metadata"].get("annotations") or {})}
    return found & set(names) if names else found


def cordoned(kube: Kube, name: str) -> bool:
    return bool(kube.get(name)["spec"].get("unschedulable"))


def sicken(kube: Kube, *names: str) -> None:
    for name in names:
        kube.set_condition(
            name, "NhcHealthy", "False", "Xid79", "check_gpu_lost: gpu3: fell off the bus [action: reboot]"
        )


def heal(kube: Kube, *names: str) -> None:
    for name in names:
        kube.set_condition(name, "NhcHealthy", "True", "NhcHealthy")


def test_a_sick_node_is_marked_and_a_well_one_put_back(kube: Kube) -> None:
    sick, well = kube.node("sick", fake=False), kube.node("well", fake=False)
    heal(kube, well)
    with running(kube):
        sicken(kube, sick)
        until(lambda: cordoned(kube, sick))
        assert marked(kube) == {sick}
        said = kube.get(sick)["metadata"]["annotations"][MARK]
        assert said.startswith("NHC: [node] check_gpu_lost: gpu3: fell off the bus [action: reboot] [since: ")
        told = until(
            lambda: kube.plane.kubectl("get", "events", "--field-selector", f"involvedObject.name={sick}").stdout
        )
        until(lambda: "NhcMarked" in kube.plane.kubectl("get", "events", "-o", "wide").stdout, 60)
        assert told
        heal(kube, sick)
        until(lambda: not cordoned(kube, sick))
        assert marked(kube) == set()


def test_a_node_that_cannot_be_judged_is_left_as_it_is_and_the_others_are_judged() -> None:
    bad = {"type": "NhcHealthy", "status": "False", "reason": "Xid79", "message": "check_gpu_lost: gpu3: gone"}
    sick = {"metadata": {"name": "sick"}, "spec": {}, "status": {"conditions": [bad]}}
    odd = {"metadata": {"name": "odd"}, "spec": {"taints": [5]}, "status": {"conditions": "none"}}
    said: list[str] = []
    adapter = Kubernetes(Client(Access("http://127.0.0.1:1")))
    objects = {"odd": odd, "sick": sick}
    ledger = ClusterLedger(adapter.client, "nhc", "ledger", OPEN)
    fleet = Fleet(RoundContext(make(namespace="nhc"), adapter, ledger, objects, lambda: 5.0, said.append))
    for name in objects:
        fleet.changed(name)
    assert fleet.look(5.0) == ["sick"]
    assert fleet.sick() == ["sick"]
    assert fleet.judgement("odd") is None
    assert len(said) == 1
    assert "odd" in said[0]
    objects["odd"] = {**sick, "metadata": {"name": "odd"}}
    assert fleet.look(5.0 + fleet.context.again) == ["odd"]
    assert fleet.sick() == ["odd", "sick"]


def test_a_node_that_an_operator_took_out_is_left_to_the_operator(kube: Kube) -> None:
    node = kube.node(fake=False)
    kube.plane.kubectl("cordon", node)
    with running(kube) as controller:
        sicken(kube, node)
        until(lambda: controller.says("withheld"))
        heal(kube, node)
        until(lambda: not controller.rounds.withheld)
        assert cordoned(kube, node)
        assert marked(kube) == set()


def test_a_dry_run_says_what_it_would_do_once_and_does_nothing(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube, settings(kube, apply=False)) as controller:
        sicken(kube, node)
        until(lambda: controller.says(f"dry run: would mark {node}"))
        sicken(kube, node)
        kube.admin.patch(node_path(node), {"metadata": {"labels": {"again": "1"}}}, MERGE_PATCH)
        until(lambda: "again" in controller.nodes.objects[node]["metadata"]["labels"])
    assert [line for line in controller.said if "would mark" in line] == [
        f"dry run: would mark {node}: check_gpu_lost: gpu3: fell off the bus"
    ]
    after = kube.get(node)
    assert not cordoned(kube, node)
    assert "nhc" not in json.dumps(
        [after["metadata"].get("labels"), after["metadata"].get("annotations"), after["spec"]]
    )


def test_an_unknown_condition_takes_nobody_out_and_puts_nobody_back(kube: Kube) -> None:
    sick, unsure = kube.node("sick", fake=False), kube.node("unsure", fake=False)
    with running(kube) as controller:
        sicken(kube, sick)
        until(lambda: marked(kube) == {sick})
        kube.set_condition(sick, "NhcHealthy", "Unknown")
        kube.set_condition(unsure, "NhcHealthy", "Unknown")
        until(lambda: controller.rounds.fleet.judgement(unsure) and not controller.rounds.fleet.sick())
        assert marked(kube) == {sick}


# Ceilings.


def test_no_more_nodes_are_out_than_the_ceiling_allows_whatever_falls_sick(kube: Kube) -> None:
    nodes = [kube.node(f"n{number}", fake=False) for number in range(8)]
    heal(kube, *nodes)
    with running(kube, settings(kube, policy=Policy().with_ceiling(Limit(nodes=3)))) as controller:
        sicken(kube, *nodes)
        until(lambda: len(marked(kube)) == 3 and len(controller.rounds.withheld) == 5)
        first = marked(kube)
        heal(kube, sorted(first)[0])
        until(lambda: sorted(first)[0] not in marked(kube) and len(marked(kube)) == 3)
        assert sum("look for a common cause" in line for line in controller.said) == 1, "a shared fault is named once"


def test_each_zone_and_pool_has_its_own_ceiling(kube: Kube) -> None:
    def labels(zone: str, pool: str) -> dict[str, str]:
        return {"topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": pool}

    a = [kube.node(f"a{n}", fake=False, labels=labels("a", f"p{n}")) for n in range(4)]
    b = [kube.node(f"b{n}", fake=False, labels=labels("b", "one")) for n in range(4)]
    groups = {"topology.kubernetes.io/zone=*": Limit(share=0.5), "karpenter.sh/nodepool=one": Limit(nodes=1)}
    policy = Policy(Bounds({FLEET: RadiusBounds(Limit(share=1.0))}, groups))
    with running(kube, settings(kube, policy=policy)) as controller:
        sicken(kube, *a, *b)
        until(lambda: len(controller.rounds.withheld) == 5)
        until(lambda: (len(marked(kube, *a)), len(marked(kube, *b))) == (2, 1))  # what is withheld is known first


def test_a_rate_outlives_a_restart(kube: Kube) -> None:
    nodes = [kube.node(f"n{number}", fake=False) for number in range(4)]
    policy = Policy(Bounds({FLEET: RadiusBounds(Limit(share=1.0), rates={"mark": Rate(2, 3600.0)})}))
    with running(kube, settings(kube, policy=policy)):
        sicken(kube, *nodes)
        until(lambda: len(marked(kube)) == 2)
    first = marked(kube)
    heal(kube, *first)
    with running(kube, settings(kube, policy=policy)) as again:
        until(lambda: not marked(kube, *first))
        until(lambda: len(again.rounds.withheld) == 2)
        assert marked(kube) == set()


# Leaders.


def test_only_one_acts_and_the_next_takes_over_when_it_ends(kube: Kube) -> None:
    node, other = kube.node("one", fake=False), kube.node("two", fake=False)
    with running(kube) as first:
        until(first.leading.is_set)
        with running(kube) as second:
            sicken(kube, node)
            until(lambda: marked(kube) == {node})
            assert second.nodes.synced.wait(60)
            assert not second.leading.is_set()
            first.close()
            until(second.leading.is_set)
            sicken(kube, other)
            until(lambda: marked(kube) == {node, other})
            until(lambda: second.operations.counts == {"mark_changed": 1})  # counted once the server has answered


def test_a_leader_that_died_is_succeeded_once_its_lease_ran_out(kube: Kube) -> None:
    dead = Lease(kube.admin, kube.namespace, duration=1.0)
    assert dead.attempt()
    begin = time.monotonic()
    with running(kube) as controller:
        until(controller.leading.is_set)
    assert time.monotonic() - begin >= 0.9
    lease = kube.admin.get(namespaced(kube.namespace, "leases", "nhc-controller", "apis/coordination.k8s.io/v1"))
    assert lease["spec"]["leaseTransitions"] == 1


def test_whoever_cannot_renew_stops_acting_before_another_may_begin() -> None:
    now = [0.0]

    class ControllerServer:
        """Takes the first writing, then is gone."""

        def find(self, path: str) -> None:
            if now[0]:
                raise ApiError(500, "", "")

        def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            return body

        def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            raise ApiError(500, "", "")

    lease = Lease(ControllerServer(), "n", duration=15.0, renew_within=10.0, monotonic=lambda: now[0])  # type: ignore[arg-type]
    assert lease.attempt()
    now[0] = 9.9
    assert lease.held()
    now[0] = 10.1
    assert not lease.held()


def test_what_a_lapse_of_the_lease_left_undone_is_done_when_it_is_back(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube) as controller:
        until(controller.leading.is_set)
        held = controller.context.allowed
        looked: list[int] = []
        controller.context.allowed = lambda: bool(looked.append(1))
        sicken(kube, node)
        until(lambda: looked)
        assert marked(kube) == set()
        controller.context.allowed = held
        until(lambda: marked(kube) == {node})


@pytest.mark.parametrize("decided", ["put back", "registered anew", "recovered"])
def test_what_was_judged_of_a_node_is_not_done_to_what_it_is_by_now(kube: Kube, decided: str) -> None:
    """As of a controller that was stopped for a while between its judgement and its patch."""
    node = kube.node(fake=False)
    sicken(kube, node)
    with running(kube) as controller:
        until(lambda: cordoned(kube, node))
        until(lambda: controller.nodes.objects[node]["spec"].get("unschedulable"))
    adapter = controller.context.adapter
    seen = {node: {**kube.get(node), "spec": {}}}  # of before the mark
    seen[node]["metadata"] = {**seen[node]["metadata"], "annotations": {}, "resourceVersion": "1"}
    if decided == "put back":
        assert adapter.release([node], bad_statuses(()), time.time(), "alice")[0].effect is Effect.CHANGED
    elif decided == "registered anew":
        kube.admin.delete(node_path(node))
        assert kube.node(fake=False) == node
    else:
        heal(kube, node)
        until(lambda: adapter.clear([node], judged={})[0].effect is Effect.CHANGED)

    done = adapter.mark({node: Mark("x")}, objects=seen, facts={node: Facts(sources=("NhcHealthy=False",))})

    assert (done[0].effect, cordoned(kube, node)) == (Effect.FAILED, False)


# Silence.


def test_a_node_whose_agent_fell_silent_becomes_unknown_and_stays_as_it_is(kube: Kube) -> None:
    node = kube.node(fake=False)
    long_ago = utc(time.time() - 3600)
    condition = {
        "type": "NhcHealthy",
        "status": "False",
        "reason": "Xid79",
        "lastHeartbeatTime": long_ago,
        "lastTransitionTime": long_ago,
    }
    kube.admin.patch(f"{node_path(node)}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    with running(kube):
        said = until(
            lambda: (
                (kube.condition(node, "NhcHealthy") or {}).get("reason") == "NoReport"
                and kube.condition(node, "NhcHealthy")
            )
        )
        assert said["status"] == "Unknown"
        assert "nothing heard" in said["message"]
        assert marked(kube) == set()
        sicken(kube, node)
        until(lambda: marked(kube) == {node})


def test_a_node_whose_kubelet_stopped_is_unknown(kube: Kube) -> None:
    node = kube.node(fake=False, silent=True)
    with running(kube) as controller:
        # Nobody plays this node's kubelet: the real node controller gives it up after a few seconds.
        until(lambda: (kube.condition(node, "Ready") or {}).get("status") == "Unknown")

        def judged() -> str:
            found = controller.rounds.fleet.judgement(node)
            return found.report.verdict.name if found and found.report.results else ""

        until(lambda: judged() == "UNKNOWN")
        assert marked(kube) == set()


# Conditions by name.


def test_conditions_named_as_draino_is_told_are_the_only_ones_that_count(kube: Kube) -> None:
    node, other = kube.node("one", fake=False), kube.node("two", fake=False)
    chosen = settings(kube, faults=["GpuXid", "GpuCount=True,3s"])
    with running(kube, chosen) as controller:
        sicken(kube, other)
        began = time.monotonic()
        kube.set_condition(node, "GpuCount", "True", "GpuCountBad", "7 of 8")
        until(lambda: controller.rounds.fleet.judgement(node) and controller.rounds.fleet.judgement(node).again)
        until(lambda: marked(kube) == {node})
        assert time.monotonic() - began >= 2.0, "three seconds, counted from the whole second in the condition"


# The storm.


def test_no_wrong_node_is_marked_and_none_missed_in_a_storm_with_restarts(kube: Kube) -> None:
    chance = random.Random(7)
    nodes = [kube.node(f"n{number:02}", fake=False) for number in range(30)]
    heal(kube, *nodes)
    state = dict.fromkeys(nodes, "True")
    ours = Running(kube, settings(kube))
    ours.start()
    for number in range(600):
        name = chance.choice(nodes)
        kind, status = chance.choice(
            [("NhcHealthy", "False"), ("NhcHealthy", "True"), ("NhcHealthy", "Unknown"), ("Other", "True")]
        )
        if kind == "NhcHealthy":
            state[name] = status
        kube.set_condition(name, kind, status, "Xid79" if status == "False" else "Test", "check_gpu_lost: gone")
        if number % 120 == 119:
            ours.close()
            ours = Running(kube, settings(kube))
            ours.start()
    # What is Unknown at the end may be marked or not, by what it was before; all others are decided.
    for name in [name for name, status in state.items() if status == "Unknown"]:
        heal(kube, name)
        state[name] = "True"
    wanted = {name for name, status in state.items() if status == "False"}
    try:
        until(lambda: marked(kube) == wanted)
        assert {name for name in nodes if cordoned(kube, name)} == wanted
    finally:
        ours.close()


def test_a_node_is_marked_once_though_many_things_change_on_it(kube: Kube) -> None:
    nodes = [kube.node(f"n{number:02}", fake=False) for number in range(20)]
    with running(kube) as controller:
        sicken(kube, *nodes)
        until(lambda: controller.operations.counts == {"mark_changed": 20})
        for name in nodes:
            kube.admin.patch(node_path(name), {"metadata": {"labels": {"x": "y"}}}, MERGE_PATCH)
        until(lambda: all("x" in controller.nodes.objects[name]["metadata"]["labels"] for name in nodes))
        until(lambda: not controller.rounds.fleet.agenda.wake.is_set())
        assert controller.operations.counts == {"mark_changed": 20}


# Its door.


def test_it_tells_how_it_is_and_what_it_did(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube) as controller:
        server = ControllerServer("127.0.0.1:0", controller)
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
        until(lambda: controller.rounds.fleet.marked() == [node])
        until(lambda: controller.operations.counts == {"mark_changed": 1})  # counted once the server has answered

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
                return str(answer.read().decode())

        assert get("/healthz") == "ok\n"
        assert get("/readyz") == "ok\n"
        told = get("/metrics")
        assert "nhc_kubernetes_nodes_marked 1\n" in told
        assert "nhc_kubernetes_nodes_unknown 0\n" in told
        assert 'nhc_kubernetes_operations_total{operation="mark",effect="changed"} 1\n' in told
        assert 'nhc_kubernetes_deeds_total{deed="mark",effect="changed"} 1\n' in told  # the older name, for one release
        server.close()


def test_a_marked_node_is_drained_where_that_is_wanted(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node)
    from nhc_adapters.kubernetes.nodes.drain import DrainRules

    with running(kube, settings(kube, drain=True, rules=DrainRules(force=True))) as controller:
        sicken(kube, node)
        until(lambda: kube.pods() == [])
        until(lambda: controller.operations.counts.get("drain_done") == 1)


@pytest.mark.parametrize("allowed", [True, False])
def test_a_platform_is_asked_for_a_repair_once_the_work_has_ended_and_only_if_allowed(
    kube: Kube, allowed: bool
) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node)
    repairs = frozenset({Operation.REBOOT}) if allowed else frozenset()
    policy = Policy(repairs=repairs).with_ceiling(Limit(share=1.0))
    key = "sagemaker.amazonaws.com/node-health-status"

    def label() -> str:
        return str(kube.get(node)["metadata"]["labels"].get(key))

    with running(kube, settings(kube, policy=policy, vocabularies=["nhc", "hyperpod"])) as controller:
        controller.context.again = 0.2
        sicken(kube, node)
        until(lambda: label() == "Unschedulable")
        if allowed:
            until(lambda: (node, Operation.REBOOT) in controller.rounds.withheld)
            assert label() == "Unschedulable"
        kube.admin.delete(namespaced(kube.namespace, "pods", "work"))
        if allowed:
            until(lambda: label() == "UnschedulablePendingReboot")
            until(
                lambda: controller.operations.counts.get("reboot_changed") == 1
            )  # counted once the server has answered
        else:
            controller.rounds.fleet.changed(node)
            until(lambda: not controller.rounds.fleet.agenda.wake.is_set())
            assert label() == "Unschedulable"


def test_an_adapter_of_the_same_cluster_sees_the_controllers_marks_as_ours(kube: Kube) -> None:
    node = kube.node(fake=False)
    with running(kube):
        sicken(kube, node)
        until(lambda: marked(kube) == {node})
    (state,) = Kubernetes(kube.admin).nodes([node])
    assert state.mark is not None
    assert state.mark.ours


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:99999"])
def test_an_address_that_makes_no_sense_is_said_in_one_line(kube: Kube, listen: str) -> None:
    from nhc.marks.ports.adapter import AdapterError

    with pytest.raises(AdapterError, match="host:port"):
        ControllerServer(listen, Running(kube, settings(kube)))
