"""Processes left on a GPU after a job."""

from nhc.core.model import Action, Verdict
from tests.support.nvml.fake import pci_tree


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


def test_a_process_left_behind_is_named(nvml):
    files = {**pci_tree(), "/proc/4242/comm": "python3\n"}
    outcome = only(nvml.one("h100", "check_gpu_processes", "1.processes 4242:8589934592", files=files))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "GpuProcessesLeft", "gpu1")
    assert "python3 (4242)" in outcome.message
    assert outcome.evidence == ("pid 4242 python3 8GB",)


def test_services_that_hold_a_gpu_on_purpose_are_allowed(nvml):
    files = {**pci_tree(), "/proc/77/comm": "nvidia-cuda-mps\n", "/proc/78/comm": "telemetryd\n"}
    faults = ("*.processes 77:1048576 78:1048576",)

    assert len(bad(nvml.one("h100", "check_gpu_processes", *faults, files=files))) == 8
    assert not bad(nvml.one("h100", "check_gpu_processes -a 'telemetry*'", *faults, files=files))


def test_memory_in_use_without_a_process(nvml):
    leak = ("1.memory 85520809984 4294967296",)

    assert not bad(nvml.one("h100", "check_gpu_processes", *leak))
    outcome = only(nvml.one("h100", "check_gpu_processes -m 2G", *leak))
    assert (outcome.reason, outcome.action) == ("GpuMemoryLeft", Action.RESET_DEVICE)
    assert "4GB" in outcome.message


def test_a_proof_of_the_gpu_that_runs_now_is_nothing_that_a_job_left(nvml):
    files = {**pci_tree(), "/proc/79/comm": "nhc-gpu-proof\n"}
    line, beside = "check_gpu_processes -m 2G", ("1.memory 85520809984 2684354560", "1.processes 79:1610612736")

    assert not bad(nvml.one("h100", line, *beside, files=files, owners={79: 0}))
    outcome = only(nvml.one("h100", line, *beside, files=files, owners={79: 1001}))
    assert outcome.reason == "GpuProcessesLeft"  # a user's process that took the name


def test_processes_that_cannot_be_listed_are_unknown(nvml):
    assert only(nvml.one("h100", "check_gpu_processes", "1.processes error 4")).verdict is Verdict.UNKNOWN
