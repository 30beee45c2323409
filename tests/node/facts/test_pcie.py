"""PCIe's files in sysfs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost, Symlink
from nhc.node.facts.pci import parse_speed
from nhc.node.facts.pcie import links, parse_aer

AER = """\
RxErr 3
BadTLP 0
BadDLLP 1
Rollover 0
Timeout 0
NonFatalErr 0
CorrIntErr 0
HeaderOF 0
TOTAL_ERR_COR 4
"""


@pytest.mark.parametrize(("text", "speed"), [
    ("16.0 GT/s PCIe\n", 16.0), ("8 GT/s\n", 8.0), ("2.5 GT/s PCIe", 2.5), ("Unknown", 0.0), ("", 0.0),
])  # fmt: skip
def test_speeds_of_old_and_new_kernels(text, speed):
    assert parse_speed(text) == speed


def test_aer_total_and_names():
    found = parse_aer(AER)

    assert (found["TOTAL"], found["RxErr"], found["BadDLLP"]) == (4, 3, 1)


def test_aer_names_may_hold_blanks():
    assert parse_aer("Undefined 0\nMalformed TLP 2\nTOTAL_ERR_FATAL 2\n")["Malformed TLP"] == 2


@given(st.text())
def test_never_fails(text):
    parse_aer(text)
    parse_speed(text)


def test_a_link_can_do_what_both_ends_can():
    base = "/sys/devices/pci0000:00/0000:00:01.0"
    host = FakeHost(
        {
            f"{base}/class": "0x060400", f"{base}/max_link_width": "8", f"{base}/max_link_speed": "8.0 GT/s PCIe",
            f"{base}/0000:01:00.0/class": "0x020000",
            f"{base}/0000:01:00.0/max_link_width": "16", f"{base}/0000:01:00.0/max_link_speed": "16.0 GT/s PCIe",
            f"{base}/0000:01:00.0/current_link_width": "8",
            f"{base}/0000:01:00.0/current_link_speed": "8.0 GT/s PCIe",
            "/sys/bus/pci/devices/0000:00:01.0": Symlink("../../../devices/pci0000:00/0000:00:01.0"),
            "/sys/bus/pci/devices/0000:01:00.0": Symlink("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"),
        }
    )  # fmt: skip

    found = links(host)

    assert [(link.address, link.width, link.best_width, link.best_speed) for link in found] == [
        ("0000:01:00.0", 8, 8, 8.0)
    ]
