"""The remedy loop for one GPU on a real control plane: a rule, a reset, a proof, in service; its node works on."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence, Tuple
from urllib.parse import unquote

import pytest
import urllib3

from nhc.core.limits import Limit
from nhc.core.model import DeviceId
from nhc.marks.policy.mark_decision import Policy
from nhc.marks.ports.adapter import OWNER, OWNER_SETTING, REMEDY_OWNER, AdapterError, Effect, Mark, MarksDevices
from nhc.marks.ports.marks import read_mark_text
from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Right, Rung, Sent, Sighting, Stage
from nhc.remedy.actuators import Actuators
from nhc.remedy.episode_flow import EpisodeLoop
from nhc.remedy.repairers import RepairerEntry, Repairers
from nhc.remedy.repairs import repair_loop
from nhc.remedy.settings import RepairerSettings
from nhc.store import attempts, episodes
from nhc.store.database import Store
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.controller.device_view import DeviceView
from nhc_adapters.kubernetes.controller.node_report import judge
from nhc_adapters.kubernetes.devices.rules import NO_EXECUTE, NO_SCHEDULE, RuleWriter, read_rule
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.accelerators import GRACE
from nhc_adapters.kubernetes.plugin import Adapter
from tests.adapters.kubernetes.test_controller import cordoned, marked
from tests.adapters.kubernetes.test_device_rules import KEEP, known, nhc, running
from tests.support.dra import DRIVER, Cluster, device, gpu
from tests.support.kube import Kube
from tests.support.kube_remedy import ends, settings
from tests.support.new_store import new_store
from tests.support.waiting import until

DEVICES = '[devices]\nkeep = "device"\n'
MARK = Mark("check_gpu_ecc: gpu3: uncorrectable errors", cause="NhcHealthy|GpuEccUncorrectable|")


class Resetter:
    """Resets a GPU of the plane: afterwards its agent says that the node is well. `at` is called when it is asked."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.sent = cluster, []  # type: ignore[var-annotated]
        self.at: Callable[[], object] = lambda: None

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return "" if rung is Rung.RESET_DEVICE else "resets only"

    def look(self, machine: Machine) -> Sighting:
        return Sighting(time.time(), machine.node, "boot-1")

    def send(self, order: Order) -> Sent:
        self.at()
        self.sent.append(order)
        self.agents()
        return Sent(Answer.ACCEPTED, "reset")

    def agents(self) -> None:
        """The agents of the nodes whose GPU was reset say that they are well."""
        self.cluster.heal(*{order.machine.node for order in self.sent})

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        return Progress(Stage.DONE, "it was reset")

    def rights(self) -> Sequence[Right]:
        return ()


class Proofs:
    """Proves every device; `asked` is whose proof was asked for."""

    def __init__(self) -> None:
        self.asked: List[Tuple[str, str]] = []

    def proved(self, case: Any, machine: Machine, suite: str) -> bool:
        self.asked.append((machine.node, case.detail.about.pci))
        return True

    def complaint(self, case: Any) -> str:
        return ""


@pytest.fixture
def cluster(kube: Kube) -> Iterator[Cluster]:
    made = Cluster(kube)
    yield made
    made.close()


@contextlib.contextmanager
def adapter_of(cluster: Cluster, tmp_path: Path, owner: str = REMEDY_OWNER) -> Iterator[Adapter]:
    made = Adapter({"NHC_KUBECONFIG": str(cluster.kube.kubeconfig(tmp_path)), OWNER_SETTING: owner})
    made.cluster.selector = f"test={cluster.kube.prefix}"
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def adapter(cluster: Cluster, tmp_path: Path) -> Iterator[Adapter]:
    with adapter_of(cluster, tmp_path) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(str(tmp_path))
    yield made
    made.close()


def loop_of(adapter: Adapter, store: Store, resetter: Resetter, proofs: Any = None, more: str = "") -> EpisodeLoop:
    actuators = Actuators(adapter, Repairers([RepairerEntry(RepairerSettings("test", "test"), resetter)]), workers=0)
    wanted = settings("reset-device", more=DEVICES + more)
    return repair_loop(store, wanted, actuators, reports=adapter.condition_reports, suite=proofs or Proofs())


def owners(cluster: Cluster, node: str) -> List[str]:
    rules = [read_rule(one) for one in cluster.rules(node)]
    return [rule.mark.owner for rule in rules if rule is not None]


def rows(store: Store) -> List[Any]:
    with store.read() as connection:
        return list(episodes.list_episodes(connection))


def test_one_gpu_is_taken_out_reset_proved_and_given_back(cluster: Cluster, adapter: Adapter, store: Store) -> None:
    node, other = cluster.node("sick", fake=True), cluster.node("well")
    cluster.kube.ready(node, other)
    cluster.heal(other)
    owner = cluster.client.post(
        f"/api/v1/namespaces/{cluster.kube.namespace}/configmaps", {"metadata": {"name": "owner"}}
    )
    about = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": True}
    cluster.kube.pod("work", node, owner={**about, "uid": owner["metadata"]["uid"]})
    cluster.fail(node, 3)
    resetter, proofs = Resetter(cluster), Proofs()
    out: List[Any] = []
    resetter.at = lambda: out.append((cluster.out(node), owners(cluster, node), cordoned(cluster.kube, node)))
    loop = loop_of(adapter, store, resetter, proofs, "[drain]\nevict = true\n")
    until(ends(loop, store, resetter.agents), 60.0, 0.3)

    (row,) = rows(store)
    with store.read() as connection:
        (attempt,) = attempts.attempts_of(connection, row.id)
    assert (row.node, row.state) == (node, "returned")
    assert (attempt.rung, attempt.device, attempt.outcome) == ("reset-device", gpu(node, 3).pci, "succeeded")
    assert out == [({"gpu-3": NO_SCHEDULE}, [REMEDY_OWNER], False)]
    assert set(proofs.asked) == {(node, gpu(node, 3).pci)}
    assert cluster.rules() == []
    assert not marked(cluster.kube)
    assert cluster.kube.pods() == ["work"]  # the node's other work was asked nothing


def test_the_node_is_marked_where_the_settings_or_the_cluster_have_no_single_devices(
    cluster: Cluster, adapter: Adapter, store: Store, tmp_path: Path
) -> None:
    bare = cluster.kube.node("bare")
    cluster.kube.ready(bare)
    cluster.fail(bare, 3)  # no ResourceSlice has it
    resetter = Resetter(cluster)
    loop = loop_of(adapter, store, resetter)
    until(lambda: loop.round() and marked(cluster.kube) == {bare}, 60.0, 0.3)
    cluster.heal(bare)
    until(ends(loop, store, resetter.agents), 60.0, 0.3)

    node, plugin = cluster.node("asis"), cluster.node("plugin", capacity={"nvidia.com/gpu": "8"})
    assert isinstance(adapter, MarksDevices)
    adapter.nodes()
    assert {one.node for one in adapter.device_states()} == {node}
    assert adapter.mark_device(plugin, gpu(plugin, 3), MARK).effect is Effect.REFUSED
    assert adapter.mark_device(node, DeviceId("0000:ff:00.0"), MARK).effect is Effect.REFUSED
    assert cluster.rules() == []


def test_the_controller_beside_the_loop_neither_deletes_nor_doubles_its_rule(
    cluster: Cluster, adapter: Adapter, store: Store
) -> None:
    node, witness = cluster.node("sick"), cluster.node("witness")
    cluster.kube.ready(node, witness)
    resetter = Resetter(cluster)
    loop = loop_of(adapter, store, resetter)
    policy = Policy().with_ceiling(Limit(share=1.0))
    with running(cluster, devices=DeviceRuleSettings(KEEP, NO_EXECUTE), policy=policy) as controller:
        until(lambda: known(controller, node) and known(controller, witness))
        cluster.fail(node, 3)
        until(lambda: owners(cluster, node)[:1] == [OWNER])  # the controller is first
        until(lambda: loop.round() and owners(cluster, node) == [REMEDY_OWNER], 60.0, 0.3)
        at = read_rule(cluster.rules(node)[0])
        assert at is not None
        cluster.heal(node)  # nothing is proved yet
        cluster.fail(witness, 1)
        until(lambda: set(owners(cluster, witness)) == {OWNER})
        cluster.heal(witness)
        until(lambda: owners(cluster, witness) == [])  # the controller has deleted what is its own
        assert [read_rule(one).uid for one in cluster.rules(node)] == [at.uid]  # type: ignore[union-attr]
        cluster.fail(node, 3)
        cluster.drivers[node].withdraw()  # as at the restart of a driver
        cluster.fail(witness, 1)
        until(lambda: set(owners(cluster, witness)) == {OWNER})
        assert [read_rule(one).uid for one in cluster.rules(node)] == [at.uid]  # type: ignore[union-attr]
        cluster.drivers[node].publish()
        cluster.heal(witness)
        until(ends(loop, store, resetter.agents), 60.0, 0.3)
        until(lambda: cluster.rules() == [])
        assert not marked(cluster.kube)
    assert [one.state for one in rows(store)] == ["returned"]


def test_what_the_controller_knows_of_a_rule_that_was_taken_over_deletes_and_renews_nothing(
    cluster: Cluster, adapter: Adapter, tmp_path: Path
) -> None:
    node = cluster.node()
    with adapter_of(cluster, tmp_path, OWNER) as hook:
        assert hook.mark_device(node, gpu(node, 3), MARK).effect is Effect.CHANGED
        (body,) = cluster.rules(node)
        before = read_rule(body)
        assert before is not None
        assert adapter.mark_device(node, gpu(node, 3), MARK).effect is Effect.CHANGED
        writer = RuleWriter(cluster.client, cluster.api)
        for late in (lambda: writer.delete(before), lambda: writer.renew(before, body)):
            with pytest.raises(AdapterError, match="not the one that was looked at"):
                late()
        assert owners(cluster, node) == [REMEDY_OWNER]
        assert hook.mark_device(node, gpu(node, 3), MARK).effect is Effect.REFUSED
        assert hook.clear_device(node, gpu(node, 3)).effect is Effect.REFUSED
        assert adapter.mark_device(node, gpu(node, 3), MARK).effect is Effect.UNCHANGED
        assert adapter.clear_device(node, gpu(node, 3)).effect is Effect.CHANGED
        assert adapter.clear_device(node, gpu(node, 3)).effect is Effect.UNCHANGED
    assert cluster.rules(node) == []


class Killed(BaseException):
    """As by SIGKILL: nothing of ours handles it."""


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("answered", [False, True], ids=["before the server has it", "before it is recorded"])
def test_a_loop_killed_between_a_rule_and_its_record_goes_on_with_that_rule(
    cluster: Cluster, store: Store, tmp_path: Path, method: str, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster.node()
    cluster.kube.ready(node)
    cluster.fail(node, 3)
    request, resetter = urllib3.PoolManager.request, Resetter(cluster)

    def dying(self: Any, asked: str, url: str, *rest: Any, **more: Any) -> Any:
        if asked == method and "devicetaintrules" in url:
            if answered:
                request(self, asked, url, *rest, **more)
            raise Killed
        return request(self, asked, url, *rest, **more)

    with adapter_of(cluster, tmp_path) as first, monkeypatch.context() as patched:
        patched.setattr(urllib3.PoolManager, "request", dying)
        loop = loop_of(first, store, resetter)
        with pytest.raises(Killed):
            until(ends(loop, store, resetter.agents), 60.0, 0.3)
    assert (cluster.out(node) == {"gpu-3": NO_SCHEDULE}) is ((method == "POST") is answered)
    with adapter_of(cluster, tmp_path) as second:
        until(ends(loop_of(second, store, resetter), store, resetter.agents), 60.0, 0.3)
    assert [one.state for one in rows(store)] == ["returned"]
    assert len(resetter.sent) == 1
    assert cluster.rules() == []
    assert not marked(cluster.kube)


def test_a_claim_makes_its_device_busy_and_every_name_of_a_device_goes_out(cluster: Cluster, adapter: Adapter) -> None:
    node = cluster.node(fake=True, count=4)
    cluster.kube.ready(node)
    cluster.claim("c0", gpu(node, 0).uuid)
    cluster.pod("p0", "c0")
    cluster.running("p0")
    parts = [device("gpu-2-mig-0", gpu(node, 2)._replace(pci="", uuid="MIG-0"), parent=gpu(node, 2).uuid)]
    cluster.drivers[node].publish([*cluster.drivers[node].gpus(), *parts])
    adapter.nodes()
    assert [one.device.pci for one in adapter.device_states() if one.busy] == [gpu(node, 0).pci]
    assert len(adapter.device_states()) == 4
    adapter.mark_device(node, gpu(node, 2), MARK)
    assert set(cluster.out(node)) == {"gpu-2", "gpu-2-mig-0"}
    (one,) = [one for one in adapter.device_states() if one.mark is not None]
    assert one.device.same(gpu(node, 2))
    assert one.mark is not None
    assert one.mark.owner == REMEDY_OWNER
    cluster.drivers[node].withdraw()
    until(lambda: [one.device.pci for one in adapter.device_states()] == [gpu(node, 2).pci])  # its driver starts anew
    cluster.drivers[node].publish([device(f"gpu-{3 - minor}", gpu(node, minor)) for minor in range(4)])
    adapter.tidy()
    assert set(cluster.out(node)) == {"gpu-1", "gpu-2-mig-0"}
    adapter.clear_device(node, gpu(node, 2))
    assert cluster.rules(node) == []


def test_a_device_is_marked_by_what_its_node_publishes_alone_and_a_round_without_own_rules_reads_no_slice(
    cluster: Cluster, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = cluster.node("n1"), cluster.node("n2", count=4)
    shared = f"{cluster.kube.prefix}-shared"
    body = {
        "apiVersion": f"resource.k8s.io/{cluster.api.slices}",
        "kind": "ResourceSlice",
        "metadata": {"name": shared},
        "spec": {
            "driver": DRIVER,
            "allNodes": True,
            "pool": {"name": shared, "generation": 1, "resourceSliceCount": 1},
            "devices": [device("gpu-6", gpu(other, 6))],
        },
    }
    cluster.client.post(cluster.api.slice_path(), body)
    try:
        adapter.nodes()
        assert len(adapter.device_states()) == 12
        without = cluster.client.items(cluster.api.slice_path(), fieldSelector="spec.nodeName=")
        assert shared in [one["metadata"]["name"] for one in without]  # its devices might name nodes
        asked: List[str] = []
        request = urllib3.PoolManager.request

        def listed(self: Any, method: str, url: str, *rest: Any, **more: Any) -> Any:
            asked.append(f"{method} {unquote(url)}")
            return request(self, method, url, *rest, **more)

        with monkeypatch.context() as patched:
            patched.setattr(urllib3.PoolManager, "request", listed)
            adapter.tidy()
            assert not [one for one in asked if "resourceslices" in one]
            assert adapter.mark_device(node, gpu(node, 1), MARK).effect is Effect.CHANGED
            assert adapter.mark_device(other, gpu(other, 3), MARK).effect is Effect.CHANGED
            adapter.tidy()
            assert adapter.clear_device(node, gpu(node, 1)).effect is Effect.CHANGED
            slices = [one for one in asked if "resourceslices" in one]
            assert slices
            assert all("fieldSelector=spec.nodeName=" in one for one in slices)
        assert (cluster.out(node), cluster.out(other)) == ({}, {"gpu-3": NO_SCHEDULE})
    finally:
        cluster.client.delete(f"{cluster.api.slice_path()}/{shared}")


@pytest.mark.parametrize(("why", "text"), [("under test", "under test"), ("", "no reason given")])
def test_a_hold_leaves_device_and_node_alone(cluster: Cluster, adapter: Adapter, why: str, text: str) -> None:
    node = cluster.node()
    cluster.client.patch(node_path(node), {"metadata": {"annotations": {"nhc/hold": why}}}, MERGE_PATCH)
    done = adapter.mark_device(node, gpu(node, 3), MARK)
    assert (done.effect, done.message) == (Effect.FAILED, f"left alone: nhc/hold: {text}")  # and not its node instead
    assert cluster.rules(node) == []


@pytest.mark.parametrize("by", ["the controller", "the loop"])
def test_a_device_that_a_person_released_is_left_until_its_fault_has_ended(
    cluster: Cluster, adapter: Adapter, store: Store, tmp_path: Path, by: str
) -> None:
    node = cluster.node()
    cluster.kube.ready(node)
    cluster.fail(node, 3)
    reason = MARK._replace(cause="NhcHealthy|GpuEccUncorrectable|")
    with adapter_of(cluster, tmp_path, OWNER if by == "the controller" else REMEDY_OWNER) as hook:
        hook.mark_device(node, gpu(node, 3), reason)
    done = nhc(cluster, tmp_path, "kubernetes", "release-device", node, "gpu-3", "--by", "Ann")
    assert done.returncode == 0, done.stderr
    resetter = Resetter(cluster)
    loop = loop_of(adapter, store, resetter)
    for _round in range(3):
        said = loop.round()
    assert any("a person released it" in one.why for one in said.waiting)
    assert (cluster.out(node), resetter.sent, marked(cluster.kube)) == ({"gpu-3": "None"}, [], set())
    assert adapter.mark_device(node, gpu(node, 3), MARK._replace(cause="|Xid79|")).effect is Effect.CHANGED
    adapter.clear_device(node, gpu(node, 3))
    with adapter_of(cluster, tmp_path) as other:
        other.mark_device(node, gpu(node, 3), reason)
    assert nhc(cluster, tmp_path, "kubernetes", "release-device", node, "gpu-3", "--by", "Ann").returncode == 0
    cluster.heal(node)
    until(lambda: loop.round() and cluster.rules(node) == [], 60.0, 0.3)
    assert resetter.sent == []


def test_a_device_that_anothers_rule_keeps_out_is_left_with_its_node(
    cluster: Cluster, adapter: Adapter, store: Store
) -> None:
    node, name = cluster.node(), f"{cluster.kube.prefix}-mine"
    cluster.kube.ready(node)
    theirs = {"key": "example.com/maintenance", "effect": "NoSchedule"}
    body = {
        "apiVersion": f"resource.k8s.io/{cluster.api.rules}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": {"pool": node, "device": "gpu-3"}, "taint": theirs},
    }
    cluster.client.post(cluster.api.rule_path(), body)
    try:
        cluster.fail(node, 3)
        resetter = Resetter(cluster)
        loop = loop_of(adapter, store, resetter)
        for _round in range(3):
            loop.round()
        (one,) = [one for one in adapter.device_states() if one.mark is not None]
        assert one.device.pci == gpu(node, 3).pci
        assert one.mark is not None
        assert not one.mark.ours
        assert (resetter.sent, cluster.rules(node), marked(cluster.kube)) == ([], [], set())
    finally:
        cluster.client.delete(cluster.api.rule_path(name))


def test_a_device_without_slices_is_its_nodes_fault_after_a_while_unless_the_loop_has_it(
    cluster: Cluster, adapter: Adapter, tmp_path: Path
) -> None:
    mine, theirs = cluster.node("mine"), cluster.node("theirs")
    adapter.mark_device(mine, gpu(mine, 3), MARK)
    with adapter_of(cluster, tmp_path, OWNER) as hook:
        hook.mark_device(theirs, gpu(theirs, 3), MARK)
    found = {}
    for node in (mine, theirs):
        cluster.fail(node, 3)
        cluster.drivers[node].withdraw()
        watch = DeviceWatch(cluster.client)
        watch.load()
        view = DeviceView(DeviceRuleSettings(KEEP), watch, 900.0, lambda name, at: None)
        begun = time.time()
        for now in (begun, begun + GRACE):
            item = cluster.kube.get(node)
            view.judged(node, item, judge(item, adapter.cluster.treatment.vocabularies[0].faults, now), now)
        found[node] = view.nodes[node].why_node
    assert found[mine] == ""
    assert found[theirs].startswith("no ResourceSlice has had")


def test_a_mark_of_a_rule_is_read_as_it_was_written(cluster: Cluster, adapter: Adapter) -> None:
    node = cluster.node()
    adapter.mark_device(node, gpu(node, 3), MARK._replace(since=1_800_000_000.0))
    metadata = cluster.rules(node)[0]["metadata"]
    assert read_mark_text(metadata["annotations"]["nhc/mark"]) == Mark(
        MARK.why, MARK.action, 1_800_000_000.0, REMEDY_OWNER
    )
    assert metadata["labels"]["nhc/reason"] == "GpuEccUncorrectable"
