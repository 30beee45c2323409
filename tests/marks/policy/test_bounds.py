"""The bounds: no more out, and no faster, than the settings say, whatever comes in which order."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.limits import Rate
from nhc.marks.policy.bounds import (
    FLEET,
    MARK,
    PARTITION,
    BegunAction,
    Bounds,
    Limit,
    RadiusBounds,
    Timed,
    Usage,
    Zone,
    may_mark,
    may_repair,
    protected,
    read_hours,
    read_zone,
    sizes,
    spent,
)  # fmt: skip
from nhc.marks.policy.breaker import BreakerInput, BreakerSettings, blind, opens
from nhc.marks.ports.repair import Rung

OPEN = Bounds(radii={}, first_run=Limit(1000))


def usage(nodes=10, rack=5):
    groups = {f"n{i}": [("rack", f"r{i // rack}")] for i in range(nodes)}
    return Usage(groups, sizes(groups))


def test_the_level_is_held_in_the_fleet_and_in_each_rack():
    bounds = OPEN._replace(radii={FLEET: RadiusBounds(Limit(3)), "rack": RadiusBounds(Limit(1))})
    seen = usage()
    seen.count_out("n0")
    held = may_mark(bounds, seen, "n1", 0.0, -1e9)
    assert held is not None
    assert (held.bound, held.why) == ("rack.out", "1 of 5 nodes in rack r0 are out, at most 1")
    assert may_mark(bounds, seen, "n5", 0.0, -1e9) is None
    seen.count_out("n0", -1)
    assert may_mark(bounds, seen, "n1", 0.0, -1e9) is None


def test_nodes_that_are_not_there_are_no_part_of_a_group_and_the_group_is_known_all_the_same():
    groups = {f"n{i}": [("rack", "r0" if i < 4 else "r1")] for i in range(8)}
    assert sizes(groups, {"n2", "n3", "n4", "n5", "n6", "n7"}) == {
        (FLEET, ""): 2, ("rack", "r0"): 2, ("rack", "r1"): 0
    }  # fmt: skip


def test_the_rate_is_held_for_all_repairs_and_for_one():
    bounds = OPEN._replace(radii={FLEET: RadiusBounds(rates={"repair": Rate(2, 60.0), "replace": Rate(1, 3600.0)})})
    seen = usage()
    seen.begin(BegunAction(0.0, "n0", "replace"))
    assert may_repair(bounds, seen, "n1", Rung.REPLACE, 100.0).bound == "fleet.rate.replace"
    assert may_repair(bounds, seen, "n1", Rung.REBOOT, 100.0) is None
    seen.begin(BegunAction(90.0, "n2", "reboot"))
    seen.begin(BegunAction(95.0, "n3", "reboot"))
    assert may_repair(bounds, seen, "n1", Rung.REBOOT, 100.0).bound == "fleet.rate.repair"
    assert may_repair(bounds, seen, "n1", Rung.REBOOT, 155.1) is None


def test_the_first_run_has_a_ceiling_of_its_own():
    """Complaint 14: all nodes were cordoned at the first start."""
    bounds = OPEN._replace(first_run=Limit(1))
    seen = usage()
    assert may_mark(bounds, seen, "n0", 0.0, None) is None
    seen.count_out("n0")
    assert may_mark(bounds, seen, "n1", 0.0, None).bound == "first-run"
    assert may_mark(bounds, seen, "n1", 86399.0, 0.0).bound == "first-run"
    assert may_mark(bounds, seen, "n1", 86401.0, 0.0) is None


def test_attempts_count_across_episodes_and_then_a_person_must_look():
    """Complaint 15: endless repair of a node that recovers for a while."""
    seen = usage()
    bounds = OPEN._replace(attempts=2, window=100.0)
    seen.begin(BegunAction(0.0, "n1", "reboot"))
    assert not spent(bounds, seen, "n1", 50.0)
    seen.begin(BegunAction(10.0, "n1", "power-cycle"))
    assert "2 repairs" in spent(bounds, seen, "n1", 50.0)
    assert not spent(bounds, seen, "n2", 50.0)
    assert not spent(bounds, seen, "n1", 105.0)


def test_a_protected_node_is_never_touched():
    bounds = OPEN._replace(protected=("login*",))
    assert protected(bounds, "login1").bound == "protected"
    assert may_mark(bounds, usage(), "login1", 0.0, 0.0).bound == "protected"
    assert may_repair(bounds, usage(), "login1", Rung.REBOOT, 0.0).bound == "protected"


MONDAY = datetime(2026, 11, 23, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Mon-Fri 08:00-18:00", (0, 8, 0), (0, 18, 0)),
        ("Mon-Fri 08:00-18:00", (4, 17, 59), (5, 12, 0)),
        ("daily 22:00-06:00", (3, 23, 0), (3, 6, 0)),
        ("daily 22:00-06:00", (0, 5, 59), (0, 21, 59)),
        ("Sat 22:00-Sun 06:00", (6, 5, 0), (5, 21, 0)),
        ("Sun 22:00-Mon 06:00", (0, 5, 0), (0, 6, 0)),
        ("Fri-Mon 00:00-24:00", (6, 12, 0), (3, 12, 0)),
    ],
)
def test_hours_of_the_week(text, inside, outside):
    hours = read_hours(text)
    at = [(MONDAY + timedelta(days=d, hours=h, minutes=m)).timestamp() for d, h, m in (inside, outside)]
    assert [hours.holds(one) for one in at] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "Mon", "Mon 08:00", "Foo 08:00-09:00", "Mon 25:00-26:00", "Mon-Fri 22:00-Sat 01:00"]
)
def test_what_are_no_hours_is_said(text):
    with pytest.raises(ValueError, match=r"no hours|no day|no time|one day"):
        read_hours(text)


def test_hours_are_the_sites():
    zurich = read_zone("Europe/Zurich")
    quiet = Timed((read_hours("Mon 08:00-09:00"),))
    bounds = OPEN._replace(quiet=quiet, zone=zurich)
    eight_there = MONDAY.timestamp() + 7 * 3600 + 60
    held = may_repair(bounds, usage(), "n1", Rung.REBOOT, eight_there)
    assert held.bound == "quiet-hours"
    assert may_repair(bounds._replace(zone=Zone("UTC", timezone.utc)), usage(), "n1", Rung.REBOOT, eight_there) is None
    with pytest.raises(ValueError, match="no time zone"):
        read_zone("Mars/Olympus")


def test_maintenance_windows_hold_the_actions_that_they_name():
    bounds = OPEN._replace(windows=Timed((read_hours("Tue 01:00-02:00"),), frozenset({"replace"})))
    assert may_repair(bounds, usage(), "n1", Rung.REPLACE, MONDAY.timestamp()).bound == "maintenance-windows"
    assert may_repair(bounds, usage(), "n1", Rung.REBOOT, MONDAY.timestamp()) is None
    inside = (MONDAY + timedelta(days=1, hours=1, minutes=30)).timestamp()
    assert may_repair(bounds, usage(), "n1", Rung.REPLACE, inside) is None


@given(
    st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["mark", "return", "repair"]), st.integers(0, 40)),
             max_size=120),
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 6),
)  # fmt: skip
def test_no_order_of_asking_exceeds_a_level_or_a_rate(steps, out, per_rack, rate):
    """Stateful: nodes are marked, repaired and returned in any order; the bounds hold at each moment, counted anew."""
    bounds = Bounds({FLEET: RadiusBounds(Limit(out), Limit(2), {MARK: Rate(rate, 100.0), "repair": Rate(2, 50.0)}),
                     "rack": RadiusBounds(Limit(per_rack))}, Limit(1000), attempts=3)  # fmt: skip
    seen, now, out_now, marks, repairs = usage(20), 0.0, [], [], []
    for number, what, wait in steps:
        node, now = f"n{number}", now + wait
        if what == "return" and node in out_now:
            out_now.remove(node)
            seen.count_out(node, -1)
        elif what == "mark" and node not in out_now and may_mark(bounds, seen, node, now, -1e9) is None:
            out_now.append(node)
            marks.append(now)
            seen.count_out(node)
            seen.begin(BegunAction(now, node, MARK))
        elif what == "repair" and node in out_now and may_repair(bounds, seen, node, Rung.REBOOT, now) is None:
            repairs.append(now)
            seen.begin(BegunAction(now, node, "reboot"))
        assert len(out_now) <= out
        assert all(sum(1 for one in out_now if int(one[1:]) // 5 == rack) <= per_rack for rack in range(4))
        assert sum(1 for when in marks if now - when < 100.0) <= rate
        assert sum(1 for when in repairs if now - when < 50.0) <= 2


def test_the_breaker_opens_for_many_faults_for_blindness_and_for_repairs_that_help_nobody():
    settings = BreakerSettings(Limit(share=0.1, least=5), 900.0, 3, Limit(share=0.3, least=5))
    assert not opens(settings, BreakerInput(100, 10, 30, [True, False, False]))
    assert "11 of 100 nodes fell sick" in opens(settings, BreakerInput(100, 11, 0, []))
    assert "31 of 100 nodes have no fresh verdict" in blind(settings, BreakerInput(100, 0, 31, []))
    assert not blind(settings, BreakerInput(100, 0, 30, []))
    assert "last 3 repairs" in opens(settings, BreakerInput(100, 0, 0, [True, False, False, False]))
    assert not opens(settings._replace(failures=0), BreakerInput(100, 0, 0, [False] * 9))


def test_a_partition_is_bounded_by_its_name_then_by_a_pattern_then_as_every_partition():
    named = {"zone=*": Limit(2), "zone=b": Limit(1)}
    bounds = Bounds({FLEET: RadiusBounds(), PARTITION: RadiusBounds(Limit(9))}, named)
    assert [bounds.out((PARTITION, name)) for name in ("zone=a", "zone=b", "pool=x")] == [Limit(2), Limit(1), Limit(9)]
    assert bounds.out(("rack", "zone=b")) is None
