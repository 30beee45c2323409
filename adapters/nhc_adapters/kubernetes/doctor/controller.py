"""What the doctor checks of the controller: settings, policy, rights, its pods, its Lease, its network, the clock."""

from __future__ import annotations

import os
import tempfile
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.limits import NO_LIMIT
from nhc.core.model import printable
from nhc.core.settings.settings_file import SettingsError
from nhc.core.timestamps import from_utc
from nhc.marks.policy.mark_decision import without_effect
from nhc_adapters.kubernetes.api.access import IN_CLUSTER
from nhc_adapters.kubernetes.api.client import Client, namespaced
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.objects import conditions_of, get
from nhc_adapters.kubernetes.api.rights import denied
from nhc_adapters.kubernetes.controller.rights import of_agent, of_controller
from nhc_adapters.kubernetes.controller.settings import ControllerSettings, read
from nhc_adapters.kubernetes.nodes.known_types import strangers
from nhc_adapters.kubernetes.nodes.view import node_state

# What is installed in a cluster, read once for all that the doctor asks, and what a finding of the doctor is.


OK, WARN, PROBLEM, UNKNOWN = "ok", "warn", "problem", "unknown"

SHOWN = 5
"""Names listed; the others are counted."""


OURS = {"labelSelector": "app.kubernetes.io/part-of=nhc"}
"""The label of all objects of an installation, independent of their names."""


class DoctorFinding(NamedTuple):
    """One thing found. `advice` is what to do about it."""

    level: str
    topic: str
    text: str
    advice: str = ""


class Installation:
    """What is installed in a cluster, read once. An object that may not be read is a finding and stays empty."""

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
        """The settings in force, if they are not those of the command line."""
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
        """An object, None if there is none or it may not be read (which is noted)."""
        try:
            return self.client.get(path)
        except ApiError as error:
            if error.status != 404:
                self.unread.append(DoctorFinding(UNKNOWN, topic, f"cannot be looked at: {error}"))
            return None

    def refused_pods(self, topic: str, owners: str, namespace: str = "") -> str:
        """The server's newest message to a controller whose pods it refused: a quota, PodSecurity, another policy; ""
        for none. `owners` is the controller's name or the beginning of it (a Deployment's ReplicaSet), `namespace`
        where it is, "" in the installation's.
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
    """What a pod waits for: scheduling, its containers' reasons, or any other condition; "" for nothing."""
    conditions = conditions_of(pod).items()
    unmet = {kind: row for kind, row in conditions if row.get("status") == "False" and row.get("message")}
    containers = (get(status, "state", "waiting") for status in get(pod, "status", "containerStatuses") or ())
    for waits in (unmet.pop("PodScheduled", None), *containers, *unmet.values()):
        if waits:
            return f"{waits.get('reason', '')}: {waits.get('message', '')}".strip(": ")
    return ""


COMPONENT = "app.kubernetes.io/component"
SKEW = 30.0
"""Seconds by which a clock may differ. Marks, rates and silences are counted in minutes."""

OLDEST = (1, 30)
"""The first version whose API server tells the admission policy which node a pod's token belongs to."""


def api(site: Installation) -> Iterator[DoctorFinding]:
    version = site.client.get("/version")
    text = str(version.get("gitVersion", ""))
    number = tuple(int("".join(filter(str.isdigit, str(version.get(key, "0")))) or 0) for key in ("major", "minor"))
    if number < OLDEST:
        yield DoctorFinding(
            PROBLEM,
            "api",
            f"Kubernetes {text} is too old",
            "the admission policy that binds agents to their nodes needs 1.30: upgrade, or switch it off in the chart",
        )
    else:
        yield DoctorFinding(OK, "api", f"Kubernetes {text} at {site.client.access.server}")
    when = parsedate_to_datetime(site.client.date()).timestamp()
    apart = time.time() - when
    if abs(apart) > SKEW:
        yield DoctorFinding(
            PROBLEM,
            "clocks",
            f"this machine's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the API server's",
            "synchronise it: NTP or chrony",
        )
    else:
        yield DoctorFinding(OK, "clocks", "this machine's clock and the API server's agree")


def settings(site: Installation) -> Iterator[DoctorFinding]:
    """The settings in force are those of the ConfigMap; those of the command line count where there is none."""
    name = _settings_map(site)
    data = site.configmaps.get(name)
    if data is None:
        if site.readable("settings"):
            yield DoctorFinding(
                WARN,
                "settings",
                f"there is no ConfigMap {name} in {site.namespace}",
                "install the base or the chart; --namespace says where it is",
            )
        return
    try:
        site.use(parsed(data))
    except SettingsError as error:
        yield DoctorFinding(PROBLEM, "settings", str(error), f"kubectl -n {site.namespace} edit configmap {name}")
        return
    strange = strangers(site.settings.faults, site.nodes, site.settings.vocabularies)
    for level, lines in ((PROBLEM, strange.refused), (WARN, strange.unseen)):
        for line in lines:
            yield DoctorFinding(level, "settings", line, "see `faults`")
    if site.settings.apply:
        yield DoctorFinding(OK, "settings", "the controller acts (apply = true)")
    else:
        yield DoctorFinding(
            WARN,
            "settings",
            "a dry run: the controller only says what it would do",
            f"kubectl -n {site.namespace} edit configmap {name}: apply = true",
        )
    if site.settings.namespace != site.namespace:
        yield DoctorFinding(
            PROBLEM,
            "settings",
            f"namespace = {site.settings.namespace!r}, but the controller is in "
            f"{site.namespace}: its rights to a Lease are there",
            f'set namespace = "{site.namespace}"',
        )


def _settings_map(site: Installation) -> str:
    """The ConfigMap that the controller's pods use as their settings, under any name."""
    usual = site.settings.object_name("settings")
    if usual in site.configmaps:
        return usual
    for deployment in site.deployments:
        volumes = pod_spec_of(deployment).get("volumes") or ()
        if get(deployment, "metadata", "labels", COMPONENT) == "controller":
            return next((str(get(one, "configMap", "name")) for one in volumes if one.get("name") == "settings"), usual)
    return usual


def parsed(data: Mapping[str, str]) -> ControllerSettings:
    """The settings that a ConfigMap's files hold. Raises SettingsError, which names the file alone."""
    with tempfile.TemporaryDirectory(prefix="nhc-doctor-") as directory:
        for name, text in data.items():
            Path(directory, os.path.basename(name)).write_text(text, encoding="utf-8")
        try:
            return read(os.path.join(directory, "kubernetes.toml"))
        except SettingsError as error:
            raise SettingsError(str(error).replace(f"{directory}/", "")) from None


def policy(site: Installation) -> Iterator[DoctorFinding]:
    chosen = site.settings.policy
    size = len(site.nodes)
    limit = chosen.ceiling.of(size)
    if limit == 0:
        yield DoctorFinding(
            WARN,
            "policy",
            "the ceiling allows no node to be out: none will ever be marked",
            "raise `out` under [bounds.fleet]",
        )
    elif size:
        most = "any number" if limit == NO_LIMIT else str(limit)
        yield DoctorFinding(OK, "policy", f"at most {most} of {size} nodes may be out by nhc's doing")
    for line in without_effect(chosen, [node_state(node, (), site.settings.topologies) for node in site.nodes]):
        yield DoctorFinding(WARN, "policy", line, "groups are labels named under `topologies`, as label=value")


def rights(site: Installation) -> Iterator[DoctorFinding]:
    ours = site.settings.object_name("controller")
    acting = [one for one in site.deployments if get(one, "metadata", "labels", COMPONENT) == "controller"]
    accounts = [
        (site.namespace, _account(acting, ours), of_controller(site.settings)),
        (site.agents_namespace, _account(site.agents, site.settings.object_name("agent")), of_agent()),
    ]
    for namespace, name, wanted in accounts:
        try:
            missing = denied(site.client, wanted, f"system:serviceaccount:{namespace}:{name}")
        except ApiError as error:
            if error.status != 403 or site.client.access.source != IN_CLUSTER or name != ours:
                site.unread.append(DoctorFinding(UNKNOWN, "rights", f"{name}: cannot be looked at: {error}"))
                continue
            missing = denied(site.client, wanted)  # in the controller's own pod: that account asks for itself
        for right in missing:
            yield DoctorFinding(PROBLEM, "rights", f"{name}: {right.missing()}")
        if not missing:
            yield DoctorFinding(OK, "rights", f"{name} has all {len(wanted)} rights that it needs")


def _account(owners: List[Dict[str, Any]], usual: str) -> str:
    for owner in owners:
        return str(pod_spec_of(owner).get("serviceAccountName") or usual)
    return usual


def controller(site: Installation) -> Iterator[DoctorFinding]:
    if not site.deployments:
        if site.readable("controller"):
            yield DoctorFinding(
                WARN, "controller", f"no controller is installed in {site.namespace}: nothing will be marked"
            )
        return
    for deployment in site.deployments:
        name, status = deployment["metadata"]["name"], deployment.get("status") or {}
        wanted, ready = int(spec_of(deployment).get("replicas", 1)), int(status.get("readyReplicas") or 0)
        if ready:
            yield DoctorFinding(OK if ready >= wanted else WARN, "controller", f"{name}: {ready} of {wanted} ready")
        else:
            why = _why_not_running(site, deployment)
            said = "" if why else site.refused_pods("controller", str(name))
            yield DoctorFinding(
                PROBLEM,
                "controller",
                f"{name}: none of {wanted} is ready{f': {said}' if said else why}",
                pods_refused(said)
                if said
                else f"kubectl -n {site.namespace} describe pods -l app.kubernetes.io/component=controller",
            )
    own = site.settings.object_name("controller")
    lease = site.get("controller", namespaced(site.namespace, "leases", own, "apis/coordination.k8s.io/v1"))
    spec = (lease or {}).get("spec") or {}
    holder, renewed = str(spec.get("holderIdentity") or ""), from_utc(spec.get("renewTime"))
    if holder and time.time() - renewed < 60.0 + SKEW:
        yield DoctorFinding(OK, "controller", f"{holder} leads")
    else:
        since = f"since {spec.get('renewTime')}" if renewed else "yet"
        yield DoctorFinding(
            PROBLEM, "controller", f"nobody has led {since}", "the controller's log says why; see rights"
        )


def _why_not_running(site: Installation, deployment: Mapping[str, object]) -> str:
    labels = (spec_of(deployment).get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    for pod in site.list("controller", namespaced(site.namespace, "pods"), labelSelector=selector):
        why = why_waiting(pod)
        if why:
            return f": {why}"
    return ""


def network(site: Installation) -> Iterator[DoctorFinding]:
    """Whether the NetworkPolicy lets the controller reach the API server where its endpoints are."""
    name = site.settings.object_name("controller")
    path = namespaced(site.namespace, "networkpolicies", name, "apis/networking.k8s.io/v1")
    limits = site.get("network", path)
    if limits is None or "Egress" not in (spec_of(limits).get("policyTypes") or ()):
        return
    slices = site.list(
        "network",
        namespaced("default", "endpointslices", group="apis/discovery.k8s.io/v1"),
        labelSelector="kubernetes.io/service-name=kubernetes",
    )
    wanted = {int(port["port"]) for part in slices for port in part.get("ports") or () if port.get("port")}
    shut = sorted(port for port in wanted if not _allows(spec_of(limits).get("egress") or (), port))
    if shut:
        yield DoctorFinding(
            PROBLEM,
            "network",
            f"the NetworkPolicy {name} shuts the API server's port {shut[0]}",
            f"add {shut[0]} to networkPolicy.egressPorts (chart) or to base/networkpolicy.yaml",
        )
    elif wanted:
        yield DoctorFinding(OK, "network", f"the NetworkPolicy lets the controller reach port {sorted(wanted)[0]}")


def _allows(egress: Any, port: int) -> bool:
    for rule in egress:
        ports = rule.get("ports")
        if not ports:
            return True
        for entry in ports:
            first = entry.get("port")
            if entry.get("protocol", "TCP") == "TCP" and (
                first is None or (isinstance(first, int) and first <= port <= int(entry.get("endPort") or first))
            ):
                return True
    return False


def admission(site: Installation) -> Iterator[DoctorFinding]:
    group = "/apis/admissionregistration.k8s.io/v1"
    binding = f"{group}/validatingadmissionpolicybindings/{site.settings.object_name('agent')}"
    if site.get("admission", binding) is not None:
        yield DoctorFinding(OK, "admission", "each agent is bound to its own node")
    elif site.readable("admission"):
        yield DoctorFinding(
            WARN,
            "admission",
            "no admission policy binds agents to their nodes: each may change every node's status",
            "install base/admission.yaml, or the chart with admissionPolicy.enabled",
        )


CHECKS: Tuple[Check, ...] = (api, settings, policy, rights, controller, network, admission)
