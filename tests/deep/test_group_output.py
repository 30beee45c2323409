"""What one run over several nodes says: a warning is no failure, and one rank on TCP is no slow node."""

import pytest

from nhc.deep.group_output import AskedMeasurement, GroupOutput, read
from nhc.deep.group_test import GroupOutcome
from tests.deep.test_sweep import output

ASKED = AskedMeasurement("all_reduce", 8 << 30, 1)
GOOD = output(["a", "b"])
CUT = GOOD[: GOOD.index("  8589934592")]
"""The header is there, and no figure."""
WARNINGS = (
    "a:1:2 [0] NCCL WARN NUMA Auto balancing enabled which can lead to variability in the RCCL performance!",
    'a:1:2 [0] NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instability or hang!',
)


@pytest.mark.parametrize("line", WARNINGS)
def test_a_warning_of_a_run_that_was_good_convicts_nobody(line):
    assert read(GroupOutput(0, f"{line}\n{GOOD}"), ["a", "b"], ASKED).value == 380.0
    found = read(GroupOutput(1, f"{line}\n{CUT}"), ["a", "b"], ASKED)
    assert (found.value, found.seen) == (None, GroupOutcome.UNKNOWN)
    assert line[:40] in found.why


@pytest.mark.parametrize(
    "line",
    [
        "a: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '",
        "a: Test CUDA failure common.cu:941 'uncorrectable ECC error encountered'",
        "a: Test timeout (300s) common.cu:560",
    ],
)
def test_a_test_that_broke_off_is_bad_and_its_own_line_says_why(line):
    found = read(
        GroupOutput(3, f"{WARNINGS[0]}\n{CUT}{line}\n .. a pid 7: Test failure common.cu:915\n"), ["a", "b"], ASKED
    )
    assert (found.seen, found.why) == (GroupOutcome.BAD, line)


def test_memory_that_somebody_else_has_says_nothing_of_the_nodes():
    line = "b: Test CUDA failure common.cu:941 'out of memory'\n .. b pid 7: Test failure common.cu:915\n"
    found = read(GroupOutput(2, CUT + line), ["a", "b"], ASKED)
    assert found.seen is GroupOutcome.UNKNOWN
    assert "out of memory" in found.why


def test_one_rank_on_tcp_is_a_fault_of_the_configuration():
    """The other rank says IB: the figure is that of TCP all the same."""
    for line in (
        "b:1:2 [0] NCCL INFO Using network Socket",
        "b:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0",
    ):
        found = read(GroupOutput(0, f"{line}\n{GOOD}"), ["a", "b"], ASKED)
        assert (found.value, found.seen) == (None, GroupOutcome.UNKNOWN)
        assert "not by the fabric" in found.why
    made_ready = "b:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>"
    assert read(GroupOutput(0, f"{made_ready}\n{GOOD}"), ["a", "b"], ASKED).value == 380.0
