"""The PCI bus as the witness: which accelerators it shows, and what their links run at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.pci import (
    accelerator_functions,
    generation,
    normal_address,
    other_accelerators,
    switch_functions,
)
from nhc.node.facts.pci_index import may_accelerate, parse_index
from nhc.node.facts.pcie import link_speed
from tests.support.nvml.fake import functions_tree, index_line, pci_tree


def test_vendors_and_devices_of_the_index():
    text = index_line("0000:0f:1e.3", 0x10DE, 0x2330, "nvidia") + "0100\t15b31021\t20\nnonsense\n"

    assert parse_index(text) == [
        ("0f:1e.3", 0x10DE, 0x2330, 1 << 24, "nvidia"),
        ("01:00.0", 0x15B3, 0x1021, None, ""),
    ]


@pytest.mark.thorough
@given(st.text())
def test_any_text_is_an_index_of_what_can_be_read(text):
    for _place, vendor, device, _memory, _driver in parse_index(text):
        assert 0 <= vendor < 1 << 16
        assert 0 <= device < 1 << 16


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("00000000:0F:00.0", "0000:0f:00.0"),
        ("00010001:00:00.0", "10001:00:00.0"),
        ("cc:00.0", "0000:cc:00.0"),
        ("0001:00:00.0", "0001:00:00.0"),
        ("", ""),
    ],
)
def test_addresses_in_sysfs_form(written, address):
    assert normal_address(written) == address


def test_gpus_switches_and_others_are_told_apart():
    host = FakeHost(pci_tree(switches=4))

    assert len(accelerator_functions(host)) == 8
    assert len(switch_functions(host)) == 4


def test_the_accelerators_of_every_vendor():
    host = FakeHost(
        functions_tree(
            [
                ("0000:0f:00.0", 0x10DE, 0x2330, 0x030200),
                ("0000:c1:00.0", 0x1002, 0x74A1, 0x120000),
                ("0000:33:00.0", 0x1DA3, 0x1020, 0x120000),
                ("0000:00:1e.0", 0x1D0F, 0x7164, 0x088000),
                ("0000:00:05.0", 0x1D0F, 0xEC20, 0x020000),
                ("0000:c1:00.1", 0x1002, 0xAB28, 0x040300),
            ]
        )
    )

    assert [f.vendor_name for f in accelerator_functions(host)] == ["neuron", "nvidia", "gaudi", "amd"]


GB = 1 << 30


@pytest.mark.parametrize(
    ("vendor", "device", "class_code", "driver", "mapped", "counts"),
    [
        (0x8086, 0x0BD5, 0x038000, "xe", 128 * GB, True),  # Intel's Max 1550
        (0x8086, 0x0BD5, 0x038000, "", 128 * GB, True),  # the same without a driver
        (0x1ED5, 0x0400, 0x030000, "mtgpu", 64 * GB, True),  # Moore Threads
        (0x19E5, 0xD802, 0x120000, "devdrv_device_driver", 1 << 20, True),  # Huawei's Ascend
        (0x1E52, 0x401E, 0x120000, "", 1 << 29, True),  # Tenstorrent
        (0x1D0F, 0xF010, 0x120000, "", 1 << 27, True),  # Amazon's FPGA
        (0x1E36, 0x0003, 0x030200, "gcu", 1 << 20, True),  # a 3D controller of Enflame
        (0x8086, 0x3E96, 0x038000, "i915", 256 << 20, False),  # graphics inside a Xeon E
        (0x1A03, 0x2000, 0x030000, "", 64 << 20, False),  # a management controller's screen
        (0x15AD, 0x0405, 0x030000, "vmwgfx", 128 << 20, False),  # a virtual machine's
        (0x8086, 0x0B25, 0x088000, "idxd", 1 << 17, False),  # moves data and computes nothing
        (0x10EE, 0x5004, 0x120000, "vfio-pci", 1 << 27, False),  # a guest's
        (0x1D0F, 0xEC20, 0x020000, "ena", 1 << 20, False),
    ],
)
def test_an_accelerator_is_known_by_its_class_whoever_made_it(vendor, device, class_code, driver, mapped, counts):
    address = "0000:3a:00.0"
    base = f"/sys/bus/pci/devices/{address}"
    files = functions_tree([(address, vendor, device, class_code)])
    files["/proc/bus/pci/devices"] = index_line(address, vendor, device, driver, mapped)
    files[f"{base}/resource"] = f"0x0 0x0 0x0\n{0x3800000000:#x} {0x3800000000 + mapped - 1:#x} 0x14220c\n"
    if driver:
        files[f"{base}/driver"] = Symlink(f"../../../bus/pci/drivers/{driver}")

    for index in (files["/proc/bus/pci/devices"], None):
        if index is None:
            del files["/proc/bus/pci/devices"]
        host = FakeHost(files)
        assert [f.address for f in other_accelerators(host)] == [address] * counts
        assert accelerator_functions(host) == ()


def test_a_neuron_device_newer_than_the_list_is_known_by_its_driver():
    address = "0000:00:1e.0"
    files = functions_tree([(address, 0x1D0F, 0x7999, 0x088000)], "neuron")
    files[f"/sys/bus/pci/devices/{address}/driver"] = Symlink("../../../bus/pci/drivers/neuron")

    assert [f.vendor_name for f in accelerator_functions(FakeHost(files))] == ["neuron"]


def test_functions_inside_a_processor_and_of_known_drivers_need_no_look():
    lines = index_line("0000:7f:08.0", 0x8086, 0x3450, "", 0) + index_line("0000:01:00.0", 0x144D, 0xA80A, "nvme")

    assert [may_accelerate(each) for each in parse_index(lines)] == [False, False]


def test_without_the_index_the_directory_tells():
    files = pci_tree()
    del files["/proc/bus/pci/devices"]

    assert len(accelerator_functions(FakeHost(files))) == 8


def test_driver_and_numa_node():
    base = "/sys/bus/pci/devices/0000:0f:00.0"
    files = pci_tree(["0000:0f:00.0"])
    files[f"{base}/driver"] = Symlink("../../../bus/pci/drivers/nvidia")
    files[f"{base}/numa_node"] = "-1\n"

    [function] = accelerator_functions(FakeHost(files))

    assert (function.driver, function.numa) == ("nvidia", None)


@pytest.mark.parametrize(
    ("speed", "expected"),
    [("16.0 GT/s PCIe", 4), ("2.5 GT/s PCIe", 1), ("32.0 GT/s PCIe", 5), ("8 GT/s", 3), ("Unknown", None)],
)
def test_generations(speed, expected):
    assert generation(speed) == expected


def test_a_link_that_reads_as_all_ones_has_no_width():
    base = "/sys/bus/pci/devices/0000:0f:00.0"
    host = FakeHost({f"{base}/current_link_width": "63\n", f"{base}/max_link_width": "16\n"})

    assert link_speed(host, "0000:0f:00.0").width is None
