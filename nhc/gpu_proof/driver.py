"""libcuda.so.1, which comes with every NVIDIA driver, through ctypes: no toolkit, no package, no privileges.

Calls and numbers: NVIDIA, CUDA Driver API. Only what the proof needs is here.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

    Scalar: TypeAlias = "Union[c_int, c_uint, c_ulonglong, ctypes.c_double]"

LIBRARY = "libcuda.so.1"
THREADS = 256
"""Threads of a block, as in nhc/data/gpu_proof.cu."""

# CUdevice_attribute and CUfunction_attribute
MULTIPROCESSORS, L2_BYTES, MAJOR, MINOR, SHARED_BYTES = 16, 38, 75, 76, 97
DYNAMIC_SHARED = 8


class CudaError(Exception):
    """A call of the driver failed: which, its CUresult, and that result's name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class NoDriver(Exception):
    """libcuda.so.1 cannot be loaded, or lacks a call that the proof needs: one line."""


class Driver:
    """The library, initialized. `step` is called with the name of each call that may hang.

    Raises NoDriver, CudaError.
    """

    def __init__(self, step: Callable[[str], None]) -> None:
        step("loading libcuda")
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoDriver(f"{LIBRARY} cannot be loaded: {error}") from None
        step("cuInit")
        self.call("cuInit", c_uint(0))

    def call(self, name: str, *arguments: object) -> None:
        """One call of the driver. Raises CudaError for any result but 0, NoDriver where the library lacks the call."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NoDriver(f"{LIBRARY} has no {name}: the driver is too old") from None
        code = function(*arguments)
        if code:
            raise CudaError(name, code, self._name(code))

    def _name(self, code: int) -> str:
        text = c_char_p()
        self._library.cuGetErrorName(c_int(code), byref(text))
        return (text.value or b"unknown error").decode(errors="replace")

    def number(self, name: str, *arguments: object) -> int:
        """What a call writes through its first argument, an int."""
        value = c_int()
        self.call(name, byref(value), *arguments)
        return value.value

    def devices(self) -> int:
        return self.number("cuDeviceGetCount")

    def version(self) -> Tuple[int, int]:
        """The newest CUDA that the driver speaks: (12, 4) for 12040."""
        version = self.number("cuDriverGetVersion")
        return version // 1000, version % 1000 // 10


class Gpu:
    """A GPU (or an instance of one, under MIG) and a context on it, current in this thread. Raises CudaError.

    `close` gives everything back; the end of the process does, too.
    """

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self.device = c_int(driver.number("cuDeviceGet", c_int(ordinal)))
        self._kernels: Dict[str, c_void_p] = {}
        self.context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.use()

    def use(self) -> None:
        """Make this GPU the one that the next calls mean."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def close(self) -> None:
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def attribute(self, number: int) -> int:
        return self.driver.number("cuDeviceGetAttribute", c_int(number), self.device)

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(128)
        self.driver.call("cuDeviceGetName", text, c_int(len(text)), self.device)
        return text.value.decode(errors="replace")

    @property
    def pci(self) -> str:
        """Its PCI address as the driver writes it, `00000000:0f:00.0` or `0000:0F:00.0`."""
        text = ctypes.create_string_buffer(32)
        self.driver.call("cuDeviceGetPCIBusId", text, c_int(len(text)), self.device)
        return text.value.decode(errors="replace")

    @property
    def capability(self) -> Tuple[int, int]:
        return self.attribute(MAJOR), self.attribute(MINOR)

    def memory(self) -> Tuple[int, int]:
        """Bytes of memory: free, and in all."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def load(self, ptx: str, names: Sequence[str]) -> None:
        """Load a text, which the driver translates for this GPU (or takes from its cache), and find its kernels."""
        module = c_void_p()
        self.driver.call("cuModuleLoadData", byref(module), c_char_p(ptx.encode()))
        for name in names:
            function = c_void_p()
            self.driver.call("cuModuleGetFunction", byref(function), module, c_char_p(name.encode()))
            self._kernels[name] = function

    def allow_shared(self, kernel: str, size: int) -> None:
        """Let a kernel have `size` bytes of shared memory that its launch asks for."""
        self.driver.call("cuFuncSetAttribute", self._kernels[kernel], c_int(DYNAMIC_SHARED), c_int(size))

    def allocate(self, size: int) -> c_ulonglong:
        place = c_ulonglong()
        self.driver.call("cuMemAlloc_v2", byref(place), c_size_t(size))
        return place

    def free(self, place: c_ulonglong) -> None:
        self.driver.call("cuMemFree_v2", place)

    def clear(self, place: c_ulonglong, size: int) -> None:
        self.driver.call("cuMemsetD8_v2", place, c_int(0), c_size_t(size))

    def put(self, place: c_ulonglong, data: bytes) -> None:
        self.driver.call("cuMemcpyHtoD_v2", place, data, c_size_t(len(data)))

    def get(self, place: c_ulonglong, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", data, place, c_size_t(size))
        return data.raw

    def pinned(self, size: int) -> c_void_p:
        """Memory of the host that the GPU reads and writes by itself."""
        place = c_void_p()
        self.driver.call("cuMemHostAlloc", byref(place), c_size_t(size), c_uint(0))
        return place

    def copy_out(self, host: c_void_p, place: c_ulonglong, size: int) -> None:
        self.driver.call("cuMemcpyDtoH_v2", host, place, c_size_t(size))

    def copy_in(self, place: c_ulonglong, host: c_void_p, size: int) -> None:
        self.driver.call("cuMemcpyHtoD_v2", place, host, c_size_t(size))

    def free_pinned(self, place: c_void_p) -> None:
        self.driver.call("cuMemFreeHost", place)

    def run(self, kernel: str, blocks: int, *arguments: Scalar, shared: int = 0) -> None:
        """Start a kernel on `blocks` blocks of THREADS threads, and wait for its end."""
        pointers: Any = (c_void_p * len(arguments))(
            *[ctypes.cast(ctypes.pointer(argument), c_void_p) for argument in arguments]
        )
        one = c_uint(1)
        self.driver.call(
            "cuLaunchKernel", self._kernels[kernel], c_uint(blocks), one, one, c_uint(THREADS), one, one,
            c_uint(shared), None, pointers, None,
        )  # fmt: skip
        self.wait()

    def wait(self) -> None:
        """Until the GPU has done all that it was given: what went wrong meanwhile is raised here."""
        self.driver.call("cuCtxSynchronize")
