"""When nodes were out of service, what that cost in parts, and where nothing was known: on both databases."""

import json

import sqlalchemy as sa

from nhc.core.model import Report
from nhc.store import coverage, history
from nhc.store.coverage import ReportSpan
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from nhc.store.schema import episodes

NOW = 10_000.0


def keep(store, *rows):
    """Rows of (node, state, opened, marked, ended)."""
    values = [
        {"node": node, "cause": f"c{place}|x|", "state": state, "opened": opened, "updated": opened, "ended": ended,
         "detail": json.dumps({"because": '\\"marked\\":1 "marked":2', "marked": marked} if marked else {},
                              separators=(",", ":"))}
        for place, (node, state, opened, marked, ended) in enumerate(rows)
    ]  # fmt: skip
    with store.write() as connection:
        connection.execute(sa.insert(episodes), values)


def out(store, began, *names):
    with store.read() as connection:
        return history.out_spans(connection, began, NOW, list(names) or None)


def test_a_node_is_out_from_its_mark_to_its_return_or_to_the_next_repair(store):
    keep(
        store,
        ("returned", "returned", 8000.0, 8100.0, 8500.0),
        ("stands", "draining", 9000.0, 9100.0, None),
        ("never-marked", "withdrawn", 9000.0, 0.0, 9100.0),
        ("left", "escalated", 2000.0, 2100.0, 2500.0),  # long ago, and nobody has done anything since
        ("given-back", "escalated", 2000.0, 2100.0, 2500.0), ("given-back", "returned", 9500.0, 9600.0, 9800.0),
        ("over", "escalated", 2000.0, 2100.0, 2500.0), ("over", "returned", 3000.0, 3100.0, 3500.0),
    )  # fmt: skip
    expected = {
        "returned": [(8100, 8500)], "stands": [(9100, NOW)], "left": [(8000, NOW)],
        "given-back": [(8000, 9500), (9600, 9800)],
    }  # fmt: skip
    assert out(store, 8000.0) == expected
    assert out(store, 8000.0, "stands", "over", "nobody") == {"stands": [(9100, NOW)]}
    assert out(store, 9900.0) == {"stands": [(9900, NOW)], "left": [(9900, NOW)]}


def test_what_was_lost_is_counted_by_parts():
    spans = {"a": [ReportSpan(5.0, 25.0)], "b": [ReportSpan(0.0, 10.0), ReportSpan(28.0, 30.0)]}
    parts = history.lost_capacity(spans, {"a": 8}, 0.0, 10.0, 3)
    assert parts == [(2, 15.0, 40.0), (1, 10.0, 80.0), (1, 7.0, 40.0)]


def test_the_nodes_that_reported_are_counted_by_parts(store):
    with store.write() as connection:
        for at in (1010, 1310, 5010, 5310):  # two spans of a, one of b
            receive(connection, [Incoming(Report("a", "boot", float(at), 0.1, ()), "agent", float(at))])
        receive(connection, [Incoming(Report("b", "boot", 5110.0, 0.1, ()), "agent", 5110.0)])
    with store.read() as connection:
        assert coverage.watched(connection, 0.0, 1000.0, 6) == [0, 1, 0, 0, 0, 2]
        assert coverage.watched(connection, 5210.0, 1000.0, 2) == [1, 0]
        assert coverage.watched(connection, 5210.0, 1000.0, 2, fresh=1000.0) == [2, 1]
        assert coverage.spans_of(connection, ["a", "b", "c"], 0.0, 6000.0) == {
            "a": [(1010, 1310), (5010, 5310)], "b": [(5110, 5110)], "c": [],
        }  # fmt: skip
