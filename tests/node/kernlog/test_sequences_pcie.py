"""PCIe errors: one that the kernel repaired is over, and one that it is repairing takes no node out yet."""

import pytest

from nhc.node.kernlog.collect import KERNEL_REPAIR, take_in
from nhc.node.kernlog.findings import current

NOW = 1_700_000_000.0
PORT = "pcieport 0000:17:01.0: "
DPC = f"{PORT}DPC: containment event, status:0x1f01 source:0x0000"
FATAL = f"{PORT}AER: Uncorrectable (Fatal) error message received from 0000:18:00.0"
NONFATAL = f"{PORT}AER: Uncorrectable (Non-Fatal) error message received from 0000:18:00.0"
NO_CALLBACK = "mpt3sas 0000:18:00.0: AER: can't recover (no error_detected callback)"
GOOD = f"{PORT}AER: device recovery successful"
BAD = f"{PORT}AER: device recovery failed"


def log(*said):
    state = {}
    take_in(state, [(line, NOW + index) for index, line in enumerate(said)], NOW)
    return state


def standing(state, after):
    return {key: finding["severity"] for key, finding in current(state, (), NOW + after)}


@pytest.mark.parametrize("fault", [DPC, FATAL, NONFATAL])
@pytest.mark.parametrize("word", ["device", "Device"])
def test_a_recovery_ends_the_error_of_the_device_below_the_port(fault, word):
    assert standing(log(fault, GOOD.replace("device", word)), 1e6) == {}


@pytest.mark.parametrize("fault", [DPC, FATAL, "nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10"])
def test_while_the_kernel_repairs_nothing_is_fatal_and_then_it_is(fault):
    state = log(fault)
    assert set(standing(state, 1).values()) == {"degraded"}
    assert set(standing(state, KERNEL_REPAIR + 1).values()) == {"fatal"}


def test_a_drill_waits_for_no_repair():
    assert set(standing(log(f"{FATAL} nhc-drill"), 1).values()) == {"fatal"}


@pytest.mark.parametrize("fault", [DPC, FATAL])
def test_a_recovery_that_failed_is_fatal_at_once(fault):
    assert set(standing(log(fault, BAD), 2).values()) == {"fatal"}


def test_a_failed_recovery_of_a_non_fatal_error_without_a_callback_is_no_reason_to_drain():
    assert standing(log(NONFATAL, NO_CALLBACK, BAD), 1e6) == {
        "aer/UncorrectedNonFatal/0000:18:00.0": "degraded", "aer/RecoveryFailed/0000:17:01.0": "degraded",
    }  # fmt: skip
    assert standing(log(NONFATAL, BAD), 1e6)["aer/RecoveryFailed/0000:17:01.0"] == "fatal", "its driver gave it up"
    assert standing(log(FATAL, NO_CALLBACK, BAD), 1e6)["aer/RecoveryFailed/0000:17:01.0"] == "fatal"


def test_a_recovery_elsewhere_or_much_later_ends_nothing():
    assert standing(log(FATAL, GOOD.replace("0000:17", "0001:17")), 1e6) != {}
    state = log(FATAL)
    take_in(state, [(GOOD, NOW + KERNEL_REPAIR * 3)], NOW)
    assert standing(state, 1e6) == {"aer/UncorrectedFatal/0000:18:00.0": "fatal"}


RECOVERED = {"aer/Recovered/0000:17:01.0": "degraded"}


def test_errors_that_were_each_repaired_leave_no_more_than_their_count():
    state = {}
    for hour in range(3):
        take_in(state, [(NONFATAL, NOW + hour * 3600), (GOOD, NOW + hour * 3600 + 2)], NOW)
        assert standing(state, 1e6) == (RECOVERED if hour else {})
    take_in(state, [(NONFATAL, NOW + 3 * 3600)], NOW)
    assert "fatal" in standing(state, 4 * 3600).values(), "the fourth in a day, and nothing repairs it"


@pytest.mark.parametrize(("apart", "expected"), [(60.0, {}), (86400.0, RECOVERED), (13 * 86400.0, RECOVERED),
                                                 (15 * 86400.0, {})])  # fmt: skip
@pytest.mark.parametrize("fault", [DPC, FATAL])
def test_a_port_whose_device_is_brought_back_twice_in_two_weeks_is_looked_at(apart, expected, fault):
    state = {}
    for at in (NOW, NOW + apart):
        take_in(state, [(fault, at), (GOOD, at + 2)], at)
    assert standing(state, apart + 10) == expected


def test_recoveries_of_two_ports_are_not_one_count():
    state = log(FATAL, GOOD)
    other = [line.replace("0000:17:01.0", "0000:97:01.0").replace("0000:18", "0000:98") for line in (FATAL, GOOD)]
    take_in(state, [(line, NOW + 86400) for line in other], NOW)
    assert standing(state, 86410) == {}
