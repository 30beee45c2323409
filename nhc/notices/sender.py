"""One request to a receiver of notices: no redirect, no proxy of the environment, one try. The outbox tries again.

The address comes from the settings alone, never from a node's report. A message without an answer is sent again:
receivers recognise it by its id or its incident's key.
"""

from __future__ import annotations

import email.utils
import json
from typing import Mapping, Optional

import urllib3

from nhc.model import printable

TIMEOUT = urllib3.Timeout(connect=10.0, read=20.0)
LONGEST_WAIT = 3600.0
"""Seconds of a Retry-After that are believed."""


class SendLater(Exception):
    """It may succeed later: no answer, 429, 5xx. `after` are the seconds that the receiver asked for, 0.0 for none."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class SendRefused(Exception):
    """It never will succeed as it is: a wrong address, a wrong key, a message that is not taken."""


class Sender:
    """Requests by urllib3. `ca` is a file of certificates, in place of the system's."""

    def __init__(self, ca: str = "") -> None:
        self._pool = (
            urllib3.PoolManager(num_pools=8, retries=False, timeout=TIMEOUT, ca_certs=ca)
            if ca
            else urllib3.PoolManager(num_pools=8, retries=False, timeout=TIMEOUT)
        )

    def post(self, url: str, value: object, headers: Optional[Mapping[str, str]] = None) -> bytes:
        """POST JSON. Raises SendLater, SendRefused; neither ever names the address, which may hold a secret."""
        return self.send("POST", url, json.dumps(value, ensure_ascii=False).encode(), headers)

    def send(self, method: str, url: str, body: Optional[bytes], headers: Optional[Mapping[str, str]] = None) -> bytes:
        """One request; the answer's body, at most 1 MiB of it."""
        given = {"Content-Type": "application/json", "User-Agent": "nhc", **(headers or {})}
        try:
            answer = self._pool.request(
                method, url, body=body, headers=given, redirect=False, retries=False, preload_content=False
            )
            try:
                data: bytes = answer.read(1 << 20)
            finally:
                answer.release_conn()
        except urllib3.exceptions.LocationValueError:
            raise SendRefused("the address is no URL") from None
        except urllib3.exceptions.HTTPError as error:
            raise SendLater(f"no answer: {type(error).__name__}") from None
        if 200 <= answer.status < 300:
            return data
        said = f"status {answer.status}: {printable(data[:300].decode('utf-8', 'replace'), 200)}".rstrip(": ")
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise SendLater(said, retry_after(answer.headers.get("Retry-After", "")))
        raise SendRefused(said)


def retry_after(text: str, now: Optional[float] = None) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3); 0.0 for none."""
    if text.strip().isdigit() and len(text.strip()) < 10:
        return min(float(text), LONGEST_WAIT)
    try:
        import time

        when = email.utils.parsedate_to_datetime(text).timestamp()
        return min(max(0.0, when - (time.time() if now is None else now)), LONGEST_WAIT)
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
