"""AWS Neuron devices: a trn1.32xlarge and its faults, judged by the same checks."""

import json

import pytest

from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.checks.gpu import check_gpu_count, check_gpu_lost
from nhc.node.checks.gpu_firmware import check_gpu_driver
from nhc.node.checks.gpu_links import check_gpu_links
from nhc.node.checks.gpu_memory import check_gpu_ecc, check_gpu_row_remap
from nhc.node.checks.gpu_processes import check_gpu_processes
from nhc.node.facts.neuron import SYSFS, parse_neuron_ls
from tests.support.nvml.fake import functions_tree

TOOL = "/opt/aws/neuron/bin/neuron-ls"
DEVICES = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x20)]


def listing(**changed):
    return json.dumps(
        [
            {
                "neuron_device": number,
                "bdf": DEVICES[number][5:],
                "cpu_affinity": "0-31",
                "numa_node": "0",
                "connected_to": [(number + step) % 16 for step in (12, 3, 4, 1)],
                "nc_count": 2,
                "memory_size": 34359738368,
                "neuroncore_ids": [2 * number, 2 * number + 1],
                "neuron_processes": changed.get("processes", []) if number == 3 else [],
            }
            for number in range(changed.get("count", 16))
        ]
    )


def tree(count=16, stats_below=True):
    files = functions_tree([(address, 0x1D0F, 0x7164, 0x088000) for address in DEVICES])
    files["/sys/module/neuron/version"] = "2.18.20.0\n"
    for number in range(count):
        base = f"{SYSFS}/neuron{number}"
        files[f"{base}/core_count"] = "2\n"
        files[f"{base}/connected_devices"] = "12, 3, 4, 1\n"
        files[f"{base}/info/serial_number"] = f"19fcda00f5ff{number:04x}\n"
        files[f"{base}/info/architecture/device_name"] = "Trainium1\n"
        for name in ("mem_ecc_uncorrected", "sram_ecc_uncorrected", "mem_ecc_repairable_uncorrected"):
            files[f"{base}/stats/hardware/{name}"] = "0\n"
        for core in (0, 1):
            files[f"{base}/neuron_core{core}/stats/status/hw_error/total"] = "0\n"
    return files


def host(files=None, listed=None):
    return FakeHost(
        tree() if files is None else files, {f"{TOOL} -j": listing() if listed is None else listed, TOOL: ""}
    )


def bad(outcomes):
    outcomes = [outcomes] if not isinstance(outcomes, list) else outcomes
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


@pytest.mark.parametrize("check", [check_gpu_lost, check_gpu_ecc, check_gpu_driver, check_gpu_processes])
def test_a_healthy_node_passes(check):
    found = check(host())

    assert {outcome.verdict for outcome in found} == {Verdict.OK}


@pytest.mark.thorough
def test_the_count():
    assert check_gpu_count(host(), 16).verdict is Verdict.OK
    outcome = only(check_gpu_count(host(tree(15), listing(count=15)), 16))
    assert (outcome.reason, DEVICES[15] in outcome.message) == ("GpuCountMismatch", True)


def test_the_driver_is_not_loaded():
    files = {path: text for path, text in tree().items() if not path.startswith(SYSFS)}

    assert only(check_gpu_count(host(files), 16)).reason == "GpuDriverNotLoaded"


@pytest.mark.parametrize(
    ("counter", "reason", "action"),
    [
        ("mem_ecc_uncorrected", "GpuDramUncorrected", Action.RESET_DEVICE),
        ("sram_ecc_uncorrected", "GpuSramUncorrected", Action.RESET_DEVICE),
        ("mem_ecc_repairable_uncorrected", "GpuDramRepairable", Action.RELOAD_DRIVER),
    ],
)
def test_uncorrected_errors(counter, reason, action):
    files = {**tree(), f"{SYSFS}/neuron5/stats/hardware/{counter}": "1\n"}

    outcome = only(check_gpu_ecc(host(files)))

    assert (outcome.reason, outcome.target, outcome.action) == (reason, "neuron5", action)


def test_hardware_errors_of_a_core():
    files = {**tree(), f"{SYSFS}/neuron5/neuron_core1/stats/status/hw_error/total": "2\n"}

    outcome = only(check_gpu_lost(host(files)))

    assert (outcome.reason, outcome.action) == ("GpuHardwareError", Action.REPLACE)
    assert "core1_hw_error 2" in outcome.message


@pytest.mark.thorough
def test_links_whose_state_is_not_told_are_never_called_up():
    assert check_gpu_links(host())[0].verdict is Verdict.SKIP
    assert check_gpu_links(host(), 4)[0].verdict is Verdict.SKIP


def test_processes():
    left = [{"pid": 113985, "command": "python3 train.py", "neuron_runtime_version": "2.0.0"}]

    assert "python3 (113985)" in only(check_gpu_processes(host(listed=listing(processes=left)))).message


def test_without_neuron_ls_errors_are_judged_and_processes_unknown():
    bare = FakeHost(tree())

    assert not bad(check_gpu_ecc(bare))
    assert check_gpu_count(bare, 16).verdict is Verdict.OK
    assert {outcome.verdict for outcome in check_gpu_processes(bare)} == {Verdict.UNKNOWN}


def test_output_that_is_no_json_is_unknown():
    assert {outcome.verdict for outcome in check_gpu_processes(host(listed="neuron-ls: error"))} == {Verdict.UNKNOWN}
    with pytest.raises(ValueError, match="not the output"):
        parse_neuron_ls('{"a": 1}')


def test_what_the_vendor_does_not_tell_is_skipped():
    assert check_gpu_row_remap(host())[0].verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("check", "file"),
    [
        (check_gpu_ecc, "stats/hardware/mem_ecc_uncorrected"),
        (check_gpu_lost, "neuron_core1/stats/status/hw_error/total"),
    ],
)
def test_a_counter_that_cannot_be_read_does_not_vanish(check, file):
    found = only(check(host({**tree(), f"{SYSFS}/neuron7/{file}": Symlink("/proc/self/mem")})))
    assert (found.verdict, found.reason, found.target) == (Verdict.UNKNOWN, "GpuUnreadable", "neuron7")
    assert "EIO" in found.message
