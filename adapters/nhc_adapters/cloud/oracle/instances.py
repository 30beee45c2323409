"""Oracle's compute instances: what one is now, the calls that change it, the tag that tells Oracle it is bad, and its
console's history.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Claim, EvidenceBudget, Exhibit, Machine, Order, Sent, Sighting
from nhc_adapters.cloud.oracle.api import Oracle, objects
from nhc_adapters.repair.calls import CallFailed, RepairRefused, accepted
from nhc_adapters.repair.evidence import EvidenceCollector

NAMESPACE, TAG, UNHEALTHY = "ComputeInstanceHostActions", "CustomerReportedHostStatus", "unhealthy"
"""The defined tag that keeps a pool from being given the same host again. The namespace must exist in the tenancy."""

RUNNING, TERMINATED = "RUNNING", "TERMINATED"
GONE = frozenset(("TERMINATING", "TERMINATED"))

LENGTH = 1 << 20
"""Bytes of a console's history; Oracle keeps about one megabyte."""
POLL = 2.0

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
    match = _OCID.match(machine.provider_id or machine.settings.get("instance", ""))
    return match[1] if match else ""


def get(oracle: Oracle, which: str) -> Optional[OracleInstance]:
    """An instance, None where there is none or we may not see it: Oracle tells neither apart. Raises CallFailed."""
    try:
        answer = oracle.call("get_instance", "GET", f"instances/{which}", which)
    except CallFailed as error:
        if error.code in ("NotAuthorizedOrNotFound", "404"):
            return None
        raise
    details: Dict[str, Any] = answer.data
    return OracleInstance(
        ocid=str(details.get("id") or ""),
        state=str(details.get("lifecycleState") or ""),
        compartment=str(details.get("compartmentId") or ""),
        tags=details.get("definedTags") or {},
        metadata={str(key): str(value) for key, value in (details.get("metadata") or {}).items()},
        etag=answer.etag,
    )


def compare(machine: Machine, seen: Optional[OracleInstance], which: str) -> OracleInstance:
    """The instance, where it can be repaired. Its OCID is no other machine's, so that one that ended tells of a stale
    provider id. Raises RepairRefused.
    """
    if seen is None:
        raise RepairRefused("the instance is not there, or not shown to us")
    if seen.ocid != which:
        raise RepairRefused("Oracle answered with another instance")
    if seen.state in GONE:
        raise RepairRefused(f"the instance is {seen.state}: another machine stands behind {machine.node} now, or none")
    if seen.state != RUNNING:
        raise RepairRefused(
            f"the instance is {seen.state}", 30.0 if seen.state in ("PROVISIONING", "STARTING") else 0.0
        )
    return seen


def sighting(seen: Optional[OracleInstance]) -> Sighting:
    """Oracle shows no time of a start."""
    if seen is None:
        return Sighting(time.time(), power="gone")
    acting = seen.state not in (RUNNING, "STOPPED", TERMINATED)
    return Sighting(time.time(), seen.ocid, "", seen.state, "oracle" if acting else "", seen.state if acting else "")


def act(
    oracle: Oracle, seen: OracleInstance, action: str, key: str, body: Optional[Mapping[str, object]] = None
) -> Sent:
    """One action: RESET cuts the power, SOFTRESET asks the system first and waits 15 minutes for it."""
    query = {"action": action}
    path = f"instances/{seen.ocid}"
    reply = oracle.call(
        "instance_action", "POST", path, seen.ocid, query=query, body=body, if_match=seen.etag, token=key
    )
    return accepted(f"Oracle took {action}", reply.work)


def terminate(oracle: Oracle, seen: OracleInstance) -> Sent:
    query = {"preserveBootVolume": "false"}
    path = f"instances/{seen.ocid}"
    reply = oracle.call("terminate_instance", "DELETE", path, seen.ocid, query=query, if_match=seen.etag)
    return accepted("Oracle terminates the instance", reply.work)


def report(oracle: Oracle, instance: OracleInstance, order: Order) -> OracleInstance:
    """Set the tag that says the host is bad, and read it back: without it the same host comes back from the pool.

    Raises RepairRefused where it does not stand afterwards: nothing else is then begun.
    """
    if _tagged(instance):
        return instance
    tags = {space: dict(own) for space, own in instance.tags.items()}
    tags.setdefault(NAMESPACE, {})[TAG] = UNHEALTHY
    path = f"instances/{instance.ocid}"
    body = {"definedTags": tags}
    try:
        oracle.call(
            "update_instance", "PUT", path, instance.ocid, body=body, if_match=instance.etag, token=f"{order.key}-tag"
        )
    except CallFailed as error:
        raise RepairRefused(f"the instance could not be tagged as {UNHEALTHY}: {error}", error.retry_after) from None
    again = get(oracle, instance.ocid)
    if again is None or not _tagged(again):
        raise RepairRefused(f"the tag {NAMESPACE}.{TAG} does not stand: is the tag namespace there?")
    return again


def _tagged(instance: OracleInstance) -> bool:
    return str(instance.tags.get(NAMESPACE, {}).get(TAG, "")) == UNHEALTHY


def maintenance(oracle: Oracle, seen: OracleInstance) -> List[Claim]:
    """Oracle's own maintenance of the instance that has not ended. Raises CallFailed."""
    query = {"compartmentId": seen.compartment, "instanceId": seen.ocid, "limit": "20"}
    reply = oracle.call("list_instance_maintenance_events", "GET", "instanceMaintenanceEvents", seen.ocid, query=query)
    return [
        Claim(
            "oracle",
            f"{event.get('instanceAction')} for {event.get('maintenanceReason')} is {event.get('lifecycleState')}, "
            f"at {event.get('timeWindowStart') or event.get('timeHardDueDate') or 'a time not told'}",
            f"list_instance_maintenance_events ({event.get('maintenanceCategory')})",
        )
        for event in objects(reply.data)
        if event.get("lifecycleState") in ("SCHEDULED", "STARTED", "PROCESSING")
        and event.get("instanceAction") != "NONE"
    ]


# Evidence.


def evidence(oracle: Oracle, which: str, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The console's history, within the budget. Raises AdapterError where it cannot be had.

    Oracle makes a history first, which takes seconds; it is deleted again.
    """
    pieces = EvidenceCollector(budget)
    until = time.monotonic() + budget.seconds
    made = oracle.call("capture_console_history", "POST", "instanceConsoleHistories", which, body={"instanceId": which})
    name = str(made.data.get("id") or "")
    path = f"instanceConsoleHistories/{name}"
    try:
        state = str(made.data.get("lifecycleState") or "")
        while state not in ("SUCCEEDED", "FAILED"):
            if time.monotonic() + POLL > until:
                raise AdapterError("Oracle did not make the console's history in time")
            time.sleep(POLL)
            state = str(oracle.call("get_console_history", "GET", path, which).data.get("lifecycleState") or "")
        if state == "FAILED":
            raise AdapterError("Oracle could not make the console's history")
        query = {"offset": "0", "length": str(LENGTH)}
        content = oracle.call("get_console_history_content", "GET", f"{path}/data", which, query=query).data
        if isinstance(content, bytes) and content:
            yield from pieces.take("console.txt", "text/plain", content)
    finally:
        try:
            oracle.call("delete_console_history", "DELETE", path, which)
        except CallFailed:
            pass  # Oracle deletes it with the instance
    if not pieces.taken:
        raise AdapterError("Oracle shows nothing of the instance's console")
