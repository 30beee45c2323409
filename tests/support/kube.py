"""A real control plane for a test session, and for each test its own corner of it.

`plane` starts once a session (three seconds). `kube` is what a test gets: an administrator's client, a
namespace, nodes that nobody else touches, and tokens of ServiceAccounts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, TypeVar

import pytest

from tests.support.require import missing
from tests.support.waiting import until

if TYPE_CHECKING:
    from types import ModuleType

    from nhc_adapters.kubernetes.api.client import Client

T = TypeVar("T")
WHAT = "kubernetes"
"""How NHC_REQUIRE names the control plane."""

REPOSITORY = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A module of tests/kube, which is a Go module's directory and no Python package."""
    known = sys.modules.get(f"nhc_test_kube_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"nhc_test_kube_{name}", REPOSITORY / "tests/kube" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def started(directory: Path, **options: Any) -> Iterator[Any]:
    """A running plane, built first where that is needed; skips (or fails) where it cannot be had."""
    build, plane = load("build"), load("plane")
    try:
        binaries = build.build(lambda line: sys.__stderr__ and sys.__stderr__.write(f"\n{line}\n"))
    except build.Unavailable as error:
        missing(WHAT, str(error))
    running = plane.Plane(binaries, directory, **options)
    try:
        running.start()
    except plane.PlaneError as error:
        pytest.fail(f"the test control plane did not start: {error}", pytrace=False)
    try:
        yield running
    finally:
        running.stop()


@dataclass
class Kube:
    """One test's corner of the plane."""

    plane: Any
    admin: Client
    prefix: str
    namespace: str
    nodes: list[str] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    def client(self, token: str, url: str = "", **options: Any) -> Client:
        """A client for whoever holds `token`, through a proxy at `url` where one is given."""
        made = self._client(token, url, **options)
        self.clients.append(made)
        return made

    def strict(self) -> Client:
        """An administrator's client whose writes are refused where they hold a field that a kind does not have."""
        made = self._client(self.plane.token, strict=True)
        self.clients.append(made)
        return made

    def _client(self, token: str, url: str = "", *, strict: bool = False, **options: Any) -> Client:
        from nhc_adapters.kubernetes.api.access import Access, ClusterTls, Credentials
        from nhc_adapters.kubernetes.api.client import Client

        access = Access(
            url or self.plane.url,
            self.namespace,
            ClusterTls(str(self.plane.ca)),
            source="test",
            credentials=Credentials(token),
        )
        return (_strict() if strict else Client)(access, **options)

    def node(
        self,
        name: str = "n1",
        *,
        labels: Mapping[str, str] | None = None,
        fake: bool = True,
        capacity: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        silent: bool = False,
    ) -> str:
        """A node of this test's own; `fake` has a kubelet played for it, `silent` had none ever.

        Without either it is Ready, and stays so for longer than a test takes.
        """
        full = f"{self.prefix}-{name}"
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", **(capacity or {})}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": full,
                "labels": {"kubernetes.io/hostname": full, "test": self.prefix, **(labels or {})},
                "annotations": {"kwok.x-k8s.io/node": "fake"} if fake else {},
            },
            "spec": dict(spec or {}),
            "status": {"capacity": resources, "allocatable": resources},
        }
        if not fake and not silent:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as the test says"}
            body["status"]["conditions"] = [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]
        self.admin.post("/api/v1/nodes", body)
        self.nodes.append(full)
        return full

    def ready(self, *names: str) -> None:
        """Wait until nodes are Ready and free of the taints they are born with."""
        for name in names:
            until(lambda name=name: self._is_ready(name))  # type: ignore[misc]

    def _is_ready(self, name: str) -> bool:
        node = self.get(name)
        conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")

    def get(self, name: str) -> dict[str, Any]:
        return self.admin.get(f"/api/v1/nodes/{name}")

    def put_back(self, name: str) -> None:
        """What a person does with kubectl alone: the cordon goes, and the taint of nhc's vocabulary."""
        self.plane.kubectl("uncordon", name)
        self.plane.kubectl("taint", "node", name, "nhc/unhealthy-")

    def condition(self, name: str, kind: str) -> dict[str, Any] | None:
        for condition in self.get(name).get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return dict(condition)
        return None

    def set_condition(
        self, name: str, kind: str, status: str, reason: str = "Test", message: str = "", since: float | None = None
    ) -> None:
        """What an agent would write, by the administrator's hand; so since `since` (Unix time), where that is given."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        turned = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since)) if since is not None else now
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": turned,
        }
        self.admin.patch(
            f"/api/v1/nodes/{name}/status",
            {"status": {"conditions": [condition]}},
            "application/strategic-merge-patch+json",
        )

    def pod(
        self,
        name: str,
        node: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: Mapping[str, Any] | None = None,
        volumes: list[dict[str, Any]] | None = None,
        grace: int = 0,
        account: str = "default",
        running: bool = True,
    ) -> dict[str, Any]:
        """A pod on a node (the fake kubelet runs it); with `running`, wait until it does."""
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        }
        if owner:
            metadata["ownerReferences"] = [dict(owner)]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "containers": [{"name": "c", "image": "none"}],
                "nodeName": node or None,
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": grace,
                "volumes": volumes or [],
                "serviceAccountName": account,
            },
        }
        made = self.admin.post(f"/api/v1/namespaces/{self.namespace}/pods", body)
        if running:
            until(lambda: self.phase(name) == "Running")
        return made

    def phase(self, name: str) -> str:
        found = self.admin.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return str(found["status"].get("phase"))

    def pods(self) -> list[str]:
        found = self.admin.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return sorted(pod["metadata"]["name"] for pod in found if not pod["metadata"].get("deletionTimestamp"))

    def token(self, account: str, namespace: str, pod: Mapping[str, Any] | None = None) -> str:
        """A ServiceAccount's token, bound to a pod as the kubelet would ask for it."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.admin.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        return str(answer["status"]["token"])

    def kubeconfig(self, directory: Path, token: str = "") -> Path:
        path = directory / "kubeconfig"
        path.write_text(json.dumps(self.plane.config(token or self.plane.token, namespace=self.namespace)))
        return path


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with started(tmp_path_factory.mktemp("kube")) as running:
        yield running


@pytest.fixture
def kube(plane: Any) -> Iterator[Kube]:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    corner = Kube(plane, None, prefix, prefix)  # type: ignore[arg-type]
    corner.admin = corner._client(plane.token, connections=16)
    corner.admin.post("/api/v1/namespaces", {"metadata": {"name": prefix}})
    base = f"/api/v1/namespaces/{prefix}/serviceaccounts/default"
    until(lambda: _exists(corner.admin, base))
    try:
        yield corner
    finally:
        for client in corner.clients:
            client.close()
        for name in corner.nodes:
            with contextlib.suppress(Exception):
                corner.admin.delete(f"/api/v1/nodes/{name}")
        with contextlib.suppress(Exception):
            corner.admin.delete(f"/api/v1/namespaces/{prefix}")
        corner.admin.close()


def _strict() -> type[Client]:
    from nhc_adapters.kubernetes.api.client import Client

    class StrictClient(Client):
        """Asks for `fieldValidation=Strict` in everything that it writes; without, unknown fields are dropped."""

        def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **more: Any) -> Any:
            asked = {"fieldValidation": "Strict"} if method in ("POST", "PUT", "PATCH") else {}
            return super().request(method, path, query={**(query or {}), **asked}, **more)

    return StrictClient


def _exists(client: Client, path: str) -> bool:
    from nhc_adapters.kubernetes.api.errors import ApiError

    try:
        client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def environment(**extra: str) -> dict[str, str]:
    """The environment for a command of nhc run from this checkout."""
    path = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "adapters")))
    return {**os.environ, "PYTHONPATH": path, **extra}
