"""Fragmentation of free memory."""

import pytest

from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import Completed, FakeHost
from nhc.node.facts.memory_pages import parse_buddyinfo
from tests.support.judge import judge, judge_all

WHOLE = """\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2
Node 0, zone    DMA32    100     50     10      5      4      3      2      1      1      1    700
Node 0, zone   Normal   1000    500    100     50     40     30     20     10     10     10  20000
"""
CUT = """\
Node 0, zone   Normal  900000 500000 100000     50      0      0      0      0      0      0      0
Node 1, zone   Normal   1000    500    100     50     40     30     20     10     10     10  20000
"""
TYPES = """\
Page block order: 9
Free pages count per migrate type at order       0      1
Node    0, zone   Normal, type    Unmovable      1      2
Number of blocks type     Unmovable      Movable  Reclaimable
Node 0, zone      DMA            3            5            0
Node 0, zone   Normal           57           30           5
"""


def test_the_index_is_the_share_that_no_large_block_can_come_from():
    (node,) = parse_buddyinfo("Node 0, zone   Normal   4   2   1   1\n")
    assert node.pages == 4 + 4 + 4 + 8
    assert node.unusable(3) == pytest.approx(12 / 20)
    assert node.unusable(2) == pytest.approx(8 / 20)
    assert node.blocks(1) == 2 + 2 + 4
    assert node.unusable(0) == 0


def test_zones_of_a_node_count_together_without_dma():
    (node,) = parse_buddyinfo(WHOLE)
    assert node.free[0] == 1100
    assert node.free[10] == 20700


def test_whole_and_cut_memory():
    assert judge(FakeHost({"/proc/buddyinfo": WHOLE}), "check_mem_fragmentation").verdict is Verdict.OK

    found = judge_all(FakeHost({"/proc/buddyinfo": CUT}), "check_mem_fragmentation")
    assert [(o.verdict, o.reason, o.target) for o in found] == [(Verdict.WARN, "MemoryFragmented", "node0")]
    assert judge(FakeHost({"/proc/buddyinfo": CUT}), "check_mem_fragmentation -c 99").verdict is Verdict.CRIT
    assert judge(FakeHost({"/proc/buddyinfo": CUT}), "check_mem_fragmentation -o 2").verdict is Verdict.OK


def test_a_node_with_little_free_memory_is_not_judged():
    host = FakeHost({"/proc/buddyinfo": CUT})

    assert judge(host, "check_mem_fragmentation -f 16G").verdict is Verdict.OK


@pytest.mark.parametrize(("limit", "expected"), [(60, Verdict.WARN), (61, Verdict.OK)])
def test_blocks_that_cannot_be_moved(limit, expected):
    host = FakeHost({"/proc/buddyinfo": WHOLE, "/proc/pagetypeinfo": TYPES})

    assert judge(host, f"check_mem_fragmentation -u {limit}").verdict is expected


@pytest.mark.parametrize(
    ("files", "line"),
    [({}, ""), ({"/proc/buddyinfo": "junk"}, ""), ({"/proc/buddyinfo": WHOLE}, "-o 11"),
     ({"/proc/buddyinfo": WHOLE}, "-u 10"), ({"/proc/buddyinfo": WHOLE, "/proc/pagetypeinfo": "junk"}, "-u 10")],
)  # fmt: skip
def test_what_cannot_be_told_is_unknown(files, line):
    assert judge(FakeHost(files), f"check_mem_fragmentation {line}").verdict is Verdict.UNKNOWN


GB = 1 << 20
"""In kB."""


def meminfo(available, total=256 * GB, slab=GB, shared=0):
    return (f"MemTotal: {total} kB\nMemFree: {available} kB\nMemAvailable: {available} kB\nShmem: {shared} kB\n"
            f"SUnreclaim: {slab} kB\n")  # fmt: skip


def slurm(available, cpus=0, memory=0, real=250000, special=0, **more):
    line = (f"NodeName=node001 Arch=x86_64 CoresPerSocket=32 CPUAlloc={cpus} CPUTot=64 CPULoad=0.01 "
            f"State=IDLE RealMemory={real} AllocMem={memory} MemSpecLimit={special} Reason=a b\n")  # fmt: skip
    return FakeHost({"/proc/meminfo": meminfo(available, **more)}, {"scontrol -o show node node001": line})


@pytest.mark.parametrize(
    ("host", "line", "verdict", "reason"),
    [
        (slurm(245 * GB), "check_mem_promised", Verdict.OK, ""),
        (slurm(200 * GB), "check_mem_promised", Verdict.WARN, "MemoryNotFreed"),
        (slurm(200 * GB), "check_mem_promised -c", Verdict.CRIT, "MemoryNotFreed"),
        (slurm(200 * GB), "check_mem_promised -s 60GB", Verdict.OK, ""),
        (slurm(200 * GB, special=50000), "check_mem_promised", Verdict.OK, ""),
        (slurm(20 * GB, cpus=8), "check_mem_promised", Verdict.OK, ""),
        (slurm(20 * GB, memory=1000), "check_mem_promised", Verdict.OK, ""),
        (FakeHost({"/proc/meminfo": meminfo(GB)}), "check_mem_promised", Verdict.SKIP, "NoScheduler"),
        (FakeHost({"/proc/meminfo": meminfo(GB)}, {"scontrol": Completed(1, "", "timed out")}), "check_mem_promised",
         Verdict.UNKNOWN, "SchedulerUntold"),
    ],
)  # fmt: skip
def test_an_idle_node_has_what_slurm_promises(host, line, verdict, reason):
    found = judge(host, line)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_who_holds_the_memory_is_said():
    found = judge(slurm(200 * GB, shared=30 * GB, slab=12 * GB), "check_mem_promised")
    assert "in files and shared memory 30GB, held by the kernel 12GB" in found.message


@pytest.mark.parametrize(
    ("slab", "line", "verdict"),
    [
        (10 * GB, "check_mem_kernel", Verdict.OK),
        (26 * GB, "check_mem_kernel", Verdict.WARN),
        (26 * GB, "check_mem_kernel -c 10%", Verdict.CRIT),
        (26 * GB, "check_mem_kernel -w 30GB", Verdict.OK),
    ],
)
def test_memory_that_the_kernel_does_not_give_back(slab, line, verdict):
    found = judge(FakeHost({"/proc/meminfo": meminfo(100 * GB, slab=slab)}), line)
    assert (found.verdict, found.reason) == (verdict, "" if verdict is Verdict.OK else "MemoryUnreclaimable")
