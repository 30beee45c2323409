"""Which nodes are virtual machines."""

import pytest

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.virtualization import virtual

DMI = "/sys/class/dmi/id"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/cpuinfo": "flags\t\t: fpu hypervisor lm\n"}, True),
        ({"/proc/cpuinfo": "flags\t\t: fpu lm\n"}, False),
        ({f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m7g.large\n"}, True),
        ({f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "c7g.metal\n"}, False),
        ({f"{DMI}/sys_vendor": "Google\n", f"{DMI}/product_name": "Google Compute Engine\n"}, True),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation\n", f"{DMI}/product_name": "Virtual Machine\n"}, True),
        ({f"{DMI}/sys_vendor": "Supermicro\n", f"{DMI}/product_name": "ARS-111GL-NHR\n"}, False),
        ({"/sys/hypervisor/type": "xen\n"}, True),
        ({}, False),
    ],
)
def test_virtual(files, expected):
    assert virtual(FakeHost(files)) is expected
