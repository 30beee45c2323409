import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.meminfo import memory, parse_meminfo

MEMINFO = """MemTotal:       263850508 kB
MemFree:        243511876 kB
MemAvailable:   255012344 kB
Buffers:            2140 kB
Cached:         13116288 kB
SwapCached:            0 kB
Active(anon):     402124 kB
Shmem:            401904 kB
SwapTotal:       4194300 kB
SwapFree:        4190000 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""


def test_the_fields_that_are_judged():
    found = memory(FakeHost({"/proc/meminfo": MEMINFO}))

    assert found.total == 263850508
    assert found.reclaimable == 243511876 + 2140 + 13116288
    assert (found.available, found.swap_total, found.swap_free) == (255012344, 4194300, 4190000)


def test_a_kernel_without_an_estimate():
    found = memory(FakeHost({"/proc/meminfo": "MemTotal: 10 kB\nMemFree: 4 kB\n"}))

    assert found.available is None
    assert found.swap_total == 0


def test_names_with_brackets_and_counts_without_a_unit():
    values = parse_meminfo(MEMINFO)

    assert values["Active(anon)"] == 402124
    assert values["HugePages_Total"] == 0


def test_a_file_without_the_total_is_refused():
    with pytest.raises(ValueError, match="MemTotal"):
        memory(FakeHost({"/proc/meminfo": "MemFree: 4 kB\n"}))


@given(st.text())
def test_junk_never_raises(text):
    assert all(value >= 0 for value in parse_meminfo(text).values())
