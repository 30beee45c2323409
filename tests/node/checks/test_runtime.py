"""Container runtimes on their sockets: a real containerd, a docker's HTTP, and servers that misbehave."""

import http.server
import os
import shutil
import socket
import socketserver
import subprocess
import threading
import time

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks import runtime
from nhc.node.checks.runtime import frame
from tests.support.judge import judge, judge_all
from tests.support.require import need

CONFIG = """\
version = 2
root = "{at}/root"
state = "{at}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt", {more}
]
[grpc]
  address = "{at}/c.sock"
[ttrpc]
  address = "{at}/t.sock"
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_dir = "{at}/cni"
"""


def start(at, more=""):
    """A containerd of its own below a short directory. Its log stays for a test that fails."""
    at.mkdir(parents=True, exist_ok=True)
    (at / "config.toml").write_text(CONFIG.format(at=at, more=more))
    log = (at / "log").open("wb")
    process = subprocess.Popen(["containerd", "-c", str(at / "config.toml")], stdout=log, stderr=log)
    log.close()
    until = time.monotonic() + 60
    while not (at / "c.sock").exists():
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail(f"containerd does not start:\n{(at / 'log').read_text()[-3000:]}")
        time.sleep(0.02)
    # It listens before its plug-ins are ready to answer.
    while time.monotonic() < until:
        if judge(Host(), f"check_runtime_ready -t 60 {at}/c.sock").reason not in ("RuntimeFails", "RuntimeDown"):
            break
    return process


@pytest.fixture(scope="module")
def containerd(tmp_path_factory):
    need("containerd", shutil.which("containerd"), "package containerd")
    need("containerd", os.geteuid() == 0, "containerd wants root")
    at = tmp_path_factory.mktemp("c")
    process = start(at)
    yield at
    process.terminate()
    process.wait(60)


@pytest.mark.thorough
def test_a_real_containerd_is_ready_and_its_network_is_not(containerd):
    host = Host(str(containerd))
    (containerd / "etc/kubernetes").mkdir(parents=True, exist_ok=True)
    found = judge(host, "check_runtime_ready -t 60 /c.sock")
    assert found.verdict is Verdict.OK, found
    assert found.message.startswith("containerd ")
    assert "without a pod network" in found.message

    (containerd / "etc/kubernetes/kubelet.conf").touch()
    found = judge(host, "check_runtime_ready -t 60 /c.sock")
    assert (found.verdict, found.reason) == (Verdict.WARN, "NetworkNotReady"), found
    assert "cni" in found.message
    assert judge(host, "check_runtime_ready -t 60 -n unix:///c.sock").verdict is Verdict.CRIT


def test_a_real_containerd_as_node_problem_detector_asks_it(containerd):
    found = judge(
        Host(),
        f"check_npd_health --component=cri --health-check-timeout=60s --cri-socket-path=unix://{containerd}/c.sock",
    )
    assert found.verdict is Verdict.OK, found


def test_a_containerd_without_cri_need_only_answer(containerd, tmp_path_factory):
    at = tmp_path_factory.mktemp("d") / "containerd"
    process = start(at, '"io.containerd.grpc.v1.cri"')
    try:
        found = judge(Host(), f"check_runtime_ready -t 60 {at}/c.sock")
        assert found.verdict is Verdict.OK, found
        assert "serves no CRI" in found.message
    finally:
        process.terminate()
        process.wait(60)
    until = time.monotonic() + 60
    found = judge(Host(), f"check_runtime_ready {at}/c.sock")
    while found.verdict is Verdict.OK and time.monotonic() < until:
        found = judge(Host(), f"check_runtime_ready {at}/c.sock")
    assert (found.verdict, found.reason) == (Verdict.CRIT, "RuntimeDown"), found


class Serve:
    """A Unix socket below `at` whose connections `speak` handles; `speak` gets the connection."""

    def __init__(self, path, speak):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                speak(self.request)

        self.server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def answering(conditions, status=b"0"):
    """What a runtime says whose Status holds these conditions."""

    def string(number, text):
        return bytes((number << 3 | 2, len(text))) + text.encode()

    def speak(connection):
        asked = connection.recv(65536)
        if b"Version" in asked:
            body = string(1, "0.1.0") + string(2, "cri-o") + string(3, "1.30.1") + string(4, "v1")
        else:
            one = [string(1, kind) + bytes((0x10, int(good))) + string(3, why) for kind, good, why in conditions]
            inner = b"".join(b"\x0a" + bytes((len(each),)) + each for each in one)
            body = b"\x0a" + bytes((len(inner),)) + inner
        trailer = b"\x40" + b"\x0bgrpc-status" + bytes((len(status),)) + status
        connection.sendall(frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678") + frame(1, 4, 1, b"\x88")
                           + frame(0, 0, 1, b"\0" + len(body).to_bytes(4, "big") + body)
                           + frame(1, 5, 1, trailer))  # fmt: skip
        connection.recv(65536)

    return speak


READY = ("RuntimeReady", True, "")
NETWORK = ("NetworkReady", True, "")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("speak", "expected"),
    [
        (answering([READY, NETWORK]), None),
        (answering([("RuntimeReady", False, "Broken"), NETWORK]), (Verdict.CRIT, "RuntimeNotReady")),
        (answering([READY, ("NetworkReady", False, "NoCni")]), (Verdict.WARN, "NetworkNotReady")),
        (answering([READY], b"14"), (Verdict.CRIT, "RuntimeFails")),
        (lambda c: c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), (Verdict.CRIT, "RuntimeFails")),
        (lambda c: None, (Verdict.CRIT, "RuntimeFails")),
        (lambda c: c.recv(1) and c.recv(65536) and c.recv(1), (Verdict.CRIT, "RuntimeFails")),
        (lambda c: c.sendall(frame(4, 0, 0, b"") + frame(7, 0, 0, bytes(8))), (Verdict.CRIT, "RuntimeFails")),
        (lambda c: c.sendall(frame(4, 0, 0, b"") + frame(0, 1, 1, b"\0\0\0\0\2\xff\xff")),
         (Verdict.CRIT, "RuntimeFails")),
    ],
    ids=["ready", "broken", "no-network", "unavailable", "http", "closes", "silent", "goaway", "junk"],
)  # fmt: skip
def test_what_a_runtime_says(request, tmp_path, speak, expected):
    silent = "silent" in request.node.name
    (tmp_path / "var/lib/kubelet/pki").mkdir(parents=True)
    with Serve(tmp_path / "crio.sock", speak):
        found = judge(Host(str(tmp_path)), f"check_runtime_ready -t {0.5 if silent else 60} /crio.sock")
    assert (found.verdict, found.reason) == (expected or (Verdict.OK, "")), found
    if not expected:
        assert "cri-o 1.30.1" in found.message


@pytest.mark.parametrize(
    ("status", "body", "expected"), [(200, "OK", Verdict.OK), (500, "storage-driver is gone", Verdict.CRIT)]
)
def test_docker_answers_a_ping(tmp_path, status, body, expected):
    class Ping(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/_ping" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def address_string(self):
            return "unix"

        def log_message(self, *words):
            pass

    with Serve(tmp_path / "docker.sock", lambda c: Ping(c, ("", 0), None)):
        assert judge(Host(), f"check_runtime_ready -t 60 {tmp_path}/docker.sock").verdict is expected


def test_the_usual_sockets_are_found_below_the_nodes_root(tmp_path):
    root = tmp_path / "r"
    (root / "run/crio").mkdir(parents=True)
    with Serve(root / "run/crio/crio.sock", answering([READY, NETWORK])):
        (found,) = judge_all(Host(str(root)), "check_runtime_ready -t 60")
    assert found.verdict is Verdict.OK


def test_no_runtime_a_missing_one_and_a_dead_socket(tmp_path):
    assert judge(FakeHost(), "check_runtime_ready").verdict is Verdict.SKIP
    assert judge(FakeHost(), "check_runtime_ready /run/x.sock").reason == "RuntimeDown"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    assert judge(Host(), f"check_runtime_ready {tmp_path}/dead.sock").reason == "RuntimeDown"


def stale(path):
    """A socket whose daemon has ended without removing it, as docker.socket's RemoveOnStop=no leaves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KUBELET = {
    "option": {"proc/70/cmdline": "/usr/bin/kubelet\0--v=2\0--container-runtime-endpoint\0unix:///run/{}\0"},
    "config": {"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: 'unix:///run/{}'\n"},
    "json of EKS": {"proc/70/cmdline": "/usr/bin/kubelet\0--config\0/etc/kubernetes/kubelet/config.json\0",
                    "etc/kubernetes/kubelet/config.json": '{{\n  "containerRuntimeEndpoint": "unix:///run/{}",\n}}'},
    "drop-in": {"proc/70/cmdline": "kubelet\0--config-dir=/etc/kubelet.d\0",
                "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///run/other.sock\n",
                "etc/kubelet.d/10-run.conf": "containerRuntimeEndpoint: unix:///run/{}\n"},
    "kubeadm": {"var/lib/kubelet/kubeadm-flags.env":
                'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/{} --pod-infra-container-image=p:1"\n'},
    "Debian's extra": {"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///run/{}\n"},
    "Red Hat's extra": {"etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS='--v=2 --container-runtime-endpoint /run/{}'\n"},
}  # fmt: skip


def kubelet_node(root, told, name):
    (root / "var/lib/kubelet/pki").mkdir(parents=True)
    for path, content in told.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(content.format(name))
    return Host(str(root))


@pytest.mark.parametrize("told", KUBELET.values(), ids=KUBELET)
def test_the_runtime_that_the_kubelet_uses_is_the_one_that_must_answer(tmp_path, told):
    host = kubelet_node(tmp_path, told, "own/r.sock")
    stale(tmp_path / "run/docker.sock")
    (tmp_path / "run/own").mkdir()
    with Serve(tmp_path / "run/own/r.sock", answering([READY, NETWORK])):
        (found,) = judge_all(host, "check_runtime_ready -t 60")
        assert (found.verdict, found.reason, found.target) == (Verdict.WARN, "RuntimeDown", "/run/docker.sock")
    found = {each.target: each.verdict for each in judge_all(host, "check_runtime_ready")}
    assert found == {"/run/own/r.sock": Verdict.CRIT, "/run/docker.sock": Verdict.WARN}
    (tmp_path / "run/own/r.sock").unlink()
    (tmp_path / "run/docker.sock").unlink()
    found = judge(host, "check_runtime_ready")
    assert (found.verdict, found.reason, found.target) == (Verdict.CRIT, "RuntimeDown", "/run/own/r.sock")


@pytest.mark.parametrize("trace", ["", "var/lib/kubelet/cpu_manager_state"])
def test_a_kubelet_whose_files_lie_elsewhere_is_asked_for_its_runtime_too(tmp_path, trace):
    kubelet_node(tmp_path, KUBELET["json of EKS"], "own/r.sock")
    (tmp_path / "var/lib/kubelet/pki").rmdir()
    (tmp_path / trace).touch()
    stale(tmp_path / "run/own/r.sock")
    (tmp_path / "run/crio").mkdir()
    with Serve(tmp_path / "run/crio/crio.sock", answering([READY, NETWORK])):
        found = {each.target: each.verdict for each in judge_all(Host(str(tmp_path)), "check_runtime_ready -t 60")}
    assert found == {"/run/own/r.sock": Verdict.CRIT}


def test_without_a_word_of_the_kubelets_one_runtime_must_answer(tmp_path):
    stale(tmp_path / "run/docker.sock")
    stale(tmp_path / "run/containerd/containerd.sock")
    assert {o.verdict for o in judge_all(Host(str(tmp_path)), "check_runtime_ready")} == {Verdict.CRIT}
    (tmp_path / "run/crio").mkdir()
    with Serve(tmp_path / "run/crio/crio.sock", answering([READY, NETWORK])):
        found = judge_all(Host(str(tmp_path)), "check_runtime_ready -t 60")
    assert {(o.verdict, o.target) for o in found} == {
        (Verdict.WARN, "/run/docker.sock"), (Verdict.WARN, "/run/containerd/containerd.sock")}  # fmt: skip


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\xff" * 12, b"\x0b"])
def test_bytes_that_are_no_message(data):
    with pytest.raises(ValueError, match="not a protobuf"):
        runtime.fields(data)
