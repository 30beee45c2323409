"""Azure's Resource Manager on loopback, with its metadata service and its blob store.

Paths, verbs, query parameters and the names in answers are checked against what its libraries ship
(tests/data/clouds/azure.json). Upload tokens, permissions and node pools are in no library that was cut, and
stand here as Azure's documents have them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from nhc_adapters.cloud.azure.repairer import ACTIONS
from tests.support.clouds.server import Asked, FakeCloud, Operation, Reply

MODEL = Path(__file__).resolve().parents[2] / "data/clouds/azure.json"
TOKEN = "eyJ0eXAi.secret-token-of-the-managed-identity"
SIGNATURE = "sig=c2VjcmV0LXNpZ25hdHVyZQ"
SUBSCRIPTION = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"

CHANGES = {
    "restart",
    "redeploy",
    "reimage",
    "deallocate",
    "powerOff",
    "start",
    "delete",
    "deleteMachines",
    "grow",
    "report",
}
DOCUMENTED = {
    "insights": (r"/subscriptions/[^/]+/providers/Microsoft\.Impact/workloadImpacts/(?P<name>[^/]+)/insights", "GET"),
    "upload_token": (r"/subscriptions/[^/]+/providers/Microsoft\.Impact/getUploadToken", "POST"),
    "permissions": (r"/subscriptions/.+/providers/Microsoft\.Authorization/permissions", "GET"),
    "operation": (
        r"/subscriptions/[^/]+/providers/Microsoft\.Compute/locations/[^/]+/operations/(?P<name>[^/]+)",
        "GET",
    ),
    "pool": (r".+/managedClusters/(?P<cluster>[^/]+)/agentPools/(?P<pool>[^/]+)", "GET"),
    "grow": (r".+/managedClusters/(?P<cluster>[^/]+)/agentPools/(?P<pool>[^/]+)", "PUT"),
    "deleteMachines": (r".+/managedClusters/(?P<cluster>[^/]+)/agentPools/(?P<pool>[^/]+)/deleteMachines", "POST"),
}


@cache
def model() -> dict[str, Any]:
    return json.loads(MODEL.read_text())


def named(value: dict[str, Any], of: str) -> None:
    """The names in an answer are those of the model. Raises AssertionError."""
    unknown = set(value) - set(model()["models"][of])
    assert not unknown, f"{of} has no {unknown}"


class FakeAzure(FakeCloud):
    """`machines` by their resource id in lower case."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[str, dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.pending: list[tuple[str, str, str]] = []
        self.reports: dict[str, dict[str, Any]] = {}
        self.insights: list[dict[str, Any]] = []
        self.blobs: dict[str, bytes] = {}
        self.grants: list[dict[str, Any]] = [{"actions": ["*"], "notActions": []}]
        self.pool = {"count": 3, "enableAutoScaling": False, "provisioningState": "Succeeded"}
        self._time = 0

    def machine(self, name: str = "gpu-1", scale_set: str = "", group: str = "RG1", **more: Any) -> str:
        kind = f"virtualMachineScaleSets/{scale_set}/virtualMachines" if scale_set else "virtualMachines"
        path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/{kind}/{name}"
        vm_id = f"5d9a3a60-7f4b-4b0e-9d33-{len(self.machines):012x}"
        self.machines[path.lower()] = {
            "vmId": vm_id,
            "power": "running",
            "state": "succeeded",
            "at": self.now(),
            **more,
        }
        return path

    def now(self) -> str:
        self._time += 1
        return f"2026-11-22T08:00:{self._time:02}.1234567+00:00"

    def settle(self) -> None:
        todo, self.pending = self.pending, []
        for what, path, name in todo:
            if name:
                self.operations[name]["status"] = "Succeeded"
            if what in ("delete", "deleteMachines"):
                self.machines.pop(path, None)
                self.pool["count"] -= what == "deleteMachines"
                continue
            power = {"powerOff": "stopped", "deallocate": "deallocated"}.get(what, "running")
            self.machines[path].update(power=power, state="succeeded", at=self.now())

    def update_by_somebody(self) -> None:
        """Somebody changes a tag or an extension of each machine: Azure's work on it ends at another time."""
        for seen in self.machines.values():
            seen["at"] = self.now()

    def fail(self) -> None:
        for _what, path, name in self.pending:
            error = {"code": "AllocationFailed", "message": "there is no capacity in the zone"}
            self.operations[name].update(status="Failed", error=error)
            self.machines[path].update(state="failed", at=self.now())
        self.pending = []

    # The wire.

    def route(self, asked: Asked) -> Operation:
        if asked.path == "/metadata/identity/oauth2/token":
            assert asked.headers.get("metadata") == "true"
            assert asked.query["resource"] == "https://management.azure.com/"
            body = {"access_token": TOKEN, "expires_in": "3599", "token_type": "Bearer"}
            return Operation("token", False, lambda: self._json(body))
        if asked.path.startswith("/blob/"):
            assert SIGNATURE in asked.raw_query
            assert "authorization" not in asked.headers, "a token goes to no blob store"
            return Operation(f"blob {asked.method}", False, lambda: self._blob(asked))
        assert asked.headers.get("authorization") == f"Bearer {TOKEN}"
        name, found = self._method(asked)
        body = json.loads(asked.body) if asked.body else {}
        path = asked.path.rpartition("/")[0] if name in CHANGES - {"delete", "report", "grow"} else asked.path
        run = getattr(self, f"do_{name}", None) or (lambda *_words: self._act(name, path.lower()))
        return Operation(name, name in CHANGES, lambda: run(path.lower(), found, body))

    def _method(self, asked: Asked) -> tuple[str, dict[str, str]]:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d(-preview)?", asked.query.get("api-version", "")), "no api-version"
        for name, (pattern, verb) in DOCUMENTED.items():
            found = re.fullmatch(pattern, asked.path)
            if found and verb == asked.method:
                self._allowed(name)
                return name, found.groupdict()
        for name, method in model()["methods"].items():
            found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["path"]), asked.path, re.IGNORECASE)
            if found and method["verb"] == asked.method:
                unknown = set(asked.query) - set(method["query"])
                assert not unknown, f"{name}: no parameters {unknown}"
                last = asked.path.rpartition("/")[2]
                word = {"GET": "get", "DELETE": "delete", "PUT": "report"}.get(asked.method, last)
                if "Impact" not in method["path"]:
                    kind = "virtualMachineScaleSets/virtualMachines" if "scale_set" in name else "virtualMachines"
                    ending = {"get": "read", "delete": "delete"}.get(word, f"{word}/action")
                    assert f"Microsoft.Compute/{kind}/{ending}" in ACTIONS, f"{kind}/{ending} is not in ACTIONS"
                return word, found.groupdict()
        raise AssertionError("no such method")

    def _allowed(self, name: str) -> None:
        needs = {
            "insights": "Microsoft.Impact/WorkloadImpacts/insights/read",
            "upload_token": "Microsoft.Impact/getUploadToken/action",
            "operation": "Microsoft.Compute/locations/operations/read",
            "pool": "Microsoft.ContainerService/managedClusters/agentPools/read",
            "grow": "Microsoft.ContainerService/managedClusters/agentPools/write",
            "deleteMachines": "Microsoft.ContainerService/managedClusters/agentPools/deleteMachines/action",
        }
        assert name not in needs or needs[name] in ACTIONS, name

    def _json(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
        return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _error(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
        return self._json({"error": {"code": code, "message": message}}, status, headers)

    def failure(self, kind: str, operation: Operation) -> Reply:
        if kind == "throttled":
            return self._error(429, "TooManyRequests", "slow down", {"Retry-After": "17"})
        if kind == "denied":
            return self._error(403, "AuthorizationFailed", "no right to that")
        return self._error(503, "ServiceUnavailable", "an error of Azure's own")

    def _blob(self, asked: Asked) -> Reply:
        if asked.method == "PUT":
            assert asked.headers["x-ms-blob-type"] == "BlockBlob"
            self.blobs[asked.path] = asked.body
            return Reply(201)
        return Reply(200, self.blobs[asked.path])

    # Methods.

    def _absent(self, path: str) -> Reply:
        return self._error(404, "ResourceNotFound", f"The Resource {path.rpartition('/')[2]!r} was not found")

    def do_get(self, path: str, found: dict[str, str], body: Any) -> Reply:
        seen = self.machines.get(path)
        if seen is None:
            return self._absent(path)
        uniform = "/virtualmachinescalesets/" in path
        view = {
            "statuses": [
                {"code": f"ProvisioningState/{seen['state']}", "level": "Info", "time": seen["at"]},
                {"code": f"PowerState/{seen['power']}", "level": "Info"},
            ],
            **({"maintenanceRedeployStatus": seen["maintenance"]} if "maintenance" in seen else {}),
        }
        own = {"vmId": seen["vmId"], "provisioningState": seen["state"].capitalize(), "instanceView": view}
        answer = {"name": path.rpartition("/")[2], "location": "eastus", "properties": own}
        named(answer, "VirtualMachineScaleSetVM" if uniform else "VirtualMachine")
        named(own, "VirtualMachineScaleSetVMProperties" if uniform else "VirtualMachineProperties")
        named(view, "VirtualMachineScaleSetVMInstanceView" if uniform else "VirtualMachineInstanceView")
        for status in view["statuses"]:
            named(status, "InstanceViewStatus")
        return self._json(answer)

    def _act(self, what: str, path: str) -> Reply:
        seen = self.machines.get(path)
        if seen is None:
            return self._absent(path)
        if seen["state"] == "updating":
            return self._error(409, "Conflict", "The request failed due to conflict with a concurrent request")
        seen["state"] = "updating"
        name = f"00000000-0000-0000-0000-{len(self.operations):012d}"
        self.operations[name] = {"status": "InProgress", "startTime": seen["at"], "name": name}
        self.pending.append((what, path, name))
        where = (
            f"{self.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/operations/{name}"
        )
        headers = {"Azure-AsyncOperation": f"{where}?p=secret&{SIGNATURE}", "Location": where, "Retry-After": "10"}
        return Reply(202, b"", headers)

    def do_operation(self, path: str, found: dict[str, str], body: Any) -> Reply:
        seen = self.operations.get(found["name"])
        return self._json(seen) if seen else self._error(404, "NotFound", "no such operation")

    def do_retrieveBootDiagnosticsData(self, path: str, found: dict[str, str], body: Any) -> Reply:
        self.blobs["/blob/console"] = b"x" * 5000 + b"\nNVRM: Xid (PCI:0000:4e:00): 79\n"
        self.blobs["/blob/screen"] = b"BM" + b"\0" * 60
        answer = {
            "serialConsoleLogBlobUri": f"{self.url}/blob/console?{SIGNATURE}",
            "consoleScreenshotBlobUri": f"{self.url}/blob/screen?{SIGNATURE}",
        }
        named(answer, "RetrieveBootDiagnosticsDataResult")
        return self._json(answer)

    # Reports.

    def do_report(self, path: str, found: dict[str, str], body: dict[str, Any]) -> Reply:
        named(body, "WorkloadImpact")
        own = body["properties"]
        named(own, "WorkloadImpactProperties")
        for name in ("startDateTime", "impactedResourceId", "impactCategory"):  # required, by the model
            assert own[name], name
        assert own["impactCategory"].startswith("Resource.Hpc."), own["impactCategory"]
        more = own["additionalProperties"]
        assert more.get("PhysicalHostName") or more.get("VmUniqueId"), "one of the two must be there"
        assert SIGNATURE not in more.get("LogUrl", ""), "the signature is no part of the log's address"
        self.reports[path.rpartition("/")[2]] = own
        return self._json({**body, "name": path.rpartition("/")[2]}, 201)

    def do_insights(self, path: str, found: dict[str, str], body: Any) -> Reply:
        return self._json({"value": self.insights})

    def do_upload_token(self, path: str, found: dict[str, str], body: Any) -> Reply:
        return self._json({"uploadUrl": f"{self.url}/blob/20261122080000_0a1b2c3d.gz?{SIGNATURE}"})

    def do_permissions(self, path: str, found: dict[str, str], body: Any) -> Reply:
        return self._json({"value": self.grants})

    # AKS.

    def do_pool(self, path: str, found: dict[str, str], body: Any) -> Reply:
        return self._json({"name": found["pool"], "properties": self.pool})

    def do_grow(self, path: str, found: dict[str, str], body: dict[str, Any]) -> Reply:
        self.pool.update(body["properties"])
        return self._json({"name": found["pool"], "properties": self.pool})

    def do_deleteMachines(self, path: str, found: dict[str, str], body: dict[str, Any]) -> Reply:
        (_name,) = body["machineNames"]
        (machine,) = self.machines
        self.pending.append(("deleteMachines", machine, ""))
        return Reply(202)
