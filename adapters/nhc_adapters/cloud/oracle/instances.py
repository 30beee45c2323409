"""Oracle's compute instances: what one is now, the calls that change it, and the tag that tells Oracle it is bad."""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from nhc.ports.repair import Claim, Machine, Order, Sent, Sighting
from nhc.timestamps import from_iso
from nhc_adapters.cloud.oracle.api import Oracle, objects
from nhc_adapters.repair.calls import CallFailed, RepairRefused, accepted

NAMESPACE, TAG, UNHEALTHY = "ComputeInstanceHostActions", "CustomerReportedHostStatus", "unhealthy"
"""The defined tag that keeps a pool from being given the same host again. The namespace must exist in the tenancy."""

RUNNING, TERMINATED = "RUNNING", "TERMINATED"
GONE = frozenset(("TERMINATING", "TERMINATED"))

_OCID = re.compile(r"^(?:oci://)?(ocid1\.instance\.[a-z0-9]+\.[a-z0-9-]*\.[a-z0-9._-]+)$")


class OracleInstance(NamedTuple):
    """An instance as Oracle describes it; `etag` is the version that a change must still find."""

    ocid: str
    state: str
    compartment: str
    tags: Mapping[str, Mapping[str, object]]
    metadata: Mapping[str, str]
    etag: str


def ocid(machine: Machine) -> str:
    """From the provider id, bare or as `oci://…`, or the node's setting `instance`; "" where it is neither."""
    found = _OCID.match(machine.provider_id or machine.settings.get("instance", ""))
    return found[1] if found else ""


def get(oracle: Oracle, which: str) -> Optional[OracleInstance]:
    """An instance, None where there is none or we may not see it: Oracle tells neither apart. Raises CallFailed."""
    try:
        said = oracle.call("get_instance", "GET", f"instances/{which}", which)
    except CallFailed as error:
        if error.code in ("NotAuthorizedOrNotFound", "404"):
            return None
        raise
    found: Dict[str, Any] = said.data
    return OracleInstance(
        ocid=str(found.get("id") or ""),
        state=str(found.get("lifecycleState") or ""),
        compartment=str(found.get("compartmentId") or ""),
        tags=found.get("definedTags") or {},
        metadata={str(key): str(value) for key, value in (found.get("metadata") or {}).items()},
        etag=said.etag,
    )


def compare(machine: Machine, found: Optional[OracleInstance], which: str) -> OracleInstance:
    """The instance, where it can be repaired. Its OCID is no other machine's, so that one that ended tells of a stale
    provider id. Raises RepairRefused.
    """
    if found is None:
        raise RepairRefused("the instance is not there, or not shown to us")
    if found.ocid != which:
        raise RepairRefused("Oracle answered with another instance")
    if found.state in GONE:
        raise RepairRefused(f"the instance is {found.state}: another machine stands behind {machine.node} now, or none")
    if found.state != RUNNING:
        raise RepairRefused(
            f"the instance is {found.state}", 30.0 if found.state in ("PROVISIONING", "STARTING") else 0.0
        )
    return found


def sighting(found: Optional[OracleInstance]) -> Sighting:
    """Oracle shows no time of a start."""
    if found is None:
        return Sighting(time.time(), power="gone")
    acting = found.state not in (RUNNING, "STOPPED", TERMINATED)
    return Sighting(time.time(), found.ocid, "", found.state, "oracle" if acting else "", found.state if acting else "")


def act(
    oracle: Oracle, found: OracleInstance, action: str, key: str, body: Optional[Mapping[str, object]] = None
) -> Sent:
    """One action: RESET cuts the power, SOFTRESET asks the system first and waits 15 minutes for it."""
    query = {"action": action}
    path = f"instances/{found.ocid}"
    said = oracle.call(
        "instance_action", "POST", path, found.ocid, query=query, body=body, if_match=found.etag, token=key
    )
    return accepted(f"Oracle took {action}", said.work)


def terminate(oracle: Oracle, found: OracleInstance) -> Sent:
    query = {"preserveBootVolume": "false"}
    path = f"instances/{found.ocid}"
    said = oracle.call("terminate_instance", "DELETE", path, found.ocid, query=query, if_match=found.etag)
    return accepted("Oracle terminates the instance", said.work)


def report(oracle: Oracle, found: OracleInstance, order: Order) -> OracleInstance:
    """Set the tag that says the host is bad, and read it back: without it the same host comes back from the pool.

    Raises RepairRefused where it does not stand afterwards: nothing else is then begun.
    """
    if _tagged(found):
        return found
    tags = {space: dict(own) for space, own in found.tags.items()}
    tags.setdefault(NAMESPACE, {})[TAG] = UNHEALTHY
    path = f"instances/{found.ocid}"
    body = {"definedTags": tags}
    try:
        oracle.call(
            "update_instance", "PUT", path, found.ocid, body=body, if_match=found.etag, token=f"{order.key}-tag"
        )
    except CallFailed as error:
        raise RepairRefused(f"the instance could not be tagged as {UNHEALTHY}: {error}", error.retry_after) from None
    again = get(oracle, found.ocid)
    if again is None or not _tagged(again):
        raise RepairRefused(f"the tag {NAMESPACE}.{TAG} does not stand: is the tag namespace there?")
    return again


def _tagged(found: OracleInstance) -> bool:
    return str(found.tags.get(NAMESPACE, {}).get(TAG, "")) == UNHEALTHY


def maintenance(oracle: Oracle, found: OracleInstance) -> List[Claim]:
    """Oracle's own maintenance of the instance that has not ended. Raises CallFailed."""
    query = {"compartmentId": found.compartment, "instanceId": found.ocid, "limit": "20"}
    said = oracle.call("list_instance_maintenance_events", "GET", "instanceMaintenanceEvents", found.ocid, query=query)
    return [
        Claim(
            "oracle",
            f"{one.get('instanceAction')} for {one.get('maintenanceReason')} is {one.get('lifecycleState')}, "
            f"at {one.get('timeWindowStart') or one.get('timeHardDueDate') or 'a time not told'}",
            f"list_instance_maintenance_events ({one.get('maintenanceCategory')})",
        )
        for one in objects(said.data)
        if one.get("lifecycleState") in ("SCHEDULED", "STARTED", "PROCESSING") and one.get("instanceAction") != "NONE"
    ]


def seconds(text: object) -> float:
    """Unix time of a date as Oracle writes it, 0 where it is none."""
    return from_iso(str(text)) or 0.0
