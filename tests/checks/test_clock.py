"""The clock, as each of the three services tells it."""

import pytest

from nhc.host import Completed
from nhc.model import Verdict
from nhc.testing import FakeHost
from tests.support.judge import judge

CHRONY = "A9FEA97B,10.0.0.1,4,1700000000.1,{offset},0.0,0.0,-12.3,0.0,0.05,0.0004,0.0002,16.1,{leap}\n"
NO_DAEMON = Completed(1, "506 Cannot talk to daemon\n")
STATUS = "       Server: 10.0.0.1 (ntp.cluster)\nRoot distance: 8.322ms (max: 5s)\n       Offset: {}\n"


def chrony(offset="0.000012345", leap="Normal"):
    return FakeHost({}, {"chronyc": CHRONY.format(offset=offset, leap=leap)})


def timesyncd(synchronized="yes", ntp="yes", offset="-1.020ms"):
    shown = f"Timezone=UTC\nLocalRTC=no\nCanNTP=yes\nNTP={ntp}\nNTPSynchronized={synchronized}\n"
    return FakeHost({}, {"timedatectl show": shown, "timedatectl timesync-status": STATUS.format(offset)})


def test_synchronized():
    for host in (chrony(), timesyncd()):
        assert judge(host, "check_clock_sync").verdict is Verdict.OK


def test_not_synchronized_is_a_warning_unless_asked_otherwise():
    host = chrony(leap="Not synchronised")

    assert judge(host, "check_clock_sync").verdict is Verdict.WARN
    assert judge(host, "check_clock_sync --critical").verdict is Verdict.CRIT
    assert judge(timesyncd("no"), "check_clock_sync").reason == "ClockNotSynchronized"


def test_a_stopped_chronyd_leaves_the_word_to_the_next_service():
    host = timesyncd()
    host.system.commands["chronyc",] = NO_DAEMON

    assert "timesyncd" in judge(host, "check_clock_sync").message


def test_nobody_answers():
    found = judge(FakeHost({}, {"chronyc": NO_DAEMON}), "check_clock_sync")

    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "NoTimeService")
    assert "506 Cannot talk to daemon" in found.message
    assert judge(FakeHost(), "check_clock_offset").verdict is Verdict.UNKNOWN


def test_offset_levels():
    assert judge(chrony("-0.049"), "check_clock_offset").verdict is Verdict.OK
    assert judge(chrony("-0.051"), "check_clock_offset").verdict is Verdict.WARN
    assert judge(chrony("1.5"), "check_clock_offset").verdict is Verdict.CRIT
    assert judge(chrony("0.002"), "check_clock_offset -w 1ms -c 10ms").verdict is Verdict.WARN


def test_offset_of_timesyncd_and_its_number():
    found = judge(timesyncd(offset="-70.5ms"), "check_clock_offset")

    assert found.verdict is Verdict.WARN
    assert found.metrics[0].name == "offset"
    assert found.metrics[0].value == pytest.approx(-0.0705)


def test_offset_that_nobody_knows():
    assert judge(chrony(leap="Not synchronised"), "check_clock_offset").verdict is Verdict.UNKNOWN
    assert judge(timesyncd(ntp="no"), "check_clock_offset").reason == "OffsetUnknown"
    assert judge(timesyncd(offset="n/a"), "check_clock_offset").reason == "OffsetUnknown"
