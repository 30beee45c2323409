"""Patterns in a GPU's memory: written by the kernel `fill`, compared by `verify`."""

from __future__ import annotations

import struct
import time
from ctypes import c_uint, c_ulonglong

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Mapping, Tuple

    from nhc.node.gpu_proof.driver import Gpu

KERNELS = ("fill", "verify")
NUMBERS, COMPLEMENT, WALKING_BIT = range(3)
"""What is written: numbers that place and seed decide; their complement, so that each bit has been 0 and 1; one bit."""
BLOCKS = 4096
"""Enough to keep the largest GPU's memory busy: 32 for each SM of an H100."""


def write(gpu: Gpu, place: c_ulonglong, size: int, seed: int, mode: int = NUMBERS) -> float:
    """Fill `size` bytes with what the seed decides; bytes a second."""
    begun = time.monotonic()
    gpu.run("fill", BLOCKS, place, c_ulonglong(size // 16), c_ulonglong(seed), c_uint(mode))
    return size / max(time.monotonic() - begun, 1e-9)


def compare(gpu: Gpu, place: c_ulonglong, size: int, seed: int, mode: int = NUMBERS) -> Tuple[float, Mapping[str, int]]:
    """Bytes read a second, and what differs from what was written: how many of the 16-byte words (`count`), the first
    one's offset in bytes (`first`), and all bits that differed anywhere (`bits`). Nothing where all is right.
    """
    counts = gpu.allocate(24)
    try:
        gpu.put(counts, struct.pack("<3Q", 0, (1 << 64) - 1, 0))
        begun = time.monotonic()
        gpu.run("verify", BLOCKS, place, c_ulonglong(size // 16), c_ulonglong(seed), c_uint(mode), counts)
        speed = size / max(time.monotonic() - begun, 1e-9)
        count, first, bits = struct.unpack("<3Q", gpu.get(counts, 24))
    finally:
        gpu.free(counts)
    return speed, {"count": count, "first": first, "bits": bits} if count else {}
