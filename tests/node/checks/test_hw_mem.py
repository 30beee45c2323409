import pytest

from nhc.core.check import BadArguments
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from tests.support.judge import judge

MEMINFO = (
    "MemTotal: 1000000 kB\nMemFree: 100000 kB\nMemAvailable: 350000 kB\nBuffers: 20000 kB\n"
    "Cached: 300000 kB\nSwapTotal: 200000 kB\nSwapFree: 150000 kB\n"
)


def node():
    return FakeHost({"/proc/meminfo": MEMINFO})


@pytest.mark.parametrize(
    "line",
    [
        "check_hw_physmem 1000000 1000000",
        "check_hw_physmem 1k 1TB",
        "check_hw_physmem 900000",
        "check_hw_physmem '' 2G",
        "check_hw_physmem 1050000 1050000 50000",
        "check_hw_physmem 1020000 1020000 2%",
        "check_hw_physmem",
        "check_hw_swap 0 200000",
        "check_hw_swap 1b 1TB",
        "check_hw_mem 1200000 1200000",
        "check_hw_mem 1236000 1300000 3%",
        "check_hw_physmem_free 420000",
        "check_hw_swap_free 150000",
        "check_hw_mem_free 570000",
        "check_hw_physmem_free 42%",
        "check_hw_swap_free 75%",
        "check_hw_mem_free 47.5%",
    ],
)
def test_enough_memory_passes(line):
    assert judge(node(), line).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("physmem 1000001", "Actual RAM size (1000000 kB) less than minimum allowed (1000001 kB)."),
        ("physmem 1k 999999", "Actual RAM size (1000000 kB) greater than maximum allowed (999999 kB)."),
        ("physmem 1050000 '' 49999", "Actual RAM size (1000000 kB) less than minimum allowed (1050000 kB)."),
        ("physmem '' 980000 1%", "Actual RAM size (1000000 kB) greater than maximum allowed (980000 kB)."),
        ("swap 1G", "Actual SWAP size (200000 kB) less than minimum allowed (1048576 kB)."),
        ("swap 0 0", "Actual SWAP size (200000 kB) greater than maximum allowed (0 kB)."),
        ("mem 1200001", "Actual system memory (1200000 kB) less than minimum allowed (1200001 kB)."),
        ("mem 0 1M", "Actual system memory (1200000 kB) greater than maximum allowed (1024 kB)."),
        ("physmem_free 420001", "Not enough RAM free (420000 kB < 420001 kB)."),
        ("swap_free 1G", "Not enough swap free (150000 kB < 1048576 kB)."),
        ("physmem_free 43%", "Not enough RAM free (420000 kB < 430000 kB, 43 % of 1000000 kB)."),
        ("swap_free 76%", "Not enough swap free (150000 kB < 152000 kB, 76 % of 200000 kB)."),
        ("mem_free 48%", "Not enough free memory (570000 kB < 576000 kB, 48 % of 1200000 kB)."),
        ("mem_free 570001", "Not enough free memory (570000 kB < 570001 kB)."),
    ],
)
def test_memory_outside_its_limits_fails(line, message):
    outcome = judge(node(), f"check_hw_{line}")

    assert (outcome.verdict, outcome.message) == (Verdict.CRIT, message)


def test_one_byte_of_swap_is_more_than_none():
    host = FakeHost({"/proc/meminfo": MEMINFO.replace("SwapTotal: 200000", "SwapTotal: 0")})

    assert judge(host, "check_hw_swap 1b 1TB").verdict is Verdict.CRIT


def test_the_numbers_are_reported_in_bytes():
    metrics = {metric.name: metric.value for metric in judge(node(), "check_hw_physmem_free 1").metrics}

    assert metrics == {"memory_free": 420000 * 1024, "memory_available": 350000 * 1024}


def test_a_meminfo_that_cannot_be_read_is_unknown():
    assert judge(FakeHost(), "check_hw_physmem 1k").verdict is Verdict.UNKNOWN
    assert judge(FakeHost({"/proc/meminfo": "junk\n"}), "check_hw_mem_free 1k").reason == "MeminfoUnreadable"
    assert judge(FakeHost({"/proc/meminfo": "junk\n"}), "check_hw_swap 1k").reason == "MeminfoUnreadable"


@pytest.mark.parametrize("line", ["check_hw_physmem lots", "check_hw_swap_free", "check_hw_mem 1 2 200%"])
def test_bad_sizes_are_refused(line):
    with pytest.raises(BadArguments):
        judge(node(), line)


@pytest.mark.parametrize("value", ["101%", "-1%", "x%", "%"])
def test_a_share_that_is_none_is_a_mistake(value):
    with pytest.raises(BadArguments, match="is not a percentage"):
        judge(node(), f"check_hw_physmem_free {value}")
