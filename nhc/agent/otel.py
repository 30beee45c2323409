"""The sink for OpenTelemetry: events as logs, verdicts and measurements as metrics, over OTLP and HTTP.

    [sinks.otel]
    endpoint = "http://127.0.0.1:4318"
    headers = { authorization = "Bearer ..." }

Needs the extra `agent`; imported only in the sink's own process.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypedDict

from nhc import __version__
from nhc.model import CheckResult, Verdict
from nhc.ports.adapter import AdapterError
from nhc.ports.sinks import Delivery, Event, Standing
from nhc.settings.settings_file import SettingsError, of
from nhc.timestamps import from_utc

_SEVERITY = {"CRIT": (17, "ERROR"), "UNKNOWN": (13, "WARN"), "WARN": (13, "WARN"), "OK": (9, "INFO")}


class _Exporting(TypedDict, total=False):
    """Options of both exporters, by the names that they have there."""

    headers: Dict[str, str]
    timeout: float
    certificate_file: str


class Otel:
    """`nhc.ports.sinks.Sink`. Raises AdapterError where the settings make no sense or the packages are not there."""

    def __init__(
        self, settings: Mapping[str, object], node: str, labels: Mapping[str, str], log: Callable[[str], None]
    ) -> None:
        self.log = log
        self.delivery: Optional[Delivery] = None
        self._records: List[Any] = []
        table = of(settings, "sinks", "otel")
        try:
            headers = table.table("headers")
            endpoint = table.text("endpoint", "http://127.0.0.1:4318").rstrip("/")
            options: _Exporting = {
                "headers": {name: headers.secret(name) for name in headers.names()},
                "timeout": table.seconds("timeout", 10.0),
            }
            if table.text("certificate"):
                options["certificate_file"] = table.text("certificate")
            logs, metrics, every = table.flag("logs", True), table.flag("metrics", True), table.seconds("every", 60.0)
            table.finish()
        except SettingsError as error:
            raise AdapterError(str(error)) from None
        try:
            from opentelemetry.sdk.resources import Resource
        except ModuleNotFoundError as error:
            from nhc.extras import how_to_install

            needed = error.name or "opentelemetry"
            raise AdapterError(
                f"OpenTelemetry needs the Python package {needed}: {how_to_install(needed, 'agent')}"
            ) from None
        resource = Resource.create(
            {"service.name": "nhc-agent", "service.version": __version__, "host.name": node, **labels}
        )
        self._logs: Any = None
        self._metrics: Any = None
        if logs:
            self._start_logs(endpoint, options, resource)
        if metrics:
            self._start_metrics(endpoint, options, resource, every)

    def _start_logs(self, endpoint: str, options: _Exporting, resource: Any) -> None:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor

        records = self._records

        class Collect(LogRecordProcessor):  # type: ignore[misc, unused-ignore]
            """Keeps what is emitted, so that `deliver` sends it and knows whether it arrived."""

            def on_emit(self, log_record: Any) -> None:
                records.append(log_record)

            emit = on_emit

            def shutdown(self) -> None:
                pass

            def force_flush(self, timeout_millis: int = 30000) -> bool:
                return True

        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(Collect())
        self._logger = self._logs.get_logger("nhc.agent", __version__)
        self._exporter = OTLPLogExporter(endpoint=f"{endpoint}/v1/logs", **options)

    def _start_metrics(self, endpoint: str, options: _Exporting, resource: Any, every: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.metrics import Observation
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", **options), export_interval_millis=every * 1000
        )
        self._metrics = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("nhc.agent", __version__)

        def results() -> Iterable[CheckResult]:
            return self.delivery.report.results if self.delivery else ()

        def node(_options: Any) -> Iterable[Any]:
            return [Observation(int(self.delivery.report.verdict))] if self.delivery else []

        def verdicts(_options: Any) -> Iterable[Any]:
            worst: Dict[Tuple[str, str, str], int] = {}
            for result in results():
                key = (result.check, result.outcome.target, result.outcome.reason)
                worst[key] = max(worst.get(key, 0), int(result.verdict))
            for (check, target, reason), verdict in worst.items():
                yield Observation(verdict, {"check": check, "target": target, "reason": reason})

        def measured(_options: Any) -> Iterable[Any]:
            for result in results():
                for metric in result.outcome.metrics:
                    yield Observation(metric.value, {"check": result.check, "target": result.outcome.target,
                                                     "name": metric.name, "unit": metric.unit})  # fmt: skip

        words = "0 skip, 1 ok, 2 warn, 3 unknown, 4 crit"
        meter.create_observable_gauge("nhc.node.verdict", [node], description=f"Verdict of the node: {words}")
        meter.create_observable_gauge("nhc.check.verdict", [verdicts], description=f"Verdict of a check: {words}")
        meter.create_observable_gauge("nhc.check.metric", [measured], description="What a check measured")

    def standing(self) -> List[Standing]:
        return []

    def deliver(self, delivery: Delivery) -> None:
        """Logs at once; metrics go with their own rhythm, and at once where the verdict has changed."""
        before = self.delivery
        self.delivery = delivery if delivery.report.results else before
        if self._logs is not None and delivery.events:
            self._records.clear()
            for event in delivery.events:
                self._emit(event)
            result = self._exporter.export(list(self._records))
            self._records.clear()
            if result.name != "SUCCESS":
                raise AdapterError("the collector did not take the logs")
        if self._metrics is None or before is None or self.delivery is None:
            return
        if before.report.verdict is not self.delivery.report.verdict:
            self._metrics.force_flush(5000)

    def _emit(self, event: Event) -> None:
        verdict = event.get("verdict", "OK" if event["event"].startswith("agent.") else Verdict.WARN.name)
        number, text = _SEVERITY.get(verdict, _SEVERITY["WARN"])
        from opentelemetry._logs import LogRecord, SeverityNumber

        stamp = event["time"]
        nanoseconds = int(from_utc(stamp)) * 1_000_000_000 + int(stamp[20:23]) * 1_000_000
        attributes = {
            f"nhc.{key}": value
            for key, value in event.items()
            if isinstance(value, (str, int, float, bool)) and key not in ("time", "message", "schema")
        }
        self._logger.emit(
            LogRecord(
                timestamp=nanoseconds,
                severity_number=SeverityNumber(number),
                severity_text=text,
                body=event.get("message") or event["event"],
                attributes=attributes,
            )
        )

    def close(self) -> None:
        for provider in (self._metrics, self._logs):
            if provider is not None:
                provider.shutdown()
