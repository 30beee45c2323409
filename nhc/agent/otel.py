"""The sink for OpenTelemetry: events as logs, verdicts and measurements as metrics, over OTLP/HTTP.

    [sinks.otel]
    endpoint = "http://127.0.0.1:4318"
    headers = { authorization = "Bearer ..." }

Requests are OTLP's binary messages, packed with gzip: no library is needed, where OpenTelemetry's own for Python took
16 MB on each node. Source of the fields' numbers: opentelemetry-proto 1.x, logs.proto, metrics.proto, common.proto.
Imported only in the sink's own process.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import unquote, urlsplit

from nhc import __version__
from nhc.core.model import Verdict, printable
from nhc.core.settings import declared
from nhc.core.system.backoff import Backoff
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpAnswer, HttpClient, HttpError, Tls
from nhc.core.system.protobuf import double, fields, fixed64, integer, message, text
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Event, Standing, sink_settings

# One kind of telemetry on its way to a collector: OTLP/HTTP's requests, and what its answers mean.
#
# Sources: the OTLP specification 1.x, "OTLP/HTTP Response", "Partial Success", "Retryable Response Codes",
# "Throttling".


PROTOBUF = "application/x-protobuf"
"""The encoding that every receiver takes: VictoriaMetrics and VictoriaLogs answer JSON with 400."""
ANSWER = 64 << 10
"""Bytes that are read of an answer."""
RETRYABLE = (429, 502, 503, 504)
"""After any other status but success a request must not be sent again (OTLP, "Retryable Response Codes")."""
BACKOFF = (1.0, 60.0)
"""Seconds between two tries, at first and at most."""


class Signal:
    """Logs or metrics. `clock` is monotonic."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout: float,
        tls: Tls,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._timeout, self._log, self._clock = url, timeout, log, clock
        self._http = HttpClient(tls, keep=True)
        self._headers = {
            "Content-Type": PROTOBUF, "Content-Encoding": "gzip", "User-Agent": f"nhc-agent/{__version__}",
            **headers,
        }  # fmt: skip
        self._backoff, self._until = Backoff(*BACKOFF, spread=True), 0.0
        self.problem = ""
        """Why the collector lacks something, "" while it has all."""
        self.refused = 0
        """Records or points that the collector did not take and that were dropped."""

    @property
    def held_off(self) -> float:
        """The seconds for which nothing is sent."""
        return max(0.0, self._until - self._clock())

    def send(self, request: bytes, count: int) -> None:
        """Send so many records or points. Raises AdapterError where they are to be sent again later.

        What the collector refuses for good is counted and dropped.
        """
        if self.held_off:
            raise AdapterError(self.problem)
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

    def _later(self, problem: str, after: float = 0.0) -> AdapterError:
        self._until = self._clock() + max(after, self._backoff.next())
        self.problem = f"{self._url}: {problem}"
        return AdapterError(self.problem)

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


_SEVERITY = {"CRIT": (17, "ERROR"), "UNKNOWN": (13, "WARN"), "WARN": (13, "WARN"), "OK": (9, "INFO")}
_SCOPE = text(1, "nhc.agent") + text(2, __version__)
_VERDICTS = "0 skip, 1 ok, 2 warn, 3 unknown, 4 crit"
LAST_TRY = 3.0
"""Seconds that the end of the agent waits for the last metrics."""


def _url(text: str) -> str:
    parts = urlsplit(text)
    if not parts.hostname or parts.scheme not in ("http", "https") or parts.query:
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


@declared.settings
class OtelSettings(NamedTuple):
    """The table [sinks.otel]."""

    endpoint: str = declared.converted("endpoint", _url, "http://127.0.0.1:4318")
    headers: Mapping[str, str] = declared.entries(
        "headers", lambda table, name: table.secret(name), shown='authorization = "Bearer TOKEN"'
    )
    every: float = declared.seconds("every", 60.0, least=0.1)
    timeout: float = declared.seconds("timeout", 10.0, least=0.1)
    logs: bool = declared.flag("logs", True)
    metrics: bool = declared.flag("metrics", True)
    certificate: str = declared.text("certificate", "", shown='"/etc/ssl/collector.pem"')


class Otel:
    """`nhc.marks.ports.sinks.BufferedSink`. Raises AdapterError where the settings make no sense.

    Logs are sent by `deliver`, metrics by a thread. `clock` is monotonic.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        node: str,
        labels: Mapping[str, str],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.delivery: Optional[Delivery] = None
        own = sink_settings(OtelSettings, settings, "otel")
        self._every = own.every
        given = {"service.name": "nhc-agent", "service.version": __version__, "host.name": node, **labels}
        self._resource = _attributes(1, {**_of_environment(), **given})

        def signal(name: str) -> Signal:
            return Signal(f"{own.endpoint}/v1/{name}", own.headers, own.timeout, Tls(own.certificate), log, clock)

        self._logs = signal("logs") if own.logs else None
        self._metrics = signal("metrics") if own.metrics else None
        self._wake = threading.Condition()
        self._now = self._ending = False
        self._thread: Optional[threading.Thread] = None
        if self._metrics is not None:
            self._thread = threading.Thread(target=self._run, args=(self._metrics,), name="metrics", daemon=True)
            self._thread.start()

    def standing(self) -> List[Standing]:
        return []

    def problem(self) -> str:
        """Why the collector lacks logs or metrics, "" while it has all."""
        return next((signal.problem for signal in (self._logs, self._metrics) if signal and signal.problem), "")

    def deliver(self, delivery: Delivery) -> None:
        """Logs at once; metrics go with their own rhythm, and at once where the verdict has changed."""
        before = self.delivery
        after = self.delivery = delivery if delivery.report.results else before
        if before and after and before.report.verdict is not after.report.verdict:
            with self._wake:
                self._now = True
                self._wake.notify()
        if self._logs is not None and delivery.events:
            self._logs.send(self._request([_record(event) for event in delivery.events]), len(delivery.events))

    def close(self) -> None:
        """Send the metrics once more, if that goes at once."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(LAST_TRY)
        for signal in (self._logs, self._metrics):
            if signal is not None and not (self._thread and self._thread.is_alive()):
                signal.close()

    def _run(self, metrics: Signal) -> None:
        wait = self._every
        while not self._ending:
            with self._wake:
                self._wake.wait_for(lambda: self._now or self._ending, wait)
                self._now = False
            wait = self._every
            delivery = self.delivery
            if delivery is None:
                continue
            gauges = _gauges(delivery, time.time_ns())
            values = [
                text(1, name) + text(2, description) + message(5, b"".join(message(1, point) for point in points))
                for name, description, points in gauges
                if points
            ]
            try:
                metrics.send(self._request(values), sum(len(points) for _name, _description, points in gauges))
            except AdapterError:  # `problem` says it; what is sent next is newer
                wait = min(wait, max(metrics.held_off, 0.1))

    def _request(self, values: List[bytes]) -> bytes:
        """ExportLogsServiceRequest or ExportMetricsServiceRequest, whose fields have the same numbers down to these."""
        scope = message(1, _SCOPE) + b"".join(message(2, value) for value in values)
        return message(1, message(1, self._resource) + message(2, scope))


def _of_environment() -> Dict[str, str]:
    """The attributes that OpenTelemetry's own variable gives, as in `a=1,b=2`; values may be percent-encoded."""
    pairs = (item.partition("=") for item in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    return {name.strip(): unquote(value.strip()) for name, sep, value in pairs if sep and name.strip()}


def _attributes(number: int, values: Mapping[str, object]) -> bytes:
    return b"".join(message(number, text(1, key) + message(2, _value(value))) for key, value in values.items())


def _value(value: object) -> bytes:
    """AnyValue of a text, a number or a flag."""
    if isinstance(value, bool):
        return integer(2, value)
    if isinstance(value, int):
        return integer(3, value)
    return double(4, value) if isinstance(value, float) else text(1, str(value))


def _record(event: Event) -> bytes:
    verdict = event.get("verdict", "OK" if event["event"].startswith("agent.") else Verdict.WARN.name)
    number, severity_text = _SEVERITY.get(verdict, _SEVERITY["WARN"])
    stamp = event["time"]
    attributes = {
        f"nhc.{key}": value
        for key, value in event.items()
        if isinstance(value, (str, int, float, bool)) and key not in ("time", "message", "schema")
    }
    at = int(from_utc(stamp)) * 1_000_000_000 + int(stamp[20:23]) * 1_000_000
    body = message(5, _value(event.get("message") or event["event"]))
    severity = integer(2, number) + text(3, severity_text)
    return fixed64(1, at) + severity + body + _attributes(6, attributes) + fixed64(11, time.time_ns())


def _gauges(delivery: Delivery, now: int) -> List[Tuple[str, str, List[bytes]]]:
    """Each gauge: its name, its description and its points, of this time (nanoseconds)."""

    def point(value: float, attributes: Mapping[str, str] = {}) -> bytes:
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        number = fixed64(6, int(value)) if whole else double(4, float(value))
        return fixed64(3, now) + number + _attributes(7, attributes)

    worst: Dict[Tuple[str, str, str], int] = {}
    measured = []
    for result in delivery.report.results:
        outcome = result.outcome
        key = (result.check, outcome.target, outcome.reason)
        worst[key] = max(worst.get(key, 0), int(result.verdict))
        for metric in outcome.metrics:
            about = {"check": result.check, "target": outcome.target, "name": metric.name, "unit": metric.unit}
            measured.append(point(metric.value, about))
    checks = [
        point(verdict, {"check": check, "target": target, "reason": reason})
        for (check, target, reason), verdict in worst.items()
    ]
    return [
        ("nhc.node.verdict", f"Verdict of the node: {_VERDICTS}", [point(int(delivery.report.verdict))]),
        ("nhc.check.verdict", f"Verdict of a check: {_VERDICTS}", checks),
        ("nhc.check.metric", "What a check measured", measured),
    ]
