"""A driver's own last word: it asks for a reset or a power cycle after it has said that something failed."""

import pytest

from nhc.node.kernlog.collect import LAST_WORD, take_in
from nhc.node.kernlog.findings import current

NOW = 1_700_000_000.0
FAILURES = ("command queue timed out", "mailbox: firmware load failed, ret -110", "card is not responding")
WISHES = (
    "hot reset is required", "A reboot of the host is required", "power cycle needed", "power-cycle required",
    "please reboot the system", "the card must be power cycled", "card needs a hot reset", "reset required",
)  # fmt: skip
SPEAKERS = ("xclmgmt", "xocl 0000:d8:00.1", "dfl-fme.0", "qaic", "vendor_npu npu3")


def worst(*lines):
    state = {}
    for at, line in lines:
        take_in(state, [(line, NOW + at)], NOW + at)
    return max(
        (finding["severity"] for _key, finding in current(state)), default="", key=["", "degraded", "fatal"].index
    )


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("wish", WISHES)
def test_a_reset_that_is_asked_for_after_a_failure_is_a_fault(speaker, wish):
    for failure in FAILURES:
        assert worst((0, f"{speaker}: {failure}, {wish}")) == "fatal"
        assert worst((0, f"{speaker}: {failure}"), (5, f"{speaker}: {wish}")) == "fatal"


@pytest.mark.parametrize("wish", WISHES)
def test_a_wish_alone_is_for_a_person(wish):
    assert worst((0, f"xclmgmt: {wish}")) == "degraded"
    assert worst((0, f"xclmgmt: {FAILURES[0]}"), (LAST_WORD + 1, f"xclmgmt: {wish}")) == "degraded"
    assert worst((0, f"other: {FAILURES[0]}"), (5, f"xclmgmt: {wish}")) == "degraded", "another driver complained"


@pytest.mark.parametrize("line", [
    "xclmgmt: flash failed before; reboot is required to activate the new firmware",
    "ice 0000:3b:00.0: firmware update done, reboot required",
    "microcode: loading failed, reboot is required", "tpm tpm0: command failed, reset required",
    "iwlwifi 0000:3b:00.0: command timed out, reset is required", "systemd[1]: unit failed, reboot is required",
    "x: timed out[42]: segfault at 0, reboot is required",
])  # fmt: skip
def test_what_an_update_a_peripheral_or_a_program_asks_for_takes_no_node_out(line):
    assert worst((0, line)) != "fatal"
