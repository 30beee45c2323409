"""Sensors and events of the management controller, as ipmitool 1.8.18 and 1.8.19 print them."""

import time

import pytest

from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.bmc import event_time, parse_events, parse_sensors
from tests.support.judge import judge, judge_all

WELL = """\
Inlet Temp       | 04h | ok  |  7.1 | 22 degrees C
Temp             | 0Eh | ok  |  3.1 | 61 degrees C
Fan1A            | 30h | ok  |  7.1 | 5040 RPM
PS1 Status       | C8h | ok  | 10.1 | Presence detected
PS2 Status       | C9h | ok  | 10.2 | Presence detected
PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant
PCIe Slot1       | 8Bh | ns  |  7.1 | Disabled
SEL              | F0h | ns  |  7.1 | No Reading
PCIe Slot4       | 8Eh | ok  |  7.1 |
"""
INFO = """\
SEL Information
Version          : 1.5 (v1.5, v2 compliant)
Entries          : {n}
Percent Used     : {p}
Overflow         : {o}
"""
NOW = 1_700_000_000.0


def node(sensors=WELL, events="", info=None, **commands):
    number = len(events.splitlines())
    return FakeHost({"/dev/ipmi0": ""}, {
        ("ipmitool", "sdr"): sensors, ("ipmitool", "sel", "info"): info or INFO.format(n=number, p="3%", o="false"),
        ("ipmitool", "sel", "elist"): events, **commands,
    })  # fmt: skip


def stamp(ago, form="%m/%d/%Y | %H:%M:%S"):
    return time.strftime(form, time.gmtime(NOW - ago))


def test_a_board_that_is_well():
    assert judge(node(), "check_bmc_sensors").message == "9 sensors of the board are well"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("FAN3             | 43h | cr  | 29.3 | 300 RPM", (Verdict.CRIT, "SensorCritical")),
        ("FAN3             | 43h | lnr | 29.3 | 0 RPM", (Verdict.CRIT, "SensorCritical")),
        ("Inlet Temp       | 04h | nc  |  7.1 | 41 degrees C", (Verdict.WARN, "SensorWarning")),
        ("Inlet Temp       | 04h | unc |  7.1 | 41 degrees C", (Verdict.WARN, "SensorWarning")),
        (
            "PS2 Status       | C9h | ok  | 10.2 | Presence detected, Power Supply AC lost",
            (Verdict.WARN, "SensorFailure"),
        ),
        ("PS2 Status       | C9h | cr  | 10.2 | Failure detected", (Verdict.CRIT, "SensorCritical")),
        ("PS Redundancy    | 77h | ok  |  7.1 | Redundancy Lost", (Verdict.WARN, "SensorFailure")),
        ("P1 Status        | 81h | ok  |  3.1 | IERR", (Verdict.WARN, "SensorFailure")),
    ],
)
def test_a_sensor_that_is_not(line, expected):
    (found,) = judge_all(node(f"{WELL}{line}\n"), "check_bmc_sensors")
    assert (found.verdict, found.reason) == expected
    assert judge(node(f"{WELL}{line}\n"), f"check_bmc_sensors -i '^{line[:8].strip()}'").verdict is Verdict.OK


def test_a_lost_power_supply_is_critical_where_the_site_says_so():
    host = node("PS2 Status       | C9h | ok  | 10.2 | Presence detected, Power Supply AC lost\n")
    assert judge(host, "check_bmc_sensors -c").verdict is Verdict.CRIT


ECC = "  2a | {at} | Memory #0x87 | Uncorrectable ECC (@DIMMA3(CPU1)) | Asserted\n"
LOST = "  2b | {at} | Power Supply PS1 Status | Power Supply AC lost | Asserted\n"
BACK = "  2c | {at} | Power Supply PS1 Status | Power Supply AC lost | Deasserted\n"
BOOT = "  29 | {at} | System Event BIOS Evt Sensor | Timestamp Clock Sync | Asserted\n"
HOT = "  2d | {at} | Temperature CPU1 | Upper Critical going high | Asserted | Reading 91 > Threshold 90 degrees C\n"
COOL = "  2e | {at} | Temperature CPU1 | Upper Critical going high | Deasserted | Reading 80 > Threshold 90 degrees C\n"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("", []),
        (BOOT, []),
        (ECC, [(Verdict.CRIT, "SelFatal")]),
        (LOST, [(Verdict.WARN, "SelEvent")]),
        (LOST + BACK, []),
        (LOST + BACK + LOST.replace("2b", "3b"), [(Verdict.WARN, "SelEvent")]),
        (HOT, [(Verdict.WARN, "SelEvent")]),
        (HOT + COOL, []),
        (BOOT + ECC + HOT, [(Verdict.CRIT, "SelFatal"), (Verdict.WARN, "SelEvent")]),
    ],
)
@pytest.mark.parametrize("form", ["%m/%d/%Y | %H:%M:%S", "%m/%d/%y | %H:%M:%S UTC"], ids=["1.8.18", "1.8.19"])
def test_events_of_the_last_day(events, expected, form):
    found = judge_all(node(events=events.replace("{at}", stamp(3600, form))), "check_bmc_sel")
    assert [(o.verdict, o.reason) for o in found if o.reason] == expected


def test_an_old_event_is_no_news_and_a_new_one_stands_for_a_day_whatever_the_controllers_clock_says():
    old = ECC.format(at=stamp(10 * 86400))
    host = node(events=old)
    assert judge(host, "check_bmc_sel").verdict is Verdict.OK

    host.system.commands["ipmitool", "sel", "elist"] = old + LOST.format(at="Pre-Init  |0000000123")
    assert judge(host, "check_bmc_sel").reason == "SelEvent"
    host.system.now += 80000
    assert judge(host, "check_bmc_sel").reason == "SelEvent"
    host.system.now += 10000
    assert judge(host, "check_bmc_sel").verdict is Verdict.OK


def test_an_event_without_a_time_is_old_on_the_first_run():
    assert judge(node(events=LOST.format(at="Pre-Init  |0000000123")), "check_bmc_sel").verdict is Verdict.OK


def test_the_sites_own_patterns():
    events = "   1 | {at} | Chassis Intru | General Chassis intrusion | Asserted\n".replace("{at}", stamp(60))
    assert judge(node(events=events), "check_bmc_sel").verdict is Verdict.OK
    assert judge(node(events=events), "check_bmc_sel -w intrusion").verdict is Verdict.WARN
    assert judge(node(events=events), "check_bmc_sel -c 'chassis INTRUSION'").verdict is Verdict.CRIT
    assert judge(node(events=ECC.format(at=stamp(60))), "check_bmc_sel -i DIMMA3").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("used", "overflow", "options", "expected"),
    [("89%", "false", "", ""), ("90%", "false", "", "SelFull"), ("50%", "true", "", "SelFull"),
     ("95%", "false", "-f 0", ""), ("unknown", "false", "", "")],
)  # fmt: skip
def test_a_log_without_room(used, overflow, options, expected):
    assert judge(node(info=INFO.format(n=0, p=used, o=overflow)), f"check_bmc_sel {options}").reason == expected


@pytest.mark.parametrize("name", ["check_bmc_sel", "check_bmc_sensors"])
def test_a_controller_that_cannot_be_asked(name):
    assert judge(FakeHost(), name).verdict is Verdict.SKIP
    assert judge(FakeHost({"/sys/firmware/dmi/entries/38-0/raw": ""}), name).reason == "NoBmcDevice"
    assert judge(FakeHost({"/dev/ipmi0": ""}), name).reason == "CommandMissing"
    for answer in (Completed(143, "", "", timed_out=True), Completed(1, "", "Could not open device"), "junk\n"):
        found = judge(FakeHost({"/dev/ipmi0": ""}, {"ipmitool": answer}), name)
        assert found.verdict is Verdict.UNKNOWN, answer


def test_parsers():
    assert parse_sensors("Error reading sensor\nFan | 30h | ok | 7.1 | 1 RPM\n")[0].name == "Fan"
    (event,) = parse_events(
        "   9 | Linux kernel panic: x\n   7 | 01/02/24 | 09:01:05 CET | Fan F1 | Lower Critical | Asserted\n"
    )
    assert (event.number, event.sensor, event.asserted) == ("7", "Fan F1", True)
    assert event_time("02/25/2025 04:50:09 PM EST") == event_time("02/25/25 16:50:09")
    assert event_time("") is None
