"""The errors of a request to the API server, and their messages."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional

import urllib3

from nhc.model import printable
from nhc.ports.adapter import AdapterError
from nhc.system.http_client import network_problem


class ApiError(AdapterError):
    """The API server answered with an error."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def conflict(self) -> bool:
        """Somebody else wrote first: the JSON patch's test failed (422) or the version had moved on (409)."""
        # The server words a failed test no better than this; what it finds invalid it describes.
        return self.status == 409 or (self.status == 422 and self.message.startswith("the server rejected our request"))


class Gone(AdapterError):
    """The resourceVersion is too old (410): list again."""


class Unreachable(AdapterError):
    """No answer from the API server."""


def api_error(status: int, headers: Mapping[str, str], answer: bytes) -> ApiError:
    """The error that an answer with this status means: the server's own words where it is a Status."""
    reason, message = "", printable(answer[:200].decode(errors="replace"), 200)
    details: Mapping[str, Any] = {}
    try:
        said = json.loads(answer)
        reason = str(said.get("reason") or "")
        message = printable(str(said.get("message") or ""), 400) or message
        details = said.get("details") or {}
    except (ValueError, AttributeError):
        pass  # a proxy's page, not the server's Status
    try:
        wait = float(headers.get("Retry-After") or details.get("retryAfterSeconds") or 0)
    except ValueError:
        wait = 0.0
    return ApiError(status, reason, message, wait)


def plain(error: Exception) -> str:
    """A network error as one line: urllib3 nests them three deep and names objects.

    Nobody there ("connection refused"), no such name ("no such host") and silence ("no answer in time") are three
    things, and are mended in three places.
    """
    seen: Optional[BaseException] = error
    while seen is not None:
        kind = _kind(seen)
        if kind:
            return kind
        if isinstance(seen, urllib3.exceptions.MaxRetryError) and seen.reason is not None:
            seen = seen.reason
            continue
        following = seen.__cause__ or seen.__context__
        if following is None:
            break
        seen = following
    return printable(str(seen) or type(seen).__name__, 160)


def _kind(error: BaseException) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return ""  # its cause says which; urllib3 1.26 and 2 count it among the timeouts, which it is not
    if isinstance(error, (urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ConnectTimeoutError, TimeoutError)):
        return "no answer in time"
    return printable(network_problem(error), 160)
