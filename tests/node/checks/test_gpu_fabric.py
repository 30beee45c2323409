"""The NVLink fabric, NVSwitches and the fabric manager."""

import pytest

from nhc.core.model import Action, Verdict
from tests.support.nvml.fake import pci_tree


def bad(outcomes):
    return [outcome for outcome in outcomes if outcome.verdict > Verdict.OK]


def only(outcomes):
    [outcome] = bad(outcomes)
    return outcome


@pytest.mark.parametrize(
    ("fabric", "reason", "words"),
    [
        ("1 0 0 0 0", "FabricNotReady", "not-started"),
        ("2 0 0 0 0", "FabricNotReady", "in-progress"),
        ("3 999 0 0 0", "FabricError", "an unknown error"),
        ("3 0 0 0x1a9 1", "FabricUnhealthy", "bandwidth is degraded"),
        ("3 0 0 0x19a 2", "FabricUnhealthy", "a route is unhealthy"),
        ("3 0 0 0x1a6 1", "FabricUnhealthy", "a route recovery is in progress"),
        ("3 0 0 0x5aa 2", "FabricUnhealthy", "too few NVLinks"),
        ("3 0 0 0x21aa 2", "FabricUnhealthy", "no partition is assigned"),
        ("3 0 0 0x81aa 2", "FabricUnhealthy", "the global fabric manager is disconnected"),
        ("3 0 0 0 2", "FabricUnhealthy", "does not say why"),
    ],
)
def test_a_gpu_outside_the_fabric_or_an_unhealthy_fabric(nvml, fabric, reason, words):
    outcome = only(nvml.one("h100", "check_gpu_fabric", f"3.fabric {fabric}"))

    assert (outcome.verdict, outcome.reason, outcome.target) == (Verdict.CRIT, reason, "gpu3")
    assert words in outcome.message


@pytest.mark.parametrize("summary", [3, 7])
def test_limited_capacity_and_a_summary_newer_than_this_list_warn(nvml, summary):
    outcome = only(nvml.one("h100", "check_gpu_fabric", f"3.fabric 3 0 0 0x1aa {summary}"))

    assert (outcome.verdict, outcome.reason) == (Verdict.WARN, "FabricLimited")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_form_of_the_fabric_state_is_understood(nvml, version):
    """Older drivers know older structures only."""
    healthy = nvml.one("h100", "check_gpu_fabric", f"*.fabric_version {version}")
    sick = only(nvml.one("h100", "check_gpu_fabric", f"*.fabric_version {version}", "1.fabric 1 0 0 0 0"))

    assert {outcome.verdict for outcome in healthy} == {Verdict.OK}
    assert sick.reason == "FabricNotReady"


def test_gpus_of_one_node_in_two_domains(nvml):
    assert only(nvml.one("h100", "check_gpu_fabric", "4.fabric 3 0 9 0x1aa 1")).reason == "FabricSplit"
    assert only(nvml.one("h100", "check_gpu_fabric", "4.fabric_cluster 8")).reason == "FabricSplit"


def test_switches_without_a_fabric_manager(nvml):
    files = pci_tree(switches=6)

    stopped = nvml.one(
        "a100", "check_fabric_manager", files=files, commands={"systemctl is-active": [3, "inactive\n", ""]}
    )
    assert stopped[0].verdict is Verdict.UNKNOWN, "without systemd's word and without /proc nothing is known"

    files["/proc/1/comm"] = "systemd\n"
    down = only(
        nvml.one("a100", "check_fabric_manager", files=files, commands={"systemctl is-active": [3, "failed\n", ""]})
    )
    assert (down.verdict, down.reason) == (Verdict.CRIT, "FabricManagerDown")


def test_the_fabric_manager_is_found_by_its_process_where_there_is_no_systemd(nvml):
    files = {**pci_tree(switches=4), "/proc/1/comm": "init\n", "/proc/812/comm": "nv-fabricmanage\n"}

    assert nvml.one("h100", "check_fabric_manager", files=files)[0].verdict is Verdict.OK


def test_a_missing_switch(nvml):
    found = nvml.one(
        "a100", "check_fabric_manager -n 6", files=pci_tree(switches=5), commands={"systemctl is-active": "active\n"}
    )

    assert (only(found).reason, only(found).action) == ("NvswitchMissing", Action.REBOOT)
    assert "5 NVSwitches on the PCI bus, 6 expected" in only(found).message


def test_without_a_switch_on_the_bus_the_registration_of_the_gpus_tells(nvml):
    """On Blackwell the switches are not the node's PCI devices."""
    (found,) = nvml.one("b200", "check_fabric_manager")
    assert found.verdict is Verdict.OK
    assert "have joined" in found.message
    files = {**pci_tree(), "/proc/1/comm": "systemd\n"}
    down = only(nvml.one("b200", "check_fabric_manager", "*.fabric 1 0 0 0 0", files=files,
                         commands={"systemctl is-active": [3, "inactive\n", ""]}))  # fmt: skip
    assert (down.verdict, down.reason, down.action) == (Verdict.CRIT, "FabricManagerDown", Action.RELOAD_DRIVER)
    files = {**pci_tree(), "/proc/812/comm": "nv-fabricmanage\n"}
    waits = only(nvml.one("b200", "check_fabric_manager", "2.fabric 2 0 0 0 0", files=files))
    assert (waits.verdict, waits.reason) == (Verdict.CRIT, "FabricNotReady")
    assert "gpu2 (in-progress)" in waits.message


def test_no_switch_and_no_fabric_is_skipped_unless_switches_are_expected(nvml):
    assert nvml.one("v100", "check_fabric_manager")[0].verdict is Verdict.SKIP
    assert nvml.one("a100", "check_fabric_manager -n 6")[0].reason == "NvswitchMissing"
