import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.host import Completed
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.dmi import DmiUnreadable, NoDmi, dmidecode, parse_dmidecode, structures, virtual

DMIDECODE = """# dmidecode 3.3
Getting SMBIOS data from sysfs.
SMBIOS 3.2.0 present.
Table at 0x000E0000.

Handle 0x0000, DMI type 0, 26 bytes
BIOS Information
\tVendor: Dell Inc.
\tVersion: 2.10.2
\tCharacteristics:
\t\tISA is supported
\t\tPCI is supported
\tBIOS Revision: 2.10

Handle 0x1100, DMI type 17, 84 bytes
Memory Device
\tSize: 32 GB
\tLocator: A1
\tSpeed: 2933 MT/s

Handle 0x1101, DMI type 17, 84 bytes
Memory Device
\tSize: No Module Installed
\tLocator: A2

Handle 0xFEFF, DMI type 127, 4 bytes
End Of Table
"""


def test_entries_with_their_handles_types_and_names():
    found = parse_dmidecode(DMIDECODE)

    assert [(entry.handle, entry.type, entry.name) for entry in found] == [
        (0x0000, 0, "BIOS Information"),
        (0x1100, 17, "Memory Device"),
        (0x1101, 17, "Memory Device"),
        (0xFEFF, 127, "End Of Table"),
    ]


def test_properties_are_led_by_what_they_stand_under():
    assert parse_dmidecode(DMIDECODE)[0].lines == (
        "BIOS Information: Vendor: Dell Inc.",
        "BIOS Information: Version: 2.10.2",
        "BIOS Information: Characteristics:",
        "BIOS Information: Characteristics: ISA is supported",
        "BIOS Information: Characteristics: PCI is supported",
        "BIOS Information: BIOS Revision: 2.10",
    )


def test_a_machine_without_tables():
    host = FakeHost({}, {"dmidecode": "# dmidecode 3.3\n# No SMBIOS nor DMI entry point found, sorry.\n"})

    with pytest.raises(NoDmi):
        structures(host)


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (Completed(1, "# dmidecode 3.3\n", "/dev/mem: Permission denied\n"), "/dev/mem: Permission denied"),
        (Completed(0, "# dmidecode 3.3\n"), "# dmidecode 3.3"),
        (Completed(143, "", "", timed_out=True), "timed out"),
    ],
)
def test_what_went_wrong_is_said(ended, says):
    with pytest.raises(DmiUnreadable, match=says):
        dmidecode(FakeHost({}, {"dmidecode": ended}))


@given(st.text())
def test_junk_never_raises(text):
    parse_dmidecode(text)


@given(st.lists(st.sampled_from([*DMIDECODE.splitlines(), "\t\t\tdeep", " x", "Handle 0x1, DMI type 2, 4 bytes"])))
def test_lines_in_any_order_never_raise(lines):
    parse_dmidecode("\n".join(lines))


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
