"""Google's Compute Engine on loopback, with its metadata service. Every request and answer is checked against the
discovery document's part in tests/data/clouds: paths, parameters and their patterns, bodies, enumerations."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.support.clouds.server import Asked, FakeCloud, Operation, Reply

MODEL = Path(__file__).resolve().parents[2] / "data/clouds/google-compute-v1.json"
TOKEN = "ya29.secret-token-of-the-service-account"

CHANGES = {"reset", "stop", "start", "reportHostAsFaulty", "recreateInstances"}


@cache
def model() -> dict[str, Any]:
    return json.loads(MODEL.read_text())


def check(value: Any, schema: dict[str, Any], where: str) -> None:
    """A value is what its schema says. Raises AssertionError."""
    if "$ref" in schema:
        schema = model()["schemas"][schema["$ref"]]
    kind = schema.get("type")
    if kind == "object":
        assert isinstance(value, dict), f"{where}: {value!r} is no object"
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name, inner in value.items():
            assert name in properties or rest, f"{where}: no property {name}"
            check(inner, properties.get(name, rest), f"{where}.{name}")
    elif kind == "array":
        assert isinstance(value, list), f"{where}: {value!r} is no list"
        for number, inner in enumerate(value):
            check(inner, schema["items"], f"{where}[{number}]")
    elif kind == "string":
        assert isinstance(value, str), f"{where}: {value!r} is no text"
        assert value in schema.get("enum", [value]), f"{where}: {value!r} is none of {schema.get('enum')}"
        if "pattern" in schema:
            assert re.fullmatch(schema["pattern"], value), f"{where}: {value!r} does not match {schema['pattern']}"
    elif kind == "boolean":
        assert isinstance(value, bool), f"{where}: {value!r} is not true or false"
    elif kind == "integer":
        assert isinstance(value, int), f"{where}: {value!r} is no number"


class FakeGoogle(FakeCloud):
    """`instances` by name in zone us-central1-a of project p1; `groups` name the instances' managed groups."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[str, dict[str, Any]] = {}
        self.operations: list[dict[str, Any]] = []
        self.managed: dict[str, dict[str, Any]] = {}
        self.healing: dict[str, Any] = {}
        self.granted: set[str] | None = None
        self.pending: list[tuple[str, str, dict[str, Any]]] = []
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self._time = 0
        self._id = 1000

    def instance(self, group: str = "", **more: Any) -> str:
        self._id += 1
        name = f"gpu-{self._id}"
        items = [{"key": "created-by", "value": f"projects/123/zones/us-central1-a/instanceGroupManagers/{group}"}]
        self.instances[name] = {
            "id": str(self._id), "name": name, "status": "RUNNING", "lastStartTimestamp": self.now(),
            "networkInterfaces": [{"name": "nic0", "networkIP": f"10.128.0.{self._id - 1000}"}],
            "disks": [{"type": "PERSISTENT", "boot": True}], "metadata": {"items": items if group else []},
            "resourceStatus": {"physicalHost": "b/s/h1"}, **more,
        }  # fmt: skip
        if group:
            self.managed[name] = {"currentAction": "NONE"}
        return name

    def now(self) -> str:
        self._time += 1
        return f"2026-11-22T08:00:{self._time:02}.000-08:00"

    def settle(self) -> None:
        """What was begun goes on to its end."""
        todo, self.pending = self.pending, []
        for what, name, operation in todo:
            operation["status"] = "DONE"
            found = self.instances[name]
            if what == "stop":
                found["status"] = "TERMINATED"
            elif what == "recreateInstances":
                self._id += 1
                found.update(id=str(self._id), lastStartTimestamp=self.now(), status="RUNNING")
                self.managed[name]["currentAction"] = "NONE"
            else:
                found.update(status="RUNNING", lastStartTimestamp=self.now())

    def fail(self) -> None:
        """What was begun fails, as its operation says."""
        for _what, _name, operation in self.pending:
            error = {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "the zone has no capacity"}
            operation.update(status="DONE", error={"errors": [error]}, httpErrorStatusCode=503)
        self.pending = []

    # The wire.

    def route(self, asked: Asked) -> Operation:
        if asked.path.startswith("/computeMetadata/"):
            assert asked.headers.get("metadata-flavor") == "Google"
            body = json.dumps({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"})
            return Operation("token", False, lambda: Reply(200, body.encode()))
        assert asked.headers.get("authorization") == f"Bearer {TOKEN}"
        name, method, path = self._method(asked)
        for key, value in asked.query.items():
            assert key in method["parameters"], f"{name}: no parameter {key}"
            check(value, {**method["parameters"][key], "type": "string"}, f"{name}?{key}")
        body = json.loads(asked.body) if asked.body else {}
        if "request" in method:
            check(body, method["request"], name)
        else:
            assert not body, f"{name} takes no body"
        self.asked.append({"method": name, **asked.query, **({"body": body} if body else {})})
        word = name.rpartition(".")[2]

        def run() -> Reply:
            key = asked.query.get("requestId", "")
            if key and key in self.answers:
                return self._reply(self.answers[key], method, name)  # the same request again: the same answer
            about = "list_operations" if name.endswith("Operations.list") else word
            result = getattr(self, f"do_{about}")(path, asked.query, body)
            if isinstance(result, Reply):
                return result
            if key:
                self.answers[key] = result
            return self._reply(result, method, name)

        return Operation(name, word in CHANGES, run, asked.query.get("requestId", ""))

    def _reply(self, result: dict[str, Any], method: dict[str, Any], name: str) -> Reply:
        check(result, method["response"], name)
        return Reply(200, json.dumps(result).encode(), {"Content-Type": "application/json"})

    def _method(self, asked: Asked) -> tuple[str, dict[str, Any], dict[str, str]]:
        for name, method in model()["methods"].items():
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["path"])
            found = re.fullmatch("/" + pattern, asked.path)
            if found and method["httpMethod"] == asked.method:
                path = {key: unquote(value) for key, value in found.groupdict().items()}
                for key, value in path.items():
                    check(value, method["parameters"][key], f"{name}/{key}")
                return name, method, path
        raise AssertionError("no such method")

    def failure(self, kind: str, operation: Operation) -> Reply:
        status, reason = {
            "throttled": (403, "rateLimitExceeded"),
            "error": (503, "backendError"),
            "denied": (403, "forbidden"),
        }[kind]
        return self._error(status, reason, f"{kind}: {operation.name}")

    def _error(self, status: int, reason: str, message: str) -> Reply:
        errors = [{"reason": reason, "domain": "global", "message": message}]
        return Reply(status, json.dumps({"error": {"code": status, "message": message, "errors": errors}}).encode())

    # Methods.

    def _absent(self, name: str) -> Reply:
        return self._error(404, "notFound", f"The resource {name!r} was not found")

    def do_get(self, path: dict[str, str], query: dict[str, str], body: dict[str, Any]) -> Any:
        if "operation" in path:
            found = [one for one in self.operations if one["name"] == path["operation"]]
            return found[0] if found else self._absent(path["operation"])
        if "instanceGroupManager" in path:
            return {"name": path["instanceGroupManager"], **self.healing}
        return self.instances.get(path["instance"]) or self._absent(path["instance"])

    def do_list(self, path: dict[str, str], query: dict[str, str], body: dict[str, Any]) -> Any:
        return {"items": list(self.instances.values())}

    def do_list_operations(self, path: dict[str, str], query: dict[str, str], body: dict[str, Any]) -> Any:
        if not query.get("filter"):
            return {"items": self.operations}
        key = re.search(r'clientOperationId = "([^"]+)"', query["filter"])
        target = re.search(r'targetId = "(\d+)"', query["filter"])
        found = self.operations
        if key:
            found = [one for one in found if one.get("clientOperationId") == key[1]]
        if target:
            found = [one for one in found if one["targetId"] == target[1] and one["status"] != "DONE"]
        return {"items": found}

    def _operation(self, what: str, name: str, query: dict[str, str]) -> dict[str, Any]:
        made = {
            "name": f"operation-{len(self.operations)}", "status": "RUNNING", "operationType": what,
            "targetId": self.instances[name]["id"], "user": "nhc@p1.iam.gserviceaccount.com",
            **({"clientOperationId": query["requestId"]} if "requestId" in query else {}),
        }  # fmt: skip
        self.operations.append(made)
        self.pending.append((what, name, made))
        return made

    def do_reset(self, path, query, body):
        return self._operation("reset", path["instance"], query)

    def do_stop(self, path, query, body):
        self.instances[path["instance"]]["status"] = "STOPPING"
        return self._operation("stop", path["instance"], query)

    def do_start(self, path, query, body):
        self.instances[path["instance"]]["status"] = "STAGING"
        return self._operation("start", path["instance"], query)

    def do_reportHostAsFaulty(self, path, query, body):
        return self._operation("reportHostAsFaulty", path["instance"], query)

    def do_recreateInstances(self, path, query, body):
        (url,) = body["instances"]
        name = url.rpartition("/")[2]
        self.managed[name]["currentAction"] = "RECREATING"
        made = self._operation("recreateInstances", name, query)
        made["status"] = "DONE"  # the group has taken note, and has only begun
        return made

    def do_listManagedInstances(self, path, query, body):
        base = "https://www.googleapis.com/compute/v1/projects/p1/zones/us-central1-a/instances/"
        return {"managedInstances": [{"instance": base + name, **seen} for name, seen in self.managed.items()]}

    def do_testIamPermissions(self, path, query, body):
        wanted = body["permissions"]
        return {"permissions": [one for one in wanted if self.granted is None or one in self.granted]}

    def do_getSerialPortOutput(self, path, query, body):
        return {"contents": "x" * 5000 + "\nNVRM: Xid (PCI:0000:4e:00): 79\n", "next": "5032", "start": "0"}

    def do_getScreenshot(self, path, query, body):
        return self._error(400, "badRequest", "Display device is not enabled")
