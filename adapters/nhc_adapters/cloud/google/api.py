"""Google's Compute Engine API over REST: each call sent once, with the order's key as its request id.

The client library sends a request once as well, but takes three seconds and 160 MB to load. On Google's machines the
metadata service hands out tokens, and nothing else is needed; elsewhere google-auth finds credentials (extra `gcp`).

A node's name tells which Compute Engine instance stands behind it.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping, NamedTuple, Optional
from urllib.parse import quote, urlencode

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpAnswer, HttpClient, HttpError
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine
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
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.setting_forms import https_url

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
    """Whose account, and by which way."""

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
    """An instance by name. Google names a recreated instance as it named the one before."""

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
