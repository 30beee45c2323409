"""Matrix products on every GPU at once, with torch: heat, speed, and numbers that must be right.

    python3 gemm_burn.py SECONDS SIZE DTYPE [DEVICES]

Runs by itself under the Python that has torch: nhc hands it to that as text. Each GPU makes its sets of inputs from
fixed seeds, so that every GPU of a model has the same bits. Of most sets each product must have the same bits as the
first on one GPU, and as on all GPUs of one model (nhc compares the hashes; one library chooses one kernel for one
shape). One set holds few small whole numbers, whose product DTYPE holds exactly: its row sums must be what the factors
give. Bits are compared, not values, so that a NaN is seen. Products are written all over the GPU's free memory. Prints
JSON lines, see nhc/node/checks/deep_gemm.py.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, List, Sequence

SETS = 4
"""Random sets; one exact set follows them."""
DENSITY = 1 / 8
"""Share of the exact set's values that is not 0: sums of 16384 products of -1, 0 and 1 then stay far below 256, the
first whole number after which bf16 has gaps."""
WINDOW = 8
"""Products between two looks at the clock."""
CHUNK = 1 << 16
"""Numbers that are drawn at once: so few that their bits do not depend on how many SMs a GPU has."""
SHARE = 0.7
"""Share of the free memory that products are written to."""
INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}

_printing = threading.Lock()


def say(**values: object) -> None:
    """One line, whole, whichever thread says it."""
    with _printing:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()


def drawn(torch: Any, draw: Any, size: int) -> Any:
    """A square matrix, some rows at a time."""
    rows = max(1, CHUNK // size)
    return torch.cat([draw(min(rows, size - at), size) for at in range(0, size, rows)])


def inputs(torch: Any, number: int, size: int, dtype: Any, device: Any) -> List[Any]:
    """Two matrices on the device: those of a random set, or the exact one's where `number` is SETS."""
    generator = torch.Generator(device=device).manual_seed(20240 + number)
    given = {"generator": generator, "device": device}
    if number < SETS:
        return [drawn(torch, lambda *shape: torch.randn(*shape, **given), size).to(dtype) for _ in range(2)]
    kept = [drawn(torch, lambda *shape: torch.rand(*shape, **given), size) < DENSITY for _ in range(2)]
    signs = [drawn(torch, lambda *shape: torch.randint(0, 2, shape, **given), size) * 2 - 1 for _ in range(2)]
    return [(keep * sign).to(dtype) for keep, sign in zip(kept, signs)]


def places(torch: Any, like: Any, device: Any) -> List[Any]:
    """Matrices over most of the free memory, one at least."""
    free = torch.cuda.mem_get_info(device)[0]
    count = int(free * SHARE) // (like.element_size() * like.shape[0] * like.shape[1])
    return [torch.empty_like(like) for _ in range(max(1, count))]


def bits(torch: Any, matrix: Any) -> Any:
    """The same memory seen as whole numbers: comparing those finds a NaN."""
    return matrix.view(getattr(torch, INTEGERS[matrix.element_size()]))


def wrong_rows(torch: Any, left: Any, right: Any, product: Any) -> int:
    """How many rows of an exact product do not have the sums that its factors give. All of it is exact in 64 bits."""
    want = left.to(torch.float64) @ right.to(torch.float64).sum(dim=1)
    return int((product.to(torch.float64).sum(dim=1) != want).sum().item())


def burn(torch: Any, device: Any, size: int, dtype: Any, seconds: float, result: Dict[str, Any]) -> None:
    """Load one device for `seconds`; what it did is put into `result`."""
    torch.cuda.set_device(device)  # of this thread: events are recorded there
    here = [inputs(torch, number, size, dtype, device) for number in range(SETS + 1)]
    first = [left @ right for left, right in here]
    torch.cuda.synchronize(device)
    digest = hashlib.sha256()
    for product in first:
        digest.update(bits(torch, product).cpu().contiguous().numpy().tobytes())
    result.update(hash=digest.hexdigest(), rounds=len(here), changed=0, slowest=0.0,
                  wrong=wrong_rows(torch, here[SETS][0], here[SETS][1], first[SETS]),
                  nan=sum(int(torch.isnan(product).sum().item()) for product in first))  # fmt: skip
    outs = places(torch, first[0], device)
    began = time.monotonic()
    rates: List[float] = []
    number = 0
    while time.monotonic() - began < seconds:
        left, right = here[number % len(here)]
        right_bits = bits(torch, first[number % len(here)])
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(WINDOW)]
        differ = []
        for at, (start, end) in enumerate(marks):
            out = outs[(number * WINDOW + at) % len(outs)]
            start.record()
            torch.mm(left, right, out=out)
            end.record()
            differ.append((bits(torch, out) != right_bits).any())
        torch.cuda.synchronize(device)
        spent = sum(start.elapsed_time(end) for start, end in marks) / 1000.0  # milliseconds
        rates.append(2.0 * size**3 * WINDOW / max(spent, 1e-9) / 1e12)
        changed = [at for at, tensor in enumerate(differ) if bool(tensor.item())]
        result["changed"] += len(changed)
        for at in changed:
            out = outs[(number * WINDOW + at) % len(outs)]
            result["nan"] += int(torch.isnan(out).sum().item())
            if number % len(here) == SETS:
                result["wrong"] += wrong_rows(torch, left, right, out)
        result["rounds"] += WINDOW
        number += 1
    rates = rates[1:] or rates  # the first holds what the library prepares
    rates.sort()
    result.update(seconds=time.monotonic() - began, tflops=rates[len(rates) // 2] if rates else 0.0,
                  slowest=rates[0] if rates else 0.0)  # fmt: skip


def guarded(torch: Any, index: int, size: int, dtype: Any, seconds: float) -> Dict[str, Any]:
    """What `burn` found, or why it could not."""
    result: Dict[str, Any] = {"device": index, "name": str(torch.cuda.get_device_name(index))}
    try:
        burn(torch, torch.device("cuda", index), size, dtype, seconds, result)
    except Exception as error:
        say(kind="trouble", message=f"GPU {index}: {type(error).__name__}: {error}".split("\n")[0])
        result.pop("seconds", None)
    return result


def main(argv: Sequence[str]) -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # one way to split a product, whatever runs beside it
    seconds, size, name = float(argv[0]), int(argv[1]), argv[2]
    torch: Any = importlib.import_module("torch")
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}[name]
    if not torch.cuda.is_available():
        say(kind="trouble", message="torch sees no GPU")
        return 3
    asked = argv[3] if len(argv) > 3 else ""
    chosen = [int(number) for number in asked.split(",") if number] or list(range(torch.cuda.device_count()))
    say(kind="begin", engine="torch", version=str(torch.__version__), size=size, dtype=name, seconds=seconds)
    results: Dict[int, Dict[str, Any]] = {}

    def load(index: int) -> None:
        results[index] = guarded(torch, index, size, dtype, seconds)

    threads = [threading.Thread(target=load, args=(index,), daemon=True) for index in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = [results[index] for index in chosen if "seconds" in results.get(index, {})]
    for result in whole:
        say(kind="device", **result)
    say(kind="end", devices=len(whole))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
