"""Of NVML only what the checks of a run read is asked, and that is all that they judge by."""

import collections
import json
import subprocess
import sys

import pytest

from nhc.core.check import find_all
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu import SOURCE
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.nvml import PARTS
from nhc.node.hosts.recording import RecordingHost
from tests.node.checks.test_gpu_engine import run
from tests.support.nvml.fake import ROOT, pci_tree

DEFAULT = ["check_gpu_lost", "check_gpu_ecc", "check_gpu_row_remap", "check_gpu_links", "check_gpu_clock_throttling"]
"""GPU checks of nhc/core/data/default.conf that say what a prolog must know."""
MACHINES = (
    ("h100",),
    ("h100", "2.lost 1", "5.reset 1"),
    ("h100", "*.row_remap 0 1 1 0", "1.field.230 u32 2", "*.reasons 0x48", "*.mig_mode 1 1", "*.ecc_mode 0 1",
     "*.persistence 0", "4.sram.volatile.uncorrected 1", "0.link.0.state 0", "7.pci error 999"),
    ("b200",),
    ("v100",),
)  # fmt: skip


def reading():
    return [check for check in find_all() if check.name.startswith("check_") and check.source == SOURCE]


def test_each_part_that_a_check_names_is_known():
    named = {part for check in find_all() for part in check.parts or ()}

    assert named <= set(PARTS)
    assert all(check.parts is not None for check in reading())


@pytest.mark.thorough
@pytest.mark.parametrize("machine", MACHINES)
def test_a_check_judges_by_the_parts_that_it_names_as_by_all(nvml, machine):
    lines = [check.name for check in reading() if not check.name.startswith("check_gpu_proof")]  # they need libcuda

    by_all = nvml.judge(machine[0], lines, *machine[1:], all_parts=True)

    for line, outcomes in zip(lines, by_all):
        assert nvml.one(machine[0], line, *machine[1:]) == outcomes, line


def calls(nvml, tmp_path, *lines, machine="h100"):
    """How often each function of the library was called for these lines in one run."""
    file = tmp_path / "calls"
    found = run(nvml, nvml.scenario(machine, f"calls {file}"), *lines)
    assert all(verdict == Verdict.OK for _check, verdict, *_ in found), found
    return collections.Counter(file.read_text().split())


@pytest.mark.thorough
def test_the_default_checks_ask_for_what_they_judge_and_nothing_else(nvml, tmp_path):
    """8 GPUs with 18 links each. A second start of the library would count each device twice."""
    counted = calls(nvml, tmp_path, *DEFAULT)

    assert counted["nvmlShutdown"] == 1
    assert counted["nvmlDeviceGetRemappedRows"] == counted["nvmlDeviceGetTemperature"] == 8
    assert counted["nvmlDeviceGetMemoryErrorCounter"] == 8 * 8
    assert counted["nvmlDeviceGetNvLinkState"] == 8 * 18
    for asked in (
        "nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock", "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetPowerUsage",
        "nvmlDeviceValidateInforom", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetNvLinkErrorCounter",
        "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetP2PStatus",
    ):  # fmt: skip
        assert not counted[asked], asked


@pytest.mark.thorough
def test_the_checksums_of_the_inforom_are_read_for_their_check_alone(nvml, tmp_path):
    assert calls(nvml, tmp_path, "check_gpu_inforom", "check_gpu_lost")["nvmlDeviceValidateInforom"] == 8
    (tmp_path / "calls").unlink()
    assert not calls(nvml, tmp_path, "check_gpu_inforom -q", "check_gpu_lost")["nvmlDeviceValidateInforom"]


@pytest.mark.thorough
def test_what_the_kernel_log_is_judged_beside_is_asked_in_its_own_run(nvml, tmp_path):
    file = tmp_path / "calls"
    xid = "NVRM: Xid (PCI:0000:0f:00): 94, pid=1, name=python, Contained: SM (0x1). RST: No, D-RST: No"

    run(nvml, nvml.scenario("h100", f"calls {file}"), "check_kmsg", kernel=[xid])

    counted = collections.Counter(file.read_text().split())
    assert counted["nvmlDeviceGetMigMode"] == counted["nvmlDeviceGetRemappedRows"] == 8
    assert not counted["nvmlDeviceGetPowerUsage"]


ASK_TWICE = """
import json, os, sys
from nhc.node.facts.accelerator import accelerators
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
host = FakeHost(json.loads(sys.argv[1]))
host.system.ask = lambda name, answer: answer()
first = accelerators(host.reading(frozenset(["power"])))
more = accelerators(host.reading(frozenset(["pcie"])))
again = accelerators(host.reading(frozenset(["power"])))
every = accelerators(host)
print(first.devices[0].power.limit, first.devices[0].pcie.width, more.devices[0].pcie.width,
      again is more, every.devices[0].firmware.vbios)
"""


@pytest.mark.thorough
def test_who_reads_more_than_was_asked_asks_again_and_loses_nothing(nvml, tmp_path):
    file = tmp_path / "calls"
    ended = subprocess.run(
        [sys.executable, "-c", ASK_TWICE, json.dumps(pci_tree())],
        env=nvml.environment(nvml.scenario("h100", f"calls {file}")),
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip

    limit, none, width, kept, vbios = ended.stdout.split()
    assert (float(limit) > 0, none, int(width), kept, vbios != "None") == (True, "None", 16, "True", True)
    assert file.read_text().split().count("nvmlShutdown") == 3


def test_a_recording_keeps_all_parts_whatever_its_checks_read(tmp_path):
    host = RecordingHost(str(tmp_path), str(tmp_path))

    assert host.reading(frozenset(["power"])).parts is None


def test_nothing_is_asked_again_of_a_host_without_accelerators():
    host = FakeHost({"/proc/bus/pci/devices": ""})
    assert accelerators(host.reading(frozenset())).devices == accelerators(host).devices == ()
