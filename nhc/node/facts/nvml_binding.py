"""The types of the used parts of NVIDIA's binding, nvidia-ml-py, which has none: only for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Protocol, Sequence, Tuple, Type, Union

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

Plain: TypeAlias = "Union[bool, int, float, str, Sequence[Plain], Mapping[str, Plain], None]"
"""An answer as JSON's own types; `{"error": CODE}` is a query that failed."""

Handle: TypeAlias = object
"""NVML's handle of a device."""


class NvmlFailure(Exception):
    """The binding's NVMLError: `value` is NVML's code."""

    value: int


class FieldUnion(Protocol):
    """One field's value by its type: dVal, uiVal and so on."""


class FieldValue(Protocol):
    """One answer of nvmlDeviceGetFieldValues."""

    nvmlReturn: int  # noqa: N815
    valueType: int  # noqa: N815
    value: FieldUnion


class Binding(Protocol):
    """What is used of nvidia-ml-py by its name; queries are looked up, for an older binding has fewer of them."""

    NVMLError: Type[NvmlFailure]
    NVML_ERROR_FUNCTION_NOT_FOUND: int
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH: int
    NVML_ERROR_INVALID_ARGUMENT: int
    NVML_ERROR_NOT_SUPPORTED: int
    NVML_NVLINK_MAX_LINKS: int
    nvmlEccSramErrorStatus_v1: int  # noqa: N815

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...  # noqa: N802
    def nvmlDeviceGetHandleByPciBusId(self, bus_id: bytes) -> Handle: ...  # noqa: N802
    def nvmlPciInfo_t(self, **members: object) -> Any: ...  # noqa: N802  (a structure of ctypes)
    def nvmlDeviceGetFieldValues(  # noqa: N802
        self, handle: Handle, wanted: List[Tuple[int, int]]
    ) -> Sequence[FieldValue]: ...
    def c_nvmlEccSramErrorStatus_v1_t(self) -> Any: ...  # noqa: N802  (a structure of ctypes)
