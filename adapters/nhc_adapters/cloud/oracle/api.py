"""Oracle's Compute and Container Engine APIs over REST: each call signed and sent once, with the order's key."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode

from nhc.core.system.bounded_read import parse_json
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer
from nhc_adapters.cloud.oracle.signing import find, signed
from nhc_adapters.cloud.rest import ProviderMessage, Rest, json_at, plain_message
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.settings import AdapterSettings

COMPUTE = "20160918"
OKE = "20180222"

_DOMAIN = {COMPUTE: "oraclecloud.com", OKE: "oci.oraclecloud.com"}

NOT_BEGUN = frozenset(("TooManyRequests", "IncorrectState", "Conflict", "LockConflict", "NoEtagMatch", "LimitExceeded"))
"""Codes that say "not now" before anything was begun; "currently being modified" comes as Conflict."""

DENIED = frozenset(("NotAuthorizedOrNotFound", "NotAuthorized"))
"""Oracle tells those who may not do something that it is not there. What was read a moment before is there."""

PERMISSIONS: Mapping[str, str] = {
    "get_instance": "INSTANCE_READ",
    "list_instances": "INSTANCE_READ",
    "instance_action": "INSTANCE_POWER_ACTIONS",
    "update_instance": "INSTANCE_UPDATE",
    "terminate_instance": "INSTANCE_DELETE",
    "get_instance_pool_instance": "INSTANCE_POOL_READ",
    "list_instance_pool_instances": "INSTANCE_POOL_READ",
    "detach_instance_pool_instance": "INSTANCE_POOL_UPDATE",
    "get_node_pool": "CLUSTER_NODE_POOL_READ",
    "delete_node": "CLUSTER_NODE_POOL_UPDATE",
    "get_work_request": "CLUSTER_WORK_REQUEST_READ",
    "capture_console_history": "CONSOLE_HISTORY_CREATE",
    "get_console_history": "CONSOLE_HISTORY_READ",
    "get_console_history_content": "CONSOLE_HISTORY_READ",
    "delete_console_history": "CONSOLE_HISTORY_DELETE",
    "list_instance_maintenance_events": "INSTANCE_MAINTENANCE_EVENT_READ",
    "get_compute_gpu_memory_cluster": "COMPUTE_GPU_MEMORY_CLUSTER_READ",
    "update_compute_gpu_memory_cluster": "COMPUTE_GPU_MEMORY_CLUSTER_UPDATE",
}
"""The permission that each call takes, as Oracle's policy reference has them."""

_REGION = re.compile(r"^ocid1\.[a-z0-9]+\.[a-z0-9]+\.([a-z]+-[a-z]+-\d+)\.")
_SHORT = {"iad": "us-ashburn-1", "phx": "us-phoenix-1", "fra": "eu-frankfurt-1", "lhr": "uk-london-1"}
"""The four oldest regions, whose ids bear a short name; all others bear their whole name."""
_OLD = re.compile(r"^ocid1\.[a-z0-9]+\.[a-z0-9]+\.(iad|phx|fra|lhr)\.")


class OracleAnswer(NamedTuple):
    """An answer: `etag` is the object's version, `work` the work request that the call began."""

    data: Any
    etag: str
    work: str


class Oracle:
    """Calls to one tenancy."""

    def __init__(self, table: AdapterSettings, environ: Optional[Mapping[str, str]], timeout: float) -> None:
        self._endpoint = table.url("endpoint", "https://none") if table.text("endpoint") else ""
        self._region = table.text("region")
        self._key = find(table, environ)
        self._rest = Rest(timeout, _message, NOT_BEGUN, table.text("proxy"), DENIED)

    def call(
        self,
        name: str,
        verb: str,
        path: str,
        ocid: str,
        *,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, object]] = None,
        if_match: str = "",
        token: str = "",
    ) -> OracleAnswer:
        """One call of PERMISSIONS; `ocid` tells the region. Raises CallFailed, and AdapterError without credentials."""
        assert name in PERMISSIONS, name
        key = self._key()
        version = OKE if name in ("get_node_pool", "delete_node", "get_work_request") else COMPUTE
        url = f"{self._address(version, ocid, key.region)}/{version}/{quote(path)}"
        if query:
            url += f"?{urlencode(query)}"
        content = b"" if verb in ("POST", "PUT") else None
        if body is not None:
            content = json.dumps(body, separators=(",", ":")).encode()
        headers = signed(key, verb, url, content)
        if if_match:
            headers["if-match"] = if_match
        if token:
            headers["opc-retry-token"] = token
        reply = self._rest.call(name, verb, url, headers, content=content, right=PERMISSIONS[name])
        data: Any = reply.data
        if reply.headers.get("content-type", "").startswith("application/json"):
            data = _parsed(name, reply.data)
        work = reply.headers.get("opc-work-request-id", "")
        return OracleAnswer(data, reply.headers.get("etag", ""), work)

    def _address(self, version: str, ocid: str, own: str) -> str:
        if self._endpoint:
            return self._endpoint
        match, old = _REGION.match(ocid), _OLD.match(ocid)
        region = self._region or (match[1] if match else _SHORT[old[1]] if old else own)
        if not region:
            raise AdapterError("Oracle: the region is not known (repairers.oracle.region)")
        return f"https://{'containerengine' if version == OKE else 'iaas'}.{region}.{_DOMAIN[version]}"


def _parsed(name: str, data: bytes) -> Any:
    try:
        return parse_json(data) if data.strip() else {}
    except ValueError:
        raise CallFailed(Answer.AMBIGUOUS, f"{name}: the answer makes no sense (a proxy's page?)") from None


def objects(data: Any) -> List[Dict[str, Any]]:
    """The objects of a list, which Compute answers as they are and others below `items`."""
    rows = data.get("items") if isinstance(data, dict) else data
    return [row for row in rows or [] if isinstance(row, dict)]


def _message(answer: bytes) -> ProviderMessage:
    error = json_at(answer)
    if not error:
        return plain_message(answer)
    return ProviderMessage(str(error.get("code") or ""), str(error.get("message") or ""))
