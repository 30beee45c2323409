"""What the admission policy lets an agent write: conditions of ours on its own node, tried on every field of a Node."""

from __future__ import annotations

import json
import time
from pathlib import Path as FilePath
from typing import Any, Iterator

import pytest
import yaml

from nhc_adapters.kubernetes.api.client import MERGE_PATCH, STRATEGIC, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.nodes.conditions import (
    Condition,
    NodeConditions,
    read_conditions,
    write_conditions,
)
from nhc_adapters.kubernetes.nodes.vocabulary_file import known, load
from tests.adapters.kubernetes.conftest import MANIFESTS
from tests.adapters.kubernetes.test_manifests import SYSTEM, chart
from tests.agent.conftest import Running
from tests.support.kube import Kube
from tests.support.waiting import until

Path = tuple[str, ...]


@pytest.fixture
def bound(kube: Kube, installed: Any) -> Iterator[tuple[str, str]]:
    """The token that the kubelet would give the agent's pod, and the node it runs on."""
    node = kube.node("mine", fake=False)
    kube.admin.patch(f"{node_path(node)}/status", FULL, MERGE_PATCH)
    name = f"agent-{kube.prefix}"
    spec = {"nodeName": node, "serviceAccountName": "nhc-agent", "containers": [{"name": "agent", "image": "none"}]}
    pod = kube.admin.post(
        f"/api/v1/namespaces/{SYSTEM}/pods", {"metadata": {"name": name, "namespace": SYSTEM}, "spec": spec}
    )
    token = kube.token("nhc-agent", SYSTEM, pod)
    client = kube.client(token)
    # A policy takes effect a moment after it was made; each probe differs, since what changes nothing is no offence.
    until(lambda: refused(client, node, {"metadata": {"labels": {"probe": str(time.monotonic_ns())}}}))
    yield token, node
    kube.admin.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{name}", {"gracePeriodSeconds": 0})


@pytest.fixture
def agent(kube: Kube, bound: tuple[str, str]) -> tuple[Client, str]:
    """A client with that token, and the node."""
    token, node = bound
    return kube.client(token), node


FULL = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"bootID": "b", "kernelVersion": "6"},
        "images": [{"names": ["a"], "sizeBytes": 1}],
        "volumesInUse": ["v"],
        "volumesAttached": [{"name": "v", "devicePath": "p"}],
        "phase": "Running",
    },
}
"""A Node as a kubelet leaves it, so that taking something away can be tried, too."""


def refused(client: Client, node: str, change: Any, kind: str = MERGE_PATCH) -> bool:
    try:
        client.patch(f"{node_path(node)}/status", change, kind)
    except ApiError as error:
        return error.status in (400, 403, 422)
    return False


class Fields:
    """Every field of a Node with a value that its schema takes, from the API server's own description."""

    def __init__(self, kube: Kube) -> None:
        self.schemas = kube.admin.get("/openapi/v3/api/v1")["components"]["schemas"]

    def all(self) -> list[tuple[Path, Any]]:
        found: list[tuple[Path, Any]] = []
        for part in ("metadata", "spec", "status"):
            self._walk((part,), self._of("io.k8s.api.core.v1.Node")["properties"][part], found)
        return found

    def _of(self, name: str) -> dict[str, Any]:
        return dict(self.schemas[name])

    def _solved(self, schema: dict[str, Any]) -> dict[str, Any]:
        refs = [schema, *schema.get("allOf", ())]
        name = next((one["$ref"].rpartition("/")[2] for one in refs if "$ref" in one), "")
        return self._of(name) if name else schema

    def _walk(self, path: Path, schema: dict[str, Any], found: list[tuple[Path, Any]]) -> None:
        solved = self._solved(schema)
        if "properties" in solved:
            for name, inner in solved["properties"].items():
                self._walk((*path, name), inner, found)
        else:
            found.append((path, self._value(solved)))

    def _value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        solved = self._solved(schema)
        kind = solved.get("type")
        if solved.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        if kind == "array":
            return [self._value(solved["items"], depth + 1)]
        if "properties" in solved:
            return {name: self._value(inner, depth + 1) for name, inner in solved["properties"].items() if depth < 4}
        if kind == "object":
            inner = solved.get("additionalProperties")
            return {"k": self._value(inner, depth + 1)} if isinstance(inner, dict) else {}
        return {"integer": 1, "boolean": True, "number": 1}.get(str(kind), "1")


def at(value: Any, path: Path) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def nested(path: Path, value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


BOOKKEEPING = {("metadata", "managedFields"), ("metadata", "resourceVersion"), ("metadata", "generation")}
"""What the API server itself writes with every change."""


def test_no_field_of_a_node_is_the_agents_but_its_conditions(kube: Kube, agent: tuple[Client, str]) -> None:
    client, mine = agent
    fields = [(path, value) for path, value in Fields(kube).all() if path not in BOOKKEEPING]
    assert len(fields) > 50
    changed = []
    for path, value in fields:
        for tried in (value, None):
            before = kube.get(mine)
            refused(client, mine, nested(path, tried))
            after = kube.get(mine)
            if at(before, path) != at(after, path) or after["metadata"].get("ownerReferences"):
                changed.append(path)
    assert changed == []
    assert ("status", "nodeInfo", "bootID") in dict(fields)
    assert ("status", "daemonEndpoints", "kubeletEndpoint", "Port") in dict(fields)
    assert at(kube.get(mine), ("status", "nodeInfo", "bootID")) == "b"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]}},
        {"metadata": {"finalizers": ["example.com/keep"]}},
        {"status": {"nodeInfo": {"bootID": "another"}}},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
        {"status": {"images": [{"names": ["evil"], "sizeBytes": 1}]}},
        {"status": {"volumesInUse": None}},
    ],
    ids=["owner", "finalizer", "boot id", "kubelet's port", "images", "volumes"],
)
def test_what_would_do_harm_is_refused_and_said(agent: tuple[Client, str], change: Any) -> None:
    client, mine = agent
    with pytest.raises(ApiError, match="nhc-agent may not") as caught:
        client.patch(f"{node_path(mine)}/status", change, MERGE_PATCH)
    assert caught.value.status == 403


def test_conditions_are_ours_or_refused(kube: Kube, agent: tuple[Client, str]) -> None:
    client, mine = agent
    kube.set_condition(mine, "SomebodyElses", "True")

    def says(kind: str, status: str) -> Condition:
        return Condition(kind, status, "Test", "", time.time(), time.time())

    types = sorted({one.type for name in known() for one in load(name).conditions})
    write_conditions(client, mine, [says(kind, "False") for kind in types])

    assert {kind for kind in types if kube.condition(mine, kind) is None} == set()
    for kind in ("Ready", "MemoryPressure", "SomebodyElses", "Invented", "NhcJobDeviceError", "NhcKernelLogFault"):
        with pytest.raises(ApiError, match="conditions"):
            write_conditions(client, mine, [says(kind, "False")])
    # The list as a whole, or an entry of it, cannot be taken away either.
    assert refused(client, mine, {"status": {"conditions": []}})
    gone = {"status": {"conditions": [{"type": "SomebodyElses", "$patch": "delete"}]}}
    assert refused(client, mine, gone, STRATEGIC)
    assert (kube.condition(mine, "SomebodyElses") or {})["status"] == "True"


def test_a_sites_own_conditions_are_added_in_the_chart(plane: Any) -> None:
    def ours(text: str) -> str:
        (policy,) = [doc for doc in yaml.safe_load_all(text) if doc and doc["kind"] == "ValidatingAdmissionPolicy"]
        (found,) = [one["expression"] for one in policy["spec"]["variables"] if one["name"] == "ours"]
        return str(found)

    shipped = ours((MANIFESTS / "base/admission.yaml").read_text())
    assert ours(chart(plane, "--set=admissionPolicy.conditions={SiteA,SiteB}")) == shipped[:-1] + ", 'SiteA', 'SiteB']"


FOREIGN = {
    "plugin": "custom",
    "pluginConfig": {"invoke_interval": "200ms", "timeout": "5s"},
    "source": "site",
    "conditions": [{"type": "GpuProblem", "reason": "Fine", "message": "fine"},
                   {"type": "DiskBadBlock", "reason": "Fine", "message": "fine"}],
    "rules": [{"type": "permanent", "condition": "GpuProblem", "reason": "Bad", "path": "/bin/false"},
              {"type": "permanent", "condition": "DiskBadBlock", "reason": "Bad", "path": "/bin/false"}],
}  # fmt: skip
"""A site's rule file with a condition that the policy does not list, beside one that it does."""


def test_a_condition_that_the_policy_refuses_keeps_no_other_from_the_node(
    kube: Kube, bound: tuple[str, str], tmp_path: FilePath
) -> None:
    token, node = bound
    kubeconfig, rules = tmp_path / "kubeconfig", tmp_path / "site.json"
    kubeconfig.write_text(json.dumps(kube.plane.config(token)))
    rules.write_text(json.dumps(FOREIGN))
    running = Running(tmp_path)
    running.configure(
        f"* |every 200ms| check_file_test -e {tmp_path}/never\n",
        f'[npd]\ncustom-plugin-monitor = "{rules}"\n[sinks.kubernetes]\nkubeconfig = "{kubeconfig}"\nnode = "{node}"\n',
        agent="kernel-log = false",
    )
    try:
        running.start(wait=False)
        until(lambda: (kube.condition(node, "NhcHealthy") or {}).get("status") == "False")
        until(lambda: (kube.condition(node, "DiskBadBlock") or {}).get("status") == "True")
        assert kube.condition(node, "GpuProblem") is None
        problem = until(lambda: running.status()["sinks"]["kubernetes"]["problem"])
        assert "GpuProblem" in problem
        assert "DiskBadBlock" not in problem
        code, text = running.get("/healthz")[:2]
        assert (code, "GpuProblem" in str(text)) == (503, True)
        assert running.get("/livez")[0] == 200
    finally:
        running.stop()


def test_a_policy_that_refuses_several_costs_those_alone_and_is_not_asked_for_them_with_each_change(
    kube: Kube, agent: tuple[Client, str]
) -> None:
    client, node = agent
    now = [1000.0]
    conditions = NodeConditions(client, node, monotonic=lambda: now[0])
    strange = [Condition(f"Strange{number}", "True", "Bad", "x") for number in range(3)]
    ours = [Condition(kind, "True", "Fine", "x") for kind in ("NhcHealthy", "GpuXid", "XfsShutdown", "NTPProblem")]
    conditions.say([*strange[:1], *ours[:2], *strange[1:2], *ours[2:], *strange[2:]])
    assert conditions.flush()
    assert set(conditions.refused) == {condition.type for condition in strange}
    assert {condition.type for condition in ours} <= set(read_conditions(kube.get(node)))
    assert not conditions.flush()
    sent = sum(client.counts.values())
    conditions.say([Condition("GpuXid", "False", "Xid79", "y")])
    assert conditions.flush()
    assert sum(client.counts.values()) == sent + 1
    assert (kube.condition(node, "GpuXid") or {})["status"] == "False"


def test_an_account_that_may_write_nothing_is_refused_with_one_request(kube: Kube) -> None:
    node = kube.node(fake=False)
    client = kube.client(kube.token("default", kube.namespace))
    conditions = NodeConditions(client, node)
    conditions.say([Condition(kind, "True", "Fine", "x") for kind in ("NhcHealthy", "GpuXid", "XfsShutdown")])
    with pytest.raises(ApiError, match="forbidden"):
        conditions.flush()
    assert sum(client.counts.values()) == 1
