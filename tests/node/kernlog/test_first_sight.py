"""Kinds that logs of strangers showed (docs/kernel-log.md), in lines made up for them."""

import pytest

from nhc.node.commands.log_findings import LogFindings

GPU, OTHER = "0000:5e:00.0", "0000:86:00.0"


def standing(*lines):
    """The findings at the end of a log, `SECONDS text` each, as kind/code: severity."""
    log = LogFindings()
    for line in lines:
        at, _, text = line.partition(" ")
        log.feed(f"[{float(at):12.6f}] {text}\n")
    return {f"{finding['kind']}/{finding['code']}": finding["severity"] for _key, finding in log.standing()}


@pytest.mark.parametrize(
    "how", ["Ring comp_1.0.1 reset failed", "MES might be in unrecoverable state, issue a GPU reset"]
)
def test_a_reset_that_was_reached_ends_what_it_was_for_and_a_part_that_stays_down_does_not(how):
    begun = (f"10 amdgpu {GPU}: amdgpu: {how}", f"11 amdgpu {GPU}: amdgpu: GPU reset begin!")
    reached = (*begun, f"12 amdgpu {GPU}: amdgpu: GPU reset succeeded, trying to resume")
    assert "fatal" in standing(*begun).values()
    assert "fatal" not in standing(*reached).values()
    assert "fatal" in standing(*reached, f"14 amdgpu {GPU}: amdgpu: GPU reset end with ret = -62").values()
    assert "fatal" in standing(*begun, f"12 amdgpu {OTHER}: amdgpu: GPU reset succeeded, trying to resume").values()


@pytest.mark.parametrize(
    ("status", "fatal"), [("8c00000000010092", False), ("cc00008000010091", False), ("be00000000800400", True)]
)
def test_the_status_of_a_machine_check_decides_whatever_the_kernel_calls_it(status, fatal):
    for words in ("Machine Check Exception: 0 Bank 7", "Machine Check Exception: 5 Bank 1"):
        assert ("fatal" in standing(f"1 mce: [Hardware Error]: CPU 2: {words}: {status}").values()) is fatal
    assert "fatal" in standing("1 mce: [Hardware Error]: CPU 2: Machine Check Exception: 4 Bank 5").values()


@pytest.mark.parametrize(("reports", "fatal"), [(1, False), (2, False), (4, False), (5, True)])
def test_a_processor_whose_lockup_is_told_again_for_a_hundred_seconds_is_locked_up(reports, fatal):
    lines = [f"{100 + 26 * n} watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [spin:77]" for n in range(reports)]
    assert ("fatal" in standing(*lines).values()) is fatal
    apart = [f"{100 + 26 * n} watchdog: BUG: soft lockup - CPU#{n} stuck for 22s! [spin:77]" for n in range(reports)]
    assert "fatal" not in standing(*apart).values(), "each on another processor"


@pytest.mark.parametrize("words", ["GSP RM heartbeat timed out", "LibOS heartbeat timed out"])
@pytest.mark.parametrize("place", ["", "GPU3 ", f"GPU {GPU}: "])
def test_firmware_without_a_heartbeat_needs_a_reset(words, place):
    assert standing(f"1 NVRM: {place}_kgspRpcRecvPoll: {words}") == {"nvrm/GspNeedsReset": "fatal"}


@pytest.mark.parametrize("driver", ["nvme", "efa", "habanalabs", "lpfc", "newdriver"])
def test_a_state_register_of_ones_is_a_device_that_is_gone_whoever_reads_it(driver):
    assert standing(f"1 {driver} {GPU}: Failed status: ffffffff, reset controller") == {"pcie/Inaccessible": "fatal"}
    assert standing(f"1 {driver} {GPU}: Failed status: 0000ffff, reset controller") != {"pcie/Inaccessible": "fatal"}


def clean_up(cause, device=GPU):
    return f"NVRM: Xid (PCI:{device[:-2]}): 45, pid=42, name=python3, Ch 00000003 caused by previous Xid {cause}"


@pytest.mark.parametrize(("cause", "severity"), [(79, "fatal"), (48, "fatal"), (119, "fatal"), (31, None), (13, None)])
def test_an_xid_whose_own_line_is_lost_counts_by_the_one_that_names_it(cause, severity):
    assert standing(f"1 {clean_up(cause)}", f"2 {clean_up(cause)}").get(f"xid/{cause}") == severity
    known = standing(f"1 NVRM: Xid (PCI:{GPU[:-2]}): 31, pid=42, name=python3, Ch 00000003", f"900 {clean_up(cause)}")
    assert f"xid/{cause}" not in known, "the log has an Xid of that GPU: it is not lost"


def test_a_stamp_in_the_form_of_go_is_a_stamp():
    log = LogFindings()
    log.feed("2026-03-01 16:26:53 +0000 UTC kern.alert kernel: Oops: 0002 [#1] SMP NOPTI\n")
    [(_key, finding)] = log.standing()
    assert (finding["severity"], finding["last"]) == ("fatal", 1772382413.0)
