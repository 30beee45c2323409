"""Google Cloud as a repairer: Compute Engine instances, managed instance groups, GKE nodes.

    [repairers.google]
    replace = "auto"             # or gke, group, report-faulty
    discard-local-ssd = "no"
    gke-auto-repair = "no"       # yes if the node pools have it: it then blocks ours

The rights that it needs are in adapters/google; docs/repairers.md says which call makes which repair.
"""

from __future__ import annotations

import uuid
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.timestamps import from_iso
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Claim,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters.cloud.google import api
from nhc_adapters.cloud.google.api import (
    PERMISSIONS,
    RUNNING,
    TERMINATED,
    Google,
    GoogleAccess,
    GoogleInstance,
    InstanceGroup,
    InstanceName,
    place,
)
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.repair import gke
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from nhc_adapters.repair import (
    LATER,
    CallFailed,
    RepairRefused,
    accepted,
    possible,
    require_whole,
    send_once,
    unknown,
    untouched,
)

# Managed instance groups: having one instance recreated, and what the group does to it by itself.


PAGE = 500


class Managed(NamedTuple):
    """What a group does to an instance: `action` is NONE if it does nothing. `problem` is of its last attempt."""

    action: str
    problem: str


def scope_of(where: InstanceName, group: InstanceGroup) -> str:
    return f"projects/{where.project}/{group.kind}/{group.where}"


def recreate(google: Google, where: InstanceName, group: InstanceGroup, order: Order) -> Sent:
    """Have the group delete the instance and recreate it under the same name.

    Its operation is done when the group has taken note; `managed_of` shows how far it is.
    """
    path = f"{scope_of(where, group)}/instanceGroupManagers/{group.name}/recreateInstances"
    body = {"instances": [f"zones/{where.zone}/instances/{where.name}"]}
    answer = google.call("instanceGroupManagers.recreateInstances", "POST", path, {"requestId": order.key}, body)
    if answer.get("status") == "DONE" and answer.get("error"):
        raise RepairRefused(f"{group.name} refuses to recreate {where.name}")
    return accepted(f"{group.name} recreates {where.name}", str(answer.get("name") or ""))


def managed_of(google: Google, where: InstanceName, group: InstanceGroup) -> Managed:
    """What the group does to the instance now. Raises CallFailed, and RepairRefused where it is not of the group."""
    path = f"{scope_of(where, group)}/instanceGroupManagers/{group.name}/listManagedInstances"
    ending = f"/zones/{where.zone}/instances/{where.name}"
    page = ""
    while True:
        query = {"maxResults": str(PAGE), **({"pageToken": page} if page else {})}
        answer = google.call("instanceGroupManagers.listManagedInstances", "POST", path, query)
        for member in answer.get("managedInstances") or []:
            if str(member.get("instance") or "").endswith(ending):
                errors = ((member.get("lastAttempt") or {}).get("errors") or {}).get("errors") or []
                problem = "; ".join(f"{each.get('code')}: {each.get('message')}" for each in errors)
                return Managed(str(member.get("currentAction") or ""), printable(problem, 300))
        page = str(answer.get("nextPageToken") or "")
        if not page:
            raise RepairRefused(f"{where.name} is not of the group {group.name}")


def heals(google: Google, where: InstanceName, group: InstanceGroup) -> bool:
    """Whether the group repairs an instance whose health check fails. Raises CallFailed."""
    path = f"{scope_of(where, group)}/instanceGroupManagers/{group.name}"
    details: Mapping[str, Any] = google.call("instanceGroupManagers.get", "GET", path)
    policy: Mapping[str, Any] = details.get("instanceLifecyclePolicy") or {}
    checked = any(healing.get("healthCheck") for healing in details.get("autoHealingPolicies") or [])
    action = policy.get("onFailedHealthCheck") or "DEFAULT_ACTION"
    if action == "DEFAULT_ACTION":
        action = policy.get("defaultActionOnFailure") or "REPAIR"
    return checked and action == "REPAIR"


@declared.settings
class GoogleSettings(NamedTuple):
    """The table of a repairer of this kind (docs/repairers.md)."""

    access: GoogleAccess = declared.part("", GoogleAccess)
    project: str = declared.text("project", "", "with zone: where `nhc doctor remedy` tries the rights")
    zone: str = declared.text("zone")
    replace: str = declared.word("replace", ("auto", "gke", "group", "report-faulty"))
    reboot: str = declared.word("reboot", ("reset", "gke"))
    discard: bool = declared.flag("discard-local-ssd", False, "a replacement may lose what is on local SSDs")
    auto_repair: bool = declared.flag("gke-auto-repair", False, "GKE's own node repair is on")
    nodes: ClusterSettings = declared.part("", ClusterSettings)


class GoogleTarget(NamedTuple):
    """An instance whose identity was checked. `group` is for a recreation."""

    where: InstanceName
    instance: GoogleInstance
    way: str
    group: Optional[InstanceGroup] = None


class GoogleRepairer:
    """As `nhc.marks.ports.repair.Repairer`, Completes, OtherActors, EvidenceSource."""

    SETTINGS = GoogleSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        self.own = read(GoogleSettings, settings)
        self.replace, self.reboot = self.own.replace, self.own.reboot
        self.discard, self.auto_repair = self.own.discard, self.own.auto_repair
        self.google = Google(self.own.access, environ, timeout)
        self.nodes = RepairCluster.of(self.own.nodes, environ, timeout)

    # What is possible.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        return possible(lambda: self._target(machine, rung, device))

    def _place(self, machine: Machine) -> InstanceName:
        where = place(machine)
        if where is None:
            raise unknown("instance of Google's", machine)
        return where

    def _target(self, machine: Machine, rung: Rung, device: str) -> GoogleTarget:
        """The instance and the way, the identity compared. Raises RepairRefused, CallFailed."""
        require_whole("Google", "instances", rung, device)
        where = self._place(machine)
        seen = api.compare(machine, api.get(self.google, where), where)
        if seen.status != RUNNING:
            begins = seen.status in ("PROVISIONING", "STAGING", "PENDING")
            raise RepairRefused(f"{where.name} is {seen.status}", LATER if begins else 0.0)
        way = self._way(machine, rung, seen)
        if way == "stop" and seen.group:
            raise RepairRefused(f"{seen.group.name} would repair an instance that is stopped: have it recreated")
        if way == "stop" and seen.local_disks and not self.discard:
            raise RepairRefused("stopping loses its local SSDs: repairers.google.discard-local-ssd allows that")
        if way == "group" and seen.group is None:
            raise RepairRefused(f"{where.name} is in no managed instance group: nothing would replace it")
        if way == "report-faulty" and not seen.reserved:
            raise RepairRefused("only the host of an instance in a reservation can be reported as faulty")
        return GoogleTarget(where, seen, way, seen.group)

    def _way(self, machine: Machine, rung: Rung, seen: GoogleInstance) -> str:
        if rung is Rung.REBOOT:
            return self.reboot
        if rung is Rung.POWER_CYCLE:
            return "stop"
        if self.replace != "auto":
            return self.replace
        if seen.reserved:
            return "gke" if gke.NODE_POOL in machine.labels else "report-faulty"
        return "group"

    # Looking, acting.

    def look(self, machine: Machine) -> Sighting:
        return api.sighting(api.get(self.google, self._place(machine)))

    def send(self, order: Order) -> Sent:
        return send_once(
            lambda: self._target(order.machine, order.rung, order.device), lambda target: self._act(order, target)
        )

    def _act(self, order: Order, target: GoogleTarget) -> Sent:
        if target.way == "gke":
            labels = gke.wanted(order.rung, api.behavior(order.because))
            return self.nodes.label(self.nodes.compare(order.machine), labels)
        if target.way == "stop":
            return api.stop(self.google, target.where, order, self.discard and target.instance.local_disks)
        if target.way == "report-faulty":
            return api.report_faulty(self.google, target.where, order)
        if target.way == "group" and target.group:
            return recreate(self.google, target.where, target.group, order)
        return api.reset(self.google, target.where, order)

    def complete(self, order: Order, sent: Sent) -> Sent:
        """The start after a stop, or after a repair of the host that left the instance TERMINATED."""
        key = str(uuid.uuid5(uuid.UUID(order.key), "start"))
        return send_once(lambda: self._place(order.machine), lambda where: api.start(self.google, where, key))

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        where = self._place(order.machine)
        seen = api.get(self.google, where)
        way = self._sent_way(order, seen)
        if way == "gke":
            if seen is not None and seen.status == RUNNING and _later(seen, before):
                return Progress(Stage.DONE, f"{where.name} runs since {seen.started}", where.name)
            return gke.progress(self.nodes.known(order.machine.node).labels, gke.wanted(order.rung, ""))
        scope = f"projects/{where.project}/zones/{where.zone}"
        if way == "group" and seen is not None and seen.group:
            scope = scope_of(where, seen.group)
        begun = api.operation(self.google, scope, sent.request_id, order.key) if not _started(sent) else None
        if begun is not None and begun.error:
            return Progress(Stage.FAILED, f"{begun.kind}: {begun.error}")
        if begun is not None and not begun.done:
            return Progress(Stage.WORKING, f"{begun.kind} is under way")
        if begun is None and not _started(sent) and not _changed(seen, before):
            return untouched(sent, before, "Google shows no operation of this order")
        return self._effect(where, seen, before, way)

    def _sent_way(self, order: Order, seen: Optional[GoogleInstance]) -> str:
        if seen is None:
            return "group" if order.rung is Rung.REPLACE else ""
        return self._way(order.machine, order.rung, seen)

    def _effect(self, where: InstanceName, seen: Optional[GoogleInstance], before: Sighting, way: str) -> Progress:
        if seen is None:
            stage = Stage.WORKING if way == "group" else Stage.FAILED
            return Progress(stage, f"{where.name} is gone{', and is being made anew' if way == 'group' else ''}")
        if way == "group" and seen.group:
            managed = managed_of(self.google, where, seen.group)
            if managed.action != "NONE" or seen.status != RUNNING or seen.id == before.instance:
                return Progress(
                    Stage.WORKING, f"{managed.action}, {seen.status}{f': {managed.problem}' if managed.problem else ''}"
                )
            return Progress(Stage.DONE, f"{where.name} is the instance {seen.id} now", where.name)
        if seen.status == TERMINATED and way in ("stop", "report-faulty"):
            return Progress(Stage.HALFWAY, f"{where.name} is TERMINATED; it is to be started")
        if seen.status == RUNNING and _later(seen, before):
            return Progress(Stage.DONE, f"{where.name} runs since {seen.started}", where.name)
        return Progress(Stage.WORKING, f"{where.name} is {seen.status} since {seen.started}")

    # Rights, others, evidence.

    def rights(self) -> Sequence[Right]:
        """Google tells which permissions one has on an instance: on any one of the settings' zone."""
        wanted = sorted({right for right in PERMISSIONS.values() if right.startswith("compute.instances.")})
        project, zone = self.own.project, self.own.zone
        if not (project and zone):
            return [Right(right, None, "set project and zone in [repairers.google] to try it") for right in wanted]
        path = f"projects/{project}/zones/{zone}"
        try:
            some = (
                self.google.call("instances.list", "GET", f"{path}/instances", {"maxResults": "1"}).get("items") or []
            )
            self.google.call("zoneOperations.list", "GET", f"{path}/operations", {"maxResults": "1"})
            if not some:
                return [Right(right, None, f"there is no instance in {zone} to try it on") for right in wanted]
            body = {"permissions": wanted}
            name = str(some[0].get("name") or "")
            where = f"{path}/instances/{name}/testIamPermissions"
            has = self.google.call("instances.testIamPermissions", "POST", where, None, body).get("permissions") or []
        except CallFailed as error:
            return [Right(right, None, str(error)) for right in wanted]
        return [Right(right, right in has, "" if right in has else f"not granted on {name}") for right in wanted]

    def claims(self, machine: Machine) -> Sequence[Claim]:
        claims: List[Claim] = list(gke.claims(machine.labels, self.auto_repair))
        where = place(machine)
        seen = api.get(self.google, where) if where else None
        if where is None or seen is None:
            return claims
        status = str(seen.maintenance.get("maintenanceStatus") or "")
        if status in ("ONGOING", "PENDING") and seen.maintenance.get("type") != "UNKNOWN_TYPE":
            begins = seen.maintenance.get("windowStartTime") or "a time not told"
            claims.append(
                Claim("google", f"maintenance is {status}, from {begins}", "instances.get upcomingMaintenance")
            )
        if seen.status == "REPAIRING":
            claims.append(Claim("google", "repairs the host", "instances.get status"))
        claims += [
            Claim(work.user or "somebody", f"{work.kind} is under way", f"zoneOperations.list {work.name}")
            for work in api.running(self.google, where, seen)
        ]
        if seen.group:
            action = managed_of(self.google, where, seen.group).action
            if action not in ("NONE", ""):
                claims.append(Claim("managed-instance-group", action, f"listManagedInstances {seen.group.name}"))
            if heals(self.google, where, seen.group):
                doing = "recreates instances whose health check fails"
                claims.append(Claim("managed-instance-group", doing, f"instanceGroupManagers.get {seen.group.name}"))
        return claims

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        return api.evidence(self.google, self._place(machine), budget)


def _later(seen: GoogleInstance, before: Sighting) -> bool:
    """Whether the instance has started since it was seen before.

    Google writes times in Pacific time with its offset: as texts, those of the hour that autumn has twice are not in
    their order.
    """
    started, was = from_iso(seen.started), from_iso(before.boot)
    return started is not None and was is not None and started > was


def _changed(seen: Optional[GoogleInstance], before: Sighting) -> bool:
    return seen is None or seen.id != before.instance or seen.started != before.boot or seen.status != before.power


def _started(sent: Sent) -> bool:
    """Whether the last call was the start: what it began is another operation than the order's."""
    return sent.request_id.startswith(api.START)
