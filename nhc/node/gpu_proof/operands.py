"""Operands of tensor products, drawn for each seed, and the expected sums, in Python's whole numbers.

Operands are -1, 0 and 1, so that every product and every sum is a whole number that each data type holds exactly: a
result is right or wrong, without a tolerance. Lanes and fragments: NVIDIA, PTX ISA, "Warp Level Matrix
Multiply-Accumulate Instructions" (mma.m16n8k8 ... m16n8k32, m8n8k4 for .f64); for AMD's GPUs matrix_calculator.py of
ROCm/amd_matrix_instruction_calculator.
"""

from __future__ import annotations

import random
import struct
from functools import cache

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Dict, List, Sequence, Tuple

    from typing_extensions import TypeAlias

    Matrix: TypeAlias = "List[List[int]]"

SETS, TILES, INNER = 4, 8, 32
"""As in nhc/core/data/gpu_proof.cu: operands, accumulators of a warp, rounds between two comparisons."""
LANES = 32


class TensorKind(NamedTuple):
    """A data type's tensor product: the kernel, the matrices' shape (A is rows x depth, B depth x columns), and how an
    operand is written. `element` is struct's format of one, `codes` what 0, 1 and -1 look like in it, each at the index
    of its value; `total` is the format of a sum, `lanes` how many a warp (AMD: a wave) has.
    """

    name: str
    rows: int
    columns: int
    depth: int
    element: str
    codes: Tuple[float, float, float]
    total: str
    lanes: int = 32

    @property
    def kernel(self) -> str:
        return f"tensor_{self.name}"

    @property
    def operations(self) -> int:
        """Multiplications and additions that a warp does in one round."""
        return 2 * self.rows * self.columns * self.depth * SETS * TILES


_ONES = (0.0, 1.0, -1.0)
WARP_KINDS = (
    TensorKind("bf16", 16, 8, 16, "H", (0, 0x3F80, 0xBF80), "f"),
    TensorKind("fp16", 16, 8, 16, "H", (0, 0x3C00, 0xBC00), "f"),
    TensorKind("tf32", 16, 8, 8, "f", _ONES, "f"),
    TensorKind("int8", 16, 8, 32, "b", (0, 1, -1), "i"),
    TensorKind("fp64", 8, 8, 4, "d", _ONES, "d"),
)
"""Since compute capability 8.0 (text gpu_proof_80)."""
FP8 = TensorKind("fp8", 16, 8, 32, "B", (0, 0x38, 0xB8), "f")
"""e4m3, from compute capability 8.9 on (text gpu_proof_89)."""
WMMA = TensorKind("fp16", 16, 16, 16, "H", (0, 0x3C00, 0xBC00), "f")
"""Volta and Turing (text gpu_proof_70): whole matrices, as the GPU alone knows the lanes."""


def _mfma(
    name: str, depth: int, element: str, codes: Tuple[float, float, float] = _ONES, total: str = "f"
) -> TensorKind:
    return TensorKind(name, 16, 16, depth, element, codes, total, 64)


_CDNA = (
    _mfma("bf16", 16, "H", (0, 0x3F80, 0xBF80)),
    _mfma("fp16", 16, "H", (0, 0x3C00, 0xBC00)),
    _mfma("fp64", 4, "d", total="d"),
)
_INT8 = _mfma("int8", 32, "b", (0, 1, -1), "i")
MFMA = {
    "gfx90a": (*_CDNA, _mfma("int8", 16, "b", (0, 1, -1), "i")),
    "gfx942": (*_CDNA, _INT8, _mfma("tf32", 8, "f"), _mfma("fp8", 32, "B", (0, 0x40, 0xC0))),
    "gfx950": (*_CDNA, _INT8, _mfma("fp8", 32, "B", (0, 0x38, 0xB8))),
}
"""AMD's kinds by architecture: MI200, MI300, MI350. gfx942 writes fp8 with another exponent (e4m3fnuz)."""


def texts(capability: Tuple[int, int], version: Tuple[int, int]) -> Tuple[Dict[str, Tuple[TensorKind, ...]], str]:
    """The texts that this GPU and driver accept, each with its kinds, the plain kernels' first; and why not more. No
    text: the GPU is older than Volta, or the driver than CUDA 11.8, the first with PTX 7.8.
    """
    if version < (11, 8):
        return {}, f"the driver speaks CUDA {version[0]}.{version[1]}, the proof takes 11.8 (driver 520) or newer"
    if capability < (7, 0):
        return {}, f"compute capability {capability[0]}.{capability[1]}, the proof takes 7.0 or newer"
    if capability < (8, 0):
        return {"gpu_proof_70.ptx": (WMMA,)}, ""
    kinds: Dict[str, Tuple[TensorKind, ...]] = {"gpu_proof_80.ptx": WARP_KINDS}
    if capability < (8, 9):
        return kinds, ""
    if version < (12, 4):
        return kinds, f"fp8: the driver speaks CUDA {version[0]}.{version[1]}, fp8 takes 12.4 (driver 550)"
    return {**kinds, "gpu_proof_89.ptx": (FP8,)}, ""


class TensorProblem(NamedTuple):
    """What a kernel gets: operands and the sums of one round, as bytes."""

    operands: bytes
    sums: bytes


@cache
def problem(kind: TensorKind, seed: int) -> TensorProblem:
    """The problem of a kind that a seed decides: the same on every machine and Python."""
    draw = random.Random(f"{seed} {kind.name} {kind.rows}x{kind.columns}x{kind.depth}")  # noqa: S311
    left = [_matrix(draw, kind.rows, kind.depth) for _ in range(SETS)]
    right = [_matrix(draw, kind.depth, kind.columns) for _ in range(SETS)]
    sums = _sums(left, right)
    if kind is WMMA:
        whole = [value for tile in sums for row in tile for value in row]
        return TensorProblem(_whole(kind, left, right), _pack(kind.total, whole))
    return TensorProblem(_fragments(kind, left, right), _pack(kind.total, _accumulators(kind, sums)))


def _matrix(draw: random.Random, rows: int, columns: int) -> Matrix:
    flat = draw.choices((-1, 0, 1), k=rows * columns)
    return [flat[row * columns : (row + 1) * columns] for row in range(rows)]


def _sums(left: Sequence[Matrix], right: Sequence[Matrix]) -> List[Matrix]:
    """For each tile the sum of its SETS products: of A[s] with B[(s + tile) % SETS]."""
    product: Dict[Tuple[int, int], Matrix] = {}
    for s, matrix in enumerate(left):
        for q, other in enumerate(right):
            columns = list(zip(*other))
            product[s, q] = [[sum(map(int.__mul__, row, column)) for column in columns] for row in matrix]
    tiles: List[Matrix] = []
    for tile in range(TILES):
        parts = [product[s, (s + tile) % SETS] for s in range(SETS)]
        tiles.append([[sum(values) for values in zip(*rows)] for rows in zip(*parts)])
    return tiles


def _fragments(kind: TensorKind, left: Sequence[Matrix], right: Sequence[Matrix]) -> bytes:
    """[set][lane][registers of A, then of B]. A register of 32 bits holds as many elements as fit, along the depth.

    On AMD's GPUs lane l has of row (or column) l % 16 the l / 16-th quarter of the depth.
    """
    values: List[int] = []
    if kind.lanes == 64:
        part = kind.depth // 4
        for a, b in zip(left, right):
            for lane in range(kind.lanes):
                line, begin = lane % 16, lane // 16 * part
                values += a[line][begin : begin + part]
                values += [b[k][line] for k in range(begin, begin + part)]
        return _pack(kind.element, [kind.codes[value] for value in values])
    together = 1 if kind.element == "d" else 4 // struct.calcsize(kind.element)
    of_a = 1 if kind.element == "d" else 4
    of_b = 1 if kind.element == "d" else 2
    for a, b in zip(left, right):
        for lane in range(LANES):
            group, thread = lane >> 2, lane & 3
            for i in range(of_a):
                row, begin = group + (i & 1) * 8, thread * together + (i >> 1) * 4 * together
                values += a[row][begin : begin + together]
            for i in range(of_b):
                begin = thread * together + i * 4 * together
                values += [b[k][group] for k in range(begin, begin + together)]
    return _pack(kind.element, [kind.codes[value] for value in values])


def _accumulators(kind: TensorKind, sums: Sequence[Matrix]) -> List[int]:
    """[tile][lane][a lane's accumulators]."""
    if kind.lanes == 64:  # fp64's four rows of a lane are four apart, the others' follow each other
        down, across = (4, 1) if kind.element == "d" else (1, 4)
        return [
            total[lane // 16 * across + i * down][lane % 16]
            for total in sums
            for lane in range(kind.lanes)
            for i in range(4)
        ]
    each = 2 if kind.element == "d" else 4
    return [
        total[(lane >> 2) + (i >> 1) * 8][(lane & 3) * 2 + (i & 1)]
        for total in sums
        for lane in range(LANES)
        for i in range(each)
    ]


def _whole(kind: TensorKind, left: Sequence[Matrix], right: Sequence[Matrix]) -> bytes:
    """Every A row by row, then every B column by column."""
    values = [value for a in left for row in a for value in row]
    values += [value for b in right for column in zip(*b) for value in column]
    return _pack(kind.element, [kind.codes[value] for value in values])


def _pack(form: str, values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)


def chain(rounds: int, start: int) -> Tuple[int, int, int]:
    """The ends of the three chains of the kernel `units`: whole numbers modulo 2^32, fp32 2^20, fp64 2^40."""
    whole, single, double = start, start & 0xFFFFF, start
    for _ in range(rounds):
        whole = (whole * 1664525 + 1013904223) & 0xFFFFFFFF
        single = (3 * single + 1) & 0xFFFFF
        double = (3 * double + 1) & 0xFFFFFFFFFF
    return whole, single, double
