"""Oracle's Compute and Container Engine APIs over REST: each call signed and sent once, with the order's key."""

from __future__ import annotations

import base64
import configparser
import hashlib
import json
import os
import re
import time
from email.utils import formatdate
from functools import cache, partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode, urlsplit

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.bounded_read import parse_json, read_bytes
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Claim, EvidenceBudget, Exhibit, Machine, Order, Sent, Sighting
from nhc_adapters.cloud.rest import ProviderMessage, Rest, json_at, plain_message
from nhc_adapters.repair import CallFailed, EvidenceCollector, RepairRefused, accepted, https_url

# How a request to Oracle's cloud is signed: HTTP signatures with an RSA key (draft-cavage-http-signatures-08).
#
# The key is a user's (~/.oci/config), or that of an instance or workload principal, whose tokens Oracle's library gets
# (extra `oci`). The library itself has 286 MB and takes over a second to load, so it is imported for principals alone.


CONFIG = "~/.oci/config"


class Key(NamedTuple):
    """What signs: the key's id, as Oracle knows it, and the signature of some bytes. `region` is "" if not known."""

    id: str
    sign: Callable[[bytes], bytes]
    region: str = ""

    def __repr__(self) -> str:
        return "Key(…)"


def signed(key: Key, verb: str, url: str, body: Optional[bytes]) -> Dict[str, str]:
    """The headers of one request with its signature."""
    parts = urlsplit(url)
    target = f"{verb.lower()} {parts.path}{f'?{parts.query}' if parts.query else ''}"
    headers = {"date": formatdate(usegmt=True), "host": parts.netloc}
    if verb in ("POST", "PUT", "PATCH"):
        content = body or b""
        headers["x-content-sha256"] = base64.b64encode(hashlib.sha256(content).digest()).decode()
        headers["content-type"] = "application/json"
        headers["content-length"] = str(len(content))
    text = "\n".join([f"(request-target): {target}", *(f"{name}: {value}" for name, value in headers.items())])
    signature = base64.b64encode(key.sign(text.encode())).decode()
    names = " ".join(["(request-target)", *headers])
    header = f'Signature version="1",keyId="{key.id}",algorithm="rsa-sha256",headers="{names}",signature="{signature}"'
    return {**headers, "authorization": header}


@declared.settings
class OracleAccess(NamedTuple):
    """Which tenancy, and how it is reached."""

    endpoint: str = declared.converted("endpoint", https_url, "", "default: the region's own")
    proxy: str = declared.text("proxy", "", "of all calls")
    region: str = declared.text("region", "", "default: that of the instance's id")
    credentials: str = declared.word("credentials", ("auto", "config", "instance-principal", "workload-identity"))
    config_file: str = declared.text("config-file", "", "default: $OCI_CONFIG_FILE, ~/.oci/config")
    profile: str = declared.text("profile", "DEFAULT", "of the configuration")


def find_signing_key(own: OracleAccess, environ: Optional[Mapping[str, str]]) -> Callable[[], Key]:
    """What gives the key of the moment, by the setting `credentials`. Raises AdapterError, as does what it returns."""
    how = own.credentials
    given = os.environ if environ is None else environ
    path = os.path.expanduser(own.config_file or given.get("OCI_CONFIG_FILE", "") or CONFIG)
    if how == "auto":
        how = "config" if os.path.exists(path) else "instance-principal"
    if how == "config":
        return cache(partial(_of_config, path, own.profile))
    return _Principal(how)


def _of_config(path: str, profile: str) -> Key:
    """A user's key, as Oracle's tools write it down."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_bytes(path, 1 << 20).decode(), path)
        own = dict(parser[profile])
        name = os.path.expanduser(own["key_file"])
        pem = read_bytes(name, 1 << 20)
        key_id = f"{own['tenancy']}/{own['user']}/{own['fingerprint']}"
    except KeyError as error:
        raise AdapterError(f"{path}: no {error} in [{profile}]") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise AdapterError(f"{path}: {printable(str(error), 200)}") from None
    except OSError as error:
        raise AdapterError(f"{error.filename or path}: {error.strerror}") from None
    return Key(key_id, _signer(pem, own.get("pass_phrase", ""), name), own.get("region", ""))


def _signer(pem: bytes, password: str, name: str) -> Callable[[bytes], bytes]:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise AdapterError(
            "signing for Oracle needs the Python package cryptography: install nhc's extra oci"
        ) from None
    try:
        key: Any = load_pem_private_key(pem, password.encode() or None)
    except (ValueError, TypeError):
        raise AdapterError(f"{name}: no private key, or its pass_phrase is wrong") from None
    return lambda content: _rsa(key, content)


def _rsa(key: Any, content: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return bytes(key.sign(content, padding.PKCS1v15(), hashes.SHA256()))


class _Principal:
    """The key of the instance or the workload that this runs on, from Oracle's library, which renews its tokens."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._source: Any = None

    def __call__(self) -> Key:
        source = self._open()
        try:
            token, key = source.get_security_token(), source.session_key_supplier.get_key_pair()["private"]
            region = str(getattr(source, "region", "") or "")
        except Exception as error:  # the library's own and its transport's errors have no common base
            raise AdapterError(f"Oracle's {self._how}: {printable(str(error), 300)}") from None
        return Key(f"ST${token}", lambda content: _rsa(key, content), region)

    def _open(self) -> Any:
        if self._source is None:
            try:
                from oci.auth import signers
            except ModuleNotFoundError:
                raise AdapterError(f"Oracle's {self._how} needs Oracle's library: install nhc's extra oci") from None
            try:
                make = {
                    "instance-principal": signers.InstancePrincipalsSecurityTokenSigner,
                    "workload-identity": signers.get_oke_workload_identity_resource_principal_signer,
                }[self._how]
                self._source = make()
            except Exception as error:
                raise AdapterError(f"Oracle's {self._how}: {printable(str(error), 300)}") from None
        return self._source


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

    def __init__(self, own: OracleAccess, environ: Optional[Mapping[str, str]], timeout: float) -> None:
        self._endpoint, self._region = own.endpoint, own.region
        self._key = find_signing_key(own, environ)
        self._rest = Rest(timeout, _message, NOT_BEGUN, own.proxy, DENIED)

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


# Oracle's compute instances: what one is now, the calls that change it, the tag that tells Oracle it is bad, and its
# console's history.


NAMESPACE, TAG, UNHEALTHY = "ComputeInstanceHostActions", "CustomerReportedHostStatus", "unhealthy"
"""The defined tag that keeps a pool from being given the same host again. The namespace must exist in the tenancy."""

RUNNING, TERMINATED = "RUNNING", "TERMINATED"
GONE = frozenset(("TERMINATING", "TERMINATED"))

LENGTH = 1 << 20
"""Bytes of a console's history; Oracle keeps about one megabyte."""
POLL = 2.0

_OCID = re.compile(r"^(?:oci://)?(ocid1\.instance\.[a-z0-9]+\.[a-z0-9-]*\.[a-z0-9._-]+)$")


class OracleInstance(NamedTuple):
    """An instance as Oracle describes it; `etag` is the version that a change requires."""

    ocid: str
    state: str
    compartment: str
    tags: Mapping[str, Mapping[str, object]]
    metadata: Mapping[str, str]
    etag: str


def ocid(machine: Machine) -> str:
    """From the provider id, bare or as `oci://…`, or the node's setting `instance`; "" if it is neither."""
    match = _OCID.match(machine.provider_id or machine.settings.get("instance", ""))
    return match[1] if match else ""


def get(oracle: Oracle, which: str) -> Optional[OracleInstance]:
    """An instance, None if there is none or we may not see it: Oracle's answer is the same. Raises CallFailed."""
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
    """The instance, if it can be repaired. No other machine gets its OCID, so an instance that has ended shows a stale
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
