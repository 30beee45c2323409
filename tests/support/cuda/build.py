"""Libraries of our own making, which carry out the GPU proof's kernels on the processor: cuda.c, and hip.c upon it."""

import shutil
import subprocess
from pathlib import Path

from tests.support.require import need

HERE = Path(__file__).resolve().parent
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def build(directory: Path, source: str = "cuda.c", library: str = "libcuda.so.1") -> Path:
    """Compile a library into a directory, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    need("cc", compiler, "the fake driver is built from C")
    assert compiler
    subprocess.run([compiler, *FLAGS, "-o", str(directory / library), str(HERE / source), "-lm"], check=True)
    return directory
