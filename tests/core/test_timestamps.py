"""Dates as other programs write them, to Unix time, and ours back."""

import os
import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.timestamps import from_iso, from_utc, utc, utc_milliseconds

NEW_YEAR = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("2026-01-01T00:00:00Z", 0.0),
        ("2026-01-01 00:00:00.250Z", 0.25),
        ("2026-01-01T00:00:00,5+00:00", 0.5),
        ("2026-01-01T05:30:00+0530", 0.0),
        ("2025-12-31T16:00:00.125-08:00", 0.125),
    ],
)
def test_a_date_with_its_zone(text, since):
    assert from_iso(text) == NEW_YEAR + since


def test_a_date_without_a_zone_is_local_time(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "Etc/GMT+3")  # three hours behind
    time.tzset()
    try:
        assert from_iso("2025-12-31T21:00:00") == NEW_YEAR
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "2026-01-01", "2026-01-01T00:00Z", "2026-01-01T00:00:00Zx", "now", "\u0662026-01-01T00:00:00"]
)
def test_what_is_no_date_is_none(text):
    assert from_iso(text) is None


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_what_python_writes_is_read_alike(when, minutes):
    at = when.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert from_iso(at.isoformat()) == pytest.approx(at.timestamp(), abs=1e-5)


@given(st.floats(0, 4e9))
def test_ours_is_read_back(when):
    assert from_utc(utc(when)) == int(when)
    assert from_iso(utc_milliseconds(when)) == pytest.approx(when, abs=0.00051)


@given(st.text(alphabet="0123456789-:TZ+., x"))
def test_no_text_upsets_it(text):
    from_iso(text)
