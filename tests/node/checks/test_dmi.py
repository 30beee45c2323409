import pytest

from nhc.core.check import BadArguments
from nhc.core.host import Completed
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge

DMIDECODE = """# dmidecode 3.2
SMBIOS 3.2.0 present.

Handle 0x0000, DMI type 0, 26 bytes
BIOS Information
\tVendor: Dell Inc.
\tVersion: 2.10.2
\tCharacteristics:
\t\tPCI is supported

Handle 0x0100, DMI type 1, 27 bytes
System Information
\tProduct Name: PowerEdge C6420

Handle 0x0400, DMI type 4, 48 bytes
Processor Information
\tSocket Designation: CPU1
\tVersion: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz
\tStatus: Populated, Enabled

Handle 0x0401, DMI type 4, 48 bytes
Processor Information
\tSocket Designation: CPU2
\tStatus: Unpopulated
"""


def node(answer=DMIDECODE):
    return FakeHost({}, {"dmidecode": answer})


@pytest.mark.parametrize(
    "line",
    [
        "data_match 'BIOS Information: Version: 2.10.2'",
        "data_match BIOS Information: Version: 2.10.2",
        "data_match '*PCI is supported'",
        "data_match -t 0 '/Version: 2\\.1/'",
        "data_match -t 'System Information' '*PowerEdge*'",
        "data_match -h 0x0400 '*Populated*'",
        "data_match -h '0x0000 1025' '*Unpopulated'",
        "data_match -t 4 -h 0x0401 '*Unpopulated'",
        "data_match -! '*Quantum*'",
        "data_match -n -t 1 '*Version*'",
        "data_match ! '*Quantum*'",
        "raw_data_match 'Version: 2.10.2'",
        "raw_data_match 'Handle 0x0401*'",
        "raw_data_match '/^\tProduct Name/'",
        "raw_data_match ! '*Quantum*'",
    ],
)
def test_what_the_firmware_says_passes(line):
    assert judge(node(), f"check_dmi_{line}").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("data_match '*Quantum*'", "No match found for *Quantum*"),
        ("data_match 'Version: 2.10.2'", "No match found for Version: 2.10.2"),
        ("data_match -t 1 '*Version*'", "No match found for *Version*"),
        (
            "data_match -! '*Unpopulated'",
            "Match found for *Unpopulated:  Processor Information: Status: Unpopulated",
        ),
        ("data_match -t 99 '*'", "No valid DMI handles found"),
        ("data_match -t BIOS '*'", "No valid DMI handles found"),
        ("data_match -h 0x9999 '*'", "No valid DMI handles found"),
        ("data_match -n -h 0x9999 '*'", "No valid DMI handles found"),
        ("raw_data_match 'Version: 1.0'", "No match found for Version: 1.0"),
        ("raw_data_match ! 'Status: Unpopulated'", "Match found for Status: Unpopulated:  Status: Unpopulated"),
    ],
)
def test_what_it_does_not_say_fails(line, message):
    outcome = judge(node(), f"check_dmi_{line}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


@pytest.mark.parametrize("line", ["check_dmi_data_match '*'", "check_dmi_raw_data_match ! x"])
def test_tables_that_cannot_be_read_are_never_ok(line):
    assert judge(FakeHost(), line).reason == "CommandMissing"
    assert judge(node(Completed(1, "", "/dev/mem: Permission denied\n")), line).reason == "DmiUnreadable"
    nothing = judge(node("# dmidecode 3.3\n# No SMBIOS nor DMI entry point found, sorry.\n"), line)
    assert (nothing.verdict, nothing.reason) == (Verdict.SKIP, "NoDmi")


def test_dmidecode_runs_once_for_several_checks():
    host = node()
    for line in ("check_dmi_data_match '*'", "check_dmi_raw_data_match '*'", "check_dmi_data_match -t 0 '*'"):
        judge(host, line)

    assert host.system.ran == [("dmidecode",)]


@pytest.mark.parametrize("line", ["check_dmi_data_match", "check_dmi_raw_data_match", "check_dmi_data_match -h x '*'"])
def test_bad_arguments_are_refused(line):
    with pytest.raises(BadArguments):
        judge(node(), line)


def test_a_negation_of_nothing_is_refused():
    assert judge(node(), "check_dmi_data_match !").reason == "BadArguments"
    assert judge(node(), "check_dmi_raw_data_match !").reason == "BadArguments"
