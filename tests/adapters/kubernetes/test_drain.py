"""Drains through the real Eviction API, with budgets kept by the real controllers."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import REMEDY_OWNER, Effect, Mark
from nhc_adapters.kubernetes.api.access import Access
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced, node_path
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.drain import (
    API,
    ASKED,
    REQUESTER,
    Drain,
    DrainProgress,
    DrainRules,
    EvictionRequests,
    sort_pods,
)
from nhc_adapters.kubernetes.nodes.drains import Drains, read_drain
from tests.support.http_server import Reply, answering, serving
from tests.support.kube import Kube
from tests.support.waiting import until

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1", "controller": True}


def owner(kube: Kube) -> dict[str, Any]:
    """A controller for pods that exists (the garbage collector is real) and does nothing."""
    made = kube.admin.post(namespaced(kube.namespace, "configmaps"), {"metadata": {"name": "owner"}})
    return {**OWNER, "uid": made["metadata"]["uid"]}


def daemon_set(kube: Kube) -> None:
    labels = {"app": "daemon"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": {"test": kube.prefix}, "containers": [{"name": "c", "image": "none"}]},
    }
    kube.admin.post(
        f"/apis/apps/v1/namespaces/{kube.namespace}/daemonsets",
        {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}},
    )


def drained(drain: Drain, within: float = 60.0) -> list[DrainProgress]:
    seen, deadline = [], time.monotonic() + within
    for progress in drain.run(poll=0.05):
        seen.append(progress)
        assert time.monotonic() < deadline, progress.line()
    return seen


def deployment(kube: Kube, replicas: int) -> None:
    labels = {"app": "web"}
    kube.admin.post(
        f"/apis/apps/v1/namespaces/{kube.namespace}/deployments",
        {
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"test": kube.prefix},
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": "c", "image": "none"}],
                    },
                },
            },
        },
    )


def budget(kube: Kube, available: int) -> None:
    kube.admin.post(
        f"/apis/policy/v1/namespaces/{kube.namespace}/poddisruptionbudgets",
        {"metadata": {"name": "b"}, "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": "web"}}}},
    )


def running(kube: Kube) -> list[dict[str, Any]]:
    return [
        pod
        for pod in kube.admin.items(namespaced(kube.namespace, "pods"))
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]


def test_a_budget_is_kept_at_every_moment_and_all_pods_move(kube: Kube) -> None:
    sick = kube.node("sick")
    kube.ready(sick)
    deployment(kube, 3)
    budget(kube, 2)
    until(lambda: len(running(kube)) == 3)
    base = f"/apis/policy/v1/namespaces/{kube.namespace}/poddisruptionbudgets/b"
    until(lambda: kube.admin.get(base)["status"].get("disruptionsAllowed") == 1)
    well = kube.node("well")
    kube.ready(well)
    Kubernetes(kube.admin).mark({sick: Mark("x")})
    least = 3
    waited = set()

    for progress in Drain(kube.admin, sick, budget_wait=0.1).run(poll=0.05):
        least = min(least, len(running(kube)))
        waited |= set(progress.blocked.values())
        last = progress

    assert last.clean
    assert least >= 2
    assert {pod["spec"]["nodeName"] for pod in until(lambda: len(running(kube)) == 3 and running(kube))} == {well}


def test_daemon_pods_stay_and_what_nobody_restarts_is_in_the_way(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    daemon_set(kube)
    (daemon,) = until(kube.pods)
    mine = owner(kube)
    kube.pod("alone", node)
    kube.pod("cached", node, owner=mine, volumes=[{"name": "v", "emptyDir": {}}])
    kube.pod("plain", node, owner=mine)

    last = drained(Drain(kube.admin, node))[-1]

    assert kube.pods() == ["alone", "cached", daemon]
    assert (last.done, last.clean, last.left) == (True, False, 2)
    assert "force" in last.blocked[f"{kube.namespace}/alone"]
    assert "emptyDir" in last.blocked[f"{kube.namespace}/cached"]
    assert drained(Drain(kube.admin, node, DrainRules(force=True, empty_dir=True)))[-1].clean
    assert kube.pods() == [daemon]


def test_a_drain_that_a_budget_blocks_ends_at_its_deadline_and_says_why(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running(kube)) == 1)

    last = drained(Drain(kube.admin, node, DrainRules(deadline=0.5), budget_wait=0.1))[-1]

    assert (last.clean, last.left, last.error) == (False, 1, "deadline passed")
    assert "disruption budget" in last.line()
    assert len(running(kube)) == 1


def limited(kube: Kube, *rules: dict[str, Any]) -> Any:
    """A client of an account that may do this and no more."""
    name = f"limited-{kube.prefix}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    kube.admin.post(namespaced(kube.namespace, "serviceaccounts"), {"metadata": {"name": name}})
    kube.admin.post(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": kube.namespace}],
    }
    kube.admin.post(f"{rbac}/clusterrolebindings", binding)
    return kube.client(kube.token(name, kube.namespace))


@pytest.mark.parametrize("sees", [True, False])
def test_a_drain_without_the_right_ends_at_once_with_the_reason(kube: Kube, sees: bool) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node, owner=owner(kube))
    client = limited(kube, *([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}] if sees else []))

    last = drained(Drain(client, node, DrainRules(deadline=3600.0)))[-1]

    assert (last.done, last.clean) == (True, False)
    assert "forbidden" in last.line()
    assert ("pods/eviction" in last.line()) == sees
    assert "-1" not in last.line()
    assert kube.pods() == ["work"]


class Heard:
    """A client that has two pods and hears what is asked of them."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods, self.asked = pods, {}  # type: ignore[var-annotated]

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        return list(self.pods)

    def post(self, path: str, body: dict[str, Any], *, retry: bool = True) -> dict[str, Any]:
        self.asked[body["metadata"]["name"]] = body["deleteOptions"]
        return {}


@pytest.mark.parametrize(("rule", "slow", "quick"), [(30, 30, 1), (None, None, None), (0, 0, 0)])
def test_the_longest_grace_is_the_drains(rule: int | None, slow: int | None, quick: int | None) -> None:
    heard = Heard(
        pod("slow", spec={"terminationGracePeriodSeconds": 3600}),
        pod("quick", spec={"terminationGracePeriodSeconds": 1}),
    )

    Drain(heard, "n1", DrainRules(grace=rule)).step()  # type: ignore[arg-type]

    assert {name: options.get("gracePeriodSeconds") for name, options in heard.asked.items()} == {
        "slow": slow,
        "quick": quick,
    }
    assert heard.asked["slow"]["preconditions"] == {"uid": "slow"}


LOSES_TMP = {"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "tmp, state"}
TMP, DATA = {"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}


def pod(name: str, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name, "uid": name, "ownerReferences": [OWNER], **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}, **more}


@pytest.mark.parametrize(
    ("one", "rules", "where"),
    [
        (pod("p"), DrainRules(), "evict"),
        (pod("p", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), DrainRules(), "leave"),
        (pod("p", metadata={"ownerReferences": []}), DrainRules(), "block"),
        (pod("p", metadata={"ownerReferences": []}, status={"phase": "Succeeded"}), DrainRules(), "evict"),
        (
            pod("p", metadata={"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
            DrainRules(),
            "block",
        ),
        (pod("p", metadata={"annotations": {"keep": "1"}}), DrainRules(protected=("keep",)), "block"),
        (pod("p"), DrainRules(namespaces=("other",)), "leave"),
        (pod("p", spec={"volumes": [{"emptyDir": {}}]}), DrainRules(empty_dir=True), "evict"),
        (pod("p", metadata={"annotations": LOSES_TMP}, spec={"volumes": [TMP]}), DrainRules(), "evict"),
        (pod("p", metadata={"annotations": LOSES_TMP}, spec={"volumes": [TMP, DATA]}), DrainRules(), "block"),
        (pod("p"), DrainRules(waits=("train-*", "n")), "block"),
        (pod("p"), DrainRules(waits=("train-*",)), "evict"),
        (pod("p", status={"phase": "Succeeded"}), DrainRules(waits=("n",)), "evict"),
    ],
)
def test_each_pod_is_sorted_by_what_would_become_of_it(one: dict[str, Any], rules: DrainRules, where: str) -> None:
    found = sort_pods([one], rules)
    assert {"evict": bool(found.evict), "leave": bool(found.leave), "block": bool(found.block)} == {
        "evict": where == "evict",
        "leave": where == "leave",
        "block": where == "block",
    }


# The controller's drains.


def test_a_drain_is_noted_on_its_node_and_not_done_twice(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    kube.pod("work", node, owner=owner(kube))
    Kubernetes(kube.admin).mark({node: Mark("x")})
    ended: list[str] = []
    drains = Drains(
        kube.admin, DrainRules(), kube.get, ended=lambda name, progress, state: ended.append(state), poll=0.05
    )
    assert drains.wanted(node, kube.get(node))

    drains.start(node)

    until(lambda: ended == ["done"])
    assert kube.pods() == []
    assert read_drain(kube.get(node)) == "done"
    until(lambda: not drains.running())
    assert not drains.wanted(node, kube.get(node))
    drains.close()


def test_the_next_leader_goes_on_with_a_drain_and_with_its_deadline(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running(kube)) == 1)
    Kubernetes(kube.admin).mark({node: Mark("x")})
    first = Drains(kube.admin, DrainRules(deadline=3600.0), kube.get, poll=0.05)
    first.start(node)
    until(lambda: read_drain(kube.get(node)) == "draining")
    first.close()
    said = json.loads(kube.get(node)["metadata"]["annotations"]["nhc/drain"])
    long_ago = {**said, "since": utc(time.time() - 3600)}
    kube.admin.patch(node_path(node), {"metadata": {"annotations": {"nhc/drain": json.dumps(long_ago)}}}, MERGE_PATCH)

    ended: list[str] = []
    second = Drains(kube.admin, DrainRules(deadline=3600.0), kube.get, ended=lambda _n, p, _s: ended.append(p.error))
    assert second.wanted(node, kube.get(node))
    second.start(node)

    until(lambda: ended == ["deadline passed"])
    after = json.loads(kube.get(node)["metadata"]["annotations"]["nhc/drain"])
    assert (after["state"], after["since"]) == ("failed", long_ago["since"])
    second.close()


def test_a_drain_ends_when_the_remedy_loop_takes_the_node_over_and_none_begins_after(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running(kube)) == 1)
    controller, loop = Kubernetes(kube.admin), Kubernetes(kube.admin)
    loop.owner = REMEDY_OWNER
    controller.mark({node: Mark("x")})
    ended: list[str] = []
    drains = Drains(kube.admin, DrainRules(), kube.get, ended=lambda _name, _p, state: ended.append(state), poll=0.05)
    drains.start(node)
    until(lambda: read_drain(kube.get(node)) == "draining")

    assert loop.mark({node: Mark("x")})[0].effect is Effect.CHANGED

    until(lambda: ended == ["cancelled"])
    assert len(running(kube)) == 1
    assert not drains.wanted(node, kube.get(node))
    assert controller.clear([node])[0].effect is Effect.REFUSED
    assert loop.clear([node])[0].effect is Effect.CHANGED
    drains.close()


def test_a_drain_ends_when_somebody_puts_the_node_back(kube: Kube) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running(kube)) == 1)
    Kubernetes(kube.admin).mark({node: Mark("x")})
    ended: list[str] = []
    drains = Drains(
        kube.admin, DrainRules(), kube.get, ended=lambda name, progress, state: ended.append(state), poll=0.05
    )
    drains.start(node)
    until(lambda: read_drain(kube.get(node)) == "draining")

    kube.put_back(node)

    until(lambda: ended == ["cancelled"])
    assert len(running(kube)) == 1
    drains.close()


@pytest.mark.parametrize("reason", ["put back by hand", "the Lease is lost"])
def test_a_drain_whose_turn_comes_when_it_may_not_begin_any_more_evicts_nobody(kube: Kube, reason: str) -> None:
    first, second = kube.node("n1"), kube.node("n2")
    kube.ready(first, second)
    owned = owner(kube)
    kube.pod("blocks", first, owner=owned, labels={"app": "web"})
    kube.pod("work", second, owner=owned)
    budget(kube, 1)
    Kubernetes(kube.admin).mark({first: Mark("x"), second: Mark("x")})
    ended: list[str] = []
    lease = threading.Event()
    lease.set()
    drains = Drains(
        kube.admin, DrainRules(), kube.get, ended=lambda name, _progress, state: ended.append(f"{name} {state}"),
        allowed=lease.is_set, at_once=1, poll=0.05,
    )  # fmt: skip
    drains.start(first)
    until(lambda: read_drain(kube.get(first)) == "draining")
    drains.start(second)  # waits for the first

    if reason == "put back by hand":
        kube.put_back(second)
        kube.put_back(first)
        until(lambda: ended == [f"{first} cancelled", f"{second} cancelled"])
    else:
        lease.clear()

    until(lambda: not drains.running())
    assert "work" in kube.pods()
    drains.close()


@pytest.mark.parametrize("hold", ["nhc/hold", "nhc/drained-by"])
def test_a_drain_waits_while_somebody_holds_its_node(kube: Kube, hold: str) -> None:
    node = kube.node()
    kube.ready(node)
    deployment(kube, 1)
    budget(kube, 1)
    until(lambda: len(running(kube)) == 1)
    Kubernetes(kube.admin).mark({node: Mark("x")})
    drains = Drains(kube.admin, DrainRules(), kube.get, poll=0.05)
    drains.start(node)
    until(lambda: read_drain(kube.get(node)) == "draining")
    kube.admin.patch(node_path(node), {"metadata": {"annotations": {hold: '{"by":"alice"}'}}}, MERGE_PATCH)

    until(lambda: not drains.running())

    assert len(running(kube)) == 1
    assert not drains.wanted(node, kube.get(node))
    assert read_drain(kube.get(node)) == "draining"
    kube.admin.patch(node_path(node), {"metadata": {"annotations": {hold: None}}}, MERGE_PATCH)
    assert drains.wanted(node, kube.get(node))
    drains.close()


# EvictionRequests: the kind is the API server's own (1.37), its controller is in no release yet.


def requests_of(kube: Kube) -> list[dict[str, Any]]:
    return list(kube.admin.items(namespaced(kube.namespace, "evictionrequests", group=API)))


def test_a_drain_asks_first_waits_while_that_is_worked_on_and_evicts_where_nobody_is_at_it(kube: Kube) -> None:
    node = kube.node("n1")
    kube.ready(node)
    about = owner(kube)
    for name in ("seen", "unseen"):
        kube.pod(name, node, owner=about)
    drain = Drain(kube.admin, node, DrainRules(requests=True), budget_wait=0.2)
    assert drain.step().blocked == {f"{kube.namespace}/{name}": ASKED for name in ("seen", "unseen")}
    made = {one["spec"]["target"]["pod"]["name"]: one for one in requests_of(kube)}
    assert {one["spec"]["requester"] for one in made.values()} == {REQUESTER}
    path = namespaced(kube.namespace, "evictionrequests", made["seen"]["metadata"]["name"], group=API)
    kube.admin.patch(f"{path}/status", {"status": {"observedGeneration": 1}}, MERGE_PATCH)
    assert drain._requests is not None
    drain._requests.unseen = 0.0

    until(lambda: drain.step() and kube.pods() == ["seen"])

    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "NoResponder",
        "message": "",
        "lastTransitionTime": utc(1e9),
    }
    kube.admin.patch(f"{path}/status", {"status": {"conditions": [failed]}}, MERGE_PATCH)
    until(lambda: drain.step() and kube.pods() == [])
    drain.withdraw()
    assert requests_of(kube) == []


def test_a_drain_that_is_given_up_withdraws_and_a_cluster_without_the_kind_is_drained_as_ever(kube: Kube) -> None:
    node = kube.node("n1")
    kube.ready(node)
    kube.pod("work", node, owner=owner(kube))
    stop = threading.Event()
    for _progress in Drain(kube.admin, node, DrainRules(requests=True)).run(stop, 0.05):
        assert requests_of(kube)
        stop.set()
    assert requests_of(kube) == []
    assert kube.pods() == ["work"]
    with serving(answering(lambda request: Reply(404, b"{}"))) as server:
        client = Client(Access(f"http://127.0.0.1:{server.server_port}"), retry_for=0.1)
        pod = kube.admin.get(namespaced(kube.namespace, "pods", "work"))
        assert EvictionRequests(client).ask(pod, 0.0) == ""
