"""A libcuda.so.1 of our own making, which carries out the GPU proof's kernels on the processor (cuda.c)."""

import shutil
import subprocess
from pathlib import Path

from tests.support.require import need

HERE = Path(__file__).resolve().parent
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def build(directory: Path) -> Path:
    """Compile the library into a directory, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    need("cc", compiler, "the fake CUDA driver is built from C")
    assert compiler
    subprocess.run([compiler, *FLAGS, "-o", str(directory / "libcuda.so.1"), str(HERE / "cuda.c"), "-lm"], check=True)
    return directory
