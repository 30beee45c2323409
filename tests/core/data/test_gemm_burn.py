# ruff: noqa: E501 (programs and tables as they are)
"""The burn for GPUs under a torch of eight by eight: what it computes, compares and prints. No GPU is here."""

import json
import os
import subprocess
import sys

import pytest

from nhc.core.data.reader import read
from nhc.node.checks import deep_gemm

pytestmark = pytest.mark.thorough

TORCH = '''
"""As much of torch as the burn uses, over lists of floats. FAULT makes one device compute wrongly."""
import os, random, struct, math, time
__version__ = "2.0-fake"
bfloat16, float16, float32, float64, int64 = "b", "h", "f", "d", "q"
int16 = "int16"; uint8 = int32 = "int"
FAULT = os.environ.get("FAULT", "")

class Scalar:
    def __init__(self, value): self.value = value
    def item(self): return self.value

class Tensor:
    def __init__(self, rows, device=None): self.rows, self.device = rows, device
    @property
    def shape(self): return (len(self.rows), len(self.rows[0]))
    def each(self, f): return Tensor([[f(v) for v in row] for row in self.rows], self.device)
    def to(self, what): return Tensor([list(row) for row in self.rows], what if isinstance(what, Device) else self.device)
    def __lt__(self, x): return self.each(lambda v: float(v < x))
    def __mul__(self, o):
        if isinstance(o, Tensor): return Tensor([[a * b for a, b in zip(r, s)] for r, s in zip(self.rows, o.rows)], self.device)
        return self.each(lambda v: v * o)
    def __sub__(self, x): return self.each(lambda v: v - x)
    def any(self): return Scalar(any(v for row in self.rows for v in row))
    def __ne__(self, o): return Tensor([[float(a != b) for a, b in zip(r, s)] for r, s in zip(self.rows, o.rows)])
    __hash__ = None
    def __matmul__(self, o): return mm(self, o)
    def sum(self, dim=None):
        if dim is None: return Scalar(sum(map(sum, self.rows)))
        return Tensor([[sum(row)] for row in self.rows], self.device)
    def element_size(self): return 2
    def view(self, _): return self
    def cpu(self): return self
    def contiguous(self): return self
    def numpy(self): return self
    def tobytes(self): return b"".join(struct.pack("d", v) for row in self.rows for v in row)

class Device:
    def __init__(self, kind, index): self.index = index
device = Device
calls = {}

def mm(a, b, out=None):
    columns = list(zip(*b.rows))
    rows = [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a.rows]
    if a.device is not None and len(columns) > 1:
        at = calls[a.device.index] = calls.get(a.device.index, 0) + 1
        if FAULT == "always" and a.device.index == 1: rows[0][0] += 1.0
        if FAULT == "later" and a.device.index == 1 and at > 40: rows[2][1] += 1.0
        if FAULT == "once" and a.device.index == 1 and at == 43: rows[2][1] += 1.0
        if FAULT == "nan" and a.device.index == 1: rows[0][0] = math.nan
        if FAULT == "crash" and a.device.index == 1: raise RuntimeError("CUDA error: uncorrectable ECC\\nmore")
    if out is not None:
        out.rows = rows
        return out
    return Tensor(rows, a.device)

def empty_like(t): return Tensor([list(row) for row in t.rows], t.device)
def isnan(t): return t.each(lambda v: float(math.isnan(v)))
def equal(a, b): return a.tobytes() == b.tobytes()
def cat(parts): return Tensor([row for part in parts for row in part.rows], parts[0].device)
class Generator:
    def __init__(self, device): self.device = device
    def manual_seed(self, seed):
        self.random = random.Random(seed)
        return self
def randn(n, m, generator, device): return Tensor([[generator.random.gauss(0, 1) for _ in range(m)] for _ in range(n)], device)
def rand(n, m, generator, device): return Tensor([[generator.random.random() for _ in range(m)] for _ in range(n)], device)
def randint(low, high, size, generator, device): return Tensor([[generator.random.randrange(low, high) for _ in range(size[1])] for _ in range(size[0])], device)
class Event:
    def __init__(self, enable_timing): self.at = 0.0
    def record(self): self.at = time.monotonic()
    def elapsed_time(self, other): return (other.at - self.at) * 1000
class cuda:
    is_available = staticmethod(lambda: FAULT != "none")
    device_count = staticmethod(lambda: 3)
    get_device_name = staticmethod(lambda index: "Fake GPU")
    synchronize = staticmethod(lambda device: None)
    set_device = staticmethod(lambda device: None)
    mem_get_info = staticmethod(lambda device: (1024, 2048))
    Event = Event
'''


@pytest.fixture
def burn(tmp_path):
    (tmp_path / "torch.py").write_text(TORCH)

    def run(fault=""):
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "FAULT": fault, "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, "-c", read("gemm_burn.py"), "0.3", "8", "bf16"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        return done, deep_gemm.parse_burn(done.stdout)

    return run


def test_devices_that_compute_alike(burn):
    done, found = burn()
    assert (done.returncode, found.ended, found.engine, found.size) == (0, True, "torch", 8)
    assert [one.device for one in found.devices] == [0, 1, 2]
    assert len({one.hash for one in found.devices}) == 1
    assert all(
        (one.changed, one.wrong, one.nan) == (0, 0, 0) and one.rounds > 8 and one.tflops > 0 for one in found.devices
    )


@pytest.mark.parametrize(("fault", "seen"), [("always", "wrong"), ("later", "changed"), ("nan", "nan")])
def test_a_device_that_computes_wrongly(burn, fault, seen):
    """Always wrong in the same way: bits stay the same, the row sums and the other devices tell."""
    _, found = burn(fault)
    bad = found.devices[1]
    assert getattr(bad, seen) > 0
    assert (bad.hash != found.devices[0].hash) == (fault != "later")
    for one in (found.devices[0], found.devices[2]):
        assert (one.changed, one.wrong, one.nan) == (0, 0, 0)


def test_each_product_is_compared_not_the_last_of_a_few(burn):
    """One product of all is wrong, the third of a window of eight."""
    _, found = burn("once")
    assert [one.changed for one in found.devices] == [0, 1, 0]


def test_a_device_that_fails_and_a_node_without_gpus(burn):
    _, found = burn("crash")
    assert [one.device for one in found.devices] == [0, 2]
    assert found.trouble == "GPU 1: RuntimeError: CUDA error: uncorrectable ECC"
    done, found = burn("none")
    assert (done.returncode, found.trouble, found.devices) == (3, "torch sees no GPU", ())
    assert json.loads(done.stdout)["kind"] == "trouble"
