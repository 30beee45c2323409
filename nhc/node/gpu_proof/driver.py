"""libcuda.so.1, which comes with every NVIDIA driver, through ctypes: no toolkit, no package, no privileges.

Calls and numbers: NVIDIA, CUDA Driver API. Only what the proof needs is here.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from nhc.core.data.reader import read
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.gpu_proof import operands

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

    from typing_extensions import TypeAlias

    Scalar: TypeAlias = "Union[c_int, c_uint, c_ulonglong, ctypes.c_double]"

THREADS = 256
"""Threads of a block, as in nhc/core/data/gpu_proof.cu."""

DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
OUT_OF_MEMORY, ALREADY = 2, 704
"""CUDA_ERROR_OUT_OF_MEMORY and _PEER_ACCESS_ALREADY_ENABLED; HIP has the same numbers."""


class Attributes(NamedTuple):
    """The numbers of a device's attributes in a library."""

    units: int
    l2: int
    shared: int
    major: int
    minor: int


class DriverError(Exception):
    """A call of the driver failed: which, its number, and that number's name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class NoDriver(Exception):
    """A library cannot be loaded, or lacks a call that the proof needs: one line."""


def load_library(names: Sequence[str]) -> ctypes.CDLL:
    """The first of these that can be loaded. Raises NoDriver."""
    why = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            why = why or f"{name} cannot be loaded: {error}"
    raise NoDriver(why)


class Driver:
    """The library, initialized. `step` is called with the name of each call that may hang.

    Raises NoDriver, DriverError.
    """

    libraries: Tuple[str, ...] = ("libcuda.so.1",)
    """File names of the library: the first that can be loaded is used."""

    def __init__(self, step: Callable[[str], None], visible: str) -> None:
        self.show(visible)
        step(f"loading {self.libraries[0].partition('.')[0]}")
        self.library = load_library(self.libraries)
        step(self.name_of("cuInit"))
        self.call("cuInit", c_uint(0))

    def show(self, visible: str) -> None:
        """Let this process see only the GPUs of these names."""
        os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=visible)

    def name_of(self, call: str) -> str:
        """The name of a libcuda call in this library."""
        return call

    def call(self, name: str, *arguments: object) -> None:
        """One call of the driver, by libcuda's name.

        Raises DriverError for any result but 0, NoDriver if the library lacks the call.
        """
        name = self.name_of(name)
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise NoDriver(f"{self.libraries[0]} has no {name}: the driver is too old") from None
        code = function(*arguments)
        if code:
            raise DriverError(name, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        """What the library calls the result of a call."""
        text = c_char_p()
        self.library.cuGetErrorName(c_int(code), byref(text))
        return (text.value or b"unknown error").decode(errors="replace")

    def number(self, name: str, *arguments: object) -> int:
        """What a call writes through its first argument, an int."""
        value = c_int()
        self.call(name, byref(value), *arguments)
        return value.value

    def gpus(self) -> List[Gpu]:
        """The GPUs that this process proves, each with a context; the last one is current."""
        return [Gpu(self, ordinal) for ordinal in range(self.number("cuDeviceGetCount"))]

    def version(self) -> Tuple[int, int]:
        """The newest CUDA that the driver speaks: (12, 4) for 12040."""
        version = self.number("cuDriverGetVersion")
        return version // 1000, version % 1000 // 10


class Gpu:
    """A GPU (or an instance of one, under MIG) and a context on it, current in this thread. Raises DriverError.

    `close` releases everything; so does the end of the process.
    """

    attributes = Attributes(units=16, l2=38, shared=97, major=75, minor=76)
    """CUdevice_attribute"""
    unit = "SM"

    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver
        self._kernels: Dict[str, c_void_p] = {}
        self._texts: List[bytes] = []
        self.device = self.open(ordinal)
        self.use()

    def open(self, ordinal: int) -> c_int:
        """Take the GPU of this number; what the library calls it."""
        device = c_int(self.driver.number("cuDeviceGet", c_int(ordinal)))
        self._context = c_void_p()
        self.driver.call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        return device

    def use(self) -> None:
        """Make this GPU the current one for the next calls."""
        self.driver.call("cuCtxSetCurrent", self._context)

    def close(self) -> None:
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self.device)

    def attribute(self, number: int) -> int:
        return self.driver.number("cuDeviceGetAttribute", c_int(number), self.device)

    @property
    def units(self) -> int:
        """Its multiprocessors, or compute units."""
        return self.attribute(self.attributes.units)

    @property
    def l2_bytes(self) -> int:
        return self.attribute(self.attributes.l2)

    @property
    def shared_bytes(self) -> int:
        """Shared memory that a block may have."""
        return self.attribute(self.attributes.shared)

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
        return self.attribute(self.attributes.major), self.attribute(self.attributes.minor)

    def texts(self) -> Tuple[Dict[str, Tuple[operands.TensorKind, ...]], str]:
        """The texts with kernels that this GPU and driver take, each with its kinds, and why not more."""
        return operands.texts(self.capability, self.driver.version())

    def memory(self) -> Tuple[int, int]:
        """Bytes of memory: free, and in all."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def code(self, name: str) -> bytes:
        """A text as the driver accepts it: PTX, which it translates for this GPU or takes from its cache."""
        return read(name).encode()

    def load(self, name: str, names: Sequence[str]) -> None:
        """Load a text, and find its kernels."""
        module = c_void_p()
        self._texts.append(self.code(name))  # the driver may read it again
        self.driver.call("cuModuleLoadData", byref(module), c_char_p(self._texts[-1]))
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
        single = c_uint(1)
        self.driver.call(
            "cuLaunchKernel", self._kernels[kernel], c_uint(blocks), single, single, c_uint(THREADS), single, single,
            c_uint(shared), None, pointers, None,
        )  # fmt: skip
        self.wait()

    def reaches(self, other: Gpu) -> bool:
        """Whether it can access the other GPU's memory directly."""
        return bool(self.driver.number("cuDeviceCanAccessPeer", self.device, other.device))

    def reach(self, other: Gpu) -> None:
        """Let it do so from now on."""
        self.use()
        try:
            self.enable_peer(other)
        except DriverError as error:
            if error.code != ALREADY:
                raise

    def enable_peer(self, other: Gpu) -> None:
        self.driver.call("cuCtxEnablePeerAccess", other._context, c_uint(0))

    def copy_to(self, other: Gpu, target: c_ulonglong, place: c_ulonglong, size: int) -> None:
        """Copy from this GPU's memory to the memory of another one that it can access, and wait for the end."""
        self.driver.call("cuMemcpyPeer", target, other._context, place, self._context, c_size_t(size))
        self.wait()

    def wait(self) -> None:
        """Wait until the GPU has finished its work: an error during it is raised here."""
        self.driver.call("cuCtxSynchronize")
