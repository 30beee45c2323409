"""One cluster for a repairer: each request is sent once, and its result is one of three answers."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given
from nhc.marks.ports.repair import Answer, Machine, Right, Sent, Sighting
from nhc_adapters.kubernetes.api import access
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, Body, Client, namespaced, node_path
from nhc_adapters.kubernetes.api.errors import ApiError, Unreachable
from nhc_adapters.kubernetes.api.objects import get, is_ready, notes_of, texts
from nhc_adapters.kubernetes.api.rights import ClusterRight, tried
from nhc_adapters.kubernetes.nodes.boots import boot_id
from nhc_adapters.repair import LATER, CallFailed, RepairRefused, accepted

Object = Dict[str, Any]
NOT_FOUND, CONFLICT = 404, 409
JOBS = "apis/batch/v1"
NOT_READY = 60.0
"""Seconds after which a node whose kubelet is not ready may be asked again: a kubelet that restarts needs less."""


class KubeNode(NamedTuple):
    """A node as a repair needs it; `version` is its resourceVersion. `instance` names the machine: its providerID, its
    DMI UUID, or the object's uid.
    """

    name: str
    uid: str
    version: str
    provider_id: str
    uuid: str
    boot: str
    ready: bool
    deleted: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def instance(self) -> str:
        return self.provider_id or self.uuid or self.uid


def read_node(node: Mapping[str, Any]) -> KubeNode:
    """A node object. Pure."""
    meta: Mapping[str, Any] = node.get("metadata") or {}
    status: Mapping[str, Any] = node.get("status") or {}
    info: Mapping[str, Any] = status.get("nodeInfo") or {}
    return KubeNode(
        str(meta.get("name", "")), str(meta.get("uid", "")), str(meta.get("resourceVersion", "")),
        str(get(node, "spec", "providerID") or ""), _uuid(info), boot_id(node),
        is_ready(node), bool(meta.get("deletionTimestamp")), texts(meta.get("labels")), notes_of(node),
    )  # fmt: skip


def _uuid(info: Mapping[str, Any]) -> str:
    """DMI's UUID as the kubelet read it; "" if it found none and wrote /etc/machine-id instead (cAdvisor)."""
    uuid = str(info.get("systemUUID") or "").lower()
    return "" if uuid.replace("-", "") == str(info.get("machineID") or "").lower() else uuid


def machine_of(node: Mapping[str, Any]) -> Machine:
    """The machine behind a node object. Pure."""
    known = read_node(node)
    addresses = {str(address.get("type")): str(address.get("address")) for address in
                 (node.get("status") or {}).get("addresses") or ()}  # fmt: skip
    return Machine(
        known.name, known.provider_id, addresses.get("InternalIP", ""), known.uuid, known.boot, known.labels
    )  # fmt: skip


class RepairCluster:
    """One API server, for repairs: a changing request is never repeated."""

    def __init__(self, kubeconfig: str, context: str, timeout: float) -> None:
        self._where, self._timeout = (kubeconfig, context), timeout
        self._opened: Optional[Client] = None
        self._versions: Dict[str, str] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, own: access.ClusterSettings, environ: Given, timeout: float) -> RepairCluster:
        """The cluster of a repairer's settings."""
        return cls(own.kubeconfig_in(environ), own.context, timeout)

    def client(self) -> Client:
        """Raises AdapterError where no cluster is configured."""
        with self._lock:
            if self._opened is None:
                cluster = access.find(*self._where)
                self._opened = Client(
                    cluster, retry_for=0.0, connections=4, read_timeout=self._timeout, agent="nhc-remedy"
                )  # fmt: skip
            return self._opened

    def close(self) -> None:
        """End its connections."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # Reading.

    def find(self, path: str, **query: str) -> Optional[Object]:
        """An object, None if there is none. Raises CallFailed."""
        try:
            return self._request("GET", path, query=query)
        except CallFailed as error:
            if error.code == str(NOT_FOUND):
                return None
            raise

    def items(self, path: str, **query: str) -> List[Object]:
        """The objects of a collection; none where the API server has no such kind. Raises CallFailed."""
        try:
            return list(self.client().items(path, **query))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return []
            raise failed(f"GET {path}", error) from None
        except Unreachable as error:
            raise CallFailed(Answer.AMBIGUOUS, f"GET {path}: {error}") from None

    def log(self, namespace: str, pod: str, container: str, limit: int) -> str:
        """The first `limit` bytes of a pod's log, "" if the pod is gone. Raises AdapterError."""
        path = f"{namespaced(namespace, 'pods', pod)}/log"
        try:
            return self.client().text(path, container=container, limitBytes=str(limit))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return ""
            raise AdapterError(f"the log of the pod {namespace}/{pod} cannot be read: {error}") from None

    def version(self, group: str) -> str:
        """GROUP/VERSION that the API server prefers. Raises RepairRefused where it serves no such group, CallFailed."""
        if group not in self._versions:
            served = self.find(f"/apis/{group}")
            if served is None:
                raise RepairRefused(f"this API server has no {group}")
            self._versions[group] = str((served.get("preferredVersion") or {}).get("groupVersion") or "")
        return self._versions[group]

    def kind(self, group: str, plural: str, namespace: str = "", name: str = "") -> str:
        """The path of the objects of another controller's kind. Raises as `version`."""
        base = f"/apis/{self.version(group)}"
        where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{base}{where}/{plural}" + (f"/{quote(name, safe='')}" if name else "")

    def node(self, name: str) -> Optional[KubeNode]:
        """Raises CallFailed."""
        item = self.find(node_path(name))
        return None if item is None else read_node(item)

    def known(self, name: str) -> KubeNode:
        """Raises RepairRefused where the node is not there, CallFailed."""
        node = self.node(name)
        if node is None:
            raise RepairRefused(f"the cluster has no node {name}")
        return node

    def sighting(self, name: str) -> Sighting:
        """Raises as `known`."""
        node = self.known(name)
        return Sighting(time.time(), node.instance, node.boot, "ready" if node.ready else "not-ready")

    def compare(self, machine: Machine) -> KubeNode:
        """The node, if it is the intended machine. Raises RepairRefused, CallFailed."""
        node = self.known(machine.node)
        if machine.provider_id and node.provider_id and node.provider_id != machine.provider_id:
            raise RepairRefused(f"the node {machine.node} is {node.provider_id} now, not {machine.provider_id}")
        if machine.boot_id and node.boot and node.boot != machine.boot_id:
            raise RepairRefused(f"the node {machine.node} has booted since it was judged")
        if node.deleted:
            raise RepairRefused(f"the node {machine.node} is being deleted")
        return node

    def compare_ready(self, machine: Machine) -> KubeNode:
        """As `compare`, and the node would start a pod. Raises RepairRefused, CallFailed."""
        node = self.compare(machine)
        if not node.ready:
            raise RepairRefused(f"the kubelet of {machine.node} is not ready: it would start no pod", NOT_READY)
        return node

    def job(self, namespace: str, name: str) -> Optional[Object]:
        """A Job, None if there is none. Raises CallFailed."""
        return self.find(namespaced(namespace, "jobs", name, JOBS))

    def own_job(self, namespace: str, name: str, note: Tuple[str, str]) -> Optional[Object]:
        """The Job of this name, which an annotation says is ours; None if there is none. Raises CallFailed, REFUSED if
        a Job of another owner has the name.
        """
        job = self.job(namespace, name)
        if job is not None and notes_of(job).get(note[0]) != note[1]:
            raise CallFailed(
                Answer.REFUSED, f"the name {name} is taken by a Job that is not ours (annotation {note[0]})"
            )
        return job

    def pods_of(self, namespace: str, job: str) -> List[Object]:
        """The pods of a Job. Raises CallFailed."""
        return self.items(namespaced(namespace, "pods"), labelSelector=f"batch.kubernetes.io/job-name={job}")

    # Changing.

    def create_job(self, namespace: str, body: Body, **query: str) -> Object:
        """Raises as `create`."""
        return self.create(namespaced(namespace, "jobs", group=JOBS), body, **query)

    def create_once(self, body: Object, note: Tuple[str, str]) -> Tuple[Object, bool]:
        """The Job that an annotation says is ours, and whether it was created now: else it was sent before. Raises
        CallFailed.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            return self.create_job(namespace, body), True
        except CallFailed as error:
            if error.code != str(CONFLICT):
                raise
        job = self.own_job(namespace, name, note)
        if job is None:
            raise CallFailed(Answer.AMBIGUOUS, f"the Job {name} was there, and is gone")
        return job, False

    def create(self, path: str, body: Body, **query: str) -> Object:
        """Raises CallFailed; its code is 409 where the name is taken."""
        return self._request("POST", path, body, query=query)

    def patch(self, path: str, body: Body, kind: str) -> Object:
        """Raises CallFailed."""
        return self._request("PATCH", path, body, kind)

    def label(self, node: KubeNode, labels: Mapping[str, str]) -> Sent:
        """Set labels on a node, only as it was seen: the version in the patch holds that. Raises CallFailed."""
        body = {"metadata": {"labels": dict(labels), "resourceVersion": node.version}}
        self.patch(node_path(node.name), body, MERGE_PATCH)
        text = ", ".join(f"{key}={value}" for key, value in labels.items())
        return accepted(f"labelled the node {node.name}: {text}")

    def delete(self, path: str, body: Body) -> Object:
        """Raises CallFailed."""
        return self._request("DELETE", path, body)

    def _request(
        self, method: str, path: str, body: Optional[Body] = None, kind: str = "application/json",
        query: Optional[Mapping[str, str]] = None,
    ) -> Object:  # fmt: skip
        try:
            return self.client().request(method, path, body=body, content_type=kind, query=query, retry=False)
        except ApiError as error:
            raise failed(f"{method} {path}", error) from None
        except Unreachable as error:
            raise CallFailed(Answer.AMBIGUOUS, f"{method} {path}: {error}") from None

    # Rights.

    def rights(self, needed: Sequence[ClusterRight]) -> List[Right]:
        """Each right, asked of the API server (SelfSubjectAccessReview). Raises AdapterError."""
        return tried(self.client(), needed)


def failed(what: str, error: ApiError) -> CallFailed:
    """What an error of the API server proves: below 500 nothing was begun.

    A crowd (409, 429) may pass, and a token is renewed (401).
    """
    refused = error.status < 500
    wait = (error.retry_after or LATER) if error.status in (401, CONFLICT, 429) else 0.0
    return CallFailed(
        Answer.REFUSED if refused else Answer.AMBIGUOUS, f"{what}: {error}", str(error.status), wait,
        right=what if error.status == 403 else "",
    )  # fmt: skip
