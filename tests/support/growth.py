"""How the processor time of work grows with its size: a ratio, which hardly depends on the machine."""

from __future__ import annotations

import gc
import time


def growth(make, size, factor=4):
    """By how much the processor time of `make(size)()` grows where `size` does by `factor`: about `factor` if linear.

    The least of several runs of each, by turns: other work on the machine makes a run longer, never shorter.
    """
    small, large = make(size), make(size * factor)
    least = {small: float("inf"), large: float("inf")}
    for _turn in range(3):
        for work in least:
            gc.collect()
            gc.disable()  # as timeit does: what the collector costs depends on all that the process holds
            try:
                begun = time.process_time()
                work()
                least[work] = min(least[work], time.process_time() - begun)
            finally:
                gc.enable()
    return least[large] / least[small]


LINEAR = 8.0
"""What four times the work may cost: 4 to 5 where it is linear, with its sorting; 16 where it is quadratic."""
