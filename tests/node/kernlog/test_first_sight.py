"""Kinds that logs of strangers showed (docs/kernel-log.md), in lines made up for them."""

import pytest

from nhc.node.commands.log import LogFindings

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


@pytest.mark.parametrize(
    "search",
    ["", "messages:", "kern.log-3-", "/var/log/kern.log:", "12:", " 32789 ", "a.log:7:", "> ", ">> ", "`", "\x1b[32m"],
)
@pytest.mark.parametrize(
    "stamp", ["[ 5.25] ", "Mar  3 15:04:11 n1 kernel: ", "[wo jul 28 05:19:43 2021] ", "[三 5月 14 11:51:24 2025] ",
              "Mar  3 15:04:11   kernel: ", "2026-03-01T16:26:53+00:00 n1 kernel: "]
)  # fmt: skip
def test_what_a_search_a_pager_or_another_language_writes_before_a_line_is_no_part_of_it(search, stamp):
    log = LogFindings()
    log.feed(f"{search}{stamp}general protection fault: 0000 [#1] SMP NOPTI\n")
    assert [key for key, _finding in log.standing()] == ["oops/GeneralProtection/"]
    log = LogFindings()
    log.feed(f"{search}Mar  3 15:04:11 n1 alice: general protection fault: 0000 [#1] SMP NOPTI\n")
    assert log.standing() == [], "a program's line is a program's, whatever stands before it"


@pytest.mark.parametrize(
    "words",
    [
        "cxgb3 {}: encountered fatal error, operation suspended", "qla2xxx [{}]-0116:4: Disabling the board.",
        "mlx5_core {}: mlx5_wait_fw: Firmware is not responsive (0x1) after 300 ms",
        "bnxt_en {} eth0: Abandoning msg {{0x1a 0x1a}} len: 3 due to firmware status: 0x8000",
        "c6xx {}: QAT: failed to get device out of reset", "sfc {} eth0: SYSTEM ERROR: memory parity error",
        "hpsa {}: Failed waiting for board to become ready after hard reset",
        "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device={} address=0x100215790]",
    ],
)  # fmt: skip
def test_a_driver_that_gives_its_device_up_is_believed(words):
    assert "fatal" in standing(f"1 {words.format(GPU)}").values()


@pytest.mark.parametrize(
    "words",
    [
        "i915 {}: [drm] *ERROR* GT1: GSC proxy handler failed to init", "i40e {}: Query for DCB configuration failed",
        "igc {} eth0: Timeout reading IGC_PTM_STAT register", "mwifiex_pcie {}: mwifiex_cmd_timeout_func: Timeout",
        "cxl_pci {}: Mailbox operation had an error: cmd input was invalid",
        "lpfc {}: 0:(0):0460 Bring Adapter offline",
    ],
)  # fmt: skip
def test_a_part_that_a_device_does_without_is_no_complaint(words):
    assert standing(f"1 {words.format(GPU)}") == {}


def test_a_panic_of_which_only_the_last_line_is_left_is_a_panic():
    end = "1 ---[ end Kernel panic - not syncing: VFS: Unable to mount root fs ]---"
    assert standing(end) == {"oops/Panic": "fatal"}


def test_a_disk_that_scsi_itself_takes_offline_is_offline():
    log = LogFindings()
    log.feed("scsi 0:1:1:0: scsi: Device offlined - not ready after error recovery\n")
    assert [key for key, _finding in log.standing()] == ["block/Offline/0:1:1:0"]
