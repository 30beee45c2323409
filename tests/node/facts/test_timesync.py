"""What the time services print, in their own formats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.checks.clock import parse_chronyc_tracking, parse_ntpq_rv, parse_timespan, parse_timesync_status

CHRONY = (
    "A9FEA97B,169.254.169.123,4,1700000000.123456789,-0.000012345,0.000003210,0.000010000,-12.345,0.001,0.050,"
    "0.000400000,0.000200000,16.1,Normal\n"
)
CHRONY_LOST = "00000000,,0,0.000000000,0.000000000,0.000000000,0.0,3.2,0.0,0.0,1.0,1.0,0.0,Not synchronised\n"
NTPQ = """\
associd=0 status=0615 leap_none, sync_ntp, 1 event, clock_sync,
version="ntpd 4.2.8p15@1.3728-o Wed Feb 16 17:13:02 UTC 2022 (1)",
processor="x86_64", system="Linux/5.15.0-100-generic", leap=00, stratum=3,
precision=-24, rootdelay=9.008, rootdisp=40.902, refid=10.0.0.1,
reftime=e8f3a1b2.00000000  Sat, Sep 10 2023 21:23:07.750,
clock=e8f3a1c0.00000000  Sat, Sep 10 2023 21:51:18.077, peer=23273,
tc=10, mintc=3, offset=-0.075166, frequency=-10.953, sys_jitter=0.113289,
clk_jitter=0.328, clk_wander=0.005
"""
TIMESYNC = """\
       Server: 10.0.0.1 (ntp.cluster)
Poll interval: 34min 8s (min: 32s; max 34min 8s)
         Leap: normal
      Version: 4
      Stratum: 2
    Reference: 408E7A25
    Precision: 1us (-23)
Root distance: 8.322ms (max: 5s)
       Offset: -1.020ms
        Delay: 2.1ms
       Jitter: 1.984ms
 Packet count: 9
    Frequency: +16.521ppm
"""


def test_chrony():
    found = parse_chronyc_tracking(CHRONY)

    assert found is not None
    assert (found.synchronized, found.source, found.offset) == (True, "169.254.169.123", -0.000012345)
    assert found.bound == pytest.approx(0.000412345)


def test_chrony_that_lost_its_sources():
    found = parse_chronyc_tracking(CHRONY_LOST)

    assert found is not None
    assert not found.synchronized


def test_chrony_on_its_own_local_clock_is_not_synchronized():
    found = parse_chronyc_tracking(CHRONY.replace("A9FEA97B", "7F7F0101"))

    assert found is not None
    assert not found.synchronized


def test_ntpq_speaks_milliseconds():
    found = parse_ntpq_rv(NTPQ)

    assert found is not None
    assert (found.synchronized, found.source) == (True, "10.0.0.1")
    assert found.offset == pytest.approx(-0.000075166)
    assert found.bound == pytest.approx(0.045481166)


def test_ntpd_before_its_first_peer():
    found = parse_ntpq_rv(NTPQ.replace("leap=00, stratum=3", "leap=11, stratum=16"))

    assert found is not None
    assert not found.synchronized


@pytest.mark.parametrize("parse", [parse_chronyc_tracking, parse_ntpq_rv])
@pytest.mark.parametrize(
    "text", ["", "506 Cannot talk to daemon\n", "ntpq: read: Connection refused\n", "a,b,c\n" * 20]
)
def test_anything_else_is_no_answer(parse, text):
    assert parse(text) is None


@given(st.text())
def test_parsers_never_fail(text):
    parse_chronyc_tracking(text)
    parse_ntpq_rv(text)
    parse_timesync_status(text)
    parse_timespan(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("-1.020ms", -0.00102), ("+120us", 0.00012), ("0", 0.0), ("1min 2.5s", 62.5), ("34min 8s", 2048.0), ("5s", 5.0)],
)
def test_time_spans(text, value):
    assert parse_timespan(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "n/a", "5 parsecs", "ms", "1.2.3s"])
def test_no_time_span(text):
    assert parse_timespan(text) is None


def test_timesync_status():
    found = parse_timesync_status(TIMESYNC)

    assert (found["Offset"], found["Root distance"], found["Server"]) == (
        "-1.020ms", "8.322ms (max: 5s)", "10.0.0.1 (ntp.cluster)"
    )  # fmt: skip
