"""What sweeps of many nodes cost here: planning and judging, reading the outputs of tests, and asking who is due.

    python bench/deep_sweep.py [NODES]      (default 100000; outputs and verdicts of a tenth of them)

CPU seconds of this process, on one core.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from nhc.deep.group_output import AskedMeasurement, GroupOutput, judged, read
from nhc.deep.group_test import GroupOutcome, Rules, Topology
from nhc.deep.simulate import break_some, cluster, play
from nhc.marks.policy.deep_due import DeepRule, due
from nhc.store import deep
from nhc.store.connect import open_store
from nhc.store.deep import DeepResult

HALF = "time  algbw  busbw #wrong"
GPUS = 8


def planning(count: int, nodes: list[str], topology: Topology) -> None:
    """Print what a whole sweep costs the planner and the judge."""
    faults = break_some(nodes, topology, count // 200, 0, 0, seed=1)._replace(false_bad=0.001)
    begun = time.process_time()
    played = play(nodes, topology, faults, Rules(), seed=1)
    took = time.process_time() - begun
    assert played.convicted() >= faults.nodes, "a bad node was missed"
    print(f"{count:,} nodes: {len(played.rounds)} rounds, {played.tests:,} tests played in {took:.1f} s CPU")


def output(pair: list[str], speed: float) -> str:
    """What nccl-tests prints of two nodes of eight GPUs, with NCCL's lines on the network."""
    ranks = [
        f"#  Rank {rank:2} Group  0 Pid  14{rank:03} on {pair[rank // GPUS]} device {rank % GPUS:2} [0000:1b:00] H100"
        for rank in range(2 * GPUS)
    ]
    said = [f"x:1:{rank} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>" for rank in range(16)]
    said += [f"x:1:{rank} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA" for rank in range(64)]
    algbw = speed * 16 / 30
    row = f"{8589934592 / 1000 / algbw:.0f}  {algbw:.2f}  {speed:.2f}  0"
    return "\n".join([
        "# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20",
        *ranks, *said, f"#  size  count  type   redop  root    {HALF}  {HALF}",
        f"  8589934592    2147483648     float     sum      -1    {row}    {row}",
        "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {speed:.2f}", "",
    ])  # fmt: skip


def reading(nodes: list[str]) -> None:
    """Print what reading and judging the outputs of a round of pairs costs."""
    asked = AskedMeasurement("all_reduce", 8 << 30, GPUS)
    pairs = [nodes[at : at + 2] for at in range(0, len(nodes) - 1, 2)]
    texts = [output(pair, 20.0 if at % 100 == 7 else 380.0) for at, pair in enumerate(pairs)]
    begun = time.process_time()
    found = [read(GroupOutput(0, text), pair, asked) for text, pair in zip(texts, pairs)]
    values = [one.value for one in found if one.value is not None]
    bad = 0
    for value in values[:200]:  # each is held to the median of all
        bad += judged(values, value, 0.0, 0.8)[0] is GroupOutcome.BAD
    took = time.process_time() - begun
    assert len(values) == len(pairs), next(one.why for one in found if one.value is None)
    assert bad == len(values[:200]) // 100
    size = sum(map(len, texts)) / 1e6
    print(f"{len(nodes):,} nodes: {len(pairs):,} outputs ({size:.0f} MB) read in {took:.1f} s CPU")


def asking(nodes: list[str]) -> None:
    """Print what it costs to know whose verdict is too old, from a store with ten runs of each node."""
    with tempfile.TemporaryDirectory() as place:
        store = open_store(f"sqlite:///{place}/store.db")
        with store.write() as connection:
            for day in range(10):
                deep.add(connection, [DeepResult(node, "sweep", "group", "", 380.0, "GB/s", "OK", "", day * 86400.0)
                                      for node in nodes])  # fmt: skip
        begun = time.process_time()
        with store.read() as connection:
            told = deep.last_conclusive(connection)
        late = due(nodes, told, DeepRule(), 10 * 86400.0)
        took = time.process_time() - begun
        some = nodes[:64]
        begun = time.process_time()
        with store.read() as connection:
            few = deep.last_conclusive(connection, some)
        one = time.process_time() - begun
        store.close()
    assert len(told) == len(nodes)
    assert not late
    assert len(few) == len(some)
    print(f"{len(nodes):,} nodes: who is due in {took:.2f} s CPU; of a job of 64 in {one * 1000:.0f} ms")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    nodes, topology = cluster(count, 32)
    planning(count, nodes, topology)
    reading(nodes[: count // 10])
    asking(nodes[: count // 10])


if __name__ == "__main__":
    main()
