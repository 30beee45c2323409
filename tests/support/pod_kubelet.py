"""A kubelet for tests: it runs what pods say, as processes of this machine, and shows the API server their output.

Images, mounts, probes and cgroups there are none; commands, environment, exit status, SIGTERM with its grace period and
logs are as a node has them. Pods of its namespace alone are run.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from nhc_adapters.kubernetes.api.client import STRATEGIC, Client
from nhc_adapters.kubernetes.api.errors import ApiError, Gone, Unreachable

CONTAINER = "TEST_CONTAINER"
"""In the environment of a container's processes: the uid of its pod."""
KEYED = re.compile(r"metadata\.(annotations|labels)\['(.+)'\]")


class PodKubelet:
    """Runs the pods of a namespace that the scheduler has put on a node; `path` is their PATH."""

    def __init__(self, client: Client, namespace: str, place: Path, path: str, tls: Sequence[str]) -> None:
        self.client, self.namespace, self.place, self.path = client, namespace, place, path
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self._started: Dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: Dict[str, float] = {}
        self._stopping = threading.Event()
        self._threads: List[threading.Thread] = []
        self._server = log_server(place, tls)
        self.port = int(self._server.server_address[1])
        self.problems: List[str] = []

    def start(self) -> None:
        for target in (self._server.serve_forever, self._run):
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._threads[1].join(60)
        for process in self._started.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def node(self, name: str, devices: Mapping[str, str]) -> Dict[str, Any]:
        """A Ready node of this kubelet's."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", **devices}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                 "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "capacity": resources, "allocatable": resources, "conditions": [ready],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            },
        }  # fmt: skip

    def _run(self) -> None:
        """Look at the pods ten times a second: new ones are started, ended ones reported, deleted ones ended."""
        while not self._stopping.wait(0.1):
            try:
                for pod in list(self.client.items(self.pods)):
                    self._tend(pod)
            except (Unreachable, Gone):
                continue
            except ApiError as error:
                if error.status not in (404, 409):
                    self.problems.append(str(error))

    def _tend(self, pod: Dict[str, Any]) -> None:
        uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
        if not pod["spec"].get("nodeName"):
            return
        process = self._started.get(uid)
        if process is None and phase == "Pending" and not pod["metadata"].get("deletionTimestamp"):
            self._started[uid] = self._start(pod)
            self._status(pod, "Running", {"running": {"startedAt": _now()}})
            return
        status = process.poll() if process is not None else 0
        if process is not None and status is not None and phase == "Running":
            end_container(uid)
            code = status if status >= 0 else 128 - status
            self._status(pod, "Succeeded" if code == 0 else "Failed",
                         {"terminated": {"exitCode": code, "finishedAt": _now()}})  # fmt: skip
        if pod["metadata"].get("deletionTimestamp"):
            self._leave(pod, process)

    def _leave(self, pod: Dict[str, Any], process: Optional[subprocess.Popen[bytes]]) -> None:
        uid = pod["metadata"]["uid"]
        if process is not None and process.poll() is None:
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            if uid not in self._leaving:
                self._leaving[uid] = time.monotonic() + grace
                os.kill(process.pid, signal.SIGTERM)  # pid 1 of the container alone, as the runtime does
            elif time.monotonic() > self._leaving[uid]:
                os.killpg(process.pid, signal.SIGKILL)
            return
        end_container(uid)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self.client.delete(f"{self.pods}/{pod['metadata']['name']}", body)

    def _start(self, pod: Dict[str, Any]) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        env = {one["name"]: _value(one, pod) for one in container.get("env") or ()}
        env[CONTAINER] = pod["metadata"]["uid"]
        folder = self.place / self.namespace / name
        folder.mkdir(parents=True, exist_ok=True)
        argv = [*(container.get("command") or ["true"]), *(container.get("args") or ())]
        with (folder / container["name"]).open("wb") as log:
            return subprocess.Popen(argv, env={"PATH": self.path, "HOSTNAME": name, **env}, cwd=folder, stdout=log,
                                    stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip

    def _status(self, pod: Dict[str, Any], phase: str, state: Mapping[str, Any]) -> None:
        (container,) = pod["spec"]["containers"]
        ready = "True" if phase == "Running" else "False"
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running",
                  "restartCount": 0, "state": state}  # fmt: skip
        body = {"status": {"phase": phase, "containerStatuses": [status],
                           "conditions": [{"type": "Ready", "status": ready}]}}  # fmt: skip
        self.client.patch(f"{self.pods}/{pod['metadata']['name']}/status", body, STRATEGIC)


def end_container(uid: str) -> None:
    """With its first process the kernel ends all of a container's, in whatever session (pid_namespaces(7))."""
    mark = f"{CONTAINER}={uid}".encode()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                os.kill(int(name), signal.SIGKILL)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _value(one: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    if "value" in one:
        return str(one["value"])
    path = one["valueFrom"]["fieldRef"]["fieldPath"]
    found = KEYED.fullmatch(path)
    if found:
        return str(pod["metadata"].get(found[1], {}).get(found[2], ""))
    value: Any = pod
    for word in path.split("."):
        value = value.get(word, "")
    return str(value)


def certificate(plane: Any) -> Sequence[str]:
    """What a kubelet of this plane serves logs with."""
    return str(plane.ca), str(plane.certificates / "apiserver.key")


def log_server(place: Path, tls: Sequence[str]) -> ThreadingHTTPServer:
    """Where the API server asks for the output of containers: /containerLogs/NAMESPACE/POD/CONTAINER."""
    import ssl

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            file = place / path.removeprefix("/containerLogs/")
            found = path.startswith("/containerLogs/") and ".." not in path and file.is_file()
            body = file.read_bytes() if found else b"not found"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


@contextlib.contextmanager
def kubelet(plane: Any, client: Client, namespace: str, place: Path, path: str) -> Iterator[PodKubelet]:
    """A running kubelet; what it could not do fails the test."""
    made = PodKubelet(client, namespace, place, path, certificate(plane))
    made.start()
    try:
        yield made
    finally:
        made.close()
    assert made.problems == []
