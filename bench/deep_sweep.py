"""How long planning and judging a sweep of many nodes takes: python bench/deep_sweep.py [NODES] (default 100000)."""

from __future__ import annotations

import sys
import time

from nhc.deep.group_test import Rules
from nhc.deep.simulate import break_some, cluster, play

count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
nodes, topology = cluster(count, 32)
faults = break_some(nodes, topology, count // 200, 0, 0, seed=1)._replace(false_bad=0.001)
begun = time.process_time()
played = play(nodes, topology, faults, Rules(), seed=1)
took = time.process_time() - begun
assert played.convicted() >= faults.nodes, "a bad node was missed"
print(f"{count:,} nodes: {len(played.rounds)} rounds, {played.tests:,} tests played in {took:.1f} s CPU")
