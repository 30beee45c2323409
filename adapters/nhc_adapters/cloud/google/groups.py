"""Managed instance groups: having one instance recreated, and what the group does to it by itself."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from nhc.core.model import printable
from nhc.marks.ports.repair import Order, Sent
from nhc_adapters.cloud.google.api import Google
from nhc_adapters.cloud.google.identity import InstanceName
from nhc_adapters.cloud.google.instances import InstanceGroup
from nhc_adapters.repair.calls import RepairRefused, accepted

PAGE = 500


class Managed(NamedTuple):
    """What a group does to an instance: `action` is NONE where it does nothing. `problem` is of its last attempt."""

    action: str
    problem: str


def scope(where: InstanceName, group: InstanceGroup) -> str:
    return f"projects/{where.project}/{group.kind}/{group.where}"


def recreate(google: Google, where: InstanceName, group: InstanceGroup, order: Order) -> Sent:
    """Have the group delete the instance and make it anew, under the same name.

    Its operation is done when the group has taken note; `managed` shows how far it is.
    """
    path = f"{scope(where, group)}/instanceGroupManagers/{group.name}/recreateInstances"
    body = {"instances": [f"zones/{where.zone}/instances/{where.name}"]}
    answer = google.call("instanceGroupManagers.recreateInstances", "POST", path, {"requestId": order.key}, body)
    if answer.get("status") == "DONE" and answer.get("error"):
        raise RepairRefused(f"{group.name} refuses to recreate {where.name}")
    return accepted(f"{group.name} recreates {where.name}", str(answer.get("name") or ""))


def managed(google: Google, where: InstanceName, group: InstanceGroup) -> Managed:
    """What the group does to the instance now. Raises CallFailed, and RepairRefused where it is not of the group."""
    path = f"{scope(where, group)}/instanceGroupManagers/{group.name}/listManagedInstances"
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
    path = f"{scope(where, group)}/instanceGroupManagers/{group.name}"
    details: Mapping[str, Any] = google.call("instanceGroupManagers.get", "GET", path)
    policy: Mapping[str, Any] = details.get("instanceLifecyclePolicy") or {}
    checked = any(healing.get("healthCheck") for healing in details.get("autoHealingPolicies") or [])
    action = policy.get("onFailedHealthCheck") or "DEFAULT_ACTION"
    if action == "DEFAULT_ACTION":
        action = policy.get("defaultActionOnFailure") or "REPAIR"
    return checked and action == "REPAIR"
