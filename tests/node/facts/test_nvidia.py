"""NVML's answers read into the description: nothing that was not told becomes a number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts import accelerator_values as model
from nhc.node.facts.nvidia import parse_device, parse_nvml
from nhc.node.facts.nvml import ALWAYS, PARTS

KEYS = [key for queries in (ALWAYS, *PARTS.values()) for key, _, _ in queries]


def test_a_device_that_tells_nothing_is_all_none():
    device = parse_device({"index": 0, **{key: {"error": 3} for key in KEYS}, "links": []})

    assert device.row_remap is None
    assert device.links is None
    assert device.errors == model.MemoryErrors()
    assert device.clocks.reasons is None
    assert device.modes == model.Modes()
    assert device.unread == {}


def test_not_supported_and_failed_are_told_apart():
    device = parse_device({"index": 0, "row_remap": {"error": 3}, "temperature": {"error": 999}, "links": []})

    assert "row_remap" not in device.unread
    assert device.unread["thermal"] == "an unknown error of the driver"
    assert device.thermal.gpu is None


def test_a_driver_older_than_the_question_has_no_such_thing():
    """A driver that does not know SRAM as a location answers with an invalid argument: its GPU is not unreadable."""
    device = parse_device({"index": 0, "sram_volatile_uncorrected": {"error": 2}, "fabric": {"error": 25}, "links": []})

    assert device.unread == {}
    assert device.errors.sram.uncorrected is None


def test_a_processes_memory_may_be_untold():
    device = parse_device({"index": 0, "processes": [{"pid": 7, "usedGpuMemory": None}], "links": []})

    assert device.processes == (model.DeviceProcess(7, "", None),)


def test_a_memory_sensor_that_reads_0_is_none():
    assert parse_device({"index": 0, "fields": {"memory_temperature": 0}, "links": []}).thermal.memory is None


def test_unknown_throttle_bits_are_named():
    assert parse_device({"index": 0, "reasons": 0x10001, "links": []}).clocks.reasons == ("idle", "reason-0x10000")


@given(
    st.dictionaries(
        st.sampled_from([*KEYS, "reasons", "sram", "fabric"]),
        st.builds(lambda code: {"error": code}, st.integers(1, 999)),
    )
)
def test_whatever_fails_the_device_is_described(answers):
    device = parse_device({"index": 3, **answers, "links": []})

    assert device.number == 3
    assert (device.fault == model.RESET_REQUIRED) == any(answer["error"] == 16 for answer in answers.values())
    for key, answer in answers.items():
        if answer["error"] not in (2, 3, 13, 25, 26):
            assert device.unread, key


def test_a_failed_start_is_a_source_without_devices():
    source = parse_nvml({"error": 9})

    assert (source.devices, source.reason, source.certain) == ((), "DriverNotLoaded", True)
    assert not parse_nvml({"error": 12}).certain


def test_an_answer_of_another_type_is_unread_and_no_number():
    """As in a recording that somebody edited: it is named, and nothing is taken from it."""
    answers = {"temperature": "hot", "pci": 7, "power_range": [1], "processes": "none", "uuid": 5, "row_remap": [0, 0]}

    device = parse_device({"index": 0, **answers, "links": []})

    assert (device.thermal.gpu, device.pci, device.power.least) == (None, "", None)
    assert (device.processes, device.id, device.row_remap) == (None, "", None)
    assert device.unread["thermal"] == "NVML's answer for temperature makes no sense"
    assert set(device.unread) == {"thermal", "pci", "power", "processes", "id", "row_remap"}


def test_a_snapshot_without_devices_makes_no_sense():
    with pytest.raises(ValueError, match="names no devices"):
        parse_nvml({"driver": "580.65"})
