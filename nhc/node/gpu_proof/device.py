"""The proof of one GPU: tensor products, ordinary units, shared memory, the L2, memory, and the way to the host.

Then of copies between GPUs.

A test with a wrong result is repeated: once with the same seed, once with another. The answer has the result of each
try; `nhc.node.checks.gpu_proof` judges it.
"""

from __future__ import annotations

import struct
import time
from ctypes import c_double, c_uint, c_ulonglong
from itertools import permutations

from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.gpu_proof import operands
from nhc.node.gpu_proof.driver import OUT_OF_MEMORY, THREADS, DriverError

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Tuple

    from nhc.node.gpu_proof.driver import Driver, Gpu

PATTERN_KERNELS = ("fill", "verify")
NUMBERS, COMPLEMENT, WALKING_BIT = range(3)
"""What is written: numbers that follow from place and seed; their complement, so that each bit has been 0 and 1; one
bit."""
BLOCKS = 4096
"""Enough to keep the largest GPU's memory busy: 32 for each SM of an H100."""


def write_pattern(gpu: Gpu, place: c_ulonglong, size: int, seed: int, mode: int = NUMBERS) -> float:
    """Fill `size` bytes with numbers that follow from the seed; returns bytes a second."""
    begun = time.monotonic()
    gpu.run("fill", BLOCKS, place, c_ulonglong(size // 16), c_ulonglong(seed), c_uint(mode))
    return size / max(time.monotonic() - begun, 1e-9)


def compare_pattern(
    gpu: Gpu, place: c_ulonglong, size: int, seed: int, mode: int = NUMBERS
) -> Tuple[float, Mapping[str, int]]:
    """Bytes read a second, and what differs from what was written: how many of the 16-byte words (`count`), the first
    one's offset in bytes (`first`), and all bits that differed anywhere (`bits`). Nothing if all is right.
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


if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from typing_extensions import TypeAlias

    from nhc.node.gpu_proof.driver import Driver, Gpu

    Answer: TypeAlias = Dict[str, Any]
    Try: TypeAlias = "Callable[[int], Mapping[str, Any]]"

NO_SM = 0xFFFFFFFF
SMS = 1024
"""Room for the counts of so many SMs; the largest GPU has 192 (B300)."""
PLAIN_KERNELS = ("units", "shared_memory", "cache", *PATTERN_KERNELS)
PER_SM = 8
"""Blocks for each SM: enough that each gets some in any order of the GPU's scheduling."""
TENSOR_SHARE, MEMORY_UNTIL = 0.3, 0.85
"""The parts of the time for tensor products (in all), and until when memory may take it."""
SPARE = 256 << 20
"""Bytes of memory left alone: the driver takes some for itself while kernels run."""
LEAST = 64 << 20
"""Bytes of memory below which a GPU counts as full."""
COPY = 32 << 20
"""Bytes of a copy to the host and back: as large as full speed takes (measured on H100 and H200: 54 GB/s)."""
UNITS_ROUNDS, SHARED_ROUNDS, CACHE_ROUNDS = 4096, 50, 10
MOST_ROUNDS = 1 << 20
WALKS = 8
"""Patterns of the walking bit under `thorough`."""


class ProofLimits(NamedTuple):
    """The limits of a proof.

    `seconds` do not include set-up and release; `memory` is in bytes, 0 for all that is free; `kinds` are those of
    tensor products, () for all that the GPU has; `spoil` is an SM whose results are made wrong, to test that this is
    found.
    """

    seconds: float = 1.0
    memory: int = 0
    kinds: Tuple[str, ...] = ()
    thorough: bool = False
    spoil: int = NO_SM


def prove(driver: Driver, seed: int, limits: ProofLimits, step: Callable[[str], None]) -> Answer:
    """Prove the GPU that this process sees as its first. Raises DriverError, NoDriver."""
    begun = time.monotonic()
    step("making a context")
    gpu = driver.gpus()[0]
    answer = _GpuProof(gpu, seed, limits, step).run(begun)
    step("giving back")  # if the proof fails, the end of this process does it
    gpu.close()
    return answer


class _GpuProof:
    def __init__(self, gpu: Gpu, seed: int, limits: ProofLimits, step: Callable[[str], None]) -> None:
        self.gpu, self.seed, self.limits, self.step = gpu, seed, limits, step
        self.faults: List[Answer] = []
        self.missing: List[str] = []
        self.rates: Dict[str, float] = {}

    def run(self, begun: float) -> Answer:
        gpu = self.gpu
        self.sms = gpu.units
        free, total = gpu.memory()
        answer: Answer = {"name": gpu.name, "pci": gpu.pci, "seed": self.seed, "sms": self.sms, "free": free,
                          "total": total, "capability": list(gpu.capability)}  # fmt: skip
        there, why = gpu.texts()
        if not there:
            return {**answer, "unsupported": why}
        kinds: List[operands.TensorKind] = []
        for number, (name, of_text) in enumerate(there.items()):
            self.step(f"loading {name}")
            gpu.load(name, [*(kind.kernel for kind in of_text), *(PLAIN_KERNELS if number == 0 else ())])
            kinds += [kind for kind in of_text if not self.limits.kinds or kind.name in self.limits.kinds]
        absent = set(self.limits.kinds) - {kind.name for kind in kinds}
        if absent:
            return {**answer, "unsupported": f"it has no products of {' '.join(sorted(absent))}{why and f' ({why})'}"}
        self.seen, self.wrong = gpu.allocate(SMS * 4), gpu.allocate(SMS * 4)
        answer["prepared"] = time.monotonic() - begun
        self.begun = time.monotonic()
        for kind in kinds:
            self.step(f"{kind.name} products")
            self._tried(kind.name, lambda seed, kind=kind: self._tensor(kind, seed, len(kinds)))  # type: ignore[misc]
        for name, test in (("units", self._units), ("shared memory", self._shared), ("L2", self._cache)):
            self.step(name)
            self._tried(name, test)
        answer["bytes"] = self._memory()
        answer["elapsed"] = time.monotonic() - self.begun
        left_out = [why] if why else []
        return {**answer, "kinds": [kind.name for kind in kinds], "left_out": left_out, "faults": self.faults,
                "missing": sorted(set(self.missing)), "rates": self.rates}  # fmt: skip

    def _left(self, share: float = 1.0) -> float:
        """Seconds until `share` of the time is over."""
        return self.begun + self.limits.seconds * share - time.monotonic()

    def _rate(self, name: str, amount: float, elapsed: float = 1.0) -> None:
        """Keep the best: a figure lowered by another process or a sleeping clock says nothing about the GPU."""
        self.rates[name] = max(self.rates.get(name, 0.0), amount / max(elapsed, 1e-9))

    def _tried(self, name: str, test: Try) -> None:
        """Run a test; a wrong result is added to the faults, with how often it was wrong again in two more tries."""
        wrong = test(self.seed)
        if not wrong:
            return
        self.step(f"{name} again")
        again = [test(self.seed), test(self.seed ^ 0x5EED)]
        fault = {"test": name, **wrong, "again": sum(map(bool, again))}
        # A wrong bit shows in several passes: the fault that was confirmed most often is kept.
        if not any(old["test"] == name and old["again"] >= fault["again"] for old in self.faults):
            self.faults = [*(old for old in self.faults if old["test"] != name), fault]

    def _on_every_sm(self, kernel: str, blocks: int, *arguments: Any, shared: int = 0) -> Mapping[str, Any]:
        """Run a kernel that counts by SM; the SMs with wrong results. An SM that took no part is kept in `missing`."""
        for counts in (self.seen, self.wrong):
            self.gpu.clear(counts, SMS * 4)
        self.gpu.run(kernel, blocks, *arguments, self.seen, self.wrong, c_uint(self.limits.spoil), shared=shared)
        seen, wrong = (struct.unpack(f"<{SMS}I", self.gpu.get(counts, SMS * 4)) for counts in (self.seen, self.wrong))
        took_part = sum(1 for count in seen if count)
        if took_part < self.sms:
            self.missing.append(f"{kernel} ran on {took_part} of {self.sms} {self.gpu.unit}s")
        bad = {str(sm): count for sm, count in enumerate(wrong) if count}
        return {"sms": bad} if bad else {}

    def _tensor(self, kind: operands.TensorKind, seed: int, kinds: int) -> Mapping[str, Any]:
        task = operands.problem(kind, seed)
        given, sums = self.gpu.allocate(len(task.operands)), self.gpu.allocate(len(task.sums))
        try:
            self.gpu.put(given, task.operands)
            self.gpu.put(sums, task.sums)
            blocks = self.sms * PER_SM
            rounds = operands.INNER
            begun = time.monotonic()
            wrong = self._on_every_sm(kind.kernel, blocks, given, sums, c_uint(rounds))
            elapsed = max(time.monotonic() - begun, 1e-6)
            share = self.limits.seconds * TENSOR_SHARE / kinds / 3
            rounds = min(MOST_ROUNDS, max(1, int(share / elapsed)) * operands.INNER)
            for _ in range(3):
                if wrong:
                    return wrong
                begun = time.monotonic()
                wrong = self._on_every_sm(kind.kernel, blocks, given, sums, c_uint(rounds))
                done = blocks * (THREADS // kind.lanes) * rounds * kind.operations
                self._rate(kind.name, done, time.monotonic() - begun)
            return wrong
        finally:
            self.gpu.free(given)
            self.gpu.free(sums)

    def _units(self, seed: int) -> Mapping[str, Any]:
        start = seed & NO_SM
        whole, single, double = operands.chain(UNITS_ROUNDS, start)
        ends = (c_uint(whole), c_uint(single), c_double(double))
        return self._on_every_sm("units", self.sms * PER_SM, c_uint(UNITS_ROUNDS), c_uint(start), *ends)

    def _shared(self, seed: int) -> Mapping[str, Any]:
        size = self.gpu.shared_bytes
        self.gpu.allow_shared("shared_memory", size)
        arguments = (c_uint(size // 4), c_uint(SHARED_ROUNDS), c_uint(seed & NO_SM))
        return self._on_every_sm("shared_memory", self.sms * 2, *arguments, shared=size)

    def _cache(self, seed: int) -> Mapping[str, Any]:
        size = self.gpu.l2_bytes * 6 // 10 // 4096 * 4096
        if not size:
            return {}
        place = self.gpu.allocate(size)
        try:
            for number in range(CACHE_ROUNDS):
                begun = time.monotonic()
                for write in (1, 0):
                    arguments = (c_uint(size // 4), c_uint(seed + number & NO_SM), c_uint(write))
                    wrong = self._on_every_sm("cache", self.sms * PER_SM, place, *arguments)
                    if wrong:
                        return wrong
                self._rate("L2", 2 * size, time.monotonic() - begun)
            return {}
        finally:
            self.gpu.free(place)

    def _memory(self) -> int:
        """Write and read back the free memory, then use it to test copies to the host; returns how many bytes were
        proved.
        """
        self.step("taking memory")
        free, _ = self.gpu.memory()
        size = min(free - SPARE, self.limits.memory or free)
        place: Optional[c_ulonglong] = None
        while place is None:
            if size < LEAST:
                call = self.gpu.driver.name_of("cuMemAlloc_v2")
                raise DriverError(call, OUT_OF_MEMORY, f"{max(free, 0) >> 20} MiB of memory are free")
            size = size >> 21 << 21
            try:
                place = self.gpu.allocate(size)
            except DriverError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                size -= max(size // 8, 2 << 20)  # fragmented, or another process took it first
        try:
            size = self._affordable(place, size)
            for mode in (NUMBERS, COMPLEMENT):
                self.step("memory")
                self._tried("memory", lambda seed, mode=mode: self._pass(place, size, seed, mode))  # type: ignore[misc]
            for bit in range(WALKS if self.limits.thorough else 0):
                self.step(f"memory, walking bit {bit}")
                self._tried("memory", lambda _, bit=bit: self._pass(place, size, bit, WALKING_BIT))  # type: ignore[misc]
            if any(fault["test"] == "memory" for fault in self.faults):
                return size  # a copy would find the same again
            self.step("copies to the host and back")
            self._tried("host copies", lambda seed: self._host_copies(place, min(COPY, size // 2), seed))
        finally:
            self.gpu.free(place)
        return size

    def _affordable(self, place: c_ulonglong, size: int) -> int:
        """How much of `size` two passes can write and read in the remaining time, measured on a first GiB."""
        if self.limits.thorough:
            return size
        sample = min(size, 1 << 30)
        speed = write_pattern(self.gpu, place, sample, self.seed)
        return max(sample, min(size, int(speed * max(self._left(MEMORY_UNTIL), 0.0) / 5) >> 21 << 21))

    def _pass(self, place: c_ulonglong, size: int, seed: int, mode: int) -> Mapping[str, Any]:
        written = write_pattern(self.gpu, place, size, seed, mode)
        read_back, wrong = compare_pattern(self.gpu, place, size, seed, mode)
        self._rate("memory written", written)
        self._rate("memory read", read_back)
        return wrong

    def _host_copies(self, place: c_ulonglong, size: int, seed: int) -> Mapping[str, Any]:
        """A pattern is copied from the GPU to the host and back to another place, and compared there."""
        host = self.gpu.pinned(size)
        back = c_ulonglong(place.value + size)
        try:
            write_pattern(self.gpu, place, size, seed)
            for _ in range(5):
                begun = time.monotonic()
                self.gpu.copy_out(host, place, size)
                half = time.monotonic()
                self.gpu.copy_in(back, host, size)
                self._rate("from the GPU", size, half - begun)
                self._rate("to the GPU", size, time.monotonic() - half)
            return compare_pattern(self.gpu, back, size, seed)[1]
        finally:
            self.gpu.free_pinned(host)


COPY_SIZE = 64 << 20
"""Bytes of a copy."""


def prove_copies(driver: Driver, seed: int, step: Callable[[str], None]) -> List[Dict[str, Any]]:
    """The result of each copy between two GPUs: `from` and `to` by PCI address, bytes a second, how often it was wrong.

    Pairs that do not reach each other are left out. Raises DriverError, NoDriver.
    """
    step("making contexts")
    gpus = driver.gpus()
    copies: List[Dict[str, Any]] = []
    places: List[c_ulonglong] = []
    for gpu in gpus:
        gpu.use()
        gpu.load(next(iter(gpu.texts()[0])), PATTERN_KERNELS)
        places.append(gpu.allocate(2 * COPY_SIZE))
    for first, second in permutations(range(len(gpus)), 2):
        if gpus[first].reaches(gpus[second]):
            step(f"copying from {gpus[first].pci} to {gpus[second].pci}")
            copies.append(_copy_between(gpus[first], places[first], gpus[second], places[second], seed))
    step("giving back")  # if a copy fails, the end of this process does it
    for gpu in gpus:
        gpu.close()
    return copies


def _copy_between(source: Gpu, place: c_ulonglong, other: Gpu, target: c_ulonglong, seed: int) -> Dict[str, Any]:
    """From the first half of `place` to the second half of `target`."""
    there = c_ulonglong(target.value + COPY_SIZE)
    source.reach(other)
    wrong, speed = 0, 0.0
    first: Mapping[str, int] = {}
    for number in range(3):
        value = seed + number
        source.use()
        write_pattern(source, place, COPY_SIZE, value)
        begun = time.monotonic()
        source.copy_to(other, there, place, COPY_SIZE)
        speed = max(speed, COPY_SIZE / max(time.monotonic() - begun, 1e-9))
        other.use()
        differing = compare_pattern(other, there, COPY_SIZE, value)[1]
        if differing:
            wrong, first = wrong + 1, first or differing
    return {"from": source.pci, "to": other.pci, "rate": speed, "wrong": wrong, "of": 3, **first}
