"""Azure's Resource Manager over REST: each call sent once.

Azure's client library sends a POST again on 500, 503 and 504, and loads 140 MB. On Azure's machines the metadata
service hands out a managed identity's token; elsewhere azure-identity finds credentials (extra `azure`).

A node's name tells which virtual machine stands behind it.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from typing import Any, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode, urlsplit

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
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
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.setting_forms import https_url

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
    """What a call began: the operation's place, "" where it ended at once."""

    operation: str
    answer: Mapping[str, Any]


@declared.settings
class AzureAccess(NamedTuple):
    """Whose account, and by which way."""

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
        """An operation under way: its `status` and `error`, {} where Azure does not know it any more.

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
        """What stands at a signed address. Raises CallFailed."""
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
    """A machine by its resource id. `scale_set` is of one in a uniform scale set, where `name` is its number.

    One of a flexible scale set is a virtual machine with a name of its own.
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
