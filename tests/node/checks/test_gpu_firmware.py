"""Driver, VBIOS and InfoROM: as expected, and the same on every GPU of a model."""

from nhc.core.model import Action, Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.gpu_firmware import check_gpu_inforom
from tests.support.nvml.fake import pci_tree


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


def test_the_driver_expected(nvml):
    assert not bad(nvml.one("a100", "check_gpu_driver 535.161.08"))
    assert not bad(nvml.one("a100", "check_gpu_driver '535.*'"))
    found = nvml.one("a100", "check_gpu_driver 550.54.15")
    assert {outcome.reason for outcome in bad(found)} == {"GpuDriverUnexpected"}


def test_mixed_vbios(nvml):
    outcome = only(nvml.one("a100", "check_vbios_version", "5.vbios 92.00.45.00.05"))

    assert (outcome.verdict, outcome.reason) == (Verdict.CRIT, "GpuVbiosMixed")
    assert "92.00.45.00.05 on gpu5" in outcome.message


def test_the_vbios_expected(nvml):
    assert not bad(nvml.one("a100", "check_vbios_version 92.00.9E.00.03"))
    assert len(bad(nvml.one("a100", "check_vbios_version 92.00.45.00.05"))) == 8


def test_boards_of_two_models_may_differ(nvml):
    assert not bad(nvml.one("a100", "check_vbios_version", "7.name NVIDIA A30", "7.vbios 92.00.66.00.02"))


def test_a_version_that_cannot_be_read_is_unknown(nvml):
    assert only(nvml.one("a100", "check_vbios_version", "5.vbios error 999")).verdict is Verdict.UNKNOWN


def test_a_corrupted_inforom(nvml):
    outcome = only(nvml.one("h100", "check_gpu_inforom", "2.inforom_valid error 14"))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, "GpuInforomCorrupt", "gpu2")
    assert outcome.action is Action.REPLACE
    assert not bad(nvml.one("h100", "check_gpu_inforom -q", "2.inforom_valid error 14"))


def test_an_inforom_that_cannot_be_verified(nvml):
    assert only(nvml.one("h100", "check_gpu_inforom", "2.inforom_valid error 999")).verdict is Verdict.UNKNOWN
    assert not bad(nvml.one("h100", "check_gpu_inforom", "*.inforom_valid error 3"))


def test_an_inforom_of_which_nvml_said_nothing_is_unknown():
    host = FakeHost(pci_tree(["0000:0f:00.0"]))
    device = {"index": 0, "uuid": "GPU-1", "pci": {"busId": "00000000:0F:00.0"}, "inforom": "G520.0200.00.05"}
    host.system.answers["nvml"] = {"driver": "570.124.06", "devices": [device]}
    host.system.answers["nvml-inforom"] = {"devices": [None]}
    assert not bad(check_gpu_inforom(host))

    host.forget()
    host.system.answers["nvml-inforom"] = {"devices": []}
    assert only(check_gpu_inforom(host)).verdict is Verdict.UNKNOWN


def test_mixed_inforoms(nvml):
    assert only(nvml.one("h100", "check_gpu_inforom", "0.inforom G520.0200.00.04")).reason == "GpuInforomMixed"


def test_the_driver_of_another_version_than_its_library(nvml):
    outcome = only(nvml.one("h100", "check_gpu_driver", "init error 18", files=pci_tree()))

    assert (outcome.reason, outcome.action) == ("GpuDriverMismatch", Action.REBOOT)
