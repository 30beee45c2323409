"""Accelerators as a whole: all there, none lost; which devices a check judges; what every GPU check says of a fault."""

import pytest

from nhc.core.check import BadArguments, find
from nhc.core.model import Action, Verdict
from nhc.core.state.store import State
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.checks.gpu import check_gpu_count, check_gpu_lost
from nhc.node.facts.accelerator import asked
from nhc.node.facts.accelerator_values import Inventory
from nhc.node.facts.pci import PciFunction
from nhc.node.facts.pci_index import INDEX
from nhc.node.kernlog.xid import read_xid
from tests.support.nvml.fake import ADDRESSES, functions_tree, index_line, pci_tree

EVERY = [
    "check_gpu_count 8", "check_gpu_lost", "check_gpu_ecc 20000000 10000", "check_gpu_row_remap",
    "check_gpu_retired_pages", "check_nvlink_status", "check_gpu_links", "check_nvlink_errors", "check_gpu_p2p",
    "check_gpu_fabric", "check_fabric_manager", "check_gpu_pcie", "check_gpu_clock_throttling", "check_gpu_temp",
    "check_gpu_power", "check_app_gpu_clocks", "check_gpu_persistence", "check_gpu_mig", "check_gpu_ecc_mode",
    "check_gpu_compute_mode", "check_gpu_driver", "check_vbios_version", "check_gpu_inforom", "check_gpu_processes",
    "check_gpu_xgmi",
]  # fmt: skip


def worst(outcomes):
    return max(outcomes, key=lambda outcome: outcome.verdict)


@pytest.mark.parametrize("machine", ["a100", "h100", "h200", "b200", "v100"])
def test_a_healthy_machine_passes_every_check(nvml, machine):
    switches = {"a100": 6, "h100": 4, "h200": 4}.get(machine, 0)
    found = nvml.judge(
        machine,
        EVERY,
        files=pci_tree(switches=switches),
        commands={"systemctl is-active nvidia-fabricmanager": "active\n"},
    )

    bad = {line: outcomes for line, outcomes in zip(EVERY, found) if worst(outcomes).verdict > Verdict.OK}
    passed = [line for line, outcomes in zip(EVERY, found) if worst(outcomes).verdict is Verdict.OK]
    assert not bad
    assert len(passed) >= 17, "a check that skips on a healthy machine judges nothing"


def test_the_count_is_the_drivers(nvml):
    [outcome] = nvml.one("h100", "check_gpu_count 8")

    assert outcome.verdict is Verdict.OK
    assert ("gpu_count", 8) in [metric[:2] for metric in outcome.metrics]


def test_a_gpu_the_driver_lost_is_named_by_its_place_on_the_bus(nvml):
    [outcome] = nvml.one("h100", "check_gpu_count 8", "devices 7")

    assert (outcome.verdict, outcome.reason, outcome.action) == (Verdict.CRIT, "GpuCountMismatch", Action.REBOOT)
    assert outcome.message.startswith("Expected to see 8 but found 7")
    assert ADDRESSES[7] in outcome.message


def test_without_a_count_the_bus_is_the_measure(nvml):
    assert nvml.one("h100", "check_gpu_count")[0].verdict is Verdict.OK
    assert nvml.one("h100", "check_gpu_count", "devices 7")[0].reason == "GpuCountMismatch"


def test_fewer_gpus_on_the_bus_than_expected_is_a_mismatch_too(nvml):
    [outcome] = nvml.one("h100", "check_gpu_count 8", "devices 6", files=pci_tree(ADDRESSES[:6]))

    assert outcome.message == "Expected to see 8 but found 6"


def test_a_lost_gpu_is_critical_in_every_check_and_asks_for_a_reboot(nvml):
    found = nvml.judge("h100", ["check_gpu_lost", "check_gpu_ecc", "check_gpu_temp", "check_gpu_count 8"], "3.lost 1")

    for outcomes in found:
        [lost] = [outcome for outcome in outcomes if outcome.reason == "GpuLost"]
        assert (lost.verdict, lost.target, lost.action) == (Verdict.CRIT, "gpu3", Action.REBOOT)


def test_lost_gpus_are_named_by_the_places_left_on_the_bus(nvml):
    found = nvml.one("h100", "check_gpu_lost", "2.lost 1", "5.handle error 15")

    assert [(o.target, ADDRESSES[n] in o.message) for o, n in zip(found, (2, 5))] == [("gpu2", True), ("gpu5", True)]


def test_a_gpu_whose_handle_is_refused_is_lost_too(nvml):
    [lost] = [o for o in nvml.one("h100", "check_gpu_lost", "5.handle error 15") if o.verdict is Verdict.CRIT]

    assert lost.reason == "GpuLost"


def test_a_gpu_that_needs_a_reset_asks_for_one(nvml):
    for fault in ("2.reset 1", "2.handle error 16"):
        [outcome] = [o for o in nvml.one("h100", "check_gpu_temp", fault) if o.verdict is Verdict.CRIT]

        assert (outcome.reason, outcome.target, outcome.action) == ("GpuResetRequired", "gpu2", Action.RESET_DEVICE)


@pytest.mark.parametrize("code", [8, 11, 29, 999])
def test_a_gpu_the_driver_cannot_make_work_is_critical(nvml, code):
    [outcome] = [o for o in nvml.one("h100", "check_gpu_lost", f"5.handle error {code}") if o.verdict is Verdict.CRIT]

    assert (outcome.reason, outcome.target) == ("GpuFailed", "gpu5")


def test_a_gpu_that_may_not_be_read_is_unknown_not_critical(nvml):
    found = nvml.one("h100", "check_gpu_temp", "4.handle error 4")

    [refused] = [outcome for outcome in found if outcome.target == "gpu4"]
    assert (refused.verdict, refused.reason) == (Verdict.UNKNOWN, "GpuUnreadable")
    assert "no permission" in refused.message


@pytest.mark.parametrize(
    ("code", "verdict", "reason", "action"),
    [
        (0, Verdict.OK, "", Action.NONE),
        (1, Verdict.CRIT, "GpuResetRequired", Action.RESET_DEVICE),
        (2, Verdict.CRIT, "GpuRebootRequired", Action.REBOOT),
        (3, Verdict.WARN, "GpuDrainRequired", Action.RESET_DEVICE),
        (4, Verdict.CRIT, "GpuResetRequired", Action.RESET_DEVICE),
        (5, Verdict.WARN, "GpuDrainRequired", Action.RESTART_APP),
        (6, Verdict.CRIT, "GpuResetRequired", Action.RESET_DEVICE),
        (7, Verdict.CRIT, "GpuRebootRequired", Action.REBOOT),
        (9, Verdict.WARN, "GpuRecoveryRequired", Action.INSPECT),
    ],
)
def test_the_recovery_that_the_driver_names_is_passed_on(nvml, code, verdict, reason, action):
    """What NVML says and what a line of Xid 154 says are judged alike, for every number."""
    told = [outcome for outcome in nvml.one("h100", "check_gpu_lost", f"6.field.230 u32 {code}") if outcome.reason]
    assert [(o.verdict, o.reason, o.target, o.action) for o in told] == (
        [(verdict, reason, "gpu6", action)] if code else []
    )
    line = f"GPU recovery action changed from 0x0 (None) to {code:#x} (words of a driver to come)"
    match = read_xid(154, "0000:3b:00.0", line, line)
    wanted = {Verdict.OK: "info", Verdict.WARN: "degraded", Verdict.CRIT: "fatal"}[verdict]
    assert (match.severity, match.action) == (wanted, action)


@pytest.mark.parametrize(
    ("fault", "verdict", "reason"),
    [
        ("init error 9", Verdict.CRIT, "GpuDriverNotLoaded"),
        ("init error 18", Verdict.CRIT, "GpuDriverMismatch"),
        ("init error 15", Verdict.CRIT, "GpuLost"),
        ("init error 12", Verdict.UNKNOWN, "NvmlMissing"),
        ("init error 4", Verdict.UNKNOWN, "NvmlFailed"),
        ("init error 999", Verdict.UNKNOWN, "NvmlFailed"),
    ],
)
def test_a_driver_that_does_not_start_with_gpus_on_the_bus(nvml, fault, verdict, reason):
    """Certain is what the driver itself says; that a library cannot be loaded is no fault of the GPUs."""
    for outcomes in nvml.judge("h100", ["check_gpu_count 8", "check_gpu_ecc", "check_nvlink_status"], fault):
        assert (worst(outcomes).verdict, worst(outcomes).reason) == (verdict, reason)
        assert "8 nvidia devices on the PCI bus" in worst(outcomes).message


def test_a_driver_that_lists_nothing_is_critical(nvml):
    assert nvml.one("h100", "check_gpu_temp", "devices 0")[0].reason == "GpuMissing"


def test_the_missing_binding_is_unknown():
    host = FakeHost(pci_tree())
    host.system.answers["nvml"] = {"error": -1, "text": "No module named 'pynvml'"}

    outcome = worst(check_gpu_count(host, 8))

    assert (outcome.verdict, outcome.reason) == (Verdict.UNKNOWN, "BindingMissing")


def test_a_subset_of_devices_is_judged_alone(nvml):
    faults = ("6.temperature 99",)

    assert worst(nvml.one("h100", "check_gpu_temp", *faults)).verdict is Verdict.CRIT
    chosen = nvml.one("h100", "check_gpu_temp -d 0,2-3", *faults)
    assert [outcome.target for outcome in chosen] == ["gpu0", "gpu2", "gpu3"]
    by_setting = nvml.one("h100", "check_gpu_temp", *faults, settings={"NHC_DEVICES": "5,6"})
    assert [outcome.target for outcome in by_setting] == ["gpu5", "gpu6"]
    assert worst(by_setting).verdict is Verdict.CRIT


def test_devices_can_be_named_by_uuid_and_by_address(nvml):
    by_uuid = nvml.one("h100", "check_gpu_temp -d GPU-b1000003")
    by_address = nvml.one("h100", f"check_gpu_temp -d 00000000:{ADDRESSES[4][5:].upper()}")

    assert [o.target for o in by_uuid + by_address] == ["gpu3", "gpu4"]


def test_a_job_given_a_gpu_that_is_gone_does_not_pass(nvml):
    [heat] = nvml.one("h100", "check_gpu_temp -d 7", "devices 7")
    assert (heat.verdict, heat.reason) == (Verdict.UNKNOWN, "GpuNotFound")
    [outcome] = nvml.one("h100", "check_gpu_count 8", "devices 7", settings={"NHC_DEVICES": "6,7"})
    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuMissing")


def test_a_node_without_accelerators_skips_and_reads_one_file():
    host = FakeHost(functions_tree([("0000:01:00.0", 0x15B3, 0x1021, 0x020700)]))
    read = []
    real, host.read_bytes = host.read_bytes, lambda path, limit=1 << 20: read.append(path) or real(path, limit)

    outcomes = [check_gpu_count(host), *check_gpu_lost(host)]

    assert {outcome.verdict for outcome in outcomes} == {Verdict.SKIP}
    assert read == ["/proc/bus/pci/devices"]


def test_a_node_that_should_have_gpus_and_shows_none_is_critical():
    host = FakeHost(functions_tree([]))

    outcome = check_gpu_count(host, 8)

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuCountMismatch")


def test_an_integrated_or_other_vendors_display_is_no_accelerator():
    aspeed = FakeHost(functions_tree([("0000:03:00.0", 0x1A03, 0x2000, 0x030000)]))
    audio = FakeHost(functions_tree([("0000:03:00.1", 0x10DE, 0x22BA, 0x040300)]))

    assert check_gpu_count(aspeed).verdict is Verdict.SKIP
    assert check_gpu_count(audio).verdict is Verdict.SKIP


def of_nobody(*drivers):
    """A node with accelerators of a vendor that nhc cannot ask, each with its driver, "" for none."""
    functions = [(f"0000:{16 + place:02x}:00.0", 0x19E5, 0xD802, 0x120000) for place in range(len(drivers))]
    files = functions_tree(functions)
    for (address, *_), driver in zip(functions, drivers):
        if driver:
            files[f"/sys/bus/pci/devices/{address}/driver"] = Symlink(f"../../../bus/pci/drivers/{driver}")
    return FakeHost(files)


def test_an_accelerator_of_a_vendor_that_nobody_listed_is_no_silence():
    node = of_nobody("npu", "npu")
    unknown = [(Verdict.UNKNOWN, "AcceleratorUnknown", f"0000:1{place}:00.0") for place in (0, 1)]
    for found in (check_gpu_lost(node), check_gpu_count(node, 2), check_gpu_count(of_nobody("", ""))):
        assert [(o.verdict, o.reason, o.target) for o in found] == unknown
    assert check_gpu_count(node).verdict is Verdict.OK, "as many as the bus shows, each with a driver"
    assert check_gpu_count(node, 3).reason == "GpuCountMismatch", "the bus shows fewer than the site bought"


@pytest.mark.parametrize(
    ("drivers", "count", "verdict"),
    [
        (("npu", "npu"), 2, Verdict.OK),
        (("npu", "npu"), None, Verdict.OK),
        (("npu",), 2, Verdict.CRIT),
        (("npu", ""), 2, Verdict.CRIT),  # on the bus, and nobody serves it
        (("npu", ""), None, Verdict.CRIT),
        ((), 2, Verdict.CRIT),
        ((), None, Verdict.SKIP),
    ],
)
def test_accelerators_of_such_a_vendor_are_counted_by_its_id(drivers, count, verdict):
    assert check_gpu_count(of_nobody(*drivers), count, "19e5").verdict is verdict
    assert check_gpu_count(of_nobody(*drivers), vendor="8086").verdict is Verdict.SKIP


def test_another_vendors_accelerator_beside_known_ones_changes_no_count(nvml):
    address = "0000:3a:00.0"
    other = functions_tree([(address, 0x10EE, 0x5004, 0x120000)])
    files = {**pci_tree(), **other, INDEX: pci_tree()[INDEX] + other[INDEX]}
    [[count], lost] = nvml.judge("h100", ["check_gpu_count 8", "check_gpu_lost"], files=files)
    assert count.verdict is Verdict.OK
    assert [(o.verdict, o.target) for o in lost] == [(Verdict.UNKNOWN, address), (Verdict.OK, "")]


def test_one_of_such_a_vendor_that_is_gone_is_missed(tmp_path):
    node = of_nobody("npu", "npu")
    node.memory = State(str(tmp_path / "run"))
    check_gpu_count(node)
    node.write(INDEX, index_line("0000:10:00.0", 0x19E5, 0xD802, "npu"))
    node.forget()
    assert [(o.verdict, o.reason, o.target) for o in check_gpu_count(node)] == [
        (Verdict.CRIT, "GpuGone", "0000:11:00.0")
    ]


def test_arguments_are_checked():
    check = find("check_gpu_count")
    assert check.parse(["8", "rocm"])["vendor"] == "amd"
    assert [check.parse(["8", name])["vendor"] for name in ("10DE", "8086")] == ["nvidia", "8086"]
    with pytest.raises(BadArguments, match="not a whole number"):
        check.parse(["eight"])
    with pytest.raises(BadArguments, match="not a vendor"):
        check.parse(["8", "voodoo"])


def test_a_gpu_that_is_gone_from_bus_and_driver_is_missed_without_a_number(tmp_path):
    """The bus alone cannot tell what is not on it any more: what it showed at an earlier look can."""
    node = FakeHost({**functions_tree([]), "/proc/sys/kernel/random/boot_id": "a\n"})

    def look(addresses, boot="a", count=None):
        inventory = Inventory(tuple(PciFunction(one, 0x10DE, 0x2330, "nvidia") for one in addresses))
        node.memory = State(str(tmp_path / "run"))
        if boot != node.read_or("/proc/sys/kernel/random/boot_id"):
            for path in (tmp_path / "run").glob("*.json"):
                path.unlink()
        node.write("/proc/sys/kernel/random/boot_id", f"{boot}\n")
        node.forget()
        node.know(asked, inventory)
        found = check_gpu_count(node, count)
        return [(o.verdict, o.reason, o.target) for o in (found if isinstance(found, list) else [found])]

    quiet = [(Verdict.SKIP, "NoAccelerator", "")]
    assert look(ADDRESSES) == quiet
    assert look(ADDRESSES[:-1]) == [(Verdict.CRIT, "GpuGone", ADDRESSES[-1])]
    assert look(()) == [(Verdict.CRIT, "GpuGone", ADDRESSES[0])], "all of them"
    assert look(ADDRESSES) == quiet
    assert look(ADDRESSES[:-1], boot="b") == [(Verdict.WARN, "GpuGone", ADDRESSES[-1])]
    assert look(ADDRESSES[:-1], boot="b") == [(Verdict.WARN, "GpuGone", ADDRESSES[-1])], "and it stays so"
