"""Copies between GPUs that reach each other: each way of each pair, compared and timed.

One process sees all of them, after each has been proved by itself.
"""

from __future__ import annotations

import time
from ctypes import c_size_t, c_uint, c_ulonglong
from itertools import permutations

from nhc.data.reader import read
from nhc.gpu_proof import driver as cuda
from nhc.gpu_proof import patterns
from nhc.gpu_proof.device import texts
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping

SIZE = 64 << 20
"""Bytes of a copy."""
ALREADY = 704
"""CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"""


def prove(driver: cuda.Driver, seed: int, step: Callable[[str], None]) -> List[Dict[str, Any]]:
    """What each copy between two GPUs gave: `from` and `to` by PCI address, bytes a second, how often it was wrong.

    Pairs that do not reach each other are left out. Raises CudaError, NoDriver.
    """
    step("making contexts")
    gpus = [cuda.Gpu(driver, ordinal) for ordinal in range(driver.devices())]
    found: List[Dict[str, Any]] = []
    places: List[c_ulonglong] = []
    for gpu in gpus:
        gpu.use()
        text = next(iter(texts(gpu.capability, driver.version())[0]))
        gpu.load(read(text), patterns.KERNELS)
        places.append(gpu.allocate(2 * SIZE))
    for one, other in permutations(range(len(gpus)), 2):
        if driver.number("cuDeviceCanAccessPeer", gpus[one].device, gpus[other].device):
            step(f"copying from {gpus[one].pci} to {gpus[other].pci}")
            found.append(_copy(driver, gpus[one], places[one], gpus[other], places[other], seed))
    step("giving back")  # where a copy fails, the end of this process does it
    for gpu in gpus:
        gpu.close()
    return found


def _copy(
    driver: cuda.Driver, one: cuda.Gpu, place: c_ulonglong, other: cuda.Gpu, target: c_ulonglong, seed: int
) -> Dict[str, Any]:
    """From the first half of `place` to the second half of `target`."""
    there = c_ulonglong(target.value + SIZE)
    one.use()
    try:
        driver.call("cuCtxEnablePeerAccess", other.context, c_uint(0))
    except cuda.CudaError as error:
        if error.code != ALREADY:
            raise
    wrong, speed = 0, 0.0
    first: Mapping[str, int] = {}
    for number in range(3):
        value = seed + number
        one.use()
        patterns.write(one, place, SIZE, value)
        begun = time.monotonic()
        driver.call("cuMemcpyPeer", there, other.context, place, one.context, c_size_t(SIZE))
        one.wait()
        speed = max(speed, SIZE / max(time.monotonic() - begun, 1e-9))
        other.use()
        differing = patterns.compare(other, there, SIZE, value)[1]
        if differing:
            wrong, first = wrong + 1, first or differing
    return {"from": one.pci, "to": other.pci, "rate": speed, "wrong": wrong, "of": 3, **first}
