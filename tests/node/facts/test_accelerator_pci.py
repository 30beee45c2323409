"""The PCI bus as the witness: which accelerators it shows, and what their links run at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.pci import accelerator_functions, generation, normal_address, parse_index, switch_functions
from nhc.node.facts.pcie import link_speed
from tests.support.nvml.fake import functions_tree, pci_tree


def test_vendors_and_devices_of_the_index():
    text = "0f00\t10de2330\t1a\t0\t0\tnvidia\n0100\t15b31021\t20\n"

    assert parse_index(text) == [(0x10DE, 0x2330), (0x15B3, 0x1021)]


@pytest.mark.thorough
@given(st.text())
def test_any_text_is_an_index_of_what_can_be_read(text):
    for vendor, device in parse_index(text):
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
