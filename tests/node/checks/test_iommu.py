"""Whether the IOMMU translates what accelerators and RDMA adapters read and write."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost, Symlink
from tests.support.judge import judge
from tests.support.nvml.fake import pci_tree

GPUS = ("0000:0f:00.0", "0000:2d:00.0")
NIC = "0000:01:00.0"
BUS = "/sys/bus/pci/devices"


def node(kind="identity", nic="identity", cmdline="quiet", **more):
    """Two GPUs and an adapter; a group of kind None is there and does not tell its kind, "" means no group."""
    files = {**pci_tree(GPUS), "/proc/cmdline": f"{cmdline}\n"}
    for number, (address, of) in enumerate(((GPUS[0], kind), (GPUS[1], kind), (NIC, nic))):
        files[f"/sys/devices/pci0000:00/{address}/vendor"] = "0x0000\n"
        if of != "":
            files[f"{BUS}/{address}/iommu_group/devices/x"] = ""
            if of:
                files[f"{BUS}/{address}/iommu_group/type"] = f"{of}\n"
        files[f"/sys/kernel/iommu_groups/{number}/x"] = ""
    files["/sys/class/infiniband/mlx5_0/device"] = Symlink(f"../../../devices/pci0000:00/{NIC}")
    return FakeHost({**files, **more})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (node(), Verdict.OK),
        (node("", ""), Verdict.OK),  # no IOMMU at all
        (node("DMA-FQ"), Verdict.WARN),
        (node(nic="DMA"), Verdict.WARN),
        (node(None, None, "quiet iommu=pt"), Verdict.OK),
        (node(None, None, "iommu.passthrough=1"), Verdict.OK),
        (node(None, None), Verdict.UNKNOWN),
        (FakeHost({"/proc/bus/pci/devices": "", "/proc/cmdline": "\n"}), Verdict.SKIP),
    ],
)
def test_by_the_kind_of_each_devices_group(host, expected):
    assert judge(host, "check_iommu").verdict is expected


def test_what_a_virtual_machine_has_is_left_out():
    guests = {f"{BUS}/{address}/driver": Symlink("../../../../bus/pci/drivers/vfio-pci") for address in GPUS}
    assert judge(node("DMA", **guests), "check_iommu").verdict is Verdict.OK


def test_the_message_names_the_devices():
    found = judge(node(nic="DMA"), "check_iommu")
    assert (found.reason, NIC in found.message, GPUS[0] in found.message) == ("IommuTranslates", True, False)
