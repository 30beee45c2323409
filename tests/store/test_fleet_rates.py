"""How often nodes fail, by what they are made of and before and after a date: counts by hand, and what chance shows."""

import json
import random

import pytest
import sqlalchemy as sa

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.store import fleet_rates
from nhc.store.coverage import ReportSpan
from nhc.store.fleet_rates import DAY, FAULTS, OUT, Tally, compared, rates
from nhc.store.intake import Incoming
from nhc.store.reports import receive
from nhc.store.schema import coverage, deep_results, episodes, machines, nodes, problems

OLD, NEW = "nvidia 570.1", "nvidia 580.2"
GATHER = 20 * DAY
"""When the driver was upgraded, in a fleet that is watched for forty days."""


def fleet(store, size=8, days=40):
    """Nodes that are watched all the time, in two racks; upgraded at half of it, but for the last."""
    names = [f"n{number}" for number in range(size)]
    with store.write() as connection:
        connection.execute(sa.insert(nodes), [
            {"node": name, "groups": {"rack": f"r{place % 2}"}, "labels": {}} for place, name in enumerate(names)
        ])  # fmt: skip
        connection.execute(sa.insert(coverage), [{"node": name, "began": 0.0, "ended": days * DAY} for name in names])
        made_of = [(name, 0.0, OLD) for name in names] + [(name, GATHER, NEW) for name in names[:-1]]
        connection.execute(sa.insert(machines), [
            {"node": name, "began": at, "made_of": {"driver": driver}} for name, at, driver in made_of
        ])  # fmt: skip
    return names


def fail(store, node, *days, reason="Xid79", verdict="CRIT"):
    rows = [{"node": node, "check": "check_gpu_xid", "reason": reason, "target": "", "verdict": verdict,
             "began": day * DAY, "seen": day * DAY, "ended": day * DAY + 60} for day in days]  # fmt: skip
    with store.write() as connection:
        for row in rows:
            connection.execute(sa.insert(problems), row)


def ask(store, fact="", **options):
    with store.read() as connection:
        return rates(connection, 0.0, 40 * DAY, [fact], **options)[fact]


def test_counts_by_hand(store):
    fleet(store)
    fail(store, "n0", 1.0, 1.1, 1.2, 2.0)  # of one day once
    fail(store, "n0", 1.0, reason="Xid48")
    fail(store, "n1", 3.0, verdict="WARN")
    fail(store, "n1", 25.0, 50.0)
    detail = json.dumps({"marked": 30 * DAY}, separators=(",", ":"))
    with store.write() as connection:
        connection.execute(sa.insert(deep_results), [
            {"node": "n2", "suite": "quick", "test": test, "verdict": verdict, "at": day * DAY}
            for day, test, verdict in ((5, "a", "CRIT"), (5, "b", "CRIT"), (6, "a", "OK"), (30, "a", "CRIT"))
        ])  # fmt: skip
        connection.execute(sa.insert(episodes), {
            "node": "n3", "cause": "c", "state": "returned", "opened": 30 * DAY, "updated": 32 * DAY,
            "ended": 32.5 * DAY, "detail": detail,
        })  # fmt: skip

    (whole,) = ask(store)
    assert whole.rate == (8, 320.0, 4, 2, 2.5)
    assert (whole.other.nodes, whole.ratios[FAULTS]) == (0, None)
    (row,) = ask(store, date=GATHER)
    assert (row.rate, row.other) == ((8, 160.0, 1, 1, 2.5), (8, 160.0, 3, 1, 0.0))
    assert row.ratios[FAULTS].ratio == pytest.approx(1 / 3)
    assert row.ratios[FAULTS].shown == "", "four faults show nothing"
    assert row.ratios[OUT].low < 1 < row.ratios[OUT].high

    by_driver = {row.value: row for row in ask(store, "driver")}
    assert by_driver[NEW].rate == (7, 140.0, 1, 1, 2.5)
    assert by_driver[OLD].rate == by_driver[NEW].other == (8, 180.0, 3, 1, 0.0)
    assert by_driver[OLD].ratios[FAULTS].ratio * by_driver[NEW].ratios[FAULTS].ratio == pytest.approx(1)
    by_rack = {row.value: row.rate.faults for row in ask(store, "rack")}
    assert by_rack == {"r0": 3, "r1": 1}
    assert [row.rate.nodes for row in ask(store, names=["n0", "n1"])] == [2]
    assert ask(store, names=["nobody"]) == []
    with pytest.raises(ValueError, match="driver"):
        ask(store, "colour")


def test_silence_is_no_node_day_but_a_node_that_is_out_is_watched(store):
    with store.write() as connection:
        for hour in (0, 1, 2, 60):  # a gap of more than two days, in which the loop had the node out for one
            one = Report("a", "b1", hour * 3600.0 + 1, 1.0, (CheckResult("check_mem", Outcome(Verdict.OK)),))
            receive(connection, [Incoming(one, "agent", one.started)])
        connection.execute(sa.insert(episodes), {
            "node": "a", "cause": "c", "state": "returned", "opened": 2 * 3600.0, "updated": 0.0, "ended": 26 * 3600.0,
            "detail": '{"marked":7200.0}',
        })  # fmt: skip
    (row,) = ask(store, gap=3700.0)
    assert row.rate.node_days == pytest.approx(26 / 24, abs=1e-3)
    assert row.rate.days_out == pytest.approx(1.0)


def test_what_really_became_rarer_is_shown(store):
    names = fleet(store, 40)
    for place, name in enumerate(names):
        fail(store, name, *(day for day in range(40) if (place + day) % (5 if day < 20 else 20) == 0))
    (row,) = ask(store, date=GATHER)
    assert row.ratios[FAULTS].shown == "less"
    assert row.ratios[FAULTS].low < 0.25 < row.ratios[FAULTS].high


def tally(draw, outages, lemons):
    """A fleet in which nothing differs from another: outages that hit many nodes on one day, nodes that often fail."""
    made = Tally()
    bad_days = {day for day in range(30) if draw.random() < outages}
    for node in range(60):
        made.watch(str(node), ReportSpan(0.0, 30 * DAY))
        often = 0.3 if draw.random() < lemons else 0.02
        for day in range(30):
            if draw.random() < (0.7 if day in bad_days else often):
                made.happened(FAULTS, str(node), day * DAY)
    return made.moments()


@pytest.mark.parametrize(("outages", "lemons"), [(0.0, 0.0), (0.0, 0.1), (0.1, 0.0), (0.1, 0.1)])
def test_where_nothing_differs_hardly_any_difference_is_shown(outages, lemons):
    """95 of 100 intervals hold 1, whether faults are alone or come in crowds; of 200 at most 24 others."""
    draw = random.Random(7)
    shown = [compared(tally(draw, outages, lemons), tally(draw, outages, lemons), FAULTS) for _ in range(200)]
    assert sum(bool(ratio and ratio.shown) for ratio in shown) <= 24


def test_a_handful_of_nodes_or_days_is_not_compared(store):
    fleet(store, fleet_rates.FEW - 1)
    fail(store, "n0", *range(20))
    (row,) = ask(store, date=GATHER)
    assert row.ratios[FAULTS] is None
