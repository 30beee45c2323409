"""Starts and stops a whole Kubernetes control plane on loopback, in about three seconds.

Real are: RBAC and the Node authorizer, admission, watches, resourceVersions, eviction with budgets, node
lifecycle, Deployments and the scheduler. Fake are the kubelets: kwok plays one for every node that carries
the annotation ``kwok.x-k8s.io/node: fake``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

READY_WITHIN = 60.0
ADMIN = "nhc-test-admin"


class PlaneError(Exception):
    """The plane did not start; the message holds the last lines of the part that failed."""


def _die_with_parent() -> None:
    """In the child, before exec: get SIGKILL when the parent goes, however it goes (prctl(2))."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports below the range that clients get (from 32768 on): nobody takes them before they are bound."""
    begin, found = 10_000 + secrets.randbelow(20_000), []
    for port in range(begin, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == count:
            return found
    raise PlaneError("no free ports")


class Plane:
    """A control plane in a directory. `kubeconfig` is the administrator's; `url` and `ca` are for others.

    `lease` is how many seconds a fake kubelet's lease lasts; `grace` after how many silent seconds the node
    controller gives a node up. `kwok=False` leaves nodes to the caller, and `lifecycle=False` has nobody give
    up nodes without a kubelet (for thousands of them). `admission` is a file that configures admission plugins.
    """

    def __init__(
        self,
        binaries: Path,
        directory: Path,
        *,
        kwok: bool = True,
        lease: int = 40,
        grace: int = 600,
        lifecycle: bool = True,
        admission: Path | None = None,
    ) -> None:
        self.binaries, self.directory, self.admission = binaries, directory, admission
        self.kwok, self.lease, self.grace, self.lifecycle = kwok, lease, grace, lifecycle
        self.token = secrets.token_hex(16)
        self.parts: dict[str, subprocess.Popen[bytes]] = {}
        self.port = 0
        self.certificates = directory / "certs"
        self.kubeconfig = directory / "kubeconfig"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.certificates / "apiserver.crt"

    def start(self) -> Plane:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        etcd, peer, self.port = free_ports(3)
        key, tokens = self.directory / "sa.key", self.directory / "tokens.csv"
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        except FileNotFoundError:
            raise PlaneError("openssl is not installed: it makes the key of the ServiceAccount tokens") from None
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.token},{ADMIN},1,"system:masters"\n')
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self.config(self.token), indent=1))
        gates = self._gates()
        self._run(
            "etcd",
            "--data-dir", str(self.directory / "etcd"),
            "--listen-client-urls", f"http://127.0.0.1:{etcd}",
            "--advertise-client-urls", f"http://127.0.0.1:{etcd}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}",
            "--log-level", "warn",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.certificates}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={tokens}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--profiling=false",
            *gates,
            *((f"--admission-control-config-file={self.admission}",) if self.admission else ()),
            f"--runtime-config={self._alpha(gates[0])}=true",
        )
        self._await("kube-apiserver", self._ready)
        shared = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        self._run(
            "kube-controller-manager",
            *shared,
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={self.ca}",
            "--node-monitor-period=1s",
            "--node-startup-grace-period=3s",
            f"--node-monitor-grace-period={self.grace}s",
            f"--controllers={'*' if self.lifecycle else '*,-node-lifecycle-controller,-ttl-controller'}",
            *gates,
        )
        self._run("kube-scheduler", *shared, *gates)
        if self.kwok:
            stages = [f"--config={stage}" for stage in sorted((self.binaries / "stages").glob("*.yaml"))]
            self._run(
                "kwok",
                f"--kubeconfig={self.kubeconfig}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                f"--node-lease-duration-seconds={self.lease}",
                "--server-address=127.0.0.1:0",
                *stages,
            )
        # A pod can be created once the controllers have made the namespace's ServiceAccount.
        self._await("kube-controller-manager", self._has_account)

    def config(self, token: str, url: str = "", namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig for whoever holds `token`; `url` where a proxy stands between."""
        cluster: dict[str, Any] = {"server": url or self.url, "certificate-authority": str(self.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        }

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """kubectl as the administrator."""
        return subprocess.run(
            [str(self.binaries / "nhc-kube"), "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=check,
            env={**os.environ, "HOME": str(self.directory)},
            timeout=120,
        )

    def resident(self) -> dict[str, int]:
        """Resident bytes of every part."""
        found = {}
        for name, process in self.parts.items():
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    found[name] = int(line.split()[1]) * 1024
        return found

    def stop(self) -> None:
        for process in reversed(list(self.parts.values())):
            process.kill()  # nothing here is worth keeping, so nothing has to be flushed
        for process in self.parts.values():
            process.wait()
        self.parts.clear()

    def _gates(self) -> tuple[str, ...]:
        """What turns on what is not yet on by default: lifecycle conditions and EvictionRequests (1.37), device
        taints (before).
        """
        command = [str(self.binaries / "nhc-kube"), "kube-apiserver", "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        minor = int(said.split(".")[1])
        taints = "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true"
        return ("--feature-gates=NodeLifecycleConditions=true,EvictionRequestAPI=true",) if minor >= 37 else (taints,)

    @staticmethod
    def _alpha(gate: str) -> str:
        """The alpha version that a gate's kinds are served in."""
        return "resource.k8s.io/v1alpha3" if "DeviceTaint" in gate else "lifecycle.k8s.io/v1alpha1"

    def _run(self, role: str, *arguments: str) -> None:
        shared = role != "kwok"
        command = [str(self.binaries / ("nhc-kube" if shared else role)), *([role] if shared else []), *arguments]
        with (self.directory / f"{role}.log").open("wb") as log:
            self.parts[role] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "GOGC": "400"},  # a tenth less processor time, for 120 MB of memory
                preexec_fn=_die_with_parent,
            )

    def _await(self, role: str, condition: Any) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not condition():
            for name, process in self.parts.items():
                if process.poll() is not None:
                    raise PlaneError(f"{name} ended with status {process.returncode}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise PlaneError(f"{role} not ready within {READY_WITHIN:.0f} s:\n{self._tail(role)}")
            time.sleep(0.05)

    def _tail(self, role: str) -> str:
        lines = (self.directory / f"{role}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-8:])

    def _ready(self) -> bool:
        return self._get("/readyz") == b"ok"

    def _has_account(self) -> bool:
        return bool(self._get("/api/v1/namespaces/default/serviceaccounts/default"))

    def _get(self, path: str) -> bytes:
        if not self.ca.exists():
            return b""
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
            request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return bytes(answer.read())
        except (OSError, ValueError):
            return b""
