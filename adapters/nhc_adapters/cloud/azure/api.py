"""Azure's Resource Manager over REST: each call sent once.

Azure's client library sends a POST again on 500, 503 and 504, and loads 140 MB. On Azure's machines the metadata
service hands out a managed identity's token; elsewhere azure-identity finds credentials (extra `azure`).

A node's name tells which virtual machine it is.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from functools import partial
from typing import Any, Iterator, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode, urlsplit

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import EvidenceBudget, Exhibit, Machine, Sent, Sighting
from nhc_adapters.cloud.rest import (
    CREDENTIALS,
    AccessToken,
    Bearer,
    ProviderMessage,
    Rest,
    RestReply,
    by_library,
    json_at,
    of_machine,
    plain_message,
)
from nhc_adapters.repair import CallFailed, EvidenceCollector, RepairRefused, accepted, https_url

API = "https://management.azure.com"
METADATA = "http://169.254.169.254"
COMPUTE = "2024-07-01"
"""The version asked for. The paths and words that are used are the same up to 2026-04-01."""
IMPACT = "2025-01-01-preview"
AKS = "2025-05-01"
PERMISSIONS = "2022-04-01"

NOT_BEGUN = frozenset(("TooManyRequests", "SubscriptionRequestsThrottled", "OperationNotAllowed", "AllocationFailed"))
"""Codes that say "not now" before anything was begun."""

_OPERATION = re.compile(r"/providers/Microsoft\.Compute/locations/([^/]+)/operations/([^/?]+)", re.IGNORECASE)
_ACTION = re.compile(r"perform action '([A-Za-z./]+)'")
"""In the message of AuthorizationFailed: "... does not have authorization to perform action '...' over scope ..."."""


class Begun(NamedTuple):
    """What a call began: the operation's place, "" if it ended at once."""

    operation: str
    answer: Mapping[str, Any]


@declared.settings
class AzureAccess(NamedTuple):
    """Which account, and how it is reached."""

    endpoint: str = declared.converted("endpoint", https_url, API)
    metadata: str = declared.converted("metadata", https_url, METADATA, "the machine's metadata service")
    proxy: str = declared.text("proxy", "", "of all calls but the metadata service's")
    client_id: str = declared.text("client-id", "", "which of several managed identities")
    credentials: str = declared.word(
        "credentials", CREDENTIALS, "", "metadata: this machine's identity; default: as azure-identity finds them"
    )


class Azure:
    """Calls to Resource Manager."""

    def __init__(self, own: AzureAccess, environ: Optional[Mapping[str, str]], timeout: float) -> None:
        self.address = own.endpoint
        self._environ = os.environ if environ is None else environ
        self._metadata, self._client_id = own.metadata, own.client_id
        self._rest = Rest(timeout, _message, NOT_BEGUN, own.proxy)
        self._own = Rest(min(timeout, 5.0), plain_message)
        library = by_library(own.credentials, self._environ.get("AZURE_TENANT_ID"))
        self._bearer = Bearer(self._library_token if library else self._token)

    def call(
        self,
        action: str,
        verb: str,
        path: str,
        version: str = COMPUTE,
        query: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, object]] = None,
    ) -> Begun:
        """One call. Raises CallFailed, and AdapterError where there are no credentials."""
        parameters = {"api-version": version, **(query or {})}
        url = f"{self.address}{quote(path)}?{urlencode(parameters)}"
        reply = self._rest.call(action, verb, url, {"Authorization": self._bearer.header()}, body)
        return Begun(_operation(reply), reply.json())

    def operation(self, subscription: str, place: str) -> Mapping[str, Any]:
        """An operation under way: its `status` and `error`, {} if Azure does not know it any more.

        Only its place is kept of the address that Azure gave: a token goes to no other host. Raises CallFailed.
        """
        where, _, name = place.partition("/")
        path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{where}/operations/{name}"
        try:
            return self.call("operations", "GET", path).answer
        except CallFailed as error:
            if error.code in ("404", "NotFound", "OperationNotFound", "ResourceNotFound"):
                return {}
            raise

    def upload(self, address: str, content: bytes) -> None:
        """Put a block blob at a signed address, which is a secret and shown nowhere. Raises CallFailed."""
        if not address.startswith(("https://", "http://127.0.0.1:")):
            raise AdapterError("Azure gave no https address to upload the log to")
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/gzip"}
        self._rest.call("the upload of the log", "PUT", address, headers, content=content)

    def fetch(self, what: str, address: str) -> bytes:
        """The content at a signed address. Raises CallFailed."""
        return self._rest.call(what, "GET", address).data

    def _token(self) -> AccessToken:
        """The token of the machine's managed identity, from its metadata service."""
        parameters = {"api-version": "2018-02-01", "resource": f"{API}/"}
        if self._client_id:
            parameters["client_id"] = self._client_id
        where = f"{self._metadata}/metadata/identity/oauth2/token?{urlencode(parameters)}"
        return of_machine(self._own, "Azure", where, {"Metadata": "true"})

    def _library_token(self) -> AccessToken:
        """The token of the default credentials, through azure-identity."""
        try:
            from azure.core.exceptions import AzureError
            from azure.identity import DefaultAzureCredential
        except ModuleNotFoundError:
            raise AdapterError(
                "credentials other than the machine's own need azure-identity: install nhc's extra azure"
            ) from None
        try:
            token = DefaultAzureCredential().get_token(f"{API}/.default")
        except AzureError as error:
            raise AdapterError(f"azure-identity: {printable(str(error), 300)}") from None
        return AccessToken(str(token.token), float(token.expires_on) - time.time())


def _operation(reply: RestReply) -> str:
    """The place of an operation as LOCATION/ID."""
    address = reply.headers.get("azure-asyncoperation") or reply.headers.get("location") or ""
    match = _OPERATION.search(urlsplit(address).path)
    return f"{match[1]}/{match[2]}" if match else ""


def _message(answer: bytes) -> ProviderMessage:
    """Azure's form of an error."""
    error = json_at(answer, "error")
    if not error:
        return plain_message(answer)
    message = str(error.get("message") or "")
    action = _ACTION.search(message)
    return ProviderMessage(str(error.get("code") or ""), message, action[1] if action else "")


_ID = re.compile(
    r"^(?:azure://)?/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute/"
    r"(?:virtualMachineScaleSets/([^/]+)/)?virtualMachines/([^/]+)$",
    re.IGNORECASE,
)
"""`azure:///subscriptions/…` as Kubernetes has it, or the resource id alone. Letter case differs between sources."""


class Vm(NamedTuple):
    """A machine by its resource id. `scale_set` is set if it is in a uniform scale set; `name` is then its number. One
    of a flexible scale set is a virtual machine with a name of its own.
    """

    subscription: str
    group: str
    scale_set: str
    name: str

    @property
    def path(self) -> str:
        kind = f"virtualMachineScaleSets/{self.scale_set}/virtualMachines" if self.scale_set else "virtualMachines"
        base = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/Microsoft.Compute"
        return f"{base}/{kind}/{self.name}"

    @property
    def label(self) -> str:
        return f"{self.scale_set}/{self.name}" if self.scale_set else self.name


def vm(machine: Machine) -> Optional[Vm]:
    """From the provider id, or from the node's setting `resource_id`."""
    match = _ID.match(machine.provider_id or machine.settings.get("resource_id", ""))
    if not match:
        return None
    subscription, group, scale_set, name = match.groups()
    return Vm(subscription, group, scale_set or "", name)


def same(product_uuid: str, vm_id: str) -> bool:
    """Whether the DMI product_uuid that a node shows is the machine's vmId.

    Firmware and kernel disagree on the byte order of its first three fields, so that either order is it.
    """
    try:
        reported, known = uuid.UUID(product_uuid), uuid.UUID(vm_id)
    except ValueError:
        return False
    return known in (reported, uuid.UUID(bytes_le=reported.bytes))


# Azure's virtual machines: what they are now, the calls that change one, and what Azure shows of one without asking
# it: its serial console and a picture of its screen. Both kinds of scale set, and none.


RUNNING, STOPPED, DEALLOCATED = "running", "stopped", "deallocated"
SUCCEEDED = "succeeded"

GONE = frozenset(("ResourceNotFound", "NotFound", "404", "InstanceIdNotFound"))

_QUERY: Mapping[str, Mapping[str, str]] = {"powerOff": {"skipShutdown": "true"}}
"""powerOff with skipShutdown is the power cut."""


class AzureMachine(NamedTuple):
    """A machine as Azure describes it.

    `provisioning` is the state of Azure's last work on it and `at` when that ended: it changes with every operation.
    """

    vm_id: str
    power: str
    provisioning: str
    at: str
    maintenance: str = ""


def get(azure: Azure, which: Vm) -> Optional[AzureMachine]:
    """A machine, None if there is none. Raises CallFailed."""
    try:
        details = azure.call("virtualMachines/read", "GET", which.path, query={"$expand": "instanceView"}).answer
    except CallFailed as error:
        if error.code in GONE:
            return None
        raise
    own: Mapping[str, Any] = details.get("properties") or {}
    view: Mapping[str, Any] = own.get("instanceView") or {}
    codes = {}
    for status in view.get("statuses") or []:
        kind, _, value = str(status.get("code") or "").partition("/")
        codes[kind] = (value.lower(), str(status.get("time") or ""))
    provisioning, at = codes.get("ProvisioningState", (str(own.get("provisioningState") or "").lower(), ""))
    window: Mapping[str, Any] = view.get("maintenanceRedeployStatus") or {}
    return AzureMachine(
        vm_id=str(own.get("vmId") or ""),
        power=codes.get("PowerState", ("", ""))[0],
        provisioning=provisioning,
        at=at,
        maintenance=str(window.get("maintenanceWindowStartTime") or ""),
    )


def compare(machine: Machine, seen: Optional[AzureMachine], which: Vm) -> AzureMachine:
    """The machine, if it is the one that the cluster means: by its DMI UUID, if known. Raises RepairRefused."""
    if seen is None:
        raise RepairRefused(f"there is no virtual machine {which.label} in {which.group}")
    if machine.uuid and seen.vm_id and not same(machine.uuid, seen.vm_id):
        raise RepairRefused(
            f"{which.label} has the vmId {seen.vm_id}, {machine.node} shows {machine.uuid}: another machine"
        )
    return seen


def sighting(seen: Optional[AzureMachine]) -> Sighting:
    if seen is None:
        return Sighting(time.time(), power="gone")
    acting = seen.provisioning not in (SUCCEEDED, "failed", "")
    doing = f"provisioning is {seen.provisioning}" if acting else ""
    return Sighting(time.time(), seen.vm_id, seen.at, seen.power, "azure" if acting else "", doing)


def act(azure: Azure, which: Vm, action: str) -> Sent:
    """POST one action: restart, redeploy, reimage, deallocate, powerOff, start."""
    begun = azure.call(action, "POST", f"{which.path}/{action}", query=_QUERY.get(action))
    return accepted(f"Azure began to {action} {which.label}", begun.operation)


def delete(azure: Azure, which: Vm) -> Sent:
    begun = azure.call("delete", "DELETE", which.path)
    return accepted(f"Azure began to delete {which.label}", begun.operation)


class OperationStatus(NamedTuple):
    """How far an operation of Azure's is: `done` with or without an `error`."""

    done: bool
    error: str


def work(azure: Azure, which: Vm, place: str) -> Optional[OperationStatus]:
    """The operation, None if it is not known. Raises CallFailed."""
    if not place:
        return None
    details = azure.operation(which.subscription, place)
    status = str(details.get("status") or "").lower()
    if not status:
        return None
    error: Mapping[str, Any] = details.get("error") or {}
    failed = status in ("failed", "canceled")
    why = printable(f"{error.get('code') or status}: {error.get('message') or ''}", 300) if failed else ""
    return OperationStatus(status not in ("inprogress", "running", "accepted"), why)


# Evidence.


def evidence(azure: Azure, which: Vm, budget: EvidenceBudget) -> Iterator[Exhibit]:
    """The pieces that can be had, within the budget. Raises AdapterError where none can.

    Boot diagnostics must be on. The addresses are signed for minutes and shown nowhere.
    """
    collector = EvidenceCollector(budget)  # the time for the addresses counts
    try:
        path = f"{which.path}/retrieveBootDiagnosticsData"
        blobs = azure.call(
            "retrieveBootDiagnosticsData", "POST", path, query={"sasUriExpirationTimeInMinutes": "5"}
        ).answer
    except CallFailed as error:
        raise AdapterError(f"Azure shows nothing of {which.label}: {error}") from None
    addresses = (
        ("console.txt", "text/plain", str(blobs.get("serialConsoleLogBlobUri") or "")),
        ("screenshot.bmp", "image/bmp", str(blobs.get("consoleScreenshotBlobUri") or "")),
    )
    pieces = ((name, kind, partial(azure.fetch, name, address)) for name, kind, address in addresses if address)
    yield from collector.gather(pieces, f"Azure shows nothing of {which.label}")
