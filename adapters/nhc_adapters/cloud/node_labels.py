"""Labels on a Kubernetes node, for the platforms that repair a node whose label asks for it (HyperPod, GKE).

It needs get and patch on nodes, and no credentials of a cloud.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

from nhc.ports.repair import Answer, Machine, Sent
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.repair.calls import LATER, CallFailed, RepairRefused, accepted


class LabelledNode(NamedTuple):
    """The labels that are on a node now. `version` is its resourceVersion."""

    labels: Mapping[str, str]
    provider_id: str
    boot_id: str
    uid: str
    version: str
    ready: bool


class NodeLabels:
    """One cluster's nodes. Each request is sent once."""

    def __init__(self, kubeconfig: str, context: str, timeout: float) -> None:
        self._where, self._timeout = (kubeconfig, context), timeout
        self._opened: Optional[Client] = None

    def read(self, name: str) -> LabelledNode:
        """Raises CallFailed, and AdapterError where no cluster is configured."""
        node = self._request("GET", name)
        meta: Mapping[str, Any] = node.get("metadata") or {}
        status: Mapping[str, Any] = node.get("status") or {}
        conditions = {
            str(condition.get("type")): condition.get("status") for condition in status.get("conditions") or []
        }
        return LabelledNode(
            labels={str(key): str(value) for key, value in (meta.get("labels") or {}).items()},
            provider_id=str((node.get("spec") or {}).get("providerID") or ""),
            boot_id=str((status.get("nodeInfo") or {}).get("bootID") or ""),
            uid=str(meta.get("uid") or ""),
            version=str(meta.get("resourceVersion") or ""),
            ready=conditions.get("Ready") == "True",
        )

    def compare(self, machine: Machine) -> LabelledNode:
        """The node, where it is the machine that is meant. Raises RepairRefused, CallFailed."""
        node = self.read(machine.node)
        if machine.provider_id and node.provider_id and node.provider_id != machine.provider_id:
            raise RepairRefused(f"the node {machine.node} is {node.provider_id} now, not {machine.provider_id}")
        if machine.boot_id and node.boot_id and node.boot_id != machine.boot_id:
            raise RepairRefused(f"the node {machine.node} has booted since it was judged")
        return node

    def label(self, machine: Machine, seen: LabelledNode, labels: Mapping[str, str]) -> Sent:
        """Set labels, only on the node as it was `seen`: the version in the patch holds that. Raises CallFailed."""
        self._request("PATCH", machine.node, {"metadata": {"labels": dict(labels), "resourceVersion": seen.version}})
        text = ", ".join(f"{key}={value}" for key, value in labels.items())
        return accepted(f"labelled the node {machine.node}: {text}")

    def _request(self, method: str, name: str, body: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        call = f"{method} node {name}"
        try:
            return self._client().request(method, node_path(name), body=body, content_type=MERGE_PATCH, retry=False)
        except ApiError as error:
            busy = error.status in (401, 409, 429)
            answer = Answer.REFUSED if error.status < 500 else Answer.AMBIGUOUS
            wait = (error.retry_after or LATER) if busy else 0.0
            right = f"{method.lower()} nodes" if error.status == 403 else ""
            raise CallFailed(answer, f"{call}: {error}", error.reason or str(error.status), wait, right=right) from None
        except Unreachable as error:
            raise CallFailed(Answer.AMBIGUOUS, f"{call}: {error}") from None

    def _client(self) -> Client:
        if self._opened is None:
            where = access.find(*self._where)
            self._opened = Client(where, retry_for=0.0, connections=1, read_timeout=self._timeout, agent="nhc-remedy")
        return self._opened
