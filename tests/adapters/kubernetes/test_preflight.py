"""A suite before a pod starts: the webhook that the API server asks, what the pod runs, and what a failure leads to."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import pytest
import urllib3
import yaml

from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import OWNER, OWNER_SETTING, REMEDY_OWNER, AdapterError, Effect, Mark
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, namespaced
from nhc_adapters.kubernetes.controller.preflights import PreflightEnd, doubted, ends_of
from nhc_adapters.kubernetes.nodes.conditions import PREFLIGHT_FAILED
from nhc_adapters.kubernetes.nodes.drain import SAFE_VOLUMES, DrainRules, sort_pods
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.preflight import certificate
from nhc_adapters.kubernetes.preflight.certificate import FileCertificate, OwnCertificate, Pair, blocks
from nhc_adapters.kubernetes.preflight.server import ServedCertificate, Webhook, WebhookServer
from nhc_adapters.kubernetes.preflight.webhook import CONTAINER, PREFLIGHT, PreflightSettings, altered, preflight_of
from tests.adapters.kubernetes.test_controller import cordoned, running, settings
from tests.support.kube import REPOSITORY, Kube, environment
from tests.support.waiting import until as eventually

MANIFESTS = REPOSITORY / "adapters/kubernetes"
ON = PreflightSettings(image="nhc:test")
GPUS = {"limits": {"nvidia.com/gpu": "4", "memory": "1Gi"}, "requests": {"cpu": "2"}}


def pod(*containers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    metadata = {key: more.pop(key) for key in ("annotations", "labels", "ownerReferences") if key in more}
    made = [{"name": f"c{number}", "image": "i", **one} for number, one in enumerate(containers)]
    return {"metadata": {"generateName": "p-", **metadata}, "spec": {"containers": made, **more}}


# What a pod gets.


def test_the_init_container_has_all_accelerators_of_the_pod_and_no_more_memory_than_it_would_have_had() -> None:
    claimed = {"resources": {"claims": [{"name": "gpus"}], "limits": {"cpu": "1"}}}
    done = preflight_of(pod({"resources": GPUS}, {"resources": {"limits": {"nvidia.com/gpu": "2"}}}, claimed), ON)

    made = next(one["value"] for one in done.ops if one["path"].startswith("/spec/initContainers"))[0]
    assert made["resources"] == {
        "limits": {"memory": "1Gi", "nvidia.com/gpu": "6"}, "requests": {"cpu": "2"}, "claims": [{"name": "gpus"}],
    }  # fmt: skip
    assert made["command"] == ["nhc", "kubernetes", "preflight"]
    paths = [one["path"] for one in done.ops]
    assert paths == ["/spec/volumes", "/spec/initContainers", "/metadata/annotations", "/metadata/labels"]
    before = pod({"resources": GPUS}, labels={"a": "b"}, volumes=[{"name": "v"}], initContainers=[{"name": "setup"}])
    paths = [one["path"] for one in preflight_of(before, ON).ops]
    assert paths == ["/spec/volumes/-", "/spec/initContainers/-", "/metadata/annotations",
                     "/metadata/labels/nhc~1preflight"]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [({}, CONTAINER), ({SAFE_VOLUMES: "tmp"}, f"tmp,{CONTAINER}")])
def test_no_drain_waits_for_what_the_preflight_has_written(before: Mapping[str, str], after: str) -> None:
    ops = preflight_of(pod({"resources": GPUS}, annotations=before), ON).ops
    (value,) = [one["value"] for one in ops if one["path"].startswith("/metadata/annotations")]
    assert value == (after if before else {SAFE_VOLUMES: after})
    volumes = next(one["value"] for one in ops if one["path"] == "/spec/volumes")
    owner = [{"kind": "ReplicaSet", "controller": True}]
    drained = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": owner,
                            "annotations": {SAFE_VOLUMES: after}},
               "spec": {"nodeName": "n", "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}] if before else volumes},
               "status": {"phase": "Running"}}  # fmt: skip
    assert not sort_pods([drained], DrainRules()).block


@pytest.mark.parametrize(
    ("asked", "suite"),
    [
        (pod({"resources": GPUS}), "prejob"),
        (pod({"resources": GPUS}, annotations={PREFLIGHT: "enabled"}), "prejob"),
        (pod({"resources": GPUS}, annotations={PREFLIGHT: "quick"}), "quick"),
        (pod({"resources": {"limits": {"amd.com/gpu": 1}}}), "prejob"),
        (pod({"resources": {"claims": [{"name": "gpu"}]}}), "prejob"),
        (pod({"resources": GPUS}, annotations={PREFLIGHT: "off"}), ""),
        (pod({"resources": GPUS}, annotations={PREFLIGHT: ""}), ""),
        (pod({"resources": GPUS}, annotations={PREFLIGHT: "; rm -r /"}), ""),
        (pod({"resources": {"limits": {"cpu": "4"}}}), ""),
        (pod({"resources": {"limits": {"nvidia.com/gpu": "0"}}}), ""),
        (pod({"resources": GPUS}, initContainers=[{"name": CONTAINER}]), ""),
        (pod({"resources": GPUS}, ownerReferences=[{"kind": "DaemonSet", "controller": True}]), ""),
        ({"metadata": {"annotations": 5}, "spec": {"containers": [7, {"resources": {"limits": "x"}}]}}, ""),
    ],
)
def test_which_pods_get_which_suite(asked: Mapping[str, Any], suite: str) -> None:
    assert preflight_of(asked, ON).suite == suite
    assert not preflight_of(asked, PreflightSettings()).ops


# What the init container runs.


def preflight(tmp_path: Path, suite: str, **env: str) -> tuple[int, str]:
    """The exit status, and what the kubelet would find as the termination message."""
    place = tmp_path / "suite.conf"
    place.write_text(f"# context deep\n* {suite}\n")
    message = tmp_path / "termination-log"
    message.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "nhc", "kubernetes", "preflight", "--message", str(message)],
        env=environment(NHC_PROLOG_SUITE=str(place), NHC_NODE_NAME="gpu7", NHC_STATE_DIR=str(tmp_path / "state"),
                        NHC_DEEP_DIR=str(tmp_path / "deep"), **env),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, message.read_text()


@pytest.mark.parametrize(
    ("suite", "env", "status", "reason"),
    [
        ("|| check_fs_mount_rw -f /", {}, 0, ""),
        ("|| check_fs_mount_rw -f /nowhere", {}, 1, "FilesystemNotMounted"),
        ("|timeout 1s| check_cmd_output -m /x/ sleep 60", {"NHC_PROLOG_SUITE_TIME": "2s"}, 0, ""),
        ("|timeout 1s| check_cmd_output -m /x/ sleep 60", {"NHC_PROLOG_SUITE_TIME": "2s",
                                                   "NHC_PROLOG_SUITE_UNKNOWN": "refuse"}, 3, ""),
        ("|| check_fs_mount_rw -f /", {"NHC_PROLOG_SUITE_TIME": "never"}, 0, ""),
    ],
)  # fmt: skip
def test_only_a_fault_of_the_node_keeps_a_pod_from_starting(
    tmp_path: Path, suite: str, env: Mapping[str, str], status: int, reason: str
) -> None:
    code, message = preflight(tmp_path, suite, **env)

    assert code == status
    assert message.partition("\n")[0] == reason


# What the controller makes of it.


def status_of(code: int, message: str = "", restarts: int = 0, when: float = 0.0) -> dict[str, Any]:
    ended = {"exitCode": code, "message": message, "finishedAt": utc(when or time.time())}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    state = {"state": waiting, "lastState": {"terminated": ended}} if restarts else {"state": {"terminated": ended}}
    return {"initContainerStatuses": [{"name": CONTAINER, "restartCount": restarts, **state}]}


def test_an_end_says_its_fault_with_its_device_and_one_that_cannot_be_read_its_exit_alone() -> None:
    ran = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "n"}}
    text = "GpuProofFailed\ncheck_gpu_proof: gpu3: wrong [device: 0000:3b:00.0 - GpuProofFailed reset] [action: reset]"
    (end,) = ends_of({**ran, "status": status_of(1, text, restarts=2)})
    assert (end.place, end.condition().reason) == (f"u/{CONTAINER}/1", "GpuProofFailed")
    assert end.condition().message.endswith("[action: reset]")
    (end,) = ends_of({**ran, "status": status_of(1, "Segmentation fault")})
    assert end.condition().reason == "PreflightFailed"
    assert [end.passed for end in ends_of({**ran, "status": status_of(0)})] == [True]
    for code in (2, 3, 137):
        assert ends_of({**ran, "status": status_of(code)}) == []
    assert ends_of({"metadata": 5, "status": {"initContainerStatuses": [None, {"name": CONTAINER}]}}) == []


def admitted(**more: Any) -> dict[str, Any]:
    """A pod as the API server has it once the webhook has answered: the patch, defaults, and what providers add."""
    made = pod({"resources": GPUS, "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}]}, **more)
    for one in preflight_of(made, ON).ops:
        *way, last = one["path"].strip("/").replace("~1", "/").split("/") if "labels" not in one["path"] else (
            "metadata", "labels")  # fmt: skip
        at = made
        for key in way:
            at = at[key]
        at[last] = one["value"]
    container = made["spec"]["initContainers"][0]
    container["env"][3]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    container["env"].append({"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::1:role/x"})
    container["volumeMounts"].append({"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"})
    container.update(imagePullPolicy="IfNotPresent", terminationMessagePath="/dev/termination-log")
    return made


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"image": "busybox"}, "image"),
        ({"command": ["sh", "-c", "exit 1"]}, "command"),
        ({"args": ["--message", "/x"]}, "args"),
        ({"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}, "lifecycle"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom"),
        ({"securityContext": {"privileged": True}}, "securityContext"),
        ({"env": []}, "HOME|NHC|NVIDIA|TMPDIR"),
        ({"env+": {"name": "PYTHONPATH", "value": "/x"}}, "PYTHONPATH"),
        ({"env+": {"name": "NHC_NODE_NAME", "value": "victim"}}, "NHC_NODE_NAME"),
        ({"volumeMounts+": {"name": "v", "mountPath": "/usr/lib/python3"}}, "/usr/lib/python3"),
    ],
)
def test_of_a_preflight_that_the_webhook_did_not_make_nothing_is_believed(changes: Mapping[str, Any], why: str) -> None:
    made = admitted()
    container = made["spec"]["initContainers"][0]
    for key, value in changes.items():
        if key.endswith("+"):
            container[key[:-1]].append(value)
        else:
            container[key] = value
    found = altered(made, ON)
    assert bool(found) is bool(why)
    assert re.search(why, found)


def ends(*nodes: str, passed: bool = False, when: float = 1000.0) -> list[PreflightEnd]:
    return [PreflightEnd(node, node, node, when, passed) for node in nodes]


@pytest.mark.parametrize(
    ("seen", "doubts"),
    [
        (ends("a"), False),
        (ends("a", "b"), False),
        (ends("a", "b", "c"), True),
        ([*ends("a", "b", "c"), *ends("d", "e", "f", passed=True)], False),
        ([*ends("a", "b", "c"), *ends("d", "e", passed=True)], True),
        ([*ends("a", "b", when=0.0), *ends("c")], False),
    ],
)
def test_a_suite_that_fails_on_most_nodes_blames_none(seen: Sequence[PreflightEnd], doubts: bool) -> None:
    assert doubted(seen, ON, 1000.0) is doubts


# The server, and its certificate.


class Kept:
    """A certificate as it is now."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def look(self) -> Pair:
        return self.pair


@contextlib.contextmanager
def serving(certificates: Any, apply: bool = True) -> Iterator[tuple[WebhookServer, ServedCertificate, list[str]]]:
    said: list[str] = []
    webhook = Webhook(lambda: (ON, apply), said.append)
    shown = ServedCertificate(certificates, webhook)
    server = WebhookServer("127.0.0.1:0", webhook, shown.context)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, shown, said
    finally:
        server.shutdown()
        server.server_close()


def ask(server: WebhookServer, pair: Pair, body: bytes, path: str = "/preflight") -> tuple[int, bytes]:
    name = "nhc-preflight.ns.svc"
    port = server.server_address[1]
    with urllib3.HTTPSConnectionPool(
        "127.0.0.1", port, ca_cert_data=pair.authorities, server_hostname=name, assert_hostname=name, retries=False
    ) as pool:
        answer = pool.request("POST", path, body=body)
        return answer.status, answer.data


NAMES = ("nhc-preflight.ns.svc",)


def test_a_server_shows_the_newest_certificate_and_outlives_what_is_no_review() -> None:
    first, second = certificate.make(NAMES, time.time()), certificate.make(NAMES, time.time())
    kept = Kept(first)
    with serving(kept) as (server, shown, said):
        shown.look()
        for body, path, status in (
            (b"", "/preflight", 413), (b"5", "/preflight", 400), (b"{", "/preflight", 400), (b"{}", "/elsewhere", 404),
            (b'{"kind": "AdmissionReview", "request": {"uid": "u", "object": []}}', "/preflight", 400),
        ):  # fmt: skip
            assert ask(server, first, body, path)[0] == status
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as silent:  # holds up nobody
            assert ask(server, first, b"{}")[0] == 400
            silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
        kept.pair = second
        shown.look()
        with pytest.raises(urllib3.exceptions.SSLError):
            ask(server, first, b"{}")
        assert ask(server, second, b"{}")[0] == 400
        kept.pair = second._replace(certificate="nothing")
        shown.look()
        assert "no certificate" in server.webhook.page("/readyz")[1]
        assert ask(server, second, b"{}")[0] == 400
        assert "nhc_preflight_pods_total" in server.webhook.page("/metrics")[1]
    assert len(said) == 1


def test_a_certificate_of_another_program_is_read_from_its_files(tmp_path: Path) -> None:
    pair = certificate.make(NAMES, time.time())
    (tmp_path / "tls.crt").write_text(pair.certificate)
    with pytest.raises(AdapterError, match=r"tls\.key"):
        FileCertificate(str(tmp_path)).look()
    (tmp_path / "tls.key").write_text(pair.key)
    assert FileCertificate(str(tmp_path)).look().until == pytest.approx(pair.until, abs=2)


# The API server asks.


@pytest.fixture
def door(kube: Kube, installed: Any) -> Iterator[Any]:
    """What is shipped, applied to the plane, with the webhook's Service leading to a server of the test's."""
    rendered = installed.kubectl("kustomize", f"{MANIFESTS}/overlays/preflight").stdout
    not_here = ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service")
    shipped = [one for one in yaml.safe_load_all(rendered) if one["kind"] not in not_here]
    port = 0

    def leads_to(server: WebhookServer) -> None:
        nonlocal port
        port = server.server_address[1]
        for one in shipped:
            for webhook in one.get("webhooks", ()):
                webhook["clientConfig"]["service"]["port"] = port
        name = {"name": "nhc-preflight", "namespace": "nhc-system"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": name,
                   "spec": {"type": "ExternalName", "externalName": "localhost"}}  # fmt: skip
        items = {"apiVersion": "v1", "kind": "List", "items": [*shipped, service]}
        installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(items))

    yield leads_to
    items = {"apiVersion": "v1", "kind": "List", "items": shipped}
    installed.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=json.dumps(items))
    installed.kubectl("delete", "--ignore-not-found", "-n", "nhc-system", "secret/nhc-preflight-certificate",
                      "service/nhc-preflight")  # fmt: skip


def own_certificate(kube: Kube, **more: Any) -> OwnCertificate:
    return OwnCertificate(
        kube.client(kube.token("nhc-preflight", "nhc-system")), "nhc-system", "nhc-preflight-certificate",
        webhook="nhc-preflight", service="nhc-preflight", settling=0.0, **more,
    )  # fmt: skip


class Later:
    """A certificate that can only be had once the account is there."""

    def __init__(self) -> None:
        self.certificates: Any = None

    def look(self) -> Pair:
        return self.certificates.look()


def labelled(kube: Kube, value: str | None = "enabled") -> None:
    kube.admin.patch(f"/api/v1/namespaces/{kube.namespace}", {"metadata": {"labels": {PREFLIGHT: value}}}, MERGE_PATCH)


def created(kube: Kube, **more: Any) -> Mapping[str, Any]:
    """A pod as the API server would keep it."""
    made = pod({"resources": GPUS}, **more)
    body = {"apiVersion": "v1", "kind": "Pod", **made}
    return kube.admin.request("POST", namespaced(kube.namespace, "pods"), body=body, query={"dryRun": "All"})


def suite_of(made: Mapping[str, Any]) -> str:
    names = [one["name"] for one in made["spec"].get("initContainers", ())]
    return str(made["metadata"].get("labels", {}).get(PREFLIGHT, "")) if names == [CONTAINER] else ""


def test_the_api_server_asks_through_a_new_certificate_and_a_dry_run_changes_no_pod(kube: Kube, door: Any) -> None:
    later = Later()
    with serving(later) as (server, shown, said):
        door(server)
        later.certificates = own_certificate(kube)
        shown.look()
        assert suite_of(created(kube)) == ""
        labelled(kube)
        eventually(lambda: suite_of(created(kube)) == "prejob")
        assert suite_of(created(kube, annotations={PREFLIGHT: "quick"})) == "quick"
        assert suite_of(created(kube, annotations={PREFLIGHT: "off"})) == ""
        before = later.look()
        later.certificates = own_certificate(kube, renewed=certificate.LASTS + 1.0)
        shown.look()
        later.certificates = own_certificate(kube)
        after = later.look()
        assert after.certificate != before.certificate
        assert blocks(after.authorities)[1:] == blocks(before.authorities)
        eventually(lambda: suite_of(created(kube)) == "prejob")
        labelled(kube, None)
        eventually(lambda: suite_of(created(kube)) == "")
        assert suite_of(created(kube, annotations={PREFLIGHT: "enabled"})) == "prejob"
        assert not [line for line in said if "could not" in line]
    with serving(later, apply=False) as (server, shown, said):
        door(server)
        shown.look()
        eventually(lambda: created(kube, annotations={PREFLIGHT: "enabled"}) and said)
        assert suite_of(created(kube, annotations={PREFLIGHT: "enabled"})) == ""
        assert said[0].startswith("dry run: would add preflight prejob: ")
    assert suite_of(created(kube, annotations={PREFLIGHT: "enabled"})) == ""  # nobody answers: Ignore


def job(kube: Kube) -> None:
    template = pod({"resources": GPUS}, restartPolicy="OnFailure", nodeSelector={"test": kube.prefix})
    template["metadata"] = {}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
            "spec": {"backoffLimit": 6, "template": template}}  # fmt: skip
    kube.admin.post(namespaced(kube.namespace, "jobs", group="apis/batch/v1"), body)


def pods_of(kube: Kube) -> list[dict[str, Any]]:
    """The Job's pods that are on a node and stay there."""
    found = kube.admin.items(namespaced(kube.namespace, "pods"))
    return [one for one in found if one["spec"].get("nodeName") and not one["metadata"].get("deletionTimestamp")]


def boots(kube: Kube, node: str, boot: str) -> None:
    kube.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": {"bootID": boot}}}, STRATEGIC)


def test_a_node_that_fails_a_pods_suite_is_out_and_the_pod_starts_elsewhere(
    kube: Kube, door: Any, tmp_path: Path
) -> None:
    nodes = {kube.node(name, fake=False, capacity={"nvidia.com/gpu": "8"}) for name in ("n1", "n2")}
    for node in nodes:
        boots(kube, node, "11111111-aaaa")
    later = Later()
    with serving(later) as (server, shown, _said):
        door(server)
        later.certificates = own_certificate(kube)
        shown.look()
        labelled(kube)
        eventually(lambda: suite_of(created(kube)) == "prejob")
        job(kube)
        (first,) = eventually(lambda: pods_of(kube))
        assert [one["name"] for one in first["spec"]["initContainers"]] == [CONTAINER]
        bad, path = first["spec"]["nodeName"], namespaced(kube.namespace, "pods", first["metadata"]["name"])
        _code, message = preflight(tmp_path, "|| check_fs_mount_rw -f /nowhere")
        with running(kube, settings(kube, preflight=ON._replace(every=0.2))) as controller:
            kube.admin.patch(f"{path}/status", {"status": {"phase": "Pending", **status_of(1, message, 1)}}, STRATEGIC)
            eventually(lambda: cordoned(kube, bad))
            condition = kube.condition(bad, PREFLIGHT_FAILED) or {}
            assert (condition["status"], condition["reason"]) == ("True", "FilesystemNotMounted")
            eventually(lambda: (kube.admin.find(path) or {"metadata": {"deletionTimestamp": 1}})["metadata"].get(
                "deletionTimestamp"))  # fmt: skip
            kube.admin.delete(path, {"gracePeriodSeconds": 0})  # the kubelet's part
            (second,) = eventually(lambda: pods_of(kube))
            assert second["spec"]["nodeName"] in nodes - {bad}
            boots(kube, bad, "22222222-bbbb")
            eventually(lambda: not cordoned(kube, bad))
            assert (kube.condition(bad, PREFLIGHT_FAILED) or {})["reason"] == "NodeRestarted"
            assert not cordoned(kube, second["spec"]["nodeName"])
            assert controller.says("evicted from")


def test_the_loops_proof_ends_what_a_preflight_found_and_no_report_alone_does(kube: Kube, tmp_path: Path) -> None:
    node = kube.node("n1", fake=False)
    end = PreflightEnd(node, "u/nhc-preflight/0", "ns/p", time.time(), False, "GpuLost\ncheck_gpu_lost: gone")
    with running(kube, settings(kube, preflight=ON._replace(every=60.0))) as controller:
        eventually(lambda: controller.rounds.fleet.judgement(node))
        controller.detections.say_of_pods({node: end.condition()}, {}, PREFLIGHT_FAILED)
        eventually(lambda: cordoned(kube, node))
    adapters = [Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(tmp_path)), OWNER_SETTING: owner})
                for owner in (OWNER, REMEDY_OWNER)]  # fmt: skip
    try:
        for adapter in adapters:
            adapter.nodes([node])
        by_report, loop = adapters
        assert [one.effect for one in by_report.clear([node])] == [Effect.REFUSED]
        loop.mark({node: Mark("repaired")})
        assert [one.effect for one in loop.clear([node])] == [Effect.CHANGED]
    finally:
        for adapter in adapters:
            adapter.close()
    assert (kube.condition(node, PREFLIGHT_FAILED) or {})["reason"] == "Proved"
    assert not cordoned(kube, node)
    acks = json.loads(kube.get(node)["metadata"]["annotations"]["nhc/acknowledged"])
    assert list(acks[PREFLIGHT_FAILED]) == [end.place]
