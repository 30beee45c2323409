"""What is installed in a cluster, read once for all that the doctor asks, and what a finding of the doctor is."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.timestamps import from_utc
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import conditions_of, get
from nhc_adapters.kubernetes.controller.settings import ControllerSettings

OK, WARN, PROBLEM, UNKNOWN = "ok", "warn", "problem", "unknown"

SHOWN = 5
"""Names listed; the others are counted."""


OURS = {"labelSelector": "app.kubernetes.io/part-of=nhc"}
"""What all objects of an installation have, whatever they are called."""


class DoctorFinding(NamedTuple):
    """One thing found. `advice` is what to do about it."""

    level: str
    topic: str
    text: str
    advice: str = ""


class Installation:
    """What is installed in a cluster, read once. What may not be read is a finding and stays empty."""

    def __init__(
        self, client: Client, namespace: str, settings: ControllerSettings, now: Callable[[], float] = time.time
    ) -> None:
        self.client, self.namespace, self.settings, self.now = client, namespace, settings, now
        self.unread: List[DoctorFinding] = []
        apps = namespaced(namespace, "{}", group="apis/apps/v1")
        self.agents: List[Dict[str, Any]] = []
        self.configmaps: Dict[str, Mapping[str, str]] = {}
        chosen = {"labelSelector": settings.selector} if settings.selector else {}
        self.nodes = self.list("nodes", "/api/v1/nodes", **chosen)
        self.deployments = self.list("controller", apps.format("deployments"), **OURS)
        self.statefulsets = self.list("services", apps.format("statefulsets"), **OURS)
        self.pods = self.list("pods", namespaced(namespace, "pods"), **OURS)
        self._read_agents(namespace)
        if self.agents_namespace != namespace:
            self._read_agents(self.agents_namespace)

    @property
    def agents_namespace(self) -> str:
        """Where the agents are."""
        return self.settings.agent_namespace or self.namespace

    def _read_agents(self, namespace: str) -> None:
        """The agents of a namespace, and its ConfigMaps, among which are their settings."""
        self.agents += self.list("agents", namespaced(namespace, "daemonsets", group="apis/apps/v1"), **OURS)
        for item in self.list("settings", namespaced(namespace, "configmaps")):
            self.configmaps[str(item["metadata"]["name"])] = item.get("data") or {}

    def use(self, settings: ControllerSettings) -> None:
        """The settings in force, where they are not those of the command line."""
        before, self.settings = self.agents_namespace, settings
        if self.agents_namespace not in (before, self.namespace):
            self._read_agents(self.agents_namespace)

    def list(self, topic: str, path: str, **query: str) -> List[Dict[str, Any]]:
        try:
            return list(self.client.items(path, **query))
        except ApiError as error:
            self.unread.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
            return []

    def get(self, topic: str, path: str) -> Optional[Dict[str, Any]]:
        """An object, None where there is none or it may not be read (which is noted)."""
        try:
            return self.client.get(path)
        except ApiError as error:
            if error.status != 404:
                self.unread.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
            return None

    def refused_pods(self, topic: str, owners: str, namespace: str = "") -> str:
        """What the server said newest to a controller whose pods it did not take: a quota, PodSecurity, another policy;
        "" where it said nothing. `owners` is the controller's name or the beginning of it (a Deployment's ReplicaSet),
        `namespace` where it is, "" in the installation's.
        """
        path = namespaced(namespace or self.namespace, "events")
        events = self.list(topic, path, fieldSelector="reason=FailedCreate")
        told = [
            event
            for event in events
            if f"{get(event, 'involvedObject', 'name')}-".startswith(f"{owners}-") and event.get("message")
        ]
        newest = max(told, key=lambda event: from_utc(event.get("lastTimestamp") or event.get("eventTime")), default={})
        return printable(str(newest.get("message", "")), 400)

    def readable(self, topic: str) -> bool:
        return all(item.topic != topic for item in self.unread)


Check = Callable[[Installation], Iterator[DoctorFinding]]


def names(many: Sequence[str]) -> str:
    """A few names, and how many more."""
    chosen = sorted(many)
    more = f" and {len(chosen) - SHOWN} more" if len(chosen) > SHOWN else ""
    return f"{', '.join(chosen[:SHOWN])}{more}"


def spec_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object's spec; empty where the server left it out."""
    return item.get("spec") or {}


def pod_spec_of(owner: Mapping[str, object]) -> Mapping[str, Any]:
    """The spec of the pods that a Deployment or DaemonSet makes."""
    return spec_of(spec_of(owner).get("template") or {})


def pods_refused(said: str) -> str:
    """What to do where the server takes no pod, by its words."""
    if "PodSecurity" in said:
        return "the agents are privileged: kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged"
    if "quota" in said:
        return "raise the namespace's ResourceQuota, or make one for the priority class of these pods"
    return "change the policy that refuses them, or the pods (overlay, chart)"


def why_waiting(pod: Mapping[str, object]) -> str:
    """What a pod waits for: to be scheduled, what its containers say, or any other condition; "" where nothing does."""
    conditions = conditions_of(pod).items()
    unmet = {kind: row for kind, row in conditions if row.get("status") == "False" and row.get("message")}
    containers = (get(status, "state", "waiting") for status in get(pod, "status", "containerStatuses") or ())
    for waits in (unmet.pop("PodScheduled", None), *containers, *unmet.values()):
        if waits:
            return f"{waits.get('reason', '')}: {waits.get('message', '')}".strip(": ")
    return ""
