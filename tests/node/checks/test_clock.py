"""The clock, as each of the three services tells it."""

import pytest

from nhc.core.host import Completed, System
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, FakeSystem
from tests.support.judge import judge

CHRONY = "A9FEA97B,10.0.0.1,4,1700000000.1,{offset},0.0,0.0,-12.3,0.0,0.05,0.0004,0.0002,16.1,{leap}\n"
NO_DAEMON = Completed(1, "506 Cannot talk to daemon\n")
STATUS = "       Server: 10.0.0.1 (ntp.cluster)\nRoot distance: 8.322ms (max: 5s)\n       Offset: {}\n"


def chrony(offset="0.000012345", leap="Normal"):
    return FakeHost({}, {"chronyc": CHRONY.format(offset=offset, leap=leap)})


def timesyncd(synchronized="yes", ntp="yes", offset="-1.020ms"):
    shown = f"Timezone=UTC\nLocalRTC=no\nCanNTP=yes\nNTP={ntp}\nNTPSynchronized={synchronized}\n"
    return FakeHost({}, {"timedatectl show": shown, "timedatectl timesync-status": STATUS.format(offset)})


def kernel(state=0, status=0, offset=0, maxerror=500):
    host = FakeHost()
    host.system.answers["adjtimex"] = {"state": state, "status": status, "offset": offset, "maxerror": maxerror}
    return host


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


def test_nobody_answers_and_one_line_says_so():
    host = FakeHost({}, {"chronyc": NO_DAEMON})
    found = judge(host, "check_clock_sync")

    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "NoTimeService")
    assert "506 Cannot talk to daemon" in found.message
    assert judge(host, "check_clock_offset").verdict is Verdict.SKIP


def test_without_any_tool_the_kernel_is_asked():
    found = judge(kernel(maxerror=12_000), "check_clock_sync")

    assert (found.verdict, found.message) == (
        Verdict.OK, "the kernel says the clock is synchronized, off by 12 ms at most",
    )  # fmt: skip
    assert judge(kernel(state=5, status=0x40, maxerror=12_000), "check_clock_sync").verdict is Verdict.OK  # no rtcsync
    assert judge(kernel(state=5, status=0x1000), "check_clock_sync").verdict is Verdict.WARN


def test_a_clock_that_nobody_keeps_is_one_warning():
    host = kernel(state=5, status=0x40, maxerror=16_000_000)
    host.system.commands["chronyc",] = NO_DAEMON
    found = judge(host, "check_clock_sync")

    assert (found.verdict, found.reason) == (Verdict.WARN, "ClockNotSynchronized")
    assert found.message == "the kernel says the clock is not synchronized: no time service keeps it"
    assert "TIME_ERROR" in found.evidence[0]
    assert "chronyc: 506 Cannot talk to daemon" in found.evidence[0]
    assert judge(host, "check_clock_offset").verdict is Verdict.SKIP


def test_the_kernels_offset_is_an_estimate_while_its_own_loop_steers():
    assert judge(kernel(status=0x1, offset=-70_500), "check_clock_offset").verdict is Verdict.WARN
    found = judge(kernel(status=0x2001, offset=-70_500), "check_clock_offset")
    assert found.verdict is Verdict.OK
    assert found.metrics[0].value == pytest.approx(-70.5e-6)


def test_without_an_estimate_the_kernels_bound_is_held_to_the_limit():
    found = judge(kernel(maxerror=400_000), "check_clock_offset")
    assert (found.verdict, found.metrics[0].name, found.metrics[0].value) == (Verdict.OK, "offset_bound", 0.4)
    assert judge(kernel(maxerror=400_000), "check_clock_offset -c 300ms").reason == "OffsetUnknown"
    assert judge(kernel(maxerror=2_000_000), "check_clock_offset").verdict is Verdict.UNKNOWN


def test_a_time_service_knows_more_than_the_kernel():
    host = chrony()
    host.system.answers["adjtimex"] = {"state": 5, "status": 0x40, "offset": 0, "maxerror": 16_000_000}
    assert "chronyd" in judge(host, "check_clock_sync").message


def test_this_kernel_answers_without_a_tool_and_without_root():
    """The real call, as it stands in the C library of whoever runs this."""

    class Live(FakeSystem):
        def ask(self, question, answer):
            return System.ask(self, question, answer)

    host = FakeHost()
    host.system = Live(host.root)
    found = judge(host, "check_clock_sync")
    assert found.verdict in (Verdict.OK, Verdict.WARN)
    assert "the kernel" in found.message
    assert judge(host, "check_clock_offset").verdict in (Verdict.OK, Verdict.WARN, Verdict.SKIP)


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
