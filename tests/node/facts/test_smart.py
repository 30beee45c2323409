"""smartctl's and nvme-cli's JSON."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.node.facts.smart import SmartError, parse_disk, parse_nvme_cli, parse_scan, parse_smartctl_nvme

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["smartctl", "exit_status", "smart_status", "passed", "ata_smart_attributes", "table", "id", "raw", "value",
             "devices", "name", "messages", "nvme_smart_health_information_log", "critical_warning", "media_errors",
             "percentage_used", "percent_used", "temperature", "scsi_error_counter_log", "read"]
        ),
        inner, max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON.map(json.dumps) | st.text())
def test_anything_is_an_answer_or_a_complaint(text):
    for parse in (parse_disk, parse_scan, parse_nvme_cli, parse_smartctl_nvme):
        with suppress(SmartError):
            parse(text)


def test_what_a_virtual_disk_says():
    text = json.dumps({
        "json_format_version": [1, 0],
        "smartctl": {
            "version": [7, 3], "argv": ["smartctl", "--json", "-H", "-A", "/dev/vda"],
            "messages": [{"string": "/dev/vda: Unable to detect device type", "severity": "error"}],
            "exit_status": 1,
        },
    })  # fmt: skip

    with pytest.raises(SmartError, match="Unable to detect device type"):
        parse_disk(text)


def test_scan_finds_disks_behind_a_raid_controller():
    found = parse_scan(json.dumps({
        "smartctl": {"exit_status": 0},
        "devices": [
            {"name": "/dev/sda", "info_name": "/dev/sda", "type": "scsi", "protocol": "SCSI"},
            {"name": "/dev/bus/0", "type": "megaraid,3", "protocol": "SCSI"},
            {"name": "/dev/nvme0", "info_name": "/dev/nvme0", "type": "nvme", "protocol": "NVMe"},
        ],
    }))  # fmt: skip

    assert [device.type for device in found] == ["scsi", "megaraid,3", "nvme"]


def test_packed_raw_values_are_cut_to_the_counter():
    table = [{"id": 188, "name": "Command_Timeout", "raw": {"value": 4295032833}}]  # 1 1 1: three counters
    found = parse_disk(json.dumps({"smartctl": {"exit_status": 0}, "smart_status": {"passed": True},
                                   "ata_smart_attributes": {"table": table}}))  # fmt: skip

    assert found.counts["command_timeouts"] == 1


def test_nvme_cli_speaks_kelvin():
    log = {"critical_warning": 0, "temperature": 301, "avail_spare": 100, "spare_thresh": 5, "percent_used": 15,
           "media_errors": 0, "num_err_log_entries": 17}  # fmt: skip
    found = parse_nvme_cli(json.dumps(log))

    assert (found.temperature, found.percentage_used, found.available_spare) == (28, 15, 100)
    verbose = parse_nvme_cli(json.dumps({**log, "critical_warning": {"value": 4, "reliability_degraded": 1}}))
    assert verbose.critical_warning == 4
