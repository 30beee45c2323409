"""One session with a Redfish service: log in, ask, change once, log out.

Controllers allow few sessions at a time, so each is deleted at its end. Sources: DMTF DSP0266 (the protocol), sections
"Sessions" and "Asynchronous operations".
"""

from __future__ import annotations

import base64
import json
from types import TracebackType
from typing import Dict, List, Mapping, NamedTuple, Optional, Type
from urllib.parse import urljoin, urlsplit

from nhc.core.json_values import object_from, object_of, objects_of, parse_object, text_of
from nhc.core.model import printable
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import CertificateRefused, HttpAnswer, HttpClient, HttpError, NotSent, Tls
from nhc.marks.ports.repair import Answer
from nhc_adapters.repair.calls import LATER, CallFailed

BODY_LIMIT = 8 << 20
"""Bytes of one answer at most; a log's page has some hundred kilobytes."""

NOT_BEGUN = frozenset({400, 401, 403, 404, 405, 406, 409, 410, 412, 415, 501})
"""Statuses of a request that was looked at and not carried out (DSP0266, "Status codes")."""


class RedfishReply(NamedTuple):
    """An answer: status, headers in lower case, and the JSON object, {} for none."""

    status: int
    headers: Mapping[str, str]
    body: Dict[str, object]

    @property
    def location(self) -> str:
        """The path of the Location header, "" for none. A controller may write it with a host name that it has only
        for itself; what it made is asked for where we reached it, so that no other host is given our token.
        """
        address = urlsplit(self.headers.get("location", ""))
        return address._replace(scheme="", netloc="").geturl()


class RedfishSession:
    """Use it as a context manager. Raises CallFailed for whatever goes wrong, AdapterError included."""

    def __init__(self, base: str, user: str, password: str, tls: Tls, timeout: float) -> None:
        self.base, self.user, self._password = base.rstrip("/"), user, password
        self._headers = {"Accept": "application/json", "OData-Version": "4.0"}
        self._session = ""
        self._http, self._timeout = HttpClient(tls, keep=True), timeout

    def __enter__(self) -> RedfishSession:  # noqa: PYI034 (Self is Python 3.11's)
        try:
            self._log_in()
        except BaseException:
            self._http.close()
            raise
        return self

    def _log_in(self) -> None:
        root = self.get("/redfish/v1/")
        if not self.user:
            return
        where = link(root, "Links", "Sessions") or "/redfish/v1/SessionService/Sessions"
        try:
            reply = self.change("POST", where, {"UserName": self.user, "Password": self._password})
        except CallFailed as error:
            if error.code not in ("404", "405", "501"):
                raise
            # Services without sessions take the password with each request (DSP0266, "HTTP basic authentication").
            login = base64.b64encode(f"{self.user}:{self._password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
            return
        self._headers["X-Auth-Token"] = reply.headers.get("x-auth-token", "")
        self._session = reply.location

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._session:
            try:
                self.change("DELETE", self._session)
            except CallFailed:
                pass  # it ends by its own time-out; what was asked for is done
        self._http.close()

    def get(self, path: str) -> Dict[str, object]:
        """One resource."""
        return self._request("GET", path).body

    def members(self, path: str) -> List[str]:
        """The addresses in a collection's first page."""
        return [str(row["@odata.id"]) for row in objects_of(self.get(path).get("Members")) if "@odata.id" in row]

    def change(self, method: str, path: str, body: Optional[Mapping[str, object]] = None) -> RedfishReply:
        """One request that changes something, sent once."""
        return self._request(method, path, body)

    def _request(self, method: str, path: str, body: Optional[Mapping[str, object]] = None) -> RedfishReply:
        url = urljoin(f"{self.base}/", path)
        if not url.startswith(f"{self.base}/"):  # another host would be given our token
            raise CallFailed(Answer.REFUSED, f"{self.base}: points to another place: {printable(url, 120)}")
        headers = dict(self._headers)
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            with Exchange(self._timeout) as exchange:
                reply = self._http.send(exchange, method, url, data, headers, limit=BODY_LIMIT)
        except CertificateRefused as error:
            raise CallFailed(Answer.REFUSED, f"{self.base}: {printable(str(error), 200)}") from None
        except NotSent as error:
            raise CallFailed(Answer.REFUSED, f"{self.base}: {printable(str(error), 200)}", retry_after=LATER) from None
        except HttpError as error:
            why = f"{self.base}: no answer to {method}: {printable(str(error), 200)}"
            raise CallFailed(Answer.AMBIGUOUS, why) from None
        if reply.status >= 300:
            raise _failed(self.base, method, path, reply)
        return RedfishReply(reply.status, reply.headers, self._json(reply.data, path))

    def _json(self, content: bytes, path: str) -> Dict[str, object]:
        if not content.strip():
            return {}
        try:
            return parse_object(content)
        except ValueError:
            raise CallFailed(
                Answer.AMBIGUOUS, f"{self.base}{printable(path, 80)}: the answer is no JSON object"
            ) from None


def _failed(base: str, method: str, path: str, reply: HttpAnswer) -> CallFailed:
    reason, status = printable(_error_message(reply.data), 200), reply.status
    message = f"{base}: {method} {printable(path, 100)}: HTTP {status}{f': {reason}' if reason else ''}"
    if status == 429 or (status == 503 and "retry-after" in reply.headers):
        return CallFailed(Answer.REFUSED, message, str(status), reply.retry_after or LATER)
    right = "ConfigureComponents" if status == 403 else "the login" if status == 401 else ""
    return CallFailed(Answer.REFUSED if status in NOT_BEGUN else Answer.AMBIGUOUS, message, str(status), right=right)


def _error_message(content: bytes) -> str:
    """The message of an error's body (DSP0266, "Error responses"), its text where it is none."""
    value = object_from(content)
    if "error" not in value:
        return content[:200].decode("utf-8", "replace")
    error = object_of(value["error"])
    more = error.get("@Message.ExtendedInfo")
    first = next(iter(objects_of(more)), object_of(more))
    return text_of(first.get("Message")) or text_of(error.get("message"))


def link(value: Mapping[str, object], *names: str) -> str:
    """The address that stands under these names, "" for none."""
    at: object = value
    for name in names:
        at = object_of(at).get(name)
    return text_of(object_of(at).get("@odata.id"))


def text(value: Mapping[str, object], name: str) -> str:
    """A text field, "" where it is missing or of another kind."""
    return text_of(value.get(name))
