"""Alarms of the kernel's sensors."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge, judge_all

BASE = "/sys/class/hwmon/hwmon3"
QUIET = {f"{BASE}/name": "nct6798\n", f"{BASE}/temp1_label": "CPUTIN\n", f"{BASE}/temp1_input": "95500\n",
         f"{BASE}/temp1_crit_alarm": "0\n", f"{BASE}/temp1_alarm": "0\n", f"{BASE}/fan2_alarm": "0\n",
         f"{BASE}/fan2_input": "0\n", f"{BASE}/in3_alarm": "1\n", f"{BASE}/in3_input": "1040\n"}  # fmt: skip


def test_quiet_alarms_and_a_voltage_that_only_counts_when_asked():
    assert judge(FakeHost(QUIET), "check_sensors_hwmon").message == "3 alarms are quiet"
    found = judge(FakeHost(QUIET), "check_sensors_hwmon -a")
    assert (found.verdict, found.target) == (Verdict.WARN, "nct6798/in3")
    assert "1.04 V" in found.message


@pytest.mark.parametrize(
    ("file", "expected", "said"),
    [("temp1_crit_alarm", Verdict.CRIT, "95.5 °C"), ("temp1_alarm", Verdict.WARN, "CPUTIN"),
     ("temp1_fault", Verdict.WARN, "fault"), ("fan2_alarm", Verdict.CRIT, "0 RPM"),
     ("fan2_fault", Verdict.CRIT, "fan2")],
)  # fmt: skip
def test_an_alarm(file, expected, said):
    (found,) = judge_all(FakeHost({**QUIET, f"{BASE}/{file}": "1\n"}), "check_sensors_hwmon")
    assert (found.verdict, found.reason) == (expected, "SensorAlarm")
    assert said in found.message
    assert judge(FakeHost({**QUIET, f"{BASE}/{file}": "1\n"}), "check_sensors_hwmon -i 'nct*/*'").verdict is Verdict.OK


def test_no_sensors():
    assert judge(FakeHost(), "check_sensors_hwmon").verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("made", "why"),
    [("junk\n", "junk"), (Symlink("/proc/self/mem"), "EIO"), (Symlink("/proc/self"), "EISDIR")],
)
def test_an_alarm_that_cannot_be_read_does_not_vanish(made, why):
    host = FakeHost({**QUIET, f"{BASE}/fan2_alarm": made})
    found = judge(host, "check_sensors_hwmon")
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "SensorUnreadable", "nct6798/fan2")
    assert why in found.message
    assert judge(host, "check_sensors_hwmon -i nct6798/fan2").verdict is Verdict.OK
    host = FakeHost({**QUIET, f"{BASE}/in3_alarm": made})  # a voltage, that was not asked for
    assert judge(host, "check_sensors_hwmon").verdict is Verdict.OK
