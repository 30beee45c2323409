"""A kubelet for the Jobs that repair nodes: it runs the pod's own command, on a node that lies in a directory.

What it changes in the command is where the node is: the mounted root becomes the directory, and entering the node's
namespaces becomes nothing. The rest is as a kubelet does it: the pod runs, ends, and keeps what the program wrote into
its termination log; a reboot gives the node another boot id and loses the pods that ran.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.kube import REPOSITORY, environment
from tests.support.pod_kubelet import log_server

STATUS = "application/strategic-merge-patch+json"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Kubelet:
    """Plays the kubelet of one node: repairs run for real, other pods in name, once `gate` is set."""

    def __init__(
        self, client: Client, node: str, root: Path, path: Path, namespace: str,
        rebooted: Callable[[], object] = lambda: None, tls: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`tls`: it serves its pods' logs with this certificate and key."""
        self.client, self.node, self.root, self.path, self.namespace = client, node, root, path, namespace
        self.rebooted = rebooted
        self.gate = threading.Event()
        self.started: List[str] = []
        """Pods whose repair was started."""
        self.errors: List[str] = []
        self._stop = threading.Event()
        self._logs = root.parent / "logs"
        self._tls, self._server = tls, None
        self._running: Dict[str, subprocess.Popen[bytes]] = {}
        self._boots = 0
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Kubelet:  # noqa: PYI034 (Self is Python 3.11's)
        self.boot(str(uuid.uuid4()))
        if self._tls:
            self._server = log_server(self._logs, self._tls)
            threading.Thread(target=self._server.serve_forever, daemon=True).start()
            body = {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                               "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}}}}  # fmt: skip
            self.client.patch(f"/api/v1/nodes/{self.node}/status", body, STATUS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        for process in self._running.values():
            process.kill()
            process.wait()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        assert self.errors == []

    def boot(self, boot: str) -> None:
        """The node says this boot id, on its disk and to the cluster."""
        file = self.root / "proc/sys/kernel/random/boot_id"
        file.write_text(boot + "\n")
        body = {"status": {"nodeInfo": {"bootID": boot}}}
        self.client.patch(f"/api/v1/nodes/{self.node}/status", body, STATUS)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End what runs, as an out-of-memory kill or a deadline does."""
        for process in self._running.values():
            process.send_signal(number)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                for pod in self.client.items(namespaced(self.namespace, "pods"),
                                             fieldSelector=f"spec.nodeName={self.node}"):  # fmt: skip
                    self._tend(pod)
            except ApiError as error:
                if error.status not in (404, 409):
                    self.errors.append(str(error))
            self._stop.wait(0.05)

    def _tend(self, pod: Mapping[str, Any]) -> None:
        name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase")
        process = self._running.get(name)
        repairs = "nhc_adapters.node.hand" in (pod["spec"]["containers"][0].get("command") or ())
        if pod["metadata"].get("deletionTimestamp"):
            if process is not None:
                process.terminate()
            self._ended(pod, name, phase)
        elif not repairs:
            if phase == "Pending":
                self._say(pod, "Running", {"running": {"startedAt": now()}})
        elif phase == "Pending" and process is None and (self.gate.is_set() or self._collects(pod)):
            self._start(pod, name)
        elif process is not None and process.poll() is not None:
            self._ended(pod, name, phase)

    @staticmethod
    def _collects(pod: Mapping[str, Any]) -> bool:
        """Whether a pod collects evidence: it changes nothing, and waits for no gate."""
        return "collect" in (pod["spec"]["containers"][0].get("args") or ())

    def _log(self, pod: Mapping[str, Any]) -> Path:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
        return self._logs / self.namespace / str(name) / str(container)

    def _start(self, pod: Mapping[str, Any], name: str) -> None:
        container = pod["spec"]["containers"][0]
        argv = [sys.executable, *container["command"][1:], *container["args"]]
        argv.remove("-I")  # the checkout is found by PYTHONPATH
        argv[argv.index("--root") + 1] = str(self.root)
        argv[argv.index("--enter") + 1] = ""
        argv[argv.index("--result") + 1] = str(self.root / f"{name}.log")
        argv.insert(argv.index("--wait"), f"--path={self.path}")
        if not self._collects(pod):
            self.started.append(name)
        self._log(pod).parent.mkdir(parents=True)
        with self._log(pod).open("wb") as log:
            self._running[name] = subprocess.Popen(
                argv, stdout=log, stderr=subprocess.STDOUT, env=environment(), cwd=REPOSITORY
            )
        self._say(pod, "Running", {"running": {"startedAt": now()}})

    def _ended(self, pod: Mapping[str, Any], name: str, phase: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.wait(60)
            out = self._log(pod).read_text()
            log = self.root / f"{name}.log"
            text = log.read_text() if log.exists() else out[-2048:] if process.returncode else ""
            phase = "Failed" if process.returncode else "Succeeded"
            ended = {"exitCode": max(process.returncode, 0) or (137 if process.returncode else 0),
                     "reason": "Error" if process.returncode else "Completed", "message": text[:4096],
                     "startedAt": now(), "finishedAt": now()}  # fmt: skip
            self._say(pod, phase, {"terminated": ended})
            self._boot_if_asked()
        if pod["metadata"].get("deletionTimestamp"):
            self.client.delete(namespaced(self.namespace, "pods", name), {"gracePeriodSeconds": 0})

    def _boot_if_asked(self) -> None:
        calls = self.root.parent / "calls"
        if (self.root.parent / "state/fail-systemctl-reboot").exists():
            return
        asked = calls.read_text().count("systemctl reboot\n") if calls.exists() else 0
        if asked > self._boots:
            self._boots = asked
            self.boot(str(uuid.uuid4()))
            self.rebooted()

    def _say(self, pod: Mapping[str, Any], phase: str, state: Mapping[str, object]) -> None:
        container = pod["spec"]["containers"][0]
        status = {"name": container["name"], "image": container["image"], "imageID": "", "ready": phase == "Running",
                  "restartCount": 0, "state": state}  # fmt: skip
        path = namespaced(self.namespace, "pods", pod["metadata"]["name"]) + "/status"
        self.client.patch(path, {"status": {"phase": phase, "containerStatuses": [status]}}, MERGE_PATCH)
