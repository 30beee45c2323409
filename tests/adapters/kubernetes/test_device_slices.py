"""Which device is meant: names, UUIDs and PCI addresses in ResourceSlices and in conditions' messages."""

from __future__ import annotations

import queue
import threading
from typing import Any, Iterator, Mapping

import pytest

from nhc.core.limits import Limit
from nhc.core.model import Action, CheckResult, DeviceId, Report, Scope, crit
from nhc.marks.policy.devices import DeviceFault
from nhc.marks.policy.mark_decision import Decision, Policy
from nhc.marks.ports.adapter import Mark, NodeState, Operation
from nhc.marks.ports.marks import TAG, read_mark_text
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.controller.context import RoundContext
from nhc_adapters.kubernetes.controller.device_rounds import DeviceRounds, Unit
from nhc_adapters.kubernetes.controller.device_view import DeviceView, NodeDevices
from nhc_adapters.kubernetes.controller.ledger import ClusterLedger
from nhc_adapters.kubernetes.controller.settings import make
from nhc_adapters.kubernetes.devices.rules import DeviceApi, RuleWriter, read_rule, rule_body, rule_name
from nhc_adapters.kubernetes.devices.slices import (
    DriverTaint,
    PhysicalDevice,
    SliceDevice,
    Slices,
    pci_address,
    trim_slice,
)
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.devices.witness import XID, hear
from nhc_adapters.kubernetes.nodes.adapter import Kubernetes
from nhc_adapters.kubernetes.nodes.conditions import MESSAGE_LIMIT
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags
from nhc_adapters.kubernetes.nodes.vocabulary import conditions_of
from nhc_adapters.kubernetes.nodes.vocabulary_file import load
from tests.support.dra import device, gpu
from tests.support.waiting import until

ONE, TWO = DeviceId("0000:3b:00.0", "GPU-1"), DeviceId("0000:4c:00.0", "GPU-2")


def slice_of(
    *devices: dict[str, Any],
    name: str = "s",
    node: str = "n1",
    pool: str = "n1",
    generation: int = 1,
    driver: str = "d",
) -> dict[str, Any]:
    spec = {"driver": driver, "nodeName": node, "pool": {"name": pool, "generation": generation}, "devices": devices}
    return trim_slice({"metadata": {"name": name}, "spec": spec})


def known(*items: dict[str, Any]) -> Slices:
    slices = Slices()
    for item in items:
        slices.put(item["metadata"]["name"], item)
    return slices


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0001:01:00.0", "0001:01:00.0"),
        ("gpu-3", ""),
        ("0000:3b:00.8", ""),
    ],
)
def test_an_address_is_one_however_it_is_written(text: str, address: str) -> None:
    assert pci_address(text) == address


def names(found: PhysicalDevice | None) -> list[str]:
    return [] if found is None else [one.name for one in found.names]


def test_a_device_is_found_by_either_name_and_not_where_they_contradict() -> None:
    slices = known(slice_of(device("gpu-0", ONE), device("gpu-1", TWO)))
    assert names(slices.find("n1", ONE)) == ["gpu-0"]
    assert names(slices.find("n1", DeviceId(pci=TWO.pci))) == ["gpu-1"]
    assert names(slices.find("n1", DeviceId(uuid="GPU-2"))) == ["gpu-1"]
    assert slices.find("n1", DeviceId(ONE.pci, TWO.uuid)) is None
    assert slices.find("n2", ONE) is None
    assert slices.find("n1", DeviceId(minor="0")) is None


def test_a_gpu_stands_for_its_parts_and_its_second_name() -> None:
    part = device("gpu-0-mig-0", DeviceId(uuid="MIG-7"), parent="GPU-1")
    slices = known(slice_of(part, device("vfio-0", DeviceId(ONE.pci)), device("gpu-0", ONE), device("gpu-1", TWO)))
    assert names(slices.find("n1", DeviceId(pci=ONE.pci))) == ["gpu-0", "gpu-0-mig-0", "vfio-0"]
    assert len(slices.physical("n1")) == 2


def test_what_contradicts_itself_is_not_found() -> None:
    slices = known(slice_of(device("gpu-0", ONE), device("gpu-9", DeviceId(TWO.pci, ONE.uuid))))
    assert slices.physical("n1") == ()


def test_only_the_newest_generation_of_a_pool_counts_even_an_empty_one() -> None:
    old = slice_of(device("gpu-0", ONE), name="old")
    slices = known(old, slice_of(device("gpu-5", ONE), name="new", generation=2))
    assert names(slices.find("n1", ONE)) == ["gpu-5"]
    assert known(old, slice_of(name="new", generation=2)).find("n1", ONE) is None
    other = slice_of(device("gpu-1", TWO), name="other", generation=9, driver="e")
    assert names(known(old, other).find("n1", ONE)) == ["gpu-0"]


def test_a_watch_that_is_behind_changes_nothing_and_a_reading_anew_drops_what_is_gone() -> None:
    def at(version: int, minor: int) -> dict[str, Any]:
        item = slice_of(device(f"gpu-{minor}", ONE))
        item["metadata"]["resourceVersion"] = str(version)
        return item

    slices = known(slice_of(device("gpu-9", TWO), name="other"))
    slices.replace("n1", [at(10, 3)], 10)
    assert slices.find("n1", TWO) is None
    slices.put("s", at(9, 1))
    assert names(slices.find("n1", ONE)) == ["gpu-3"]
    slices.put("s", at(11, 1))
    assert names(slices.find("n1", ONE)) == ["gpu-1"]


def test_a_reading_anew_of_one_node_keeps_slices_of_several_nodes_and_newer_ones() -> None:
    """The server's list of a node's slices has neither: one whose devices name their nodes, one made since."""
    entries = [{**device("gpu-0", ONE), "nodeName": "n1"}, {**device("gpu-7", TWO), "nodeName": "n2"}]
    shared = slice_of(*entries, name="shared", node="", pool="shared")
    newer = slice_of(device("gpu-1", TWO), name="newer")
    newer["metadata"]["resourceVersion"] = "12"
    slices = known(shared, newer)
    slices.replace("n1", [], 11)
    assert names(slices.find("n1", ONE)) == ["gpu-0"]
    assert names(slices.find("n1", TWO)) == ["gpu-1"]
    assert names(slices.find("n2", TWO)) == ["gpu-7"]


def test_a_slice_that_goes_takes_its_devices_along() -> None:
    slices = known(slice_of(device("gpu-0", ONE)))
    assert slices.find("n1", ONE) is not None
    assert slices.put("s", None) == ["n1"]
    assert slices.find("n1", ONE) is None


class Refusing:
    """A server that does not say what it serves."""

    def find(self, _path: str) -> None:
        raise ApiError(403, "Forbidden", "no discovery for you")


def test_a_cluster_that_refuses_to_say_what_it_serves_does_not_hold_up_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nhc_adapters.kubernetes.devices.watch.PATIENT", 0.0)
    said: list[str] = []
    watch, stop = DeviceWatch(Refusing(), report=lambda _what, why: said.append(why)), threading.Event()  # type: ignore[arg-type]
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()
    try:
        assert watch.settled.wait(60)
        assert "no discovery for you" in said[0]
        assert watch.why_not()
    finally:
        stop.set()
        thread.join()


class Serving:
    """A server with these slices and no rules."""

    def __init__(self, *slices: dict[str, Any]) -> None:
        self.slices = slices

    def find(self, path: str) -> dict[str, Any]:
        listed = [{"name": "devicetaintrules"}, {"name": "resourceslices"}]
        return {"resources": listed} if path.endswith("/v1") else {"versions": [{"version": "v1"}]}

    def items(self, path: str, **_query: str) -> tuple[dict[str, Any], ...]:
        return self.slices if path.endswith("/resourceslices") else ()


class Upgraded:
    """A server that serves one version, and is upgraded to another."""

    def __init__(self, version: str) -> None:
        self.version, self.stop = version, threading.Event()

    def find(self, path: str) -> dict[str, Any]:
        listed = [{"name": "devicetaintrules"}, {"name": "resourceslices"}] if self.version else []
        return {"resources": listed, "versions": [{"version": self.version}]}

    def pages(self, path: str, **_query: str) -> Iterator[dict[str, Any]]:
        if not self.version or f"/{self.version}/" not in path:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        spec = {"driver": "d", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [device(self.version, ONE)]}
        item = {"metadata": {"name": "s", "resourceVersion": "8" if self.version == "v1" else "7"}, "spec": spec}
        yield {"metadata": {"resourceVersion": "9"}, "items": [item] if path.endswith("/resourceslices") else []}

    def watch(self, path: str, _version: str, **_query: object) -> Iterator[Any]:
        while not self.stop.wait(0.01) and f"/{self.version}/" in path:
            yield from ()
        if not self.stop.is_set():
            raise ApiError(404, "NotFound", "the server could not find the requested resource")


@pytest.mark.thorough
def test_an_upgrade_that_takes_the_versions_away_that_are_followed_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nhc_adapters.kubernetes.devices.watch.LOOK_AGAIN", 0.05)
    server, changed = Upgraded("v1beta2"), queue.Queue[str]()
    watch = DeviceWatch(server, changed.put)  # type: ignore[arg-type]
    thread = threading.Thread(target=watch.run, args=(server.stop,))
    thread.start()
    try:
        until(lambda: names(watch.slices.find("n1", ONE)) == ["v1beta2"] and not watch.why_not())
        server.version = ""
        until(lambda: watch.why_not() == "the cluster serves no DeviceTaintRule")
        while not changed.empty():
            changed.get()
        server.version = "v1"
        until(lambda: not watch.why_not() and names(watch.slices.find("n1", ONE)) == ["v1"])
        assert changed.get(timeout=60) == "n1"
    finally:
        server.stop.set()
        thread.join()


class Counted(DeviceRounds):
    decisions = 0

    def decide(self, units: Mapping[str, Unit], states: Mapping[str, NodeState], now: float) -> Decision:
        self.decisions += 1
        return super().decide(units, states, now)


def test_a_device_that_is_withheld_is_due_by_itself_and_costs_the_rounds_of_other_nodes_no_decision() -> None:
    spec = {"driver": "d", "nodeName": "n1", "pool": {"name": "n1"}, "devices": [device("gpu-0", ONE)]}
    client: Any = Serving({"metadata": {"name": "s"}, "spec": spec})
    watch = DeviceWatch(client)
    watch.load()
    due, log = [], []
    settings = make(namespace="nhc", policy=Policy().with_ceiling(Limit(nodes=0)))
    view = DeviceView(settings.devices, watch, 900.0, lambda name, at: None)
    view.nodes["n1"] = NodeDevices(((watch.slices.physical("n1")[0], DeviceFault(ONE, (failure(ONE),))),))
    ledger = ClusterLedger(client, "nhc", "nhc-ledger", settings.policy)
    context = RoundContext(settings, Kubernetes(client), ledger, {}, lambda: 0.0, log.append)
    rounds = Counted(context, view, lambda name, at: due.append((name, at)))
    states = {name: NodeState(name, "Ready", True, False) for name in ("n1", "n2")}
    assert [one.node for one in rounds.round(["n1"], states, 100.0).withheld] == [f"n1/{ONE.pci}"]
    assert (due, rounds.decisions) == ([("n1", 130.0)], 1)
    assert rounds.round(["n2"], states, 101.0).withheld == ()
    assert (rounds.decisions, list(rounds.withheld)) == (1, [(f"n1/{ONE.pci}", Operation.MARK)])
    rounds.round(["n1", "n2"], states, 130.0)
    assert (rounds.decisions, len(log)) == (2, 1)


# Tags of a condition.


def failure(identity: DeviceId, reason: str = "GpuEcc", scope: Scope = Scope.DEVICE, text: str = "bad") -> CheckResult:
    outcome = crit(reason, text, target=str(identity), action=Action.RESET_DEVICE)
    return CheckResult("check_gpu_ecc", outcome._replace(scope=scope, device=identity))


def message(*results: CheckResult) -> str:
    found = {one.type: one for one in conditions_of(Report("n1", "b", 0.0, 0.0, results), load("nhc").conditions)}
    return found["NhcHealthy"].message


def test_a_condition_names_the_devices_that_its_faults_are_about() -> None:
    text, tags = read_device_tags(message(failure(ONE), failure(ONE, "GpuLost"), failure(TWO)))
    assert [(one.device, one.reason, one.action) for one in tags] == [
        (ONE, "GpuEcc", Action.RESET_DEVICE), (TWO, "GpuEcc", Action.RESET_DEVICE),
    ]  # fmt: skip
    assert text.endswith("bad (and 2 more) [action: reset-device]")


def test_a_reader_that_knows_no_device_tags_finds_the_action_of_a_message_of_any_length() -> None:
    for text in ("bad", "x" * 2000):
        mark = read_mark_text(f"{TAG} {message(failure(ONE, text=text))}")
        assert mark is not None
        assert mark.action is Action.RESET_DEVICE


def test_one_fault_of_the_node_leaves_the_condition_the_nodes() -> None:
    assert read_device_tags(message(failure(ONE), failure(TWO, scope=Scope.NODE)))[1] == ()
    assert "[device: " not in message(failure(DeviceId(minor="3")))


def test_a_long_message_keeps_its_tags_and_a_tag_that_was_cut_off_means_the_node() -> None:
    whole = message(failure(ONE, text="x" * 2000))
    assert len(whole) <= MESSAGE_LIMIT
    assert read_device_tags(whole)[1][0].device == ONE
    assert read_device_tags(whole.replace(" GpuEcc reset-device]", " GpuEcc"))[1] == ()
    assert read_device_tags(whole[:-1])[1] == ()
    assert read_device_tags("[device: - - GpuEcc none]")[1] == ()
    assert read_device_tags(f"[device: {ONE.pci} {ONE.uuid} GpuEcc explode]")[1] == ()
    assert message(*(failure(gpu("n1", number % 200)) for number in range(200))).count("[device: ") == 0


# Rules.


def test_a_rule_is_read_back_and_one_that_is_not_ours_is_not() -> None:
    one = SliceDevice("n" * 200, "gpu.nvidia.com", "p", "gpu-0", ONE)
    body = rule_body(DeviceApi("v1", "v1"), one, ONE, "u", Mark("check_gpu_ecc: bad", since=10.0), "GpuEcc", ["A=True"])
    assert len(rule_name(one)) < 254
    assert all(len(value) <= 63 for value in body["metadata"]["labels"].values())
    rule = read_rule(body)
    assert rule is not None
    assert (rule.node, rule.device, rule.selects) == (one.node, ONE, ("gpu.nvidia.com", "p", "gpu-0"))
    assert (rule.mark.why, rule.mark.since, rule.sources) == ("check_gpu_ecc: bad", 10.0, ("A=True",))
    for change in ({"labels": {}}, {"annotations": {}}, {"ownerReferences": []}):
        assert read_rule({**body, "metadata": {**body["metadata"], **change}}) is None
    theirs = {**body["spec"], "taint": {"key": "example.com/x", "effect": "NoSchedule"}}
    assert read_rule({**body, "spec": theirs}) is None


class Written:
    """A rule whose status the eviction controller writes between our look and our first act."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body, self.version, self.sent = body, 1, []  # type: ignore[var-annotated]

    def get(self, path: str) -> dict[str, Any]:
        return {**self.body, "metadata": {**self.body["metadata"], "uid": "r", "resourceVersion": str(self.version)}}

    def delete(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(body["preconditions"]["resourceVersion"])
        self.version += 1 if self.version == 1 else 0
        if self.sent[-1] != str(self.version):
            raise ApiError(409, "Conflict", "the version is another")
        return {}


def test_a_rule_whose_status_was_just_written_is_deleted_all_the_same() -> None:
    one = SliceDevice("n1", "gpu.nvidia.com", "p", "gpu-0", ONE)
    api = DeviceApi("v1", "v1")
    client = Written(rule_body(api, one, ONE, "u", Mark("check_gpu_ecc: bad", since=10.0), "GpuEcc", ["A=True"]))
    rule = read_rule(client.get(""))
    assert rule is not None
    RuleWriter(client, api).delete(rule)  # type: ignore[arg-type]
    assert client.sent == ["1", "2"]


# Another witness.


@pytest.mark.parametrize(
    ("code", "effect", "ours", "agreed", "against"),
    [
        ("79", "NoSchedule", ("Xid79",), True, ""),
        ("79", "NoSchedule", (), False, ""),
        ("31", "NoSchedule", (), False, "nhc says that Xid 31 is no fault of the device"),
        ("109", "None", ("Xid109",), False, "nhc says that Xid 109 is fatal"),
        ("109", "None", ("Xid109", "GpuEcc"), False, ""),
        ("13", "None", ("Xid79",), False, ""),
        ("13", "None", (), False, ""),
    ],
)
def test_a_drivers_taint_agrees_contradicts_or_stands_alone(
    code: str, effect: str, ours: tuple[str, ...], agreed: bool, against: str
) -> None:
    taint = DriverTaint(XID, code, effect)
    physical = PhysicalDevice(ONE, (SliceDevice("n1", "d", "n1", "gpu-0", ONE, (taint,)),))
    faults = [DeviceFault(ONE, tuple(failure(ONE, reason) for reason in ours))] if ours else []
    (found,) = hear([physical], faults)
    assert (found.agreed, found.against) == (agreed, against)
