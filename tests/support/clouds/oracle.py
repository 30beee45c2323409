"""Oracle's Compute and Container Engine on loopback.

Signatures are verified; paths, parameters, bodies, and the names and words of answers are checked against what Oracle's
library ships (tests/data/clouds/oracle.json).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.clouds.server import Asked, FakeCloud, Operation, Reply

MODEL = Path(__file__).resolve().parents[2] / "data/clouds/oracle.json"
KEY_ID = "ocid1.tenancy.oc1..t/ocid1.user.oc1..u/20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"
COMPARTMENT = "ocid1.compartment.oc1..c1"
POOL = "ocid1.instancepool.oc1.us-chicago-1.p1"
NODE_POOL = "ocid1.nodepool.oc1.us-chicago-1.n1"
CLUSTER = "ocid1.computegpumemorycluster.oc1.us-chicago-1.g1"

CHANGES = {
    "instance_action", "terminate_instance", "detach_instance_pool_instance", "delete_node",
    "update_compute_gpu_memory_cluster",
}  # fmt: skip
BODIES = {
    "update_instance": "UpdateInstanceDetails",
    "detach_instance_pool_instance": "DetachInstancePoolInstanceDetails",
    "capture_console_history": "CaptureConsoleHistoryDetails",
    "update_compute_gpu_memory_cluster": "UpdateComputeGpuMemoryClusterDetails",
    "instance_action": "RebootMigrateActionDetails",
}
ACTIONS = {
    "STOP", "START", "SOFTRESET", "RESET", "SOFTSTOP", "SENDDIAGNOSTICINTERRUPT", "DIAGNOSTICREBOOT", "REBOOTMIGRATE",
}  # fmt: skip


@cache
def model() -> dict[str, Any]:
    return json.loads(MODEL.read_text())


@cache
def key() -> rsa.RSAPrivateKey:
    """Short, because every client looks whether the key is one, which takes 40 ms for 2048 bits. It signs alike."""
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)


def fits(value: dict[str, Any], name: str) -> None:
    """Names and words are those of the model. Raises AssertionError."""
    known = model()["models"][name]
    unknown = set(value) - set(known["fields"])
    assert not unknown, f"{name} has no {unknown}"
    for field, words in known["words"].items():
        if field in value:
            assert value[field] in words, f"{name}.{field}: {value[field]!r} is none of {words}"


def verified(asked: Asked, target: str) -> None:
    """The request's signature is that of the key. Raises AssertionError."""
    said = dict(re.findall(r'(\w+)="([^"]*)"', asked.headers.get("authorization", "")))
    assert said.get("keyId") == KEY_ID
    assert said["algorithm"] == "rsa-sha256"
    names = said["headers"].split()
    assert {"(request-target)", "host", "date"} <= set(names)
    if asked.method in ("POST", "PUT"):
        assert {"x-content-sha256", "content-type", "content-length"} <= set(names)
        assert asked.headers["x-content-sha256"] == base64.b64encode(hashlib.sha256(asked.body).digest()).decode()
    lines = [f"{name}: {target if name == '(request-target)' else asked.headers[name]}" for name in names]
    key().public_key().verify(
        base64.b64decode(said["signature"]), "\n".join(lines).encode(), padding.PKCS1v15(), hashes.SHA256()
    )


class FakeOracle(FakeCloud):
    """`instances` by OCID; `members` of POOL, `nodes` of NODE_POOL; CLUSTER has `cluster_size` instances."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        pem = key().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / "key.pem").write_bytes(pem)
        self.config = directory / "config"
        tenancy, user, print_ = KEY_ID.split("/")
        lines = ["[DEFAULT]", f"tenancy={tenancy}", f"user={user}", f"fingerprint={print_}", "region=us-chicago-1"]
        self.config.write_text("\n".join([*lines, f"key_file={directory}/key.pem", ""]))
        self.instances: dict[str, dict[str, Any]] = {}
        self.members: list[str] = []
        self.nodes: dict[str, str] = {}
        self.cluster_size = 4
        self.events: list[dict[str, Any]] = []
        self.work: dict[str, str] = {}
        self.namespace = True
        self.pending: list[tuple[str, str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.queries: list[dict[str, str]] = []
        self._number = 0
        self._clock = datetime.now(timezone.utc)

    def instance(self, kind: str = "", **more: Any) -> str:
        self._number += 1
        ocid = f"ocid1.instance.oc1.us-chicago-1.i{self._number}"
        self._clock += timedelta(seconds=1)
        self.instances[ocid] = {
            "id": ocid, "lifecycleState": "RUNNING", "compartmentId": COMPARTMENT, "etag": f"e{self._number}",
            "definedTags": {"Ops": {"owner": "ml"}}, "timeCreated": self._clock.isoformat(), **more,
        }  # fmt: skip
        if kind == "pool":
            self.members.append(ocid)
        if kind == "oke":
            self.nodes[ocid] = "ACTIVE"
        return ocid

    def settle(self) -> None:
        todo, self.pending = self.pending, []
        for what, ocid, work in todo:
            if work:
                self.work[work] = "SUCCEEDED"
            if what in ("detach", "terminate", "node"):
                self.instances[ocid]["lifecycleState"] = "TERMINATED"
            if what == "detach":
                self.members.remove(ocid)
                self.instance("pool")
            elif what == "node":
                del self.nodes[ocid]
                self.instance("oke")
            elif what == "terminate" and not self.members and not self.nodes:
                self.cluster_size -= 1

    # The wire.

    def route(self, asked: Asked) -> Operation:
        target = f"{asked.method.lower()} {asked.path}{f'?{asked.raw_query}' if asked.raw_query else ''}"
        verified(asked, target)
        name, method, path = self._method(asked)
        unknown = set(asked.query) - set(method["query"])
        assert not unknown, f"{name}: no parameters {unknown}"
        for header in ("if-match", "opc-retry-token"):
            assert header not in asked.headers or header in method["headers"], f"{name} takes no {header}"
        assert len(asked.headers.get("opc-retry-token", "")) <= 64
        body = json.loads(asked.body) if asked.body else {}
        if body:
            fits(body, BODIES[name])
        self.bodies.append(body)
        self.queries.append(asked.query)
        ocid = next(iter(path.values()), "")

        def run() -> Reply:
            etag = asked.headers.get("if-match")
            if etag and ocid in self.instances and etag != self.instances[ocid]["etag"]:
                return self._error(412, "NoEtagMatch", "the etag does not match")
            return getattr(self, f"do_{name}")(path, asked.query, body)

        return Operation(name, name in CHANGES, run, asked.headers.get("opc-retry-token", ""))

    def _method(self, asked: Asked) -> tuple[str, dict[str, Any], dict[str, str]]:
        for name, method in model()["methods"].items():
            found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", method["path"]), asked.path)
            if found and method["verb"] == asked.method:
                return name, method, found.groupdict()
        raise AssertionError("no such method")

    def _json(self, value: Any, of: str = "", status: int = 200, **headers: str) -> Reply:
        for one in value if isinstance(value, list) else [value]:
            if of:
                fits(one, of)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return Reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **named})

    def _error(self, status: int, code: str, message: str) -> Reply:
        return self._json({"code": code, "message": message}, status=status)

    def failure(self, kind: str, operation: Operation) -> Reply:
        status, code = {
            "throttled": (429, "TooManyRequests"),
            "error": (500, "InternalServerError"),
            "denied": (404, "NotAuthorizedOrNotFound"),
        }[kind]
        return self._error(status, code, f"{kind}: {operation.name}")

    # Methods.

    def do_get_instance(self, path, query, body):
        found = self.instances.get(path["instanceId"])
        if found is None:
            return self._error(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
        shown = {name: value for name, value in found.items() if name != "etag"}
        return self._json(shown, "Instance", etag=found["etag"])

    def do_list_instances(self, path, query, body):
        return self._json([{"id": one} for one in self.instances])

    def do_update_instance(self, path, query, body):
        found = self.instances[path["instanceId"]]
        if self.namespace:
            found["definedTags"] = body["definedTags"]
        found["etag"] += "+"
        return self.do_get_instance(path, query, body)

    def do_instance_action(self, path, query, body):
        assert query["action"] in ACTIONS, query["action"]
        self.pending.append((query["action"], path["instanceId"], ""))
        return self.do_get_instance(path, query, body)

    def do_terminate_instance(self, path, query, body):
        self.instances[path["instanceId"]]["lifecycleState"] = "TERMINATING"
        self.pending.append(("terminate", path["instanceId"], ""))
        return Reply(204)

    def do_get_instance_pool_instance(self, path, query, body):
        if path["instanceId"] not in self.members or path["instancePoolId"] != POOL:
            return self._error(404, "NotAuthorizedOrNotFound", "not of the pool")
        return self._json({"id": path["instanceId"], "state": "Running"}, "InstancePoolInstance")

    def do_list_instance_pool_instances(self, path, query, body):
        assert query["compartmentId"] == COMPARTMENT
        found = [
            {"id": one, "state": "Running", "timeCreated": self.instances[one]["timeCreated"]} for one in self.members
        ]
        return self._json(found, "InstanceSummary")

    def do_detach_instance_pool_instance(self, path, query, body):
        self.instances[body["instanceId"]]["lifecycleState"] = "TERMINATING"
        self.pending.append(("detach", body["instanceId"], ""))
        return self._json({"id": body["instanceId"], "lifecycleState": "DETACHING"}, "InstancePoolInstance")

    def do_delete_node(self, path, query, body):
        self.nodes[path["nodeId"]] = "DELETING"
        self.work["w1"] = "IN_PROGRESS"
        self.pending.append(("node", path["nodeId"], "w1"))
        return Reply(202, b"", {"opc-work-request-id": "w1"})

    def do_get_node_pool(self, path, query, body):
        nodes = [{"id": one, "lifecycleState": state} for one, state in self.nodes.items()]
        for node in nodes:
            fits(node, "Node")
        pool = {"id": NODE_POOL, "nodes": nodes, "nodeConfigDetails": {"size": 1}, "lifecycleState": "ACTIVE"}
        return self._json(pool, "NodePool")

    def do_get_work_request(self, path, query, body):
        return self._json({"id": path["workRequestId"], "status": self.work[path["workRequestId"]]}, "WorkRequest")

    def do_list_instance_maintenance_events(self, path, query, body):
        assert query["compartmentId"] == COMPARTMENT
        found = [one for one in self.events if one["instanceId"] == query["instanceId"]]
        return self._json(found, "InstanceMaintenanceEventSummary")

    def do_get_compute_gpu_memory_cluster(self, path, query, body):
        found = {"id": CLUSTER, "size": self.cluster_size, "lifecycleState": "ACTIVE"}
        return self._json(found, "ComputeGpuMemoryCluster", etag="c1")

    def do_update_compute_gpu_memory_cluster(self, path, query, body):
        self.cluster_size = body["size"]
        return self.do_get_compute_gpu_memory_cluster(path, query, body)

    def do_capture_console_history(self, path, query, body):
        return self._json({"id": "h1", "lifecycleState": "REQUESTED"}, "ConsoleHistory")

    def do_get_console_history(self, path, query, body):
        return self._json({"id": "h1", "lifecycleState": "SUCCEEDED"}, "ConsoleHistory")

    def do_get_console_history_content(self, path, query, body):
        return Reply(200, b"x" * 5000 + b"\nNVRM: Xid (PCI:0000:4e:00): 79\n", {"Content-Type": "text/plain"})

    def do_delete_console_history(self, path, query, body):
        return Reply(204)
