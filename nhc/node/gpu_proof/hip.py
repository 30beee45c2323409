"""ROCm's libamdhip64 and libhiprtc through ctypes: the same calls as libcuda's, and kernels that are compiled here.

Calls and numbers: AMD, HIP Runtime API and hiprtc (hip_runtime_api.h and hiprtc.h of ROCm 5 and 6 agree in them).
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p

from nhc.core.data.reader import read
from nhc.core.light import TYPE_CHECKING
from nhc.node.gpu_proof import operands
from nhc.node.gpu_proof.driver import Attributes, Driver, Gpu, NoDriver, load_library

if TYPE_CHECKING:
    from ctypes import c_ulonglong
    from typing import Any, Callable, Dict, List, Tuple


SOURCE = "gpu_proof.cu"
HIDING = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that hide GPUs and renumber the others: a GPU is chosen by its PCI address."""
INTEGRATED = 16
"""hipDeviceAttributeIntegrated"""
MOST_SHARED = 64 << 10
"""Bytes of shared memory (LDS) that a compute unit has before gfx950, and that every launch may ask for."""
NAMES = {
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuDeviceGetCount": "hipGetDeviceCount",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFreeHost": "hipHostFree",
    "cuMemFree_v2": "hipFree",
    "cuMemHostAlloc": "hipHostMalloc",
    "cuMemsetD8_v2": "hipMemset",
}
"""HIP's names for libcuda's calls with the same arguments, if more than the start of the name differs."""


class HipDriver(Driver):
    """The library, initialized, for the GPUs at these PCI addresses (with commas between them), all of one kind."""

    libraries = (*(f"libamdhip64.so.{major}" for major in (7, 6, 5)), "/opt/rocm/lib/libamdhip64.so")

    def __init__(self, step: Callable[[str], None], visible: str, architecture: str) -> None:
        self.addresses, self.architecture = visible.split(","), architecture
        self._code = b""
        super().__init__(step, visible)

    def show(self, visible: str) -> None:
        for name in HIDING:
            os.environ.pop(name, None)

    def name_of(self, call: str) -> str:
        return NAMES.get(call) or f"hip{call[2:]}".replace("_v2", "")

    def error_name(self, code: int) -> str:
        name_of = ctypes.CFUNCTYPE(c_char_p, c_int)(("hipGetErrorName", self.library))
        return (name_of(code) or b"unknown error").decode(errors="replace")

    def gpus(self) -> List[Gpu]:
        text = ctypes.create_string_buffer(32)
        there = []
        for ordinal in range(self.number("cuDeviceGetCount")):
            self.call("cuDeviceGetPCIBusId", text, c_int(len(text)), c_int(ordinal))
            there.append(text.value.decode(errors="replace").lower().partition(".")[0])
        gpus: List[Gpu] = []
        for address in self.addresses:
            parts = [ordinal for ordinal, place in enumerate(there) if place == address.partition(".")[0]]
            if len(parts) != 1:
                why = f"is divided into {len(parts)} partitions, which are not proved" if parts else "is none of HIP's"
                raise NoDriver(f"the GPU at {address} {why}")
            gpus.append(HipGpu(self, parts[0]))
        return gpus

    def code(self) -> bytes:
        """The kernels as machine code of this architecture."""
        if not self._code:
            loaded: Any = self.library._name
            # ROCm 5 has the compiler in the same library, too.
            compiler = load_library((loaded.replace("amdhip64", "hiprtc"), loaded))
            self._code = compiled(compiler, self.architecture)
        return self._code


class HipGpu(Gpu):
    """A GPU of AMD's. HIP has no contexts: a GPU is chosen by its number."""

    driver: HipDriver
    attributes = Attributes(units=63, l2=19, shared=74, major=23, minor=61)
    """hipDeviceAttribute_t"""
    unit = "CU"

    def open(self, ordinal: int) -> c_int:
        return c_int(ordinal)

    def use(self) -> None:
        self.driver.call("cuSetDevice", self.device)

    def close(self) -> None:
        self.driver.call("cuDeviceReset")

    @property
    def shared_bytes(self) -> int:
        return min(super().shared_bytes, MOST_SHARED)

    def texts(self) -> Tuple[Dict[str, Tuple[operands.TensorKind, ...]], str]:
        kinds = operands.MFMA.get(self.driver.architecture)
        if kinds is None:
            return {}, f"{self.driver.architecture or 'no architecture'}: the proof takes {' '.join(operands.MFMA)}"
        if self.attribute(INTEGRATED) or "MI300A" in self.name:
            return {}, "its memory is the host's, too: the proof takes GPUs with memory of their own"
        return {SOURCE: kinds}, ""

    def code(self, name: str) -> bytes:
        return self.driver.code()

    def allow_shared(self, kernel: str, size: int) -> None:
        """HIP allows it without a call."""

    def enable_peer(self, other: Gpu) -> None:
        self.driver.call("cuDeviceEnablePeerAccess", other.device, c_uint(0))

    def copy_to(self, other: Gpu, target: c_ulonglong, place: c_ulonglong, size: int) -> None:
        self.driver.call("cuMemcpyPeer", target, other.device, place, self.device, c_size_t(size))
        self.wait()


def compiled(compiler: ctypes.CDLL, architecture: str) -> bytes:
    """The kernels for an architecture, by hiprtc. Raises NoDriver with what the compiler says."""
    program = c_void_p()
    options = (c_char_p * 1)(f"--offload-arch={architecture}".encode())
    code, log, size = b"", b"", c_size_t()
    if not compiler.hiprtcCreateProgram(
        byref(program), c_char_p(read(SOURCE).encode()), c_char_p(b"gpu_proof.hip"), c_int(0), None, None
    ):
        if not compiler.hiprtcCompileProgram(program, c_int(1), options):
            code = _part(compiler.hiprtcGetCodeSize, compiler.hiprtcGetCode, program, size)
        else:
            log = _part(compiler.hiprtcGetProgramLogSize, compiler.hiprtcGetProgramLog, program, size)
        compiler.hiprtcDestroyProgram(byref(program))
    if not code:
        errors = [line for line in log.decode(errors="replace").rstrip("\0").splitlines() if "error" in line]
        raise NoDriver(
            f"hiprtc cannot compile the kernels for {architecture}: {errors[0] if errors else 'no reason given'}"
        )
    return code


def _part(size_of: Any, get: Any, program: c_void_p, size: c_size_t) -> bytes:
    """The code or the log of a program, b"" if there is none."""
    if size_of(program, byref(size)) or not size.value:
        return b""
    text = ctypes.create_string_buffer(size.value)
    return b"" if get(program, text) else text.raw
