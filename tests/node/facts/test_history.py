"""Counters become growth over a window, whatever happened to them in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.history import amount, growth

HOUR, DAY = 3600.0, 86400.0
BOOT = "/proc/sys/kernel/random/boot_id"


def host_at(uptime: float) -> FakeHost:
    host = FakeHost({BOOT: "aaaa\n"})
    host.system.uptime = uptime
    return host


def grow(host, value, at, window=HOUR, **options):
    host.system.uptime = at
    return amount(growth(host, "x", {"n": float(value)}, window, **options), "n")


def test_first_run_compares_with_boot_when_the_counter_began_there():
    assert grow(host_at(0), 7, at=600) == 7  # ten minutes of uptime: all of it is recent
    assert grow(host_at(0), 240, at=10 * DAY, window=DAY) == 24  # the average of ten days


def test_first_run_knows_nothing_of_a_counter_that_is_older_than_the_boot():
    host = host_at(0)

    assert growth(host, "x", {"n": 500.0}, DAY, since_boot=False) == {}
    assert grow(host, 503, at=600, window=DAY, since_boot=False) == 3


def test_two_runs_a_second_apart_judge_the_same_hour():
    host = host_at(0)
    grow(host, 0, at=10 * HOUR)

    assert grow(host, 5, at=10 * HOUR + 1800) == 5
    assert grow(host, 5, at=10 * HOUR + 1801) == 5
    assert grow(host, 5, at=10 * HOUR + 1802) == 5


def test_second_run_does_not_forget_what_the_first_one_saw():
    host = host_at(0)

    assert grow(host, 240, at=10 * HOUR) == 24
    assert grow(host, 240, at=10 * HOUR + 60) == pytest.approx(24, rel=0.02)


def test_old_growth_is_forgotten_after_the_window():
    host = host_at(0)
    grow(host, 0, at=10 * HOUR)
    grow(host, 9, at=10 * HOUR + 60)
    for minutes in range(5, 90, 5):
        last = grow(host, 9, at=10 * HOUR + minutes * 60)

    assert last == 0


def test_growth_over_a_longer_time_than_the_window_is_scaled_to_it():
    host = host_at(0)
    grow(host, 0, at=10 * HOUR)

    assert grow(host, 40, at=14 * HOUR) == 10


def test_counter_that_went_down_has_grown_by_what_it_shows():
    host = host_at(0)
    grow(host, 50, at=10 * HOUR)
    grow(host, 50, at=11 * HOUR)

    assert grow(host, 4, at=11 * HOUR + 600) == 4


def test_reboot_starts_anew():
    host = host_at(0)
    grow(host, 1000, at=100 * HOUR)
    host.write(BOOT, "bbbb\n")

    assert grow(host, 2, at=300) == 2


def test_damaged_memory_is_no_crash_and_no_growth():
    for junk in ("x", [1], [["a", {}]], [[5, 7]], [[1e12, {"n": 1}]], {"a": 1}):
        host = host_at(10 * DAY)
        host.memory.update("x", lambda stored, junk=junk: stored.update(boot="aaaa", samples=junk))

        assert grow(host, 240, at=10 * DAY, window=DAY) == 24


@pytest.mark.thorough
def test_memory_stays_small_however_often_it_runs():
    host = host_at(0)
    for minute in range(3000):
        grow(host, minute, at=minute * 60.0)

    assert len(host.memory.load("x")["samples"]) < 20


@given(st.lists(st.tuples(st.floats(0.1, 5000), st.integers(0, 10**9)), min_size=1, max_size=40))
def test_growth_is_never_negative_nor_more_than_was_counted(steps):
    host = host_at(0)
    now, added, before = 0.0, 0, 0
    for seconds, value in steps:
        now += seconds
        added += value - before if value >= before else value
        before = value
        found = grow(host, value, at=now)
        assert 0 <= found <= added + 0.001
