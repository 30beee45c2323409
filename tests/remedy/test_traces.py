"""Episodes as traces: sent to a collector over HTTP, read there by OpenTelemetry's own messages."""

import gzip

import pytest

from nhc.marks.ports.repair import Rung
from nhc.remedy.settings import TraceSettings
from nhc.remedy.traces import TraceSender
from tests.remedy.test_controller import last
from tests.support.http_server import Reply, answering, serving
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import Sickness, World
from tests.support.require import need
from tests.support.waiting import until


@pytest.fixture
def collector():
    try:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError:
        need("opentelemetry", False, "opentelemetry-proto is not installed")

    def take(asked):
        assert (asked.path, asked.headers["x-key"]) == ("/v1/traces", "k")
        body = ExportTraceServiceRequest.FromString(gzip.decompress(asked.body))

        if server.answer.status == 200:
            server.spans += [span for part in body.resource_spans for scope in part.scope_spans for span in scope.spans]
        server.asked += 1
        return server.answer

    with serving(answering(take)) as server:
        server.spans, server.answer, server.asked = [], Reply(200), 0
        yield server


@pytest.fixture
def world(store):  # noqa: F811
    return World(store)


def sender(store, collector, said):  # noqa: F811
    settings = TraceSettings(f"http://127.0.0.1:{collector.server_port}", {"x-key": "k"}, timeout=2.0)
    return TraceSender(store, settings, said.append)


def attributes(span):
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def test_a_repair_is_a_trace_of_its_phases_in_their_order(store, world, collector):  # noqa: F811
    said = []
    traces = sender(store, collector, said)
    controller = world.controller("[verify]\nhealthy-for = '60s'\n")
    begun = world.now
    traces.wake(begun)
    assert traces.send() == 0, "nothing has ended"
    world.fall_sick("n1", Sickness(cure=Rung.POWER_CYCLE))
    for _ in range(30):
        controller.round()
        world.tick(30.0)
    assert last(world).state == "returned"
    assert (traces.send(), traces.send(), said) == (1, 0, []), "once"

    whole, *phases = collector.spans
    assert {span.trace_id for span in collector.spans} == {whole.trace_id}
    assert (len(whole.trace_id), len(whole.span_id), whole.parent_span_id) == (16, 8, b"")
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)
    assert {span.parent_span_id for span in phases} == {whole.span_id}
    names = [span.name for span in phases]
    once = ["marked", "drained", "evidence", "rechecked", "repaired", "proved"]
    assert names == ["detected", *once, *once, "returned"], "the reboot did not help, the power cycle did"
    assert whole.start_time_unix_nano == phases[0].start_time_unix_nano >= begun * 1e9
    for before, after in zip(phases, phases[1:]):
        assert before.start_time_unix_nano <= before.end_time_unix_nano == after.start_time_unix_nano
    assert phases[-1].end_time_unix_nano == whole.end_time_unix_nano
    proved = [span for span in phases if span.name == "proved"][-1]
    assert proved.end_time_unix_nano - proved.start_time_unix_nano >= 60e9
    about = attributes(whole)
    assert (about["nhc.node"], about["nhc.state"]) == ("n1", "returned")
    assert whole.status.code == 0
    assert {"episode.opened", "attempt.written", "attempt.ended"} <= {event.name for event in whole.events}
    assert all(whole.start_time_unix_nano <= event.time_unix_nano for event in whole.events)


def test_what_a_person_must_look_at_is_an_error(store, world, collector):  # noqa: F811
    traces = sender(store, collector, [])
    traces.wake(world.now)
    world.fall_sick("n1", Sickness(cure=Rung.ESCALATE))
    world.run(world.controller("[limits]\nattempts = 1\n"), 40)
    assert last(world).state == "escalated"
    assert traces.send() == 1
    assert (collector.spans[0].status.code, collector.spans[0].status.message) == (2, last(world).outcome)


def test_a_collector_that_is_away_gets_it_later_and_holds_nobody_up(store, world, collector):  # noqa: F811
    said = []
    collector.answer = Reply(503)
    traces = sender(store, collector, said)
    traces.start()
    traces.wake(world.now)
    world.fall_sick("n1")
    world.run(world.controller(), 15)
    traces.wake(world.now)
    until(lambda: said, what="the log to say it")
    assert ("503" in said[0], collector.spans) == (True, [])
    collector.answer = Reply(200)

    def arrived():
        traces.wake(world.now)
        return collector.spans

    until(arrived, what="the trace")
    traces.stop()
    assert traces.problem == ""
    again = sender(store, collector, [])  # the process after this one
    again.wake(world.now)
    first = [(span.trace_id, span.span_id) for span in collector.spans]
    assert again.send() == 1
    assert [(span.trace_id, span.span_id) for span in collector.spans] == first * 2
