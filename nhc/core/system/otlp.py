"""OTLP/HTTP: one kind of telemetry on its way to a collector, and what its answers mean.

Requests are OTLP's binary messages, packed with gzip: no library is needed, where OpenTelemetry's own for Python took
16 MB on each node. Sources: the OTLP specification 1.x, "OTLP/HTTP Response", "Partial Success", "Retryable Response
Codes", "Throttling"; of the fields' numbers opentelemetry-proto 1.x, common.proto.
"""

from __future__ import annotations

import os
import time
import zlib
from urllib.parse import unquote, urlsplit

from nhc import __version__
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import printable
from nhc.core.system.backoff import Backoff
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpClient, HttpError
from nhc.core.system.protobuf import double, fields, integer, message, text

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Union

    from nhc.core.system.http_client import HttpAnswer, Tls


class CollectorAway(Exception):
    """The collector takes nothing now; the same is to be sent again later. One line."""


PROTOBUF = "application/x-protobuf"
"""The encoding that every receiver takes: VictoriaMetrics and VictoriaLogs answer JSON with 400."""
ANSWER = 64 << 10
"""Bytes that are read of an answer."""
RETRYABLE = (429, 502, 503, 504)
"""After any other status but success a request must not be sent again (OTLP, "Retryable Response Codes")."""
BACKOFF = (1.0, 60.0)
"""Seconds between two tries, at first and at most."""


class Signal:
    """Logs, metrics or traces of a program (`program`). `clock` is monotonic."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout: float,
        tls: Tls,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        program: str = "nhc-agent",
    ) -> None:
        self._url, self._timeout, self._log, self._clock = url, timeout, log, clock
        self._http = HttpClient(tls, keep=True)
        self._headers = {
            "Content-Type": PROTOBUF, "Content-Encoding": "gzip", "User-Agent": f"{program}/{__version__}",
            **headers,
        }  # fmt: skip
        self._backoff, self._until = Backoff(*BACKOFF, spread=True), 0.0
        self.problem = ""
        """Why the collector lacks something, "" while it has all."""
        self.refused = 0
        """Records, points or spans that the collector did not take and that were dropped."""

    @property
    def held_off(self) -> float:
        """The seconds for which nothing is sent."""
        return max(0.0, self._until - self._clock())

    def send(self, request: bytes, count: int) -> None:
        """Send so many records, points or spans. Raises CollectorAway where they are to be sent again later.

        What the collector refuses for good is counted and dropped.
        """
        if self.held_off:
            raise CollectorAway(self.problem)
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: as gzip
        packed = packer.compress(request) + packer.flush()
        try:
            with Exchange(self._timeout) as exchange:
                answer = self._http.send(exchange, "POST", self._url, packed, self._headers, limit=ANSWER)
        except HttpError as error:
            raise self._later(printable(str(error), 200)) from None
        if answer.status in RETRYABLE:
            raise self._later(f"HTTP {answer.status}{_message(answer)}", answer.retry_after)
        self._backoff.reset()
        if answer.status // 100 == 2:
            self._taken(answer)
        else:
            self._drop(count, f"HTTP {answer.status}{_message(answer)}")

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _later(self, problem: str, after: float = 0.0) -> CollectorAway:
        self._until = self._clock() + max(after, self._backoff.next())
        self.problem = f"{self._url}: {problem}"
        return CollectorAway(self.problem)

    def _taken(self, answer: HttpAnswer) -> None:
        """A success, which may say that it took a part, or warn: Export*ServiceResponse.partial_success."""
        partial = _fields(_fields(_data(answer)).get(1))
        count, message = partial.get(1, 0), _text(partial.get(2))
        if isinstance(count, int) and 0 < count < 1 << 63:
            self._drop(count, message or "no reason given")
            return
        self.problem = ""
        if message:
            self._log(f"{self._url}: the collector warns: {message}")

    def _drop(self, count: int, problem: str) -> None:
        self.refused += count
        line = f"{self._url}: the collector refused {count} for good, {self.refused} so far: {problem}"
        if line.partition(" refused ")[0] != self.problem.partition(" refused ")[0]:
            self._log(line)
        self.problem = line


def _data(answer: HttpAnswer) -> bytes:
    return answer.data if answer.headers.get("content-type", "").startswith(PROTOBUF) else b""


def _fields(data: object) -> Dict[int, Union[int, bytes]]:
    try:
        return dict(fields(data)) if isinstance(data, bytes) else {}
    except ValueError:
        return {}


def _text(value: object) -> str:
    return printable(value.decode("utf-8", "replace"), 200) if isinstance(value, bytes) else ""


def _message(answer: HttpAnswer) -> str:
    """Why it is an error: google.rpc.Status.message, or what a proxy or another server wrote as a text."""
    plain = answer.headers.get("content-type", "").startswith(("text/plain", "application/json"))
    message = _text(answer.data[:1000] if plain else _fields(_data(answer)).get(2)).strip()
    return f": {message}" if message else ""


def request(resource: Mapping[str, object], scope: str, values: List[bytes]) -> bytes:
    """ExportLogsServiceRequest, ExportMetricsServiceRequest or ExportTraceServiceRequest, whose fields have the same
    numbers down to `values`.
    """
    named = message(1, text(1, scope) + text(2, __version__))
    inner = named + b"".join(message(2, value) for value in values)
    return message(1, message(1, attributes(1, resource)) + message(2, inner))


def endpoint(text: str) -> str:
    """A collector's address. Raises ValueError."""
    parts = urlsplit(text)
    if not parts.hostname or parts.scheme not in ("http", "https") or parts.query:
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def resource_of_environment() -> Dict[str, str]:
    """The attributes that OpenTelemetry's own variable gives, as in `a=1,b=2`; values may be percent-encoded."""
    pairs = (item.partition("=") for item in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    return {name.strip(): unquote(value.strip()) for name, sep, value in pairs if sep and name.strip()}


def attributes(number: int, values: Mapping[str, object]) -> bytes:
    """KeyValue, repeated under this number."""
    return b"".join(message(number, text(1, key) + message(2, any_value(value))) for key, value in values.items())


def any_value(value: object) -> bytes:
    """AnyValue of a text, a number or a flag."""
    if isinstance(value, bool):
        return integer(2, value)
    if isinstance(value, int):
        return integer(3, value)
    return double(4, value) if isinstance(value, float) else text(1, str(value))
