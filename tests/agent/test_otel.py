"""OpenTelemetry, against a collector that takes OTLP over HTTP and reads it by OpenTelemetry's own messages."""

import gzip

import pytest

from nhc import __version__
from nhc.agent import events
from nhc.agent.otel import Otel
from nhc.core.model import CheckResult, Metric, Report, crit, ok
from nhc.core.system import protobuf
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.sinks import Delivery
from tests.support.http_server import Reply, answering, serving
from tests.support.ports import free_ports
from tests.support.require import need
from tests.support.waiting import until


def event(kind, when, host, boot_id, **details):
    return events.event(kind, when, host, boot_id, details)


@pytest.fixture
def collector():
    try:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
            ExportLogsServiceResponse,
        )  # fmt: skip
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError:
        need("opentelemetry", False, "opentelemetry-proto is not installed")
    kinds = {"/v1/logs": ExportLogsServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}

    def take(asked):
        assert (asked.headers["content-type"], asked.headers["content-encoding"]) == ("application/x-protobuf", "gzip")
        body = gzip.decompress(asked.body)
        server.taken.append((asked.path, kinds[asked.path].FromString(body), asked.headers))
        return server.answer

    with serving(answering(take)) as server:
        server.taken, server.answer, server.response = [], Reply(200), ExportLogsServiceResponse
        yield server


def started(collector, clock=lambda: 0.0, **more):
    given = {
        "endpoint": f"http://127.0.0.1:{collector.server_port}",
        "headers": {"x-key": "k"},
        "timeout": "1s",
        **more,
    }
    return Otel(given, "n1", {"rack": "r1"}, print, clock)


def delivery(outcome, *news):
    return Delivery(Report("n1", "b", 0.0, 0.0, (CheckResult("check_x", outcome),)), True, news)


FAULT = event("problem.began", 1.7e9, "n1", "b", check="check_x", reason="Lost", verdict="CRIT", message="gpu3 is lost")


BINARY = {"Content-Type": "application/x-protobuf"}
STATUS = b"\x08\x0e\x12\x0abad record"  # google.rpc.Status: code 14, message


def attributes(values):
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in values}


def points(collector):
    """Each point of the newest metrics by its name and reason: a number and its attributes."""
    (message,) = [message for path, message, _headers in collector.taken if path == "/v1/metrics"][-1:]
    (scope,) = message.resource_metrics[0].scope_metrics
    return {
        (metric.name, attributes(point.attributes).get("reason", "")): (
            getattr(point, point.WhichOneof("value")), attributes(point.attributes),
        )
        for metric in scope.metrics for point in metric.gauge.data_points
    }  # fmt: skip


def test_news_are_logs_and_verdicts_metrics(collector, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "site=a%20b,rack=other")
    sink = started(collector)
    sink.deliver(delivery(ok(metrics=(Metric("free", 5.0, "B"),))))
    lost = crit("Lost", "gpu3 is lost", target="gpu3", metrics=(Metric("left", float("nan"), "1"),))
    sink.deliver(delivery(lost, FAULT))
    sink.close()
    logs = [message for path, message, _headers in collector.taken if path == "/v1/logs"]
    (resource,) = logs[0].resource_logs
    assert attributes(resource.resource.attributes) == {
        "service.name": "nhc-agent", "service.version": __version__, "host.name": "n1", "rack": "r1", "site": "a b",
    }  # fmt: skip
    assert resource.scope_logs[0].scope.name == "nhc.agent"
    (record,) = resource.scope_logs[0].log_records
    assert (record.body.string_value, record.severity_text, record.time_unix_nano) == (
        "gpu3 is lost", "ERROR", 1_700_000_000_000_000_000,
    )  # fmt: skip
    assert record.severity_number == 17
    assert record.observed_time_unix_nano > record.time_unix_nano
    assert attributes(record.attributes) == {
        "nhc.event": "problem.began", "nhc.host": "n1", "nhc.boot_id": "b", "nhc.check": "check_x",
        "nhc.reason": "Lost", "nhc.verdict": "CRIT",
    }  # fmt: skip
    assert all(headers["x-key"] == "k" for _path, _message, headers in collector.taken)
    found = points(collector)
    assert found["nhc.node.verdict", ""] == (4, {})
    assert found["nhc.check.verdict", "Lost"] == (4, {"check": "check_x", "target": "gpu3", "reason": "Lost"})
    value, about = found["nhc.check.metric", ""]
    assert value != value
    assert about == {"check": "check_x", "target": "gpu3", "name": "left", "unit": "1"}


@pytest.mark.thorough
def test_metrics_go_with_their_own_rhythm(collector):
    sink = started(collector, logs=False, every="0.1s")
    sink.deliver(delivery(ok(metrics=(Metric("free", 5.5, "B"),)), FAULT))
    until(lambda: len(collector.taken) > 1, what="two exports")
    assert points(collector)["nhc.check.metric", ""][0] == 5.5
    assert {path for path, _message, _headers in collector.taken} == {"/v1/metrics"}
    sink.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_logs_that_were_not_taken_for_now_come_again_and_not_before_the_collector_wants_them(collector, status):
    now = [0.0]
    collector.answer = Reply(status, STATUS, {**BINARY, "Retry-After": "90"})
    sink = started(collector, lambda: now[0], metrics=False)
    with pytest.raises(AdapterError, match=f"/v1/logs: HTTP {status}: bad record"):
        sink.deliver(delivery(ok(), FAULT))
    collector.answer = Reply(200)
    now[0] = 89.0
    with pytest.raises(AdapterError):
        sink.deliver(delivery(ok(), FAULT))
    assert (len(collector.taken), "bad record" in sink.problem()) == (1, True)
    now[0] = 90.0
    sink.deliver(delivery(ok(), FAULT))
    assert (len(collector.taken), sink.problem()) == (2, "")
    sink.close()


def test_a_collector_that_is_away_is_left_alone_for_longer_each_time(collector):
    now, url = [0.0], f"http://127.0.0.1:{free_ports(1)[0]}"
    sink = started(collector, lambda: now[0], metrics=False, endpoint=url)
    waits = []
    for _ in range(10):
        with pytest.raises(AdapterError, match="nothing listens there"):
            sink.deliver(delivery(ok(), FAULT))
        waits.append(sink._logs.held_off)
        now[0] += 60.0
    assert 0.5 <= waits[0] <= 1.0
    assert 30.0 <= waits[-1] <= 60.0


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (Reply(400, STATUS, BINARY), 1),
        (Reply(400, b"bad record", {"Content-Type": "text/plain; charset=utf-8"}), 1),
        (Reply(500, b"<html>bad"), 1),
        ({"rejected_log_records": 1, "error_message": "bad record"}, 1),
        ({"error_message": "bad record"}, 0),
        (Reply(200, b"\x0a\xff\xff", BINARY), 0),
    ],
    ids=["400", "text", "500", "partial", "warning", "cut"],
)
def test_what_a_collector_refuses_for_good_is_counted_and_not_sent_again(collector, capsys, answer, refused):
    if isinstance(answer, dict):
        partial = collector.response(partial_success=answer)
        answer = Reply(200, partial.SerializeToString(), BINARY)
    collector.answer = answer
    sink = started(collector, metrics=False)
    sink.deliver(delivery(ok(), FAULT))
    said = capsys.readouterr().out.strip()
    assert ("bad record" in said) == (b"bad record" in answer.body)
    assert sink.problem() == (said if refused else "")
    assert f"refused {refused} for good, {refused} so far" in sink.problem() or not refused
    collector.answer = Reply(200)
    sink.deliver(delivery(ok(), FAULT))
    assert (len(collector.taken), sink.problem()) == (2, "")
    sink.close()


def test_a_setting_that_is_not_one_is_said():
    with pytest.raises(AdapterError, match=r"sinks\.otel\.endpont: there is no such key: did you mean 'endpoint'"):
        Otel({"endpont": "x"}, "n1", {}, print)


def test_an_endpoint_that_is_no_address_is_refused():
    with pytest.raises(AdapterError, match=r"sinks\.otel\.endpoint: .*expected http://HOST:PORT"):
        Otel({"endpoint": "collector:4318"}, "n1", {}, print)


def test_numbers_are_written_and_read_as_protobuf_has_them(collector):
    from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

    for number in (0, 1, 127, 128, -1, 2**63 - 1, -(2**63)):
        point = NumberDataPoint.FromString(
            protobuf.fixed64(6, number) + protobuf.integer(8, 7) + protobuf.fixed64(3, 9)
        )
        assert (point.as_int, point.flags, point.time_unix_nano) == (number, 7, 9)
    whole = collector.response(partial_success={"rejected_log_records": 300, "error_message": "x" * 200})
    written = whole.SerializeToString()
    inner = dict(protobuf.fields(dict(protobuf.fields(written))[1]))
    assert inner == {1: 300, 2: b"x" * 200}
    for length in range(1, len(written)):
        with pytest.raises(ValueError, match="cut"):
            protobuf.fields(written[:length])
