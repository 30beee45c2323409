"""From CUDA C++ to PTX, by the libnvrtc of NVIDIA's wheels, and from PTX to machine code, by their ptxas."""

from __future__ import annotations

import ctypes
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Dict, List, NamedTuple

import nhc

DATA = Path(nhc.__file__).parent / "core/data"
SOURCE = DATA / "gpu_proof.cu"


class Text(NamedTuple):
    """How one PTX is made: the wheel whose compiler writes it, that library's name, and the architecture it is for."""

    wheel: str
    library: str
    architecture: int


TEXTS: Dict[str, Text] = {
    "gpu_proof_70.ptx": Text("nvidia-cuda-nvrtc-cu11", "libnvrtc.so.11.2", 70),
    "gpu_proof_80.ptx": Text("nvidia-cuda-nvrtc-cu11", "libnvrtc.so.11.2", 80),
    "gpu_proof_89.ptx": Text("nvidia-cuda-nvrtc-cu12", "libnvrtc.so.12", 89),
}


def installed(wheel: str, name: str) -> Path:
    """The file called `name` of an installed wheel. Raises FileNotFoundError with the wheel's name."""
    try:
        for file in metadata.files(wheel) or ():
            if file.name == name:
                return Path(str(file.locate()))
    except metadata.PackageNotFoundError:
        pass
    raise FileNotFoundError(f"{name} of the wheel {wheel} is not installed")


def ptx(name: str) -> str:
    """The PTX of one of TEXTS. Raises FileNotFoundError without its compiler, RuntimeError with the compiler's log."""
    text = TEXTS[name]
    nvrtc = ctypes.CDLL(str(installed(text.wheel, text.library)))
    program = ctypes.c_void_p()
    source = SOURCE.read_bytes()
    options = [f"--gpu-architecture=compute_{text.architecture}", f"-DPROOF_TENSOR={text.architecture}", "-std=c++14"]
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE.name.encode(), 0, None, None)
    if made:
        raise RuntimeError(f"nvrtcCreateProgram: {made}")
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    if nvrtc.nvrtcCompileProgram(program, len(options), words):
        raise RuntimeError(_text(nvrtc, "ProgramLog", program))
    return _text(nvrtc, "PTX", program)


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


def assemble(text: Path, architecture: int, output: Path) -> List[str]:
    """Make machine code of a PTX for sm_`architecture`; what ptxas says of registers and spills.

    Raises FileNotFoundError without ptxas, RuntimeError where it refuses the text.
    """
    ptxas = installed("nvidia-cuda-nvcc-cu12", "ptxas")
    argv = [str(ptxas), f"-arch=sm_{architecture}", "-v", str(text), "-o", str(output)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout)
    return (done.stdout + done.stderr).splitlines()
