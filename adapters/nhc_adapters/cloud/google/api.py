"""Google's Compute Engine API over REST: each call sent once, with the order's key as its request id.

The client library sends a request once as well, but takes three seconds and 160 MB to load. On Google's machines the
metadata service hands out tokens, and nothing else is needed; elsewhere google-auth finds credentials (extra `gcp`).

A node's name tells which Compute Engine instance it is.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import time
from functools import partial
from typing import Any, Dict, FrozenSet, Iterator, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpAnswer, HttpClient, HttpError
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Exhibit, Machine, Order, Sent, Sighting
from nhc_adapters.cloud.rest import (
    CREDENTIALS,
    AccessToken,
    Bearer,
    ProviderMessage,
    Rest,
    by_library,
    json_at,
    of_machine,
    plain_message,
)
from nhc_adapters.repair import CallFailed, EvidenceCollector, RepairRefused, accepted, https_url

API = "https://compute.googleapis.com/compute/v1"
METADATA = "http://metadata.google.internal"
SCOPE = "https://www.googleapis.com/auth/compute"

NOT_BEGUN = frozenset(
    ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "resourceNotReady", "operationInProgress")
)
"""Reasons that say "not now" before anything was begun; the first three come with status 403."""

PERMISSIONS: Mapping[str, str] = {
    "instances.get": "compute.instances.get",
    "instances.list": "compute.instances.list",
    "instances.reset": "compute.instances.reset",
    "instances.stop": "compute.instances.stop",
    "instances.start": "compute.instances.start",
    "instances.reportHostAsFaulty": "compute.instances.update",
    "instances.getSerialPortOutput": "compute.instances.getSerialPortOutput",
    "instances.getScreenshot": "compute.instances.getScreenshot",
    "instances.testIamPermissions": "",  # everybody may ask
    "zoneOperations.get": "compute.zoneOperations.get",
    "zoneOperations.list": "compute.zoneOperations.list",
    "regionOperations.get": "compute.regionOperations.get",
    "regionOperations.list": "compute.regionOperations.list",
    "instanceGroupManagers.get": "compute.instanceGroupManagers.get",
    "instanceGroupManagers.listManagedInstances": "compute.instanceGroupManagers.get",
    "instanceGroupManagers.recreateInstances": "compute.instanceGroupManagers.update",
}
"""The permission that each call takes. A regional group's calls take those of a zonal one's."""


@declared.settings
class GoogleAccess(NamedTuple):
    """Which account, and how it is reached."""

    endpoint: str = declared.converted("endpoint", https_url, API)
    metadata: str = declared.converted("metadata", https_url, METADATA, "the machine's metadata service")
    proxy: str = declared.text("proxy", "", "of all calls but the metadata service's")
    credentials: str = declared.word(
        "credentials", CREDENTIALS, "", "metadata: this machine's account; default: as google-auth finds them"
    )


class Google:
    """Calls to Compute Engine."""

    def __init__(self, own: GoogleAccess, environ: Optional[Mapping[str, str]], timeout: float) -> None:
        self.address = own.endpoint
        self._environ = os.environ if environ is None else environ
        self._metadata, self._timeout, self._proxy = own.metadata, timeout, own.proxy
        self._rest = Rest(timeout, _message, NOT_BEGUN, self._proxy)
        self._own = Rest(min(timeout, 5.0), plain_message)
        library = by_library(own.credentials, self._environ.get("GOOGLE_APPLICATION_CREDENTIALS"))
        self._bearer = Bearer(self._library_token if library else self._token)

    def call(
        self,
        name: str,
        verb: str,
        path: str,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, object]] = None,
    ) -> Mapping[str, Any]:
        """One call of PERMISSIONS. Raises CallFailed, and AdapterError where there are no credentials."""
        assert name in PERMISSIONS, name
        url = f"{self.address}/{quote(path)}"
        if query:
            url += f"?{urlencode(query)}"
        headers = {"Authorization": self._bearer.header()}
        return self._rest.call(name, verb, url, headers, body, right=PERMISSIONS[name]).json()

    def _token(self) -> AccessToken:
        """The token of the machine's service account, from its metadata service."""
        where = f"{self._metadata}/computeMetadata/v1/instance/service-accounts/default/token"
        return of_machine(self._own, "Google", where, {"Metadata-Flavor": "Google"})

    def _library_token(self) -> AccessToken:
        """The token of the application default credentials, through google-auth."""
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError, TransportError
        except ModuleNotFoundError:
            raise AdapterError(
                "credentials other than the machine's own need google-auth: install nhc's extra gcp"
            ) from None

        def request(
            url: str, method: str = "GET", body: Any = None, headers: Any = None, timeout: Any = None, **_more: Any
        ) -> HttpAnswer:
            """A `google.auth.transport.Request`."""
            content = body.encode() if isinstance(body, str) else body
            try:
                with Exchange(self._timeout) as exchange:
                    return HttpClient(proxy=self._proxy).send(exchange, method, url, content, headers or {})
            except HttpError as error:
                raise TransportError(str(error)) from None

        try:
            credentials, _project = google.auth.default(scopes=[SCOPE], request=request)
            credentials.refresh(request)
        except TransportError as error:
            raise CallFailed(Answer.REFUSED, f"google-auth: {printable(str(error), 300)}", retry_after=30.0) from None
        except GoogleAuthError as error:
            raise AdapterError(f"google-auth: {printable(str(error), 300)}") from None
        return AccessToken(str(credentials.token), 600.0)


def _message(answer: bytes) -> ProviderMessage:
    """Google's form of an error: the first reason says more than the status does."""
    error: Mapping[str, Any] = json_at(answer, "error")
    if not error:
        return plain_message(answer)
    reasons: Dict[str, Any] = next(iter(error.get("errors") or []), {})
    return ProviderMessage(str(reasons.get("reason") or error.get("status") or ""), str(error.get("message") or ""))


_PROVIDER = re.compile(r"^gce://([a-z0-9.:-]+)/([a-z0-9-]+)/([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)$")


class InstanceName(NamedTuple):
    """An instance by name. A recreated instance has the same name as the old one."""

    project: str
    zone: str
    name: str

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"


def place(machine: Machine) -> Optional[InstanceName]:
    """From the provider id `gce://PROJECT/ZONE/NAME`, or the settings `project`, `zone` and `instance` of the node."""
    match = _PROVIDER.match(machine.provider_id)
    if match:
        return InstanceName(*match.groups())
    given = [machine.settings.get(key, "") for key in ("project", "zone", "instance")]
    return InstanceName(*given) if all(given) and not machine.provider_id else None


# Compute Engine instances and operations: what they are now, the calls that change an instance, and what Google shows
# of one without asking it: its serial console, a picture of its screen.


RUNNING = "RUNNING"
TERMINATED = "TERMINATED"

START = "start/"
"""How the request id of a start begins: it is the second call of its order."""

DESCRIPTION = 200
"""Characters of a fault's description."""

_GROUP = re.compile(r"projects/[^/]+/(zones|regions)/([^/]+)/instanceGroupManagers/([^/]+)$")


class InstanceGroup(NamedTuple):
    """A managed instance group. `kind` is zones or regions."""

    kind: str
    where: str
    name: str


class GoogleInstance(NamedTuple):
    """An instance as Google describes it. Each instance of one name has another `id`."""

    id: str
    status: str
    started: str
    host: str
    addresses: FrozenSet[str]
    local_disks: bool
    reserved: bool
    group: Optional[InstanceGroup]
    maintenance: Mapping[str, Any]


class GoogleOperation(NamedTuple):
    """A zone's or region's operation. One that is DONE with an `error` has failed."""

    name: str
    done: bool
    error: str
    kind: str
    user: str


def get(google: Google, where: InstanceName) -> Optional[GoogleInstance]:
    """An instance, None if there is none of this name. Raises CallFailed."""
    try:
        details = google.call("instances.get", "GET", where.path)
    except CallFailed as error:
        if error.code in ("notFound", "404"):
            return None
        raise
    status: Mapping[str, Any] = details.get("resourceStatus") or {}
    items = (details.get("metadata") or {}).get("items") or []
    by = next((str(item.get("value")) for item in items if item.get("key") == "created-by"), "")
    group = _GROUP.search(by)
    affinity = (details.get("reservationAffinity") or {}).get("consumeReservationType")
    return GoogleInstance(
        id=str(details.get("id") or ""),
        status=str(details.get("status") or ""),
        started=str(details.get("lastStartTimestamp") or ""),
        host=str(status.get("physicalHost") or ""),
        addresses=frozenset(
            str(item["networkIP"]) for item in details.get("networkInterfaces") or [] if item.get("networkIP")
        ),
        local_disks=any(item.get("type") == "SCRATCH" for item in details.get("disks") or []),
        reserved=affinity == "SPECIFIC_RESERVATION",
        group=InstanceGroup(*group.groups()) if group else None,
        maintenance=status.get("upcomingMaintenance") or {},
    )


def compare(machine: Machine, seen: Optional[GoogleInstance], where: InstanceName) -> GoogleInstance:
    """The instance, if it is the machine that the cluster means. Raises RepairRefused.

    A recreated instance has the same name. The node's address, and the settings' `instance_id`, tell them apart.
    """
    if seen is None:
        raise RepairRefused(f"there is no instance {where.name} in {where.zone}")
    known = machine.settings.get("instance_id", "")
    if known and known != seen.id:
        raise RepairRefused(f"{where.name} is the instance {seen.id} now, not {known}")
    try:
        address = str(ipaddress.ip_address(machine.shown_address or machine.address))
    except ValueError:
        return seen
    if seen.addresses and ipaddress.ip_address(address).is_private and address not in seen.addresses:
        has = ", ".join(sorted(seen.addresses))
        raise RepairRefused(f"{where.name} has the address {has}, {machine.node} has {address}: another machine")
    return seen


def sighting(seen: Optional[GoogleInstance]) -> Sighting:
    if seen is None:
        return Sighting(time.time(), power="gone")
    acting = seen.status if seen.status in ("REPAIRING", "DEPROVISIONING") else ""
    return Sighting(time.time(), seen.id, seen.started, seen.status, "google" if acting else "", acting)


def reset(google: Google, where: InstanceName, order: Order) -> Sent:
    """A hard reset: the power cut of a virtual machine, on the same host."""
    return _begun(google.call("instances.reset", "POST", f"{where.path}/reset", {"requestId": order.key}), where)


def stop(google: Google, where: InstanceName, order: Order, discard: bool) -> Sent:
    query = {"requestId": order.key, "noGracefulShutdown": "true"}
    if discard:
        query["discardLocalSsd"] = "true"
    return _begun(google.call("instances.stop", "POST", f"{where.path}/stop", query), where)


def start(google: Google, where: InstanceName, key: str) -> Sent:
    sent = _begun(google.call("instances.start", "POST", f"{where.path}/start", {"requestId": key}), where)
    return sent._replace(request_id=START + sent.request_id)


def report_faulty(google: Google, where: InstanceName, order: Order) -> Sent:
    """Report its host. Google repairs or replaces the host, which takes from minutes to weeks by the reservation."""
    reason = {"behavior": behavior(order.because), "description": printable(order.because, DESCRIPTION)}
    body = {"disruptionSchedule": "IMMEDIATE", "faultReasons": [reason]}
    path = f"{where.path}/reportHostAsFaulty"
    return _begun(google.call("instances.reportHostAsFaulty", "POST", path, {"requestId": order.key}, body), where)


_BEHAVIORS = (
    ("SILENT_DATA_CORRUPTION", re.compile(r"(?i)silent|corrupt|wrong result|\bsdc\b")),
    ("UNRECOVERABLE_GPU_ERROR", re.compile(r"(?i)\bs?xid|gpu|nvlink|nvswitch|ecc|row.?remap|accelerator")),
    ("PERFORMANCE", re.compile(r"(?i)bandwidth|slow|throttl|latency|below")),
)


def behavior(because: str) -> str:
    """Google's name for a fault, by our reason. A GPU that is only slow is PERFORMANCE."""
    slow = _BEHAVIORS[2][1].search(because)
    for name, pattern in _BEHAVIORS:
        if pattern.search(because) and not (name == "UNRECOVERABLE_GPU_ERROR" and slow):
            return name
    return "BEHAVIOR_UNSPECIFIED"


def _begun(answer: Mapping[str, Any], where: InstanceName) -> Sent:
    begun = _operation(answer)
    if begun.done and begun.error:
        raise RepairRefused(f"{begun.kind}: {begun.error}")
    return accepted(f"Google began {begun.kind or 'the operation'} of {where.name}", begun.name)


def operation(google: Google, scope: str, name: str, key: str) -> Optional[GoogleOperation]:
    """An operation by its name, or by the order's key if its name never arrived. None if there is none.

    `scope` is `projects/P/zones/Z` or `projects/P/regions/R`. Raises CallFailed.
    """
    kind = "zoneOperations" if "/zones/" in scope else "regionOperations"
    if name:
        try:
            return _operation(google.call(f"{kind}.get", "GET", f"{scope}/operations/{name}"))
        except CallFailed as error:
            if error.code not in ("notFound", "404"):
                raise
    query = {"filter": f'clientOperationId = "{key}"', "maxResults": "10"}
    items = google.call(f"{kind}.list", "GET", f"{scope}/operations", query).get("items") or []
    return next((_operation(item) for item in items if item.get("clientOperationId") == key), None)


def running(google: Google, where: InstanceName, instance: GoogleInstance) -> list[GoogleOperation]:
    """Operations on an instance that have not ended. Raises CallFailed."""
    query = {"filter": f'(targetId = "{instance.id}") AND (status != "DONE")', "maxResults": "20"}
    scope = f"projects/{where.project}/zones/{where.zone}"
    items = google.call("zoneOperations.list", "GET", f"{scope}/operations", query).get("items") or []
    seen = [_operation(item) for item in items if str(item.get("targetId")) == instance.id]
    return [item for item in seen if not item.done]


def _operation(details: Mapping[str, Any]) -> GoogleOperation:
    errors = (details.get("error") or {}).get("errors") or []
    problem = "; ".join(f"{error.get('code')}: {error.get('message')}" for error in errors)
    if not problem and int(details.get("httpErrorStatusCode") or 0) >= 400:
        problem = f"{details['httpErrorStatusCode']}: {details.get('httpErrorMessage') or ''}"
    return GoogleOperation(
        name=str(details.get("name") or ""),
        done=details.get("status") == "DONE",
        error=printable(problem, 300),
        kind=str(details.get("operationType") or ""),
        user=str(details.get("user") or ""),
    )


# Evidence.


def evidence(google: Google, where: InstanceName, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can."""
    pieces = (
        ("console.txt", "text/plain", partial(_console, google, where)),
        ("screenshot.jpg", "image/jpeg", partial(_screenshot, google, where)),  # needs a display device, which few have
    )
    return EvidenceCollector(budget).gather(pieces, f"Google shows nothing of {where.name}")


def _console(google: Google, where: InstanceName) -> bytes:
    """The last megabyte of serial port 1, which is all that Google keeps."""
    answer = google.call("instances.getSerialPortOutput", "GET", f"{where.path}/serialPort", {"port": "1"})
    return str(answer.get("contents") or "").encode()


def _screenshot(google: Google, where: InstanceName) -> bytes:
    answer = google.call("instances.getScreenshot", "GET", f"{where.path}/screenshot")
    return base64.b64decode(str(answer.get("contents") or ""))
