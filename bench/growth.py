"""Work on a whole fleet, whose cost must grow with the fleet and not with its square.

    python bench/growth.py [NODES]      (default 20000)

Prints the CPU seconds for so many nodes and for a quarter of them, and how much more a node costs in the larger fleet.
The baseline is 1: each node costs the same however many there are. Limit: 2, as sorting and a processor's caches cost.
"""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from tests.test_growth import bounding, deciding, folding, holding, judging, making_waves, requesting


def least(work) -> float:
    """The least CPU seconds of three runs."""
    took = []
    for _turn in range(3):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    ratios = []
    for name, make in [
        ("a policy's decision", deciding), ("folding a sweep", folding), ("judging a sweep, 20 % bad", judging),
        ("waves of a train", making_waves), ("holds of nodes", holding),
        ("bounds of marks", bounding), ("requests of persons", requesting),
    ]:  # fmt: skip
        small, large = least(make(count // 4)), least(make(count))
        ratios.append(large / small / 4)
        print(f"{name:28} {small:7.3f} s for {count // 4:,}, {large:7.3f} s for {count:,}: {ratios[-1]:.2f} a node")
    print(verdict("growth a node", max(ratios), 2.0))
    return int(max(ratios) > 2.0)


if __name__ == "__main__":
    sys.exit(main())
