"""The kernels' texts: made of their source as they lie in the package, and machine code for every GPU they name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.node.gpu_proof import device, operands
from nhc_ptx.compile import DATA, TEXTS, assemble, installed
from tests.support.require import need

ROOT = Path(__file__).resolve().parents[3]
ASSEMBLED = {
    "gpu_proof_70.ptx": (70, 75),
    "gpu_proof_80.ptx": (80, 86, 89, 90, 100, 103, 120),
    "gpu_proof_89.ptx": (89, 90, 100, 103, 120),
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The texts made anew, in a process of its own: the compiler sets the locale of the process that it is in."""
    for text in TEXTS.values():
        try:
            installed(text.wheel, text.library)
        except FileNotFoundError as error:
            need("nvrtc", None, str(error))
    place = tmp_path_factory.mktemp("ptx")
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'packaging'}"}
    subprocess.run([sys.executable, "-m", "nhc_ptx", str(place)], check=True, env=environ, stdout=subprocess.DEVNULL)
    return place


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_made_of_the_source(generated, name):
    assert (generated / name).read_text() == (DATA / name).read_text(), "make ptx"


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "architecture"), [(name, sm) for name, all_ in ASSEMBLED.items() for sm in all_])
def test_every_generation_takes_its_text_without_spilling_registers(name, architecture, tmp_path):
    try:
        lines = assemble(DATA / name, architecture, tmp_path / "code")
    except FileNotFoundError as error:
        need("ptxas", None, str(error))

    spilled = [line for line in lines if "spill" in line]
    assert spilled
    assert [line for line in spilled if "0 bytes spill stores, 0 bytes spill loads" not in line] == []


@pytest.mark.thorough
def test_amds_own_compiler_makes_machine_code_of_the_source():
    """hiprtc needs no GPU. Debian 12 has that of ROCm 5.2, which knows gfx90a and none of the newer ones."""
    program = (
        "import sys; from nhc.node.gpu_proof import hip; from nhc.node.gpu_proof.driver import load_library;"
        "sys.stdout.buffer.write(hip.compiled(load_library(hip.HipDriver.libraries), 'gfx90a'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT, check=False)
    need("hiprtc", done.returncode == 0, done.stderr.decode().strip()[-300:])
    names = {kind.kernel for kind in operands.MFMA["gfx90a"]} | {*device.PLAIN_KERNELS}

    assert done.stdout.startswith(b"\x7fELF")
    assert [name for name in names if f"{name}.kd\0".encode() not in done.stdout] == []


@pytest.mark.parametrize(("name", "version"), [("70", "7.8"), ("80", "7.8"), ("89", "8.4")])
def test_the_texts_are_old_enough_for_the_drivers_they_name(name, version):
    assert f".version {version}\n" in (DATA / f"gpu_proof_{name}.ptx").read_text()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("70", (operands.WMMA,)), ("80", operands.WARP_KINDS), ("89", (operands.FP8,))],
)
def test_every_kernel_that_is_started_is_in_its_text(name, kinds):
    entries = set(re.findall(r"\.entry (\w+)\(", (DATA / f"gpu_proof_{name}.ptx").read_text()))
    plain = set() if name == "89" else {"units", "shared_memory", "cache", *device.PATTERN_KERNELS}

    assert entries == {kind.kernel for kind in kinds} | plain


@pytest.mark.parametrize(
    ("constant", "value"),
    [("THREADS", 256), ("SETS", operands.SETS), ("TILES", operands.TILES), ("INNER", operands.INNER)],
)
def test_the_source_and_the_host_count_alike(constant, value):
    assert re.search(rf"#define {constant} {value}\b", (DATA / "gpu_proof.cu").read_text())


@pytest.mark.parametrize(
    "kind",
    [*operands.WARP_KINDS, operands.FP8, operands.WMMA, *operands.MFMA["gfx942"]],
    ids=lambda kind: f"{kind.name}-{kind.columns}",
)
def test_sums_stay_exact_in_the_shortest_accumulator(kind):
    """14 bits: what Hopper's tensor cores keep of an fp8 product (arXiv 2412.19437)."""
    assert kind.depth * operands.SETS * operands.INNER < 1 << 14


def test_a_seed_decides_the_operands():
    assert operands.problem(operands.FP8, 7) == operands.problem(operands.FP8, 7)
    assert operands.problem(operands.FP8, 7).operands != operands.problem(operands.FP8, 8).operands


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)])
def test_every_generation_has_its_texts(capability):
    there, why = operands.texts(capability, (12, 4))

    assert there
    assert not why
    assert all(int(name[10:12]) <= capability[0] * 10 + capability[1] for name in there)
