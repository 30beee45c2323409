"""`nhc log catalogue` and `nhc log classify --explain`: what is known of an error, and why a line was judged so."""

import json

import pytest

from nhc.node.kernlog.catalogue import rows
from tests.support.run import nhc

pytestmark = pytest.mark.thorough


def known(word):
    return json.loads(nhc("log", "catalogue", word, "--format", "json").stdout)


@pytest.mark.parametrize("word", ["79", "xid 79", "Xid79", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off"])
def test_a_number_a_reason_and_a_line_lead_to_the_same_xid(word):
    found = [one for one in known(word) if one["kind"] == "xid"]
    assert [(one["code"], one["severity"], one["action"], one["reason"]) for one in found] == [
        ("79", "fatal", "reboot", "Xid79")
    ]
    assert "nvrm DriverLoaded of any device" in found[0]["ends"]
    assert found[0]["decision"]
    assert "kernel_rc.c" in found[0]["printed_by"]


def test_a_finding_that_asks_for_new_hardware_ends_with_no_reset():
    found = next(one for one in known("BadPageThreshold"))
    assert found["action"] == "replace"
    assert found["ends"][-1] == "nhc ack"
    assert not any("DriverLoaded" in one or "154" in one for one in found["ends"])


def test_a_repeat_that_asks_for_new_hardware_says_that_only_a_person_ends_it():
    done = nhc("log", "catalogue", "nvme nvme0: I/O 123 QID 4 timeout, reset controller")
    assert "  repeated    2 times within 1h on one device is fatal, replace, until nhc ack\n" in done.stdout
    done = nhc("log", "catalogue", "119")
    assert "  repeated    2 times within 24h on one device is fatal, reboot\n" in done.stdout


def test_a_word_finds_every_row_that_has_it():
    found = known("poison")
    assert {"PoisonConsumed", "PoisonContained"} <= {one["code"] for one in found}
    assert all(one["printed_by"] and one["examples"] for one in found)
    assert all(one["read"] for one in found if "lines of logs" not in one["printed_by"])
    assert nhc("log", "catalogue", "ENA").stdout.startswith("ena ") or "\nena " in nhc("log", "catalogue", "ENA").stdout
    assert [one["code"] for one in known("HBM_UNCORRECTABLE_ERROR")] == ["HBM_UNCORRECTABLE_ERROR"]


def test_without_a_word_every_row_has_a_line():
    said = nhc("log", "catalogue").stdout.splitlines()
    assert len(said) == len([row for row in rows() if row.code])


def test_what_nobody_knows_is_one_line_and_status_2():
    done = nhc("log", "catalogue", "flux capacitor")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "flux capacitor" in done.stderr


LOG = """\
NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)
mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 8c00000000000000
amdgpu 0000:c3:00.0: amdgpu: SMU is in hanged state, failed to send smu message!
NVRM: Xid (PCI:0000:3b:00): 999, something new
"""


def test_explain_names_the_row_and_what_beside_it_decided(tmp_path):
    log = tmp_path / "log"
    log.write_text(LOG)
    plain = nhc("log", "classify", str(log)).stdout
    said = nhc("log", "classify", "--explain", str(log)).stdout
    assert [line for line in said.splitlines() if not line.startswith("    ")] == plain.splitlines()
    told = nhc("log", "classify", "--explain", "-f", "json", str(log)).stdout
    entries = {(one["kind"], one["code"]): one["why"] for one in map(json.loads, told.splitlines())}
    assert any("xid.tsv 154" in why for why in entries["xid", "154"])
    assert any(why.startswith("context:") and "fatal, reboot" in why for why in entries["xid", "154"])
    assert any(why.startswith("context:") and "info" in why for why in entries["mce", "MachineCheck"])
    assert any(why.startswith("row: kernel.tsv amdgpu SmuHung") for why in entries["amdgpu", "SmuHung"])
    assert any("GpuResetDone of the same device" in why for why in entries["amdgpu", "SmuHung"])
    assert any("does not know 999" in why for why in entries["xid", "999"])
    assert "why" not in json.loads(nhc("log", "classify", "-f", "json", str(log)).stdout.splitlines()[0])
