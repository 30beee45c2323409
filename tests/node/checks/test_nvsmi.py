"""NVIDIA's tools by their exit status, under LBNL's and CSC's names."""

import pytest

from nhc.core.host import Completed
from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.nvsmi import check_nv_healthmon, check_nvsmi_healthmon
from tests.support.nvml.fake import functions_tree, pci_tree


@pytest.mark.parametrize(
    ("status", "verdict", "reason", "action"),
    [
        (0, Verdict.OK, "", Action.NONE),
        (2, Verdict.UNKNOWN, "NvidiaSmiArguments", Action.NONE),
        (4, Verdict.UNKNOWN, "NvidiaSmiPermission", Action.NONE),
        (6, Verdict.CRIT, "GpuMissing", Action.REBOOT),
        (8, Verdict.CRIT, "GpuPowerCables", Action.INSPECT),
        (9, Verdict.CRIT, "GpuDriverNotLoaded", Action.RELOAD_DRIVER),
        (10, Verdict.CRIT, "GpuInterruptProblem", Action.REBOOT),
        (12, Verdict.UNKNOWN, "NvmlMissing", Action.NONE),
        (14, Verdict.CRIT, "GpuInforomCorrupt", Action.REPLACE),
        (15, Verdict.CRIT, "GpuLost", Action.REBOOT),
        (77, Verdict.CRIT, "NvidiaSmiFailed", Action.INSPECT),
        (255, Verdict.CRIT, "NvidiaSmiFailed", Action.INSPECT),
    ],
)
def test_the_exit_status_says_what_is_wrong(status, verdict, reason, action):
    host = FakeHost(pci_tree(), {"nvidia-smi": Completed(status, "some output\n")})

    outcome = check_nvsmi_healthmon(host)

    assert (outcome.verdict, outcome.reason, outcome.action) == (verdict, reason, action)
    assert verdict is Verdict.OK or outcome.evidence == ("some output",)
    assert verdict is Verdict.OK or "some output" in outcome.message


def test_a_crash_is_told_by_its_signal():
    host = FakeHost(pci_tree(), {"nvidia-smi": Completed(139, signal=11)})
    assert check_nvsmi_healthmon(host).reason == "NvidiaSmiCrashed"


@pytest.mark.parametrize("status", [0, 15, 255])
@pytest.mark.parametrize(
    ("printed", "target"),
    [
        ("Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error", "0000:BA:00.0"),
        ("Unable to determine the device handle for GPU0000:01:00.0: Not Found", "0000:01:00.0"),
        (
            "Unable to determine the device handle for GPU4: 0000:CA:00.0: GPU is lost.  Reboot the system",
            "0000:CA:00.0",
        ),
    ],
)
def test_a_gpu_without_a_handle_is_lost_whatever_the_status(status, printed, target):
    host = FakeHost(pci_tree(), {"nvidia-smi": Completed(status, f"GPU 0: H100\n{printed}\n")})
    outcome = check_nvsmi_healthmon(host)
    assert (outcome.verdict, outcome.reason, outcome.action, outcome.target) == (
        Verdict.CRIT, "GpuLost", Action.REBOOT, target,
    )  # fmt: skip
    assert printed.split(":")[0] in outcome.message


def test_a_hang_is_critical():
    host = FakeHost(pci_tree(), {"nvidia-smi": Completed(124, "", "", timed_out=True)})

    assert check_nvsmi_healthmon(host).reason == "NvidiaSmiHangs"


def test_the_tool_is_not_installed():
    assert check_nvsmi_healthmon(FakeHost(pci_tree())).reason == "CommandMissing"
    assert check_nv_healthmon(FakeHost(pci_tree())).verdict is Verdict.UNKNOWN
    assert check_nvsmi_healthmon(FakeHost(functions_tree([]))).verdict is Verdict.SKIP
    assert check_nv_healthmon(FakeHost(functions_tree([]))).verdict is Verdict.SKIP


def test_without_gpus_an_unloaded_driver_is_no_fault():
    host = FakeHost(functions_tree([]), {"nvidia-smi": Completed(9)})

    assert check_nvsmi_healthmon(host).verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("files", "arguments", "verdict"),
    [
        ({}, "", Verdict.SKIP),
        ({}, "-q", Verdict.SKIP),
        ({}, "-q -i 0", Verdict.CRIT),
        ({}, "--id=GPU-1", Verdict.CRIT),
        ({"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX\n"}, "", Verdict.CRIT),
    ],
)
def test_no_device_is_a_fault_where_devices_are_expected(files, arguments, verdict):
    """As with LBNL NHC and Azure, whoever asks for the check on a node of GPUs wants to know that all are gone."""
    smi = {"nvidia-smi": Completed(6, "No devices were found\n")}
    host = FakeHost({**functions_tree([]), **files}, smi, {"NVIDIA_SMI_HEALTHMON_ARGS": arguments})
    assert check_nvsmi_healthmon(host).verdict is verdict


def test_lbnls_settings_name_the_command_and_its_arguments():
    host = FakeHost(
        pci_tree(),
        {"/opt/bin/smi": ""},
        {"NVIDIA_SMI_HEALTHMON": "/opt/bin/smi", "NVIDIA_SMI_HEALTHMON_ARGS": "-q -i '0,1'"},
    )

    assert check_nvsmi_healthmon(host).verdict is Verdict.OK
    assert host.system.ran == [("/opt/bin/smi", "-q", "-i", "0,1")]


def test_nvidia_healthmon():
    host = FakeHost(pci_tree(), {"nvidia-healthmon": ""})
    assert check_nv_healthmon(host).verdict is Verdict.OK
    assert host.system.ran == [("nvidia-healthmon", "-e", "-v")]

    for status, signal, reason in (
        (1, 0, "NvidiaHealthmonFailed"), (134, 0, "NvidiaHealthmonFailed"), (134, 6, "NvidiaHealthmonCrashed"),
    ):  # fmt: skip
        ended = Completed(status, signal=signal)
        outcome = check_nv_healthmon(FakeHost(pci_tree(), {"nvidia-healthmon": ended}))
        assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, reason)
