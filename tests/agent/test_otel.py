"""OpenTelemetry, against a collector that takes OTLP over HTTP."""

import pytest

from nhc.agent import events
from nhc.agent.otel import Otel
from nhc.model import CheckResult, Metric, Report, crit, ok
from nhc.ports.adapter import AdapterError
from nhc.ports.sinks import Delivery
from tests.support.http_server import Reply, answering, serving
from tests.support.require import need


def event(kind, when, host, boot_id, **details):
    return events.event(kind, when, host, boot_id, details)


@pytest.fixture
def collector():
    try:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError:
        need("opentelemetry", False, "the extra `agent` is not installed")
    kinds = {"/v1/logs": ExportLogsServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}

    def take(asked):
        server.taken.append((asked.path, kinds[asked.path].FromString(asked.body), asked.headers))
        return Reply(server.answer)

    with serving(answering(take)) as server:
        server.taken, server.answer = [], 200
        yield server


def started(collector, **more):
    given = {
        "endpoint": f"http://127.0.0.1:{collector.server_port}",
        "headers": {"x-key": "k"},
        "timeout": "1s",
        **more,
    }
    return Otel(given, "n1", {"rack": "r1"}, print)


def delivery(outcome, *news):
    return Delivery(Report("n1", "b", 0.0, 0.0, (CheckResult("check_x", outcome),)), True, news)


FAULT = event("problem.began", 1.7e9, "n1", "b", check="check_x", reason="Lost", verdict="CRIT", message="gpu3 is lost")


def attributes(values):
    return {item.key: item.value.string_value or item.value.int_value for item in values}


def test_news_are_logs_and_verdicts_metrics(collector):
    sink = started(collector)
    sink.deliver(delivery(ok(metrics=(Metric("free", 5.0, "B"),))))
    sink.deliver(delivery(crit("Lost", "gpu3 is lost", target="gpu3"), FAULT))
    sink.close()
    logs = [message for path, message, _headers in collector.taken if path == "/v1/logs"]
    (resource,) = logs[0].resource_logs
    assert attributes(resource.resource.attributes)["rack"] == "r1"
    (record,) = resource.scope_logs[0].log_records
    assert (record.body.string_value, record.severity_text, record.time_unix_nano) == (
        "gpu3 is lost", "ERROR", 1_700_000_000_000_000_000,
    )  # fmt: skip
    assert attributes(record.attributes)["nhc.reason"] == "Lost"
    assert collector.taken[0][2]["x-key"] == "k"
    values = {}
    for path, message, _headers in collector.taken:
        if path == "/v1/metrics":
            for metric in message.resource_metrics[0].scope_metrics[0].metrics:
                for point in metric.gauge.data_points:
                    values[metric.name, attributes(point.attributes).get("reason", "")] = (
                        point.as_int or point.as_double
                    )
    assert values["nhc.node.verdict", ""] == 4
    assert values["nhc.check.verdict", "Lost"] == 4


def test_logs_that_were_not_taken_are_an_error_so_that_they_come_again(collector):
    collector.answer = 400
    sink = started(collector, metrics=False)
    with pytest.raises(AdapterError):
        sink.deliver(delivery(ok(), FAULT))
    collector.answer = 200
    sink.deliver(delivery(ok(), FAULT))
    sink.close()


def test_a_setting_that_is_not_one_is_said():
    with pytest.raises(AdapterError, match=r"sinks\.otel\.endpont: there is no such key: did you mean 'endpoint'"):
        Otel({"endpont": "x"}, "n1", {}, print)
