"""EvictionRequests: a pod's own responders are asked to let it go, before it is evicted (KEP-4563, lifecycle.k8s.io).

Kubernetes 1.37 serves the kind behind the gate EvictionRequestAPI, in alpha (k8s.io/api/lifecycle/v1alpha1). Its
controller turns requests into Evictions and, where no responder acts, evicts by itself. Where nobody has looked at a
request for UNSEEN seconds, or it has failed, the caller evicts as ever: a drain does not hang on what is not installed.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Set

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import get, true_conditions

API = "apis/lifecycle.k8s.io/v1alpha1"
REQUESTER = "nhc/drain"

UNSEEN = 60.0
"""Seconds within which a controller that is there has looked at a request."""

ASKED = "its responders are asked to let it go (EvictionRequest)"


class _Request(NamedTuple):
    path: str
    since: float


class EvictionRequests:
    """The requests of one drain. They are withdrawn with it: who asks no more cancels what has not been done."""

    def __init__(self, client: Client, unseen: float = UNSEEN) -> None:
        self.client, self.unseen = client, unseen
        self._made: Dict[str, _Request] = {}
        self._over: Set[str] = set()
        """Pods that are to be evicted as ever, by uid."""
        self._none = False
        """Whether the cluster has no such kind, or does not let us."""

    def ask(self, pod: Mapping[str, Any], now: float) -> str:
        """Why a pod is waited for, "" where it is to be evicted. `now` is of a steady clock. Raises AdapterError."""
        uid = str(get(pod, "metadata", "uid"))
        # Pods of a PodGroup are no target of a request.
        if self._none or uid in self._over or get(pod, "spec", "schedulingGroup"):
            return ""
        if uid not in self._made:
            return ASKED if self._create(pod, uid, now) else ""
        made = self._made[uid]
        request = self.client.find(made.path)
        seen = get(request, "status", "observedGeneration") is not None
        failed = "Failed" in true_conditions(request or {})
        if request is None or failed or (not seen and now - made.since >= self.unseen):
            self._over.add(uid)
            return ""
        return ASKED

    def _create(self, pod: Mapping[str, Any], uid: str, now: float) -> bool:
        """Whether the request stands."""
        namespace, name = str(pod["metadata"]["namespace"]), f"nhc-{uid}"
        path = namespaced(namespace, "evictionrequests", group=API)
        target = {"pod": {"name": pod["metadata"]["name"], "uid": uid}}
        body = {
            "apiVersion": API.partition("/")[2], "kind": "EvictionRequest", "metadata": {"name": name},
            "spec": {"target": target, "requester": REQUESTER, "intent": "Eviction"},
        }  # fmt: skip
        try:
            self.client.post(path, body, retry=False)
        except ApiError as error:
            if error.status != 409:  # that one is there: another leader's, of the same drain
                self._none |= error.status in (403, 404)
                self._over.add(uid)
                return False
        self._made[uid] = _Request(f"{path}/{name}", now)
        return True

    def withdraw(self) -> None:
        """Take all requests back. Never raises AdapterError: those of pods that are gone are collected with them."""
        made, self._made = self._made, {}
        for request in made.values():
            try:
                self.client.delete(request.path)
            except AdapterError:
                continue
