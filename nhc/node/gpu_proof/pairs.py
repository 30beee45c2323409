"""Copies between GPUs that reach each other: each way of each pair, compared and timed.

One process sees all of them, after each has been proved by itself.
"""

from __future__ import annotations

import time
from ctypes import c_ulonglong
from itertools import permutations

from nhc.core.light import TYPE_CHECKING
from nhc.node.gpu_proof import patterns

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping

    from nhc.node.gpu_proof.driver import Driver, Gpu

SIZE = 64 << 20
"""Bytes of a copy."""


def prove(driver: Driver, seed: int, step: Callable[[str], None]) -> List[Dict[str, Any]]:
    """What each copy between two GPUs gave: `from` and `to` by PCI address, bytes a second, how often it was wrong.

    Pairs that do not reach each other are left out. Raises DriverError, NoDriver.
    """
    step("making contexts")
    gpus = driver.gpus()
    copies: List[Dict[str, Any]] = []
    places: List[c_ulonglong] = []
    for gpu in gpus:
        gpu.use()
        gpu.load(next(iter(gpu.texts()[0])), patterns.KERNELS)
        places.append(gpu.allocate(2 * SIZE))
    for first, second in permutations(range(len(gpus)), 2):
        if gpus[first].reaches(gpus[second]):
            step(f"copying from {gpus[first].pci} to {gpus[second].pci}")
            copies.append(_copy(gpus[first], places[first], gpus[second], places[second], seed))
    step("giving back")  # where a copy fails, the end of this process does it
    for gpu in gpus:
        gpu.close()
    return copies


def _copy(source: Gpu, place: c_ulonglong, other: Gpu, target: c_ulonglong, seed: int) -> Dict[str, Any]:
    """From the first half of `place` to the second half of `target`."""
    there = c_ulonglong(target.value + SIZE)
    source.reach(other)
    wrong, speed = 0, 0.0
    first: Mapping[str, int] = {}
    for number in range(3):
        value = seed + number
        source.use()
        patterns.write(source, place, SIZE, value)
        begun = time.monotonic()
        source.copy_to(other, there, place, SIZE)
        speed = max(speed, SIZE / max(time.monotonic() - begun, 1e-9))
        other.use()
        differing = patterns.compare(other, there, SIZE, value)[1]
        if differing:
            wrong, first = wrong + 1, first or differing
    return {"from": source.pci, "to": other.pci, "rate": speed, "wrong": wrong, "of": 3, **first}
