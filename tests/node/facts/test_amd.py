"""AMD GPUs from sysfs: a node of MI300X in one hive, and its faults, judged by the same checks."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.checks.gpu import check_gpu_count, check_gpu_lost
from nhc.node.checks.gpu_clocks import check_gpu_clock_throttling, check_gpu_power, check_gpu_temp
from nhc.node.checks.gpu_firmware import check_gpu_driver, check_vbios_version
from nhc.node.checks.gpu_links import check_gpu_links, check_gpu_xgmi, check_nvlink_status
from nhc.node.checks.gpu_memory import check_gpu_ecc, check_gpu_retired_pages, check_gpu_row_remap
from nhc.node.checks.gpu_pcie import check_gpu_pcie
from nhc.node.checks.gpu_processes import check_gpu_processes
from nhc.node.facts.accelerator_values import ErrorCount
from nhc.node.facts.amd import address, parse_bad_pages, parse_gpu_metrics, parse_ras
from tests.support.nvml.fake import functions_tree

BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
GPUS = [f"0000:{bus:02x}:00.0" for bus in BUSES]
KFD = "/sys/class/kfd/kfd/topology/nodes"


def metrics(cycles, form=(1, 7), prochot=0, ppt=0, socket=0, vr=0, hbm=0):
    """A gpu_metrics file of the given form, zero but for its header and its throttle counters."""
    data = bytearray(800)
    data[0:4] = struct.pack("<HBB", len(data), *form)
    struct.pack_into("<6I", data, 32 if form == (1, 6) else 40, cycles, prochot, ppt, socket, vr, hbm)
    return bytes(data)


def tree(gpus=tuple(GPUS)):
    files = functions_tree([(gpu, 0x1002, 0x74A1, 0x120000) for gpu in gpus])
    files["/sys/module/amdgpu/version"] = "6.10.5\n"
    files[f"{KFD}/0/gpu_id"] = "0\n"
    for place, gpu in enumerate(gpus):
        base = f"/sys/bus/pci/devices/{gpu}"
        files[f"{base}/driver"] = Symlink("../../../bus/pci/drivers/amdgpu")
        files[f"{base}/drm/card{place}/"] = ""
        files[f"{base}/unique_id"] = f"a1b2c3d4e5f6{place:04x}\n"
        files[f"{base}/product_name"] = "AMD Instinct MI300X\n"
        files[f"{base}/serial_number"] = f"6923410{place}\n"
        files[f"{base}/vbios_version"] = "113-M3000100-102\n"
        files[f"{base}/mem_info_vram_total"] = "206141652992\n"
        files[f"{base}/mem_info_vram_used"] = "297795584\n"
        files[f"{base}/pcie_replay_count"] = "0\n"
        for name, value in (
            ("current_link_speed", "32.0 GT/s PCIe"), ("max_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"), ("max_link_width", "16"),
        ):  # fmt: skip
            files[f"{base}/{name}"] = f"{value}\n"
        for block in ("umc", "gfx", "sdma", "mmhub", "xgmi_wafl"):
            files[f"{base}/ras/{block}_err_count"] = "ue: 0\nce: 0\n"
        files[f"{base}/ras/gpu_vram_bad_pages"] = ""
        files[f"{base}/gpu_metrics"] = metrics(1_000_000)
        hwmon = f"{base}/hwmon/hwmon{place + 4}"
        for number, label, now, crit, emergency in (
            (2, "junction", 41000, 100000, 105000),
            (3, "mem", 33000, 105000, 110000),
        ):
            files[f"{hwmon}/temp{number}_label"] = f"{label}\n"
            files[f"{hwmon}/temp{number}_input"] = f"{now}\n"
            files[f"{hwmon}/temp{number}_crit"] = f"{crit}\n"
            files[f"{hwmon}/temp{number}_emergency"] = f"{emergency}\n"
        for name, value in (("input", 135), ("cap", 750), ("cap_default", 750), ("cap_max", 750), ("cap_min", 0)):
            files[f"{hwmon}/power1_{name}"] = f"{value}000000\n"
        node = f"{KFD}/{place + 1}"
        files[f"{node}/gpu_id"] = f"{5000 + place}\n"
        bus = int(gpu.split(":")[1], 16)
        files[f"{node}/properties"] = f"cpu_cores_count 0\nlocation_id {bus << 8}\ndomain 0\nhive_id 77001\n"
        files[f"{node}/io_links/0/properties"] = f"type 2\nnode_from {place + 1}\nnode_to 0\n"
        others = [other for other in range(len(gpus)) if other != place]
        for number, other in enumerate(others, 1):
            files[f"{node}/io_links/{number}/properties"] = f"type 11\nnode_from {place + 1}\nnode_to {other + 1}\n"
    return files


def bad(outcomes):
    outcomes = [outcomes] if not isinstance(outcomes, list) else outcomes
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


CHECKS = (
    check_gpu_lost, check_gpu_ecc, check_gpu_retired_pages, check_gpu_links, check_gpu_xgmi, check_gpu_pcie,
    check_gpu_temp, check_gpu_power, check_gpu_clock_throttling, check_gpu_driver, check_vbios_version,
    check_gpu_processes,
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_node_passes(check):
    found = check(FakeHost(tree()))

    assert found
    assert {outcome.verdict for outcome in found} == {Verdict.OK}


@pytest.mark.thorough
def test_the_count_with_azures_word_for_amd():
    host = FakeHost(tree())
    assert check_gpu_count(host, 8, "amd").verdict is Verdict.OK
    assert only(check_gpu_count(FakeHost(tree(GPUS[:7])), 8, "amd")).reason == "GpuCountMismatch"


@pytest.mark.thorough
def test_what_the_vendor_does_not_tell_is_skipped():
    host = FakeHost(tree())

    assert check_gpu_row_remap(host)[0].verdict is Verdict.SKIP
    assert check_nvlink_status(host)[0].verdict is Verdict.SKIP


@pytest.mark.thorough
def test_a_gpu_without_its_driver_is_missing():
    host = FakeHost(tree())
    host.remove(f"/sys/bus/pci/devices/{GPUS[3]}/driver")

    assert GPUS[3] in only(check_gpu_count(host, 8)).message
    assert only(check_gpu_lost(host)).target == GPUS[3]


@pytest.mark.thorough
def test_a_driver_that_is_not_loaded():
    files = {path: text for path, text in tree().items() if not path.startswith("/sys/module")}

    outcome = only(check_gpu_ecc(FakeHost(files)))

    assert (outcome.verdict, outcome.reason, outcome.action) == (
        Verdict.CRIT, "GpuDriverNotLoaded", Action.RELOAD_DRIVER,
    )  # fmt: skip


@pytest.mark.thorough
def test_a_gpu_the_compute_driver_does_not_show_is_critical():
    files = {path: text for path, text in tree().items() if not path.startswith(f"{KFD}/4/")}

    outcome = next(o for o in check_gpu_temp(FakeHost(files)) if o.target == "gpu3")

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuFailed")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("block", "text", "reason"),
    [
        ("umc", "ue: 1\nce: 9\n", "GpuDramUncorrected"),
        ("gfx", "ue: 2\nce: 0\n", "GpuSramUncorrected"),
        ("umc", "ue: 0\nce: 20000001\n", "GpuDramCorrected"),
    ],
)
def test_ras_counts(block, text, reason):
    host = FakeHost({**tree(), f"/sys/bus/pci/devices/{GPUS[2]}/ras/{block}_err_count": text})

    assert (only(check_gpu_ecc(host)).reason, only(check_gpu_ecc(host)).target) == (reason, "gpu2")


@pytest.mark.thorough
def test_bad_pages():
    pages = "0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n"
    host = FakeHost({**tree(), f"/sys/bus/pci/devices/{GPUS[1]}/ras/gpu_vram_bad_pages": pages})

    assert only(check_gpu_retired_pages(host)).reason == "GpuRetiredPagePending"


@pytest.mark.thorough
def test_a_missing_xgmi_link():
    host = FakeHost(tree())
    host.remove(f"{KFD}/1/io_links/4/properties")  # from the first GPU to the fifth

    outcome = only(check_gpu_xgmi(host))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "LinkDown", "gpu0")
    assert only(check_gpu_links(host)).reason == "LinkDown"


@pytest.mark.thorough
def test_a_gpu_that_did_not_join_the_hive():
    """It has no hive and no links of its own, which must not pass for a GPU that has no XGMI."""
    files = {path: text for path, text in tree().items() if not path.startswith(f"{KFD}/3/io_links")}
    files[f"{KFD}/3/properties"] = f"location_id {BUSES[2] << 8}\ndomain 0\nhive_id 0\n"

    outcome = only(check_gpu_xgmi(FakeHost(files)))

    assert (outcome.verdict, outcome.target) == (Verdict.CRIT, "gpu2")
    assert "0 of 7 up" in outcome.message


@pytest.mark.thorough
def test_gpus_without_xgmi_are_skipped():
    files = tree()
    for place in range(8):
        files[f"{KFD}/{place + 1}/properties"] = f"location_id {BUSES[place] << 8}\nhive_id 0\n"

    assert check_gpu_xgmi(FakeHost(files))[0].verdict is Verdict.SKIP


@pytest.mark.thorough
def test_gpus_of_a_hive_joined_by_pcie_only():
    host = FakeHost({**tree(), f"{KFD}/1/io_links/4/properties": "type 2\nnode_from 1\nnode_to 5\n"})

    assert only(check_gpu_xgmi(host)).target == "gpu0"


@pytest.mark.thorough
def test_xgmi_errors():
    path = f"/sys/bus/pci/devices/{GPUS[6]}/ras/xgmi_wafl_err_count"
    assert only(check_gpu_xgmi(FakeHost({**tree(), path: "ue: 1\nce: 0\n"}))).verdict is Verdict.CRIT
    corrected = FakeHost({**tree(), path: "ue: 0\nce: 3\n"})
    assert only(check_gpu_xgmi(corrected)).verdict is Verdict.WARN
    assert not bad(check_gpu_xgmi(corrected, corrected=3))


@pytest.mark.thorough
def test_the_file_that_reading_clears_is_left_alone():
    host = FakeHost({**tree(), f"/sys/bus/pci/devices/{GPUS[0]}/xgmi_error": "2\n"})
    read = []
    real, host.read_bytes = host.read_bytes, lambda path, limit=1 << 20: read.append(path) or real(path, limit)

    check_gpu_xgmi(host)

    assert read
    assert not [path for path in read if path.endswith("xgmi_error")]


@pytest.mark.thorough
def test_heat_power_and_link():
    base = f"/sys/bus/pci/devices/{GPUS[7]}"
    hot = FakeHost({**tree(), f"{base}/hwmon/hwmon11/temp3_input": "105000\n"})
    assert only(check_gpu_temp(hot)).message == "gpu7: memory at 105 degrees, limit 105"
    capped = FakeHost({**tree(), f"{base}/hwmon/hwmon11/power1_cap": "550000000\n"})
    assert only(check_gpu_power(capped)).reason == "GpuPowerLimit"
    narrow = FakeHost({**tree(), f"{base}/current_link_width": "8\n"})
    assert only(check_gpu_pcie(narrow)).reason == "GpuPcieWidth"


@pytest.mark.parametrize("form", [(1, 6), (1, 7), (1, 8)])
@pytest.mark.parametrize(
    ("counter", "reason"),
    [("prochot", "GpuHwSlowdown"), ("socket", "GpuHwThermalSlowdown"), ("hbm", "GpuHwThermalSlowdown"), ("ppt", None)],
)
def test_throttling_by_the_share_of_the_last_minute(form, counter, reason):
    path = f"/sys/bus/pci/devices/{GPUS[1]}/gpu_metrics"
    before = metrics(1_000_000, form, **{counter: 9_000})
    host = FakeHost({**tree(), path: before})
    assert not bad(check_gpu_clock_throttling(host)), "0.9 % since the driver loaded"
    host.forget()
    host.system.uptime += 60
    host.write(path, metrics(1_060_000, form, **{counter: 9_600}))

    found = bad(check_gpu_clock_throttling(host))

    assert [(o.reason, o.target) for o in found] == ([(reason, "gpu1")] if reason else [])


@pytest.mark.thorough
def test_throttling_of_an_mi200_is_a_state():
    data = bytearray(120)
    data[0:4] = struct.pack("<HBB", 120, 1, 3)
    path = f"/sys/bus/pci/devices/{GPUS[1]}/gpu_metrics"
    for bit, verdict in ((36, Verdict.CRIT), (47, Verdict.CRIT), (0, None)):
        struct.pack_into("<Q", data, 112, 1 << bit)
        found = bad(check_gpu_clock_throttling(FakeHost({**tree(), path: bytes(data)})))
        assert [outcome.verdict for outcome in found] == ([verdict] if verdict is not None else [])


def test_metrics_of_an_unknown_form_tell_nothing():
    files = {path: metrics(5, (1, 4)) if path.endswith("gpu_metrics") else text for path, text in tree().items()}

    assert check_gpu_clock_throttling(FakeHost(files))[0].verdict is Verdict.SKIP


@given(st.binary())
def test_any_bytes_are_read_without_raising(data):
    parse_gpu_metrics(data)


def test_processes_by_the_memory_they_hold():
    files = {
        **tree(),
        "/sys/class/kfd/kfd/proc/900/vram_5003": "1073741824\n",
        "/sys/class/kfd/kfd/proc/901/vram_5003": "0\n",
        "/proc/900/comm": "python3\n",
    }

    outcome = only(check_gpu_processes(FakeHost(files)))

    assert (outcome.target, "python3 (900)" in outcome.message) == ("gpu3", True)


def test_addresses_of_the_topology():
    assert address({"location_id": 0x05 << 8, "domain": 0}) == GPUS[0]
    assert address({"location_id": (0xE5 << 8) | (0x1F << 3) | 1, "domain": 2}) == "0002:e5:1f.1"


@given(st.text(), st.text())
def test_any_text_is_read_without_raising(one, other):
    parse_ras(one)
    assert min(parse_bad_pages(other)) >= 0


def test_counts_not_given_are_none():
    assert parse_ras("") == ErrorCount(None, None)
    assert parse_ras("ue: 3\nce: 0\nde: 1\n") == ErrorCount(0, 3)


BROKEN = Symlink("/proc/self/mem")
"""A file whose read gives EIO, as a sensor of a GPU whose firmware has died gives EINVAL or EPERM."""


@pytest.mark.parametrize(
    ("check", "file"),
    [
        (check_gpu_temp, "hwmon/hwmon6/temp2_input"),
        (check_gpu_temp, "hwmon/hwmon6/temp3_input"),
        (check_gpu_power, "hwmon/hwmon6/power1_cap"),
        (check_gpu_ecc, "ras/umc_err_count"),
        (check_gpu_ecc, "ras/gfx_err_count"),
        (check_gpu_ecc, "ras/gpu_vram_bad_pages"),
        (check_gpu_retired_pages, "ras/gpu_vram_bad_pages"),
        (check_gpu_xgmi, "ras/xgmi_wafl_err_count"),
        (check_gpu_pcie, "current_link_width"),
        (check_gpu_clock_throttling, "gpu_metrics"),
        (check_vbios_version, "vbios_version"),
    ],
)
def test_a_file_that_cannot_be_read_leaves_its_gpu_unknown_and_not_without_a_word(check, file):
    host = FakeHost({**tree(GPUS[:3]), f"/sys/bus/pci/devices/{GPUS[2]}/{file}": BROKEN})
    found = only(check(host))
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "GpuUnreadable", "gpu2")
    assert "EIO" in found.message
    assert file.rsplit("/", 1)[-1] in found.message


def test_memory_in_use_that_cannot_be_read():
    host = FakeHost({**tree(GPUS[:2]), f"/sys/bus/pci/devices/{GPUS[1]}/mem_info_vram_used": BROKEN})
    assert only(check_gpu_processes(host, memory=1 << 30)).reason == "GpuUnreadable"
    assert not bad(check_gpu_processes(host))


def test_counts_that_the_driver_withholds_during_a_reset():
    path = f"/sys/bus/pci/devices/{GPUS[0]}/ras/umc_err_count"
    found = only(check_gpu_ecc(FakeHost({**tree(GPUS[:2]), path: "Query currently inaccessible\n"})))
    assert (found.verdict, found.target) == (Verdict.UNKNOWN, "gpu0")


@pytest.mark.parametrize("file", ["gpu_id", "properties"])
def test_a_gpu_that_kfd_may_not_show_us_is_not_a_gpu_that_failed(file):
    """kfd answers EPERM for a GPU that the control group may not use (kfd_devcgroup_check_permission)."""
    host = FakeHost({**tree(GPUS[:2]), f"{KFD}/2/{file}": BROKEN})
    found = only(check_gpu_lost(host))
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "GpuUnreadable", "gpu1")
