"""Work on a whole fleet, whose cost must grow with the fleet and not with its square.

    python bench/growth.py [NODES]      (default 20000)

Prints the CPU seconds for so many nodes and for a quarter of them, and how much more a node costs in the larger fleet.
The baseline is 1: each node costs the same however many there are. Limit: 2, as sorting and a processor's caches cost.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from typing import Callable

import sqlalchemy as sa

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench.common import verdict
from nhc.store.connect import open_store
from nhc.store.retention import RetentionPeriods, prune
from nhc.store.schema import report_history
from tests.test_growth import bounding, deciding, folding, holding, judging, making_waves, requesting


def least(work) -> float:
    """The least CPU seconds of three runs."""
    took = []
    for _turn in range(3):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def pruning(count: int, place: str) -> Callable[[], object]:
    """The next 20,000 rows of a history of so many grow too old."""
    store = open_store(f"sqlite:///{place}/{count}.db", anchor=f"{place}/{count}.anchor")
    row = {"boot_id": "b", "verdict": "OK", "source": "agent", "digest": "d" * 32, "report": os.urandom(450)}
    with store.write() as connection:
        for first in range(0, count, 10_000):
            rows = [
                {"node": f"n{at * 7919 % 1000}", "started": float(at), **row} for at in range(first, first + 10_000)
            ]
            connection.execute(sa.insert(report_history), rows)
    steps = itertools.count(1)
    keep = RetentionPeriods(history=1.0)

    def work() -> None:
        done = prune(store, keep, next(steps) * 20_000.0 + keep.history, segments=place, by="bench")
        assert done.rows["report_history"] == 20_000, done

    return work


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
    with tempfile.TemporaryDirectory() as place:
        small, large = least(pruning(80_000, place)), least(pruning(320_000, place))
    ratios.append(large / small)
    print(f"{'pruning 20,000 rows':28} {small:7.3f} s of 80,000, {large:7.3f} s of 320,000: {ratios[-1]:.2f} a row")
    print(verdict("growth a node", max(ratios), 2.0))
    return int(max(ratios) > 2.0)


if __name__ == "__main__":
    sys.exit(main())
