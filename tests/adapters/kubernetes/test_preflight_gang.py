"""The collective of a gang before its pods start: which gang a pod is of, who is believed, and all of it on a plane."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator, Mapping

import pytest
import yaml

from nhc.deep.gang import GangTests
from nhc_adapters.kubernetes.api.client import STRATEGIC, namespaced
from nhc_adapters.kubernetes.controller.preflights import ends_of
from nhc_adapters.kubernetes.preflight.gang_names import GangName, count_in, gang_of
from nhc_adapters.kubernetes.preflight.gang_server import GangServer, PodRefused
from nhc_adapters.kubernetes.preflight.server import ServedCertificate, Webhook, WebhookServer
from nhc_adapters.kubernetes.preflight.webhook import (
    CONTAINER,
    GANG_VOLUME,
    GangSettings,
    PreflightSettings,
    altered,
    preflight_of,
)
from tests.adapters.kubernetes.test_preflight import (
    GPUS,
    MANIFESTS,
    Later,
    created,
    door,
    labelled,
    own_certificate,
    pod,
    status_of,
    suite_of,
)
from tests.support.kube import Kube, environment
from tests.support.waiting import until as eventually

__all__ = ["door"]

ON = PreflightSettings(image="nhc:test", gang=GangSettings(command=("all_reduce",)))
KUEUE = {
    "labels": {"kueue.x-k8s.io/pod-group-name": "g"},
    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "4"},
}


@pytest.mark.parametrize(
    ("made", "key", "count", "at"),
    [
        (pod(), "", 0, ""),
        (
            pod(schedulingGroup={"podGroupName": "g"}),
            "ns/podgroup/g", 0, "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups/g",
        ),
        (
            pod(workloadRef={"name": "w", "podGroup": "p", "podGroupReplicaKey": "1"}),
            "ns/workload/w/p/1", 0, "/apis/scheduling.k8s.io/v1alpha1/namespaces/ns/workloads/w",
        ),
        (
            pod(annotations={"scheduling.k8s.io/group-name": "g"}),
            "ns/volcano/g", 0, "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/g",
        ),
        (pod(**KUEUE), "ns/kueue/g", 4, ""),
        (
            pod(labels={"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/restart-attempt": "2"}),
            "ns/jobset/j/2", 0, "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/j",
        ),
        (pod(schedulingGroup={"podGroupName": "g"}, annotations={"nhc/preflight-gang": "3"}), "ns/podgroup/g", 3, ""),
        (pod(schedulingGroup={"podGroupName": "g"}, annotations={"nhc/preflight-gang": "off"}), "", 0, ""),
        (pod(schedulingGroup=5, workloadRef=[], labels={}), "", 0, ""),
    ],
)  # fmt: skip
def test_which_gang_a_pod_is_of(made: Mapping[str, Any], key: str, count: int, at: str) -> None:
    found = gang_of(made, "ns")
    if found is None:
        assert key == ""
    else:
        assert (found.key, found.pods, found.at[0] if found.at else "") == (key, count, at)


@pytest.mark.parametrize(
    ("found", "part", "count"),
    [
        ({"kind": "PodGroup", "spec": {"schedulingPolicy": {"gang": {"minCount": 16}}}}, "", 16),
        ({"kind": "PodGroup", "spec": {"minMember": 8}}, "", 8),
        (
            {"kind": "Workload", "spec": {"podGroups": [{"name": "p", "policy": {"gang": {"minCount": 2}}}]}},
            "p", 2,
        ),
        ({"kind": "Workload", "spec": {"podGroups": [{"name": "a"}]}}, "p", 0),
        ({"kind": "PodGroup", "spec": {"schedulingPolicy": {"basic": {}}}}, "", 0),
        ({"kind": "PodGroup", "spec": 5}, "", 0),
    ],
)  # fmt: skip
def test_how_many_pods_an_object_says(found: Mapping[str, Any], part: str, count: int) -> None:
    assert count_in(found, GangName("g", part=part), lambda template: True) == count


def test_a_jobsets_pods_are_those_that_get_a_preflight() -> None:
    def job(name: str, replicas: int, parallelism: int, resources: Mapping[str, Any]) -> dict[str, Any]:
        template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        return {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"parallelism": parallelism, "template": template}},
        }

    jobs = [job("driver", 1, 1, {}), job("workers", 2, 4, GPUS)]
    found = {"kind": "JobSet", "spec": {"replicatedJobs": jobs}}
    assert count_in(found, GangName("g"), lambda template: bool(preflight_of(template, ON).suite)) == 8


def admitted(settings: PreflightSettings = ON, **more: Any) -> dict[str, Any]:
    """A pod as the API server has it, with its gang's part."""
    made = pod({"resources": GPUS}, **{**copy.deepcopy(KUEUE), **more})
    patch = preflight_of(made, settings, "ns", "AUTHORITY").ops
    spec = {op["path"]: op["value"] for op in patch}
    made["spec"]["volumes"] = spec["/spec/volumes"]
    made["spec"]["initContainers"] = [*more.get("initContainers", ()), *spec.get("/spec/initContainers", ())]
    if "/spec/initContainers/-" in spec:
        made["spec"]["initContainers"].append(spec["/spec/initContainers/-"])
    made["metadata"]["labels"]["nhc/preflight"] = "prejob"
    made["metadata"]["namespace"] = "ns"
    return made


def test_only_a_gangs_pod_that_can_be_believed_is_told_where_to_meet() -> None:
    made = admitted()
    assert altered(made, ON) == ""
    assert GANG_VOLUME in [one["name"] for one in made["spec"]["volumes"]]
    sidecar = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    claims = {"resources": {"claims": [{"name": "gpu"}]}}
    for settings, more, authority in (
        (ON._replace(gang=GangSettings()), {}, "A"),
        (ON, {}, ""),
        (ON, sidecar, "A"),
        (ON, {"hostAliases": [{"ip": "10.0.0.1"}]}, "A"),
        (ON, {"dnsPolicy": "None"}, "A"),
    ):
        done = preflight_of(pod({"resources": GPUS}, **KUEUE, **more), settings, "ns", authority)
        assert done.ops
        assert "NHC_GANG" not in json.dumps(done.ops)
    assert "NHC_GANG" not in json.dumps(preflight_of(pod(claims, **KUEUE), ON, "ns", "A").ops)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda spec: spec.update(hostAliases=[{"ip": "10.0.0.1"}]), "names"),
        (lambda spec: env(spec, "NHC_GANG_SERVER", "mine:9443"), "NHC_GANG_SERVER"),
        (lambda spec: env(spec, "NHC_GANG", "ns/kueue/other"), "NHC_GANG"),
        (lambda spec: env(spec, "NHC_GANG_CA", "OLDER"), ""),
    ],
)
def test_a_pod_that_is_led_to_another_server_is_not_believed(change: Any, why: str) -> None:
    made = admitted()
    change(made["spec"])
    found = altered(made, ON)
    assert bool(found) is bool(why)
    assert why in found


def env(spec: Mapping[str, Any], name: str, value: str) -> None:
    (one,) = [one for one in spec["initContainers"][-1]["env"] if one["name"] == name]
    one["value"] = value


# On the plane: the API server asks, and the pods meet.


TOOL = """
import os, socket, sys, time
rank, count = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
sys.path.insert(0, {root!r})
from tests.support.deep_samples import output_of_nodes
if os.path.exists({bad!r} + os.environ["HOST"]):
    sys.exit("NET/IB : Got completion with error 12")
if rank:
    for _turn in range(500):
        try:
            peer = socket.create_connection(where, timeout=20)
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(os.environ["HOST"].encode() + b"\\n")
    sys.exit(peer.recv(1) != b"+")
with socket.create_server(where) as server:
    server.settimeout(20)
    peers = [server.accept()[0] for _one in range(count - 1)]
    hosts = [os.environ["HOST"], *(peer.makefile().readline().strip() for peer in peers)]
    for peer in peers:
        peer.sendall(b"+")
print(output_of_nodes(hosts, "380.00"))
"""
"""A collective of processes: they really meet at rank 0, and one fails on the host that is named bad."""


@pytest.fixture
def meeting(kube: Kube, installed: Any, door: Any, tmp_path: Path) -> Iterator[PreflightSettings]:
    """The webhook with gangs, asked by the API server, with the rights that are shipped for it."""
    rendered = installed.kubectl("kustomize", f"{MANIFESTS}/overlays/preflight-gang").stdout
    rights = [one for one in yaml.safe_load_all(rendered) if one["kind"] != "Service"]
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": rights})
    installed.kubectl("apply", "--server-side", "-f", "-", stdin=items)
    tool = tmp_path / "tool.py"
    root = str(Path(__file__).resolve().parents[3])
    tool.write_text(TOOL.format(root=root, bad=f"{tmp_path}/bad-"))
    settings = ON._replace(gang=GangSettings((sys.executable, str(tool)), wait=20.0, time=20.0, size=8 << 30))
    later = Later()
    account = f"{MANIFESTS}/overlays/preflight/rbac.yaml"
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", account)
    client = kube.client(kube.token("nhc-preflight", "nhc-system"))
    webhook = Webhook(lambda: (settings, True), lambda line: None, GangServer(client, GangTests()))
    shown = ServedCertificate(later, webhook)
    with WebhookServer("127.0.0.1:0", webhook, shown.context) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        settings = settings._replace(gang=settings.gang._replace(server=f"localhost:{server.server_address[1]}"))
        door(server)
        later.certificates = own_certificate(kube)
        later.certificates.names = (*later.certificates.names, "localhost")
        shown.look()
        labelled(kube)
        yield settings
        server.shutdown()
    installed.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=items)


def started(kube: Kube, node: str, name: str, address: str, **more: Any) -> dict[str, Any]:
    """A pod of the gang on a node, whose init container the kubelet has started."""
    made = pod({"resources": {"limits": {"nvidia.com/gpu": "1"}}}, nodeName=node, **{**copy.deepcopy(KUEUE), **more})
    del made["metadata"]["generateName"]
    made["metadata"]["name"] = name
    kube.admin.post(namespaced(kube.namespace, "pods"), {"apiVersion": "v1", "kind": "Pod", **made})
    status = {"phase": "Pending", "podIP": address, "podIPs": [{"ip": address}], "initContainerStatuses": [
        {"name": CONTAINER, "image": "i", "imageID": "", "ready": False, "restartCount": 0,
         "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}  # fmt: skip
    path = namespaced(kube.namespace, "pods", name)
    kube.admin.patch(f"{path}/status", {"status": status}, STRATEGIC)
    return dict(kube.admin.get(path))


def token_of(kube: Kube, made: Mapping[str, Any], audience: str = "nhc-preflight", **bound: Any) -> str:
    """What the kubelet would mount."""
    metadata = made["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [audience], "boundObjectRef": bound.get("to", reference)}}  # fmt: skip
    path = namespaced(kube.namespace, "serviceaccounts", "default")
    return str(kube.admin.post(f"{path}/token", body)["status"]["token"])


def run(kube: Kube, made: Mapping[str, Any], tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    """The init container's process, as the kubelet would start it."""
    name = made["metadata"]["name"]
    place = tmp_path / name
    place.mkdir()
    (place / "token").write_text(token_of(kube, made))
    (place / "suite.conf").write_text("# context deep\n* || check_fs_mount_rw -f /\n")
    (place / "message").write_text("")
    given = {one["name"]: one.get("value", "") for one in made["spec"]["initContainers"][-1]["env"]}
    given.update(NHC_NODE_NAME=made["spec"]["nodeName"], NHC_PROLOG_SUITE=str(place / "suite.conf"), HOST=name,
                 NHC_GANG_TOKEN=str(place / "token"), NHC_STATE_DIR=str(place / "state"), TMPDIR=str(place),
                 NHC_DEEP_DIR=str(place / "deep"))  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "nhc", "kubernetes", "preflight", "--message", str(place / "message")],
        env=environment(**given), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return process, place / "message"


def play(kube: Kube, pods: Mapping[str, Any], tmp_path: Path) -> dict[str, tuple[int, str, str]]:
    """What each container ends with: its status, its message, what it printed."""
    running = {name: run(kube, made, tmp_path) for name, made in pods.items()}
    ends = {}
    for name, (process, message) in running.items():
        printed, _nothing = process.communicate(timeout=240)
        ends[name] = process.returncode, message.read_text(), printed
    return ends


def gang(kube: Kube, group: str) -> dict[str, dict[str, Any]]:
    """Four pods of a gang, each on a node of its own with an address of its own."""
    pods = {}
    for number in range(1, 5):
        name = f"{group}-{number}"
        node = kube.node(f"n-{name}", fake=False, capacity={"nvidia.com/gpu": "8"})
        labels = {"labels": {"kueue.x-k8s.io/pod-group-name": group}}
        pods[name] = started(kube, node, name, f"127.47.{len(group)}.{number}", **labels)
    return pods


def test_the_pods_of_a_gang_meet_and_pairs_name_the_bad_node(
    kube: Kube, meeting: PreflightSettings, tmp_path: Path
) -> None:
    eventually(lambda: suite_of(created(kube)) == "prejob")
    ends = play(kube, gang(kube, "good"), tmp_path)
    assert {code for code, _message, _printed in ends.values()} == {0}, ends
    (tmp_path / "bad-with-3").touch()
    pods = gang(kube, "with")
    ends = play(kube, pods, tmp_path)
    assert {name: code for name, (code, _message, _printed) in ends.items()} == {
        "with-1": 0, "with-2": 0, "with-3": 1, "with-4": 0,
    }, ends  # fmt: skip
    (end,) = ends_of({**pods["with-3"], "status": status_of(1, ends["with-3"][1])})
    assert end.condition().reason == "GangNodeFailed"
    assert pods["with-3"]["spec"]["nodeName"] in end.condition().message


def test_nobody_but_a_gangs_pod_while_its_preflight_runs_is_answered(
    kube: Kube, meeting: PreflightSettings, tmp_path: Path
) -> None:
    eventually(lambda: suite_of(created(kube)) == "prejob")
    node = kube.node("n1", fake=False, capacity={"nvidia.com/gpu": "8"})
    server = GangServer(kube.client(kube.token("nhc-preflight", "nhc-system")), GangTests())

    def answer(token: str, settings: PreflightSettings = meeting) -> int:
        try:
            return 200 if server.answer(f"Bearer {token}", b"{}", settings)["do"] == "wait" else 0
        except PodRefused as refused:
            return refused.status

    made = started(kube, node, "p1", "127.47.9.1")
    assert answer(token_of(kube, made)) == 200
    assert answer(token_of(kube, made), meeting._replace(gang=GangSettings())) == 404
    assert answer("nobody") == 401
    assert answer(token_of(kube, made, audience="vault")) == 401
    assert answer(token_of(kube, made, to=None)) == 403
    assert answer(token_of(kube, made), meeting._replace(image="another")) == 403
    path = namespaced(kube.namespace, "pods", "p1")
    kube.admin.patch(f"{path}/status", {"status": status_of(0)}, STRATEGIC)
    assert answer(token_of(kube, made)) == 403
    by_hand = started(kube, node, "p2", "127.47.9.2", annotations={"nhc/preflight": "off"})
    assert answer(token_of(kube, by_hand)) == 403
    alone = started(kube, node, "p3", "127.47.9.3", annotations={"kueue.x-k8s.io/pod-group-total-count": "1"})
    assert answer(token_of(kube, alone)) == 403
