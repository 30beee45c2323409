"""What rounds of the loop ask of the API server: counted by an HTTP server that answers as it does."""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from urllib.parse import parse_qs, urlsplit

import pytest

from nhc.core.model import DeviceId, Verdict
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import REMEDY_OWNER, AdapterError, Effect, Mark
from nhc.marks.ports.marks import mark_text
from nhc_adapters.kubernetes.devices.rules import DeviceApi, rule_body
from nhc_adapters.kubernetes.devices.slices import SliceDevice
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.evidence import SILENT_AFTER
from nhc_adapters.kubernetes.nodes.following import SYNC
from nhc_adapters.kubernetes.nodes.marks import OUT_OF_SERVICE
from nhc_adapters.kubernetes.plugin import Adapter
from tests.support.dra import device
from tests.support.http_server import Handler, serving
from tests.support.waiting import until

NODES = 50
DEVICE_KINDS = ("resourceslices", "devicetaintrules", "resourceclaims")


def node(number, version=1, **spec):
    """About as large as a real one, most of it the list of images."""
    return {
        "metadata": {"name": f"n{number:03}", "uid": f"u{number}", "resourceVersion": str(version)},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "images": [{"names": [f"registry/{image}@sha256:{'0' * 64}"], "sizeBytes": 1} for image in range(50)],
            "nodeInfo": {"bootID": "b"},
        },
    }


class Cluster:
    """Nodes, what was asked, and the bytes that were sent."""

    def __init__(self):
        self.nodes = {one["metadata"]["name"]: one for one in map(node, range(NODES))}
        self.asked, self.sent, self.may_watch = Counter(), Counter(), True
        self.devices = {kind: [] for kind in DEVICE_KINDS}
        self.pods_of, self.patches, self.unreadable = [], [], set()
        self.queues = {kind: queue.Queue() for kind in ("nodes", *DEVICE_KINDS)}
        self.events = self.queues["nodes"]

    def change(self, number, version, **spec):
        changed = node(number, version, **spec)
        self.nodes[changed["metadata"]["name"]] = changed
        self.events.put({"type": "MODIFIED", "object": changed})


def about_devices(cluster, path, query):
    """The status and the body of what is asked for of resource.k8s.io."""
    kind = path.rsplit("/", 1)[-1]
    if "/resourceslices/" in path:
        cluster.asked["slice"] += 1
        found = next((one for one in cluster.devices["resourceslices"] if one["metadata"]["name"] == kind), None)
        return (200, json.dumps(found)) if found else (404, json.dumps({"kind": "Status", "message": "not found"}))
    cluster.asked[kind] += 1
    if kind == "resource.k8s.io":
        return 200, json.dumps({"versions": [{"version": "v1"}]})
    if kind == "v1":
        return 200, json.dumps({"resources": [{"name": name} for name in DEVICE_KINDS]})
    items = cluster.devices[kind]
    if "fieldSelector" in query:
        name = query["fieldSelector"][0].partition("spec.nodeName=")[2]
        items = [one for one in items if one["spec"].get("nodeName", "") == name]
    return 200, json.dumps({"metadata": {"resourceVersion": "1"}, "items": items})


def handler(cluster):
    class Api(Handler):
        protocol_version = "HTTP/1.1"

        def get(self):
            where = urlsplit(self.path)
            query = parse_qs(where.query)
            kind = where.path.rsplit("/", 1)[-1]
            if "watch" in query:
                return self.watch(kind)
            if where.path.startswith("/apis/resource.k8s.io"):
                return self.answer(*about_devices(cluster, where.path, query))
            if kind == "pods":
                cluster.pods_of.append(query["fieldSelector"][0].partition("spec.nodeName=")[2])
            if kind not in ("nodes", "pods", *cluster.nodes):
                return self.answer(404, json.dumps({"kind": "Status", "message": "not found", "reason": "NotFound"}))
            if kind in cluster.unreadable:
                return self.answer(403, json.dumps({"kind": "Status", "message": "may not", "reason": "Forbidden"}))
            items = list(cluster.nodes.values()) if kind == "nodes" else []
            found = cluster.nodes.get(kind) or {"metadata": {"resourceVersion": "1"}, "items": items}
            body = json.dumps(found)
            what = "node" if kind in cluster.nodes else kind
            cluster.asked[what] += 1
            cluster.sent[what] += len(body)
            return self.answer(200, body)

        def do_PATCH(self):  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"]))
            cluster.patches.append((urlsplit(self.path).path.rsplit("/", 1)[-1], json.loads(body)))
            self.answer(200, json.dumps(cluster.nodes[cluster.patches[-1][0]]))

        def watch(self, kind):
            cluster.asked["watch"] += 1
            if not cluster.may_watch:
                return self.answer(
                    403, json.dumps({"kind": "Status", "message": "may not watch", "reason": "Forbidden"})
                )
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                event = cluster.queues[kind].get()
                if event is None:
                    return None
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

    return Api


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    found = Cluster()
    with serving(handler(found)) as server:
        config = {
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(config))
        found.adapter = Adapter({"NHC_KUBECONFIG": str(tmp_path / "config")})
        yield found
        found.adapter.readings._followed.close()
        for events in found.queues.values():
            events.put(None)
        found.adapter.close()


def rounds(cluster, count):
    """What a round of the loop reads of all nodes."""
    for _round in range(count):
        cluster.adapter.nodes()
        cluster.adapter.condition_reports()


def test_rounds_with_nothing_wrong_ask_for_nothing_beside_the_watch(cluster):
    rounds(cluster, 1)
    before = sum(cluster.sent.values())
    rounds(cluster, 20)
    assert cluster.asked == {"nodes": 2, "watch": 1}  # the first round's, and the watch's own
    assert sum(cluster.sent.values()) == before


def test_what_changes_is_seen_and_only_pods_of_nodes_that_matter_are_asked_for(cluster):
    rounds(cluster, 2)
    cluster.change(7, 2, unschedulable=True)
    until(lambda: not {one.name: one for one in cluster.adapter.nodes()}["n007"].available)
    cluster.pods_of.clear()
    found = {one.name: one for one in cluster.adapter.nodes()}
    assert cluster.pods_of == ["n007"]
    assert not found["n007"].busy
    assert found["n008"].busy  # nobody looked
    assert [one.busy for one in cluster.adapter.nodes([f"n{number:03}" for number in range(30)])] == [False] * 30
    assert sorted(cluster.pods_of[1:]) == [f"n{number:03}" for number in range(30)]


def test_our_own_write_is_seen_before_the_watch_brings_it(cluster):
    rounds(cluster, 2)
    cluster.adapter.cluster.changed["n003"] = cluster.nodes["n003"] = node(3, 9, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n003"].available


def test_without_the_right_to_watch_nodes_are_listed(cluster):
    cluster.may_watch = False
    rounds(cluster, 2)
    until(lambda: not cluster.adapter.readings._followed._watch.goes_on)
    watched = cluster.asked["watch"]
    cluster.nodes["n001"] = node(1, 5, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n001"].available
    rounds(cluster, 3)
    assert cluster.asked["watch"] == watched == 2


def test_without_the_right_to_list_nodes_it_is_said_at_once(cluster):
    cluster.unreadable.add("nodes")
    began = time.monotonic()
    for _round in range(2):
        with pytest.raises(AdapterError, match="403"):
            cluster.adapter.nodes()
    assert time.monotonic() - began < SYNC / 2


def test_a_silent_watch_is_not_believed(cluster):
    rounds(cluster, 2)
    followed = cluster.adapter.readings._followed
    followed._reflector.last_answer = time.monotonic() - 100.0
    cluster.nodes["n002"] = node(2, 5, unschedulable=True)
    assert not {one.name: one for one in cluster.adapter.nodes()}["n002"].available


OURS = {"nhc/mark": mark_text(Mark("check_x: broken", owner=REMEDY_OWNER)), "nhc/set": '{"cordon": true}'}
"""What a mark of the loop leaves on a node that it cordoned."""


def test_what_is_done_to_a_node_out_of_service_is_seen_before_the_watch_brings_it(cluster):
    cluster.nodes["n004"] = marked(4, 1, unschedulable=True)
    cluster.nodes["n005"] = marked(5, 1, unschedulable=True)
    cluster.nodes["n006"] = marked(6, 1, unschedulable=True)
    rounds(cluster, 2)
    before = cluster.asked.copy()
    cluster.nodes["n004"] = marked(4, 5)  # kubectl uncordon
    held = marked(5, 5, unschedulable=True, providerID="aws:///zone/i-2")
    held["metadata"]["annotations"]["nhc/hold"] = "ann looks at it"
    cluster.nodes["n005"] = held
    del cluster.nodes["n006"]
    found = {one.name: one for one in cluster.adapter.nodes()}
    assert found["n004"].available
    assert "ann looks at it" in found["n005"].hold
    assert cluster.adapter.machines()["n005"].provider_id == "aws:///zone/i-2"
    assert "n006" not in found
    assert cluster.asked["nodes"] == before["nodes"]  # these nodes alone are asked for


def test_where_many_nodes_matter_all_are_listed_and_none_is_read_by_itself(cluster):
    many = NODES // 4
    for number in range(many):
        cluster.nodes[f"n{number:03}"] = marked(number, 1, unschedulable=True)
    rounds(cluster, 2)
    before = cluster.asked.copy()
    cluster.adapter.nodes()
    assert (cluster.asked["nodes"], cluster.asked["node"]) == (before["nodes"], before["node"] + many)

    cluster.change(many, 5, unschedulable=True)
    until(lambda: len([one for one in cluster.adapter.nodes() if not one.available]) > many)
    before = cluster.asked.copy()
    cluster.nodes["n000"] = marked(0, 6)  # kubectl uncordon
    assert len([one for one in cluster.adapter.nodes() if not one.available]) == many
    assert (cluster.asked["nodes"], cluster.asked["node"]) == (before["nodes"] + 1, before["node"])


def marked(number, version, **spec):
    found = node(number, version, **spec)
    found["metadata"]["annotations"] = dict(OURS)
    return found


def test_a_node_that_was_marked_anew_is_not_released_for_what_was_seen_of_it_before(cluster):
    cluster.nodes["n004"] = marked(4, 1)  # somebody uncordoned it
    cluster.adapter.nodes()
    cluster.nodes["n004"] = marked(4, 2, unschedulable=True)  # whoever tidied up has marked it again since
    cluster.adapter.tidy()
    assert cluster.patches == []
    cluster.nodes["n004"] = marked(4, 3)
    cluster.adapter.nodes()
    cluster.adapter.tidy()
    assert [name for name, _ops in cluster.patches] == ["n004"]


def test_nothing_is_evicted_from_a_node_that_somebody_has_put_back(cluster):
    cluster.nodes["n004"] = marked(4, 1, unschedulable=True)
    assert cluster.adapter.evict(["n004"]) == {"n004": ""}
    cluster.pods_of.clear()
    cluster.nodes["n004"] = marked(4, 2)
    assert "nothing is evicted" in cluster.adapter.evict(["n004"])["n004"]
    assert cluster.pods_of == []


def test_a_node_that_cannot_be_read_keeps_no_other_from_its_eviction(cluster):
    cluster.nodes["n005"] = marked(5, 1, unschedulable=True)
    cluster.unreadable.add("n004")
    found = cluster.adapter.evict(["n003x", "n004", "n005"])
    assert found["n005"] == ""
    assert "does not know it" in found["n003x"]
    assert "403" in found["n004"]


def silent(found, status):
    found["status"]["conditions"] = [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    return found


def test_the_work_of_a_node_that_is_heard_again_is_left_on_it(cluster):
    cluster.nodes["n004"] = silent(marked(4, 1, unschedulable=True), "True")
    assert [one.effect for one in cluster.adapter.move_work(["n004"])] == [Effect.UNCHANGED]
    assert cluster.patches == []
    cluster.nodes["n004"] = silent(marked(4, 2, unschedulable=True), "Unknown")
    assert [one.effect for one in cluster.adapter.move_work(["n004"])] == [Effect.CHANGED]


def test_a_node_that_is_silent_again_stays_out_of_service_for_its_volumes(cluster):
    taint = OUT_OF_SERVICE.manifest()

    def moved(version, status):
        found = silent(marked(4, version, unschedulable=True, taints=[taint]), status)
        found["metadata"]["annotations"]["nhc/set"] = json.dumps({"cordon": True, "taints": [str(OUT_OF_SERVICE)]})
        return found

    cluster.nodes["n004"] = moved(1, "True")
    cluster.adapter.nodes()
    cluster.nodes["n004"] = moved(2, "Unknown")
    cluster.adapter.tidy()
    assert cluster.patches == []
    cluster.nodes["n004"] = moved(3, "True")
    cluster.adapter.nodes()
    cluster.adapter.tidy()
    assert [name for name, _ops in cluster.patches] == ["n004"]


def gpu(number, minor):
    return DeviceId(f"0000:{minor:02x}:00.0", f"GPU-{number}-{minor}")


def with_devices(cluster):
    """Eight GPUs a node, each given to a claim but those of the first node."""
    cluster.devices["resourceslices"] = [
        {"metadata": {"name": f"s{number}", "resourceVersion": "1"},
         "spec": {"driver": "gpu.nvidia.com", "nodeName": f"n{number:03}", "pool": {"name": f"n{number:03}"},
                  "devices": [device(f"gpu-{minor}", gpu(number, minor)) for minor in range(8)]}}
        for number in range(NODES)
    ]  # fmt: skip
    cluster.devices["resourceclaims"] = [claim(number) for number in range(1, NODES)]


def claim(number, version=1):
    held = [{"driver": "gpu.nvidia.com", "pool": f"n{number:03}", "device": f"gpu-{minor}"} for minor in range(8)]
    metadata = {"namespace": "jobs", "name": f"c{number}", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": held}}}}


def device_rounds(cluster, count):
    for _round in range(count):
        cluster.adapter.nodes()
        cluster.adapter.condition_reports()
        found = cluster.adapter.device_states()
        cluster.adapter.tidy()
    return found


def test_devices_are_followed_and_what_is_about_to_be_repaired_is_read_anew(cluster):
    with_devices(cluster)
    device_rounds(cluster, 2)
    until(lambda: cluster.asked["watch"] == 4)
    before = cluster.asked.copy()
    found = device_rounds(cluster, 20)
    assert cluster.asked == before  # four watches, and nothing else
    assert (len(found), [one.node for one in found if not one.busy]) == (8 * NODES, ["n000"] * 8)

    cluster.devices["resourceclaims"][0] = claim(0, 2)  # n001's has ended, and n000 was given work
    (one, *_seven) = cluster.adapter.device_states(["n000"])
    assert one.busy
    asked = {kind: cluster.asked[kind] - before[kind] for kind in DEVICE_KINDS}
    assert asked == {"resourceslices": 2, "devicetaintrules": 1, "resourceclaims": 1}  # of this node, and of none
    cluster.queues["resourceclaims"].put({"type": "DELETED", "object": claim(1)})
    cluster.queues["resourceclaims"].put({"type": "ADDED", "object": claim(0, 2)})
    until(lambda: {one.node for one in cluster.adapter.device_states() if not one.busy} == {"n001"})


def test_what_a_driver_says_against_a_fault_stands_beside_its_device(cluster):
    with_devices(cluster)
    taint = {"key": "gpu.nvidia.com/xid", "value": "109", "effect": "None"}
    cluster.devices["resourceslices"][7]["spec"]["devices"][3]["taints"] = [taint]
    (one,) = [one for one in device_rounds(cluster, 1) if one.disputed]
    assert (one.node, one.device) == ("n007", gpu(7, 3))
    assert dict(one.disputed)["Xid109"].endswith("gpu.nvidia.com/xid=109 (None); nhc says that Xid 109 is fatal")


def test_what_a_standing_rule_costs_does_not_grow_with_the_cluster(cluster):
    with_devices(cluster)
    one = SliceDevice("n007", "gpu.nvidia.com", "n007", "gpu-3", gpu(7, 3))
    mark = Mark("check_gpu_ecc: broken", owner=REMEDY_OWNER)
    rule = rule_body(DeviceApi("v1", "v1"), one, one.device, "u7", mark, "GpuEcc", ("report",))
    rule["metadata"].update(resourceVersion="1", uid="r1")
    cluster.devices["devicetaintrules"] = [rule]
    cluster.adapter.cluster.owner = REMEDY_OWNER
    device_rounds(cluster, 2)
    until(lambda: cluster.asked["watch"] == 4)
    before = cluster.asked.copy()
    (out,) = [one for one in device_rounds(cluster, 10) if one.mark is not None]
    assert (out.node, out.device) == ("n007", gpu(7, 3))
    assert cluster.asked - before == {"devicetaintrules": 10, "resourceslices": 20}


def test_before_a_rule_a_nodes_slices_are_read_by_name_and_listed_where_one_is_gone_or_new(cluster):
    with_devices(cluster)
    slices = cluster.devices["resourceslices"]
    for one in slices:
        one["spec"]["pool"].update(generation=1, resourceSliceCount=1)
    watch = DeviceWatch(cluster.adapter.cluster.client, api=DeviceApi("v1", "v1"))
    watch.load_slices()

    def renewed():
        before = cluster.asked.copy()
        watch.renew("n007")
        return dict(cluster.asked - before)

    slices[7]["spec"]["devices"] = [device("gpu-0", gpu(7, 3))]  # its driver has named them anew
    assert renewed() == {"slice": 1}
    assert [one.device for one in watch.slices.names("n007")] == [gpu(7, 3)]
    second = json.loads(json.dumps(slices[7]))
    second["metadata"]["name"], second["spec"]["devices"] = "t7", [device("gpu-1", gpu(7, 4))]
    for one in (slices[7], second):
        one["spec"]["pool"].update(generation=2, resourceSliceCount=2)
    slices.append(second)
    assert renewed() == {"slice": 1, "resourceslices": 1}
    assert renewed() == {"slice": 2}
    del slices[7]
    assert renewed() == {"slice": 2, "resourceslices": 1}
    assert [one.device for one in watch.slices.names("n007")] == [gpu(7, 4)]


def test_without_the_right_to_watch_devices_are_listed(cluster):
    with_devices(cluster)
    cluster.may_watch = False
    device_rounds(cluster, 2)
    until(lambda: not cluster.adapter._devices._following.goes_on)
    cluster.devices["resourceclaims"].append(claim(0))
    assert all(one.busy for one in device_rounds(cluster, 3))
    assert cluster.asked["watch"] <= 8  # each collection was tried twice


def healthy(number, version, seen):
    """A node whose agent said at `seen` that all is well."""
    made = node(number, version)
    word = {"type": "NhcHealthy", "status": "True", "reason": "NhcHealthy", "message": "every check passes",
            "lastHeartbeatTime": utc(seen), "lastTransitionTime": utc(seen)}  # fmt: skip
    made["status"]["conditions"].append(word)
    return made


def test_only_nodes_that_changed_are_judged_anew(cluster):
    rounds(cluster, 2)
    before = {one.state.name: one for one in cluster.adapter.readings.read()}
    cluster.change(7, 2, unschedulable=True)
    until(lambda: not cluster.adapter.readings.read()[7].state.available)
    after = {one.state.name: one for one in cluster.adapter.readings.read()}
    assert {name for name in after if after[name] is not before[name]} == {"n007"}


def test_a_node_that_falls_silent_is_unknown_though_its_object_is_the_same(cluster):
    cluster.nodes["n003"] = healthy(3, 1, time.time() - SILENT_AFTER + 3.0)
    cluster.nodes["n004"] = healthy(4, 1, time.time())
    rounds(cluster, 2)

    def verdicts():
        return {one.report.host: one.report.verdict for one in cluster.adapter.condition_reports()}

    assert verdicts() == {"n003": Verdict.OK, "n004": Verdict.OK}
    until(lambda: verdicts() == {"n003": Verdict.UNKNOWN, "n004": Verdict.OK})
