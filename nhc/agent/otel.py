"""The sink for OpenTelemetry: events as logs, verdicts and measurements as metrics, over OTLP/HTTP.

    [sinks.otel]
    endpoint = "http://127.0.0.1:4318"
    headers = { authorization = "Bearer ..." }

Source of the fields' numbers: opentelemetry-proto 1.x, logs.proto, metrics.proto.
Imported only in the sink's own process.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc import __version__
from nhc.core.model import Verdict
from nhc.core.settings import declared
from nhc.core.system import otlp
from nhc.core.system.http_client import Tls
from nhc.core.system.otlp import CollectorAway
from nhc.core.system.protobuf import double, fixed64, integer, message, text
from nhc.core.timestamps import from_utc
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery, Event, Standing, sink_settings

_SEVERITY = {"CRIT": (17, "ERROR"), "UNKNOWN": (13, "WARN"), "WARN": (13, "WARN"), "OK": (9, "INFO")}
_VERDICTS = "0 skip, 1 ok, 2 warn, 3 unknown, 4 crit"
LAST_TRY = 3.0
"""Seconds that the end of the agent waits for the last metrics."""


@declared.settings
class OtelSettings(NamedTuple):
    """The table [sinks.otel]."""

    endpoint: str = declared.converted("endpoint", otlp.endpoint, "http://127.0.0.1:4318")
    headers: Mapping[str, str] = declared.entries(
        "headers", lambda table, name: table.secret(name), shown='authorization = "Bearer TOKEN"'
    )
    every: float = declared.seconds("every", 60.0, least=0.1)
    timeout: float = declared.seconds("timeout", 10.0, least=0.1)
    logs: bool = declared.flag("logs", True)
    metrics: bool = declared.flag("metrics", True)
    certificate: str = declared.text("certificate", "", shown='"/etc/ssl/collector.pem"')


class Otel:
    """`nhc.marks.ports.sinks.BufferedSink`. Raises AdapterError if the settings make no sense.

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
        self._resource = {**otlp.resource_of_environment(), **given}

        def signal(name: str) -> otlp.Signal:
            return otlp.Signal(f"{own.endpoint}/v1/{name}", own.headers, own.timeout, Tls(own.certificate), log, clock)

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
        """Why the collector has not received all logs or metrics, "" while it has all."""
        return next((signal.problem for signal in (self._logs, self._metrics) if signal and signal.problem), "")

    def deliver(self, delivery: Delivery) -> None:
        """Send logs at once; metrics go at their own interval, and at once if the verdict has changed."""
        before = self.delivery
        after = self.delivery = delivery if delivery.report.results else before
        if before and after and before.report.verdict is not after.report.verdict:
            with self._wake:
                self._now = True
                self._wake.notify()
        if self._logs is not None and delivery.events:
            try:
                self._logs.send(self._request([_record(event) for event in delivery.events]), len(delivery.events))
            except CollectorAway as away:
                raise AdapterError(str(away)) from None

    def close(self) -> None:
        """Send the metrics once more, if that is possible at once."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(LAST_TRY)
        for signal in (self._logs, self._metrics):
            if signal is not None and not (self._thread and self._thread.is_alive()):
                signal.close()

    def _run(self, metrics: otlp.Signal) -> None:
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
            except CollectorAway:  # `problem` reports it; the next metrics are newer
                wait = min(wait, max(metrics.held_off, 0.1))

    def _request(self, values: List[bytes]) -> bytes:
        return otlp.request(self._resource, "nhc.agent", values)


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
    body = message(5, otlp.any_value(event.get("message") or event["event"]))
    severity = integer(2, number) + text(3, severity_text)
    return fixed64(1, at) + severity + body + otlp.attributes(6, attributes) + fixed64(11, time.time_ns())


def _gauges(delivery: Delivery, now: int) -> List[Tuple[str, str, List[bytes]]]:
    """Each gauge: its name, its description and its points, of this time (nanoseconds)."""

    def point(value: float, attributes: Mapping[str, str] = {}) -> bytes:
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        number = fixed64(6, int(value)) if whole else double(4, float(value))
        return fixed64(3, now) + number + otlp.attributes(7, attributes)

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
