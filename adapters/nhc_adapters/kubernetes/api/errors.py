"""The errors of a request to the API server, and their messages."""

from __future__ import annotations

from typing import Mapping, Optional

import urllib3

from nhc.core.json_values import number_of, object_from, object_of, text_of
from nhc.core.model import printable
from nhc.core.system.http_client import network_problem
from nhc.marks.ports.adapter import AdapterError


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
    """The error of an answer with this status, in the server's own words where the answer is a Status object."""
    value = object_from(answer)  # an empty one: a proxy's page, not the server's Status
    message = printable(text_of(value.get("message")), 400) or printable(answer[:200].decode(errors="replace"), 200)
    wait = number_of(object_of(value.get("details")).get("retryAfterSeconds")) or 0.0
    given = headers.get("Retry-After") or ""  # seconds; a proxy may write a date there
    if given.isdecimal() and len(given) < 10:
        wait = float(given)
    return ApiError(status, text_of(value.get("reason")), message, wait)


def plain(error: Exception) -> str:
    """A network error as one line: urllib3 nests them three deep and names objects.

    Nobody there ("connection refused"), no such name ("no such host") and silence ("no answer in time") are three
    faults, which are mended in three places.
    """
    innermost: BaseException = error
    cause: Optional[BaseException] = error
    while cause is not None:
        kind = _kind(cause)
        if kind:
            return kind
        innermost = cause
        reason = cause.reason if isinstance(cause, urllib3.exceptions.MaxRetryError) else None
        cause = reason or cause.__cause__ or cause.__context__
    return printable(str(innermost) or type(innermost).__name__, 160)


def _kind(error: BaseException) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return ""  # its cause says which; urllib3 1.26 and 2 count it as a timeout, which it is not
    if isinstance(error, (urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ConnectTimeoutError, TimeoutError)):
        return "no answer in time"
    return printable(network_problem(error), 160)
