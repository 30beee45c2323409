"""Everything NVML tells of a node, read once into plain values that can be recorded and replayed.

NVML is NVIDIA's management library, reached through NVIDIA's own binding (nvidia-ml-py, imported as
`pynvml`), which is imported here and nowhere else. Nothing is judged or interpreted here: a query that
failed leaves `{"error": CODE}` in the place of its value, and `nhc.node.facts.nvidia` reads the whole.

A call into NVML can hang in the driver or bring the process down. The engine runs checks in
processes it can lose, so there is no defence against that here.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.nvml_parts import ALWAYS, DEVICE_FIELDS, LINK_COUNTERS, LINK_FIELDS, PARTS

if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, List, Optional

    from nhc.node.facts.nvml_binding import Binding, FieldValue, Handle, Plain

GPU_IS_LOST = 15
BINDING_MISSING = -1
"""The code for "nvidia-ml-py is not installed": NVML's own codes are not negative."""


class _Lost(Exception):
    """The device answers nothing any more: asking on costs seconds a call."""


class _Queries:
    """Queries of one loaded NVML, each failure kept as its code."""

    def __init__(self, nvml: Binding) -> None:
        self.nvml = nvml

    def ask(self, function: str, *arguments: object) -> Plain:
        """What `function` returns as plain values, `{"error": CODE}` where it fails."""
        try:
            return _plain(getattr(self.nvml, function)(*arguments))
        except AttributeError:  # a binding older than the function
            return {"error": self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND}
        except self.nvml.NVMLError as error:
            if error.value == GPU_IS_LOST:
                raise _Lost from None
            return {"error": int(error.value)}

    def device(self, index: int, asks: Callable[[str], bool]) -> Dict[str, Plain]:
        answers: Dict[str, Plain] = {"index": index}
        try:
            handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError as error:
            return {**answers, "error": int(error.value)}
        try:
            for part, queries in (("", ALWAYS), *PARTS.items()):
                if not part or asks(part):
                    for key, function, arguments in queries:
                        answers[key] = self.ask(function, handle, *arguments)
            fields = answers["fields"] = self.fields(handle, DEVICE_FIELDS)
            if asks("clocks"):
                answers["reasons"] = self._reasons(handle)
            if asks("errors"):
                answers["sram"] = self._sram(handle)
            if asks("fabric"):
                answers["fabric"] = self._fabric(handle)
            if asks("links") or asks("link_errors"):
                answers["links"] = self._links(handle, fields.get("link_count"), asks("link_errors"))
        except _Lost:
            answers["error"] = GPU_IS_LOST
        return answers

    def fields(self, handle: Handle, wanted: Dict[str, int], scope: int = 0) -> Dict[str, Plain]:
        """Several field values in one call; NVML answers for each apart."""
        try:
            values = self.nvml.nvmlDeviceGetFieldValues(handle, [(number, scope) for number in wanted.values()])
        except self.nvml.NVMLError as error:
            if error.value == GPU_IS_LOST:
                raise _Lost from None
            return {name: {"error": int(error.value)} for name in wanted}
        return {name: _field(value) for name, value in zip(wanted, values)}

    def _reasons(self, handle: Handle) -> Plain:
        """Why clocks are held down. Drivers before 535 know the query by its old name only."""
        answer = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if answer == {"error": self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
            return self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return answer

    def _sram(self, handle: Handle) -> Plain:
        status = self.nvml.c_nvmlEccSramErrorStatus_v1_t()
        status.version = self.nvml.nvmlEccSramErrorStatus_v1
        return self._filled("nvmlDeviceGetSramEccErrorStatus", handle, status)

    def _fabric(self, handle: Handle) -> Plain:
        """The newest form of the fabric's state that this driver and this binding both know."""
        mismatch = (
            self.nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            self.nvml.NVML_ERROR_INVALID_ARGUMENT,
        )
        answer: Plain = {"error": self.nvml.NVML_ERROR_FUNCTION_NOT_FOUND}
        for function, structure in (
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
            ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
        ):
            kind = getattr(self.nvml, structure, None)
            if kind is None:
                continue
            answer = self._filled(function, handle, kind())
            if not (isinstance(answer, dict) and answer.get("error") in mismatch):
                return answer
        return answer

    def _filled(self, function: str, handle: Handle, structure: Any) -> Plain:
        """What `function` writes into `structure`: the binding hands these through to C as they are."""
        from ctypes import byref

        answer = self.ask(function, handle, byref(structure))
        return answer if isinstance(answer, dict) and "error" in answer else _plain(structure)

    def _links(self, handle: Handle, count: Plain, errors: bool) -> List[Dict[str, Plain]]:
        most = count if isinstance(count, int) else self.nvml.NVML_NVLINK_MAX_LINKS
        links: List[Dict[str, Plain]] = []
        for number in range(most):
            state = self.ask("nvmlDeviceGetNvLinkState", handle, number)
            if isinstance(state, dict) and state["error"] in (
                self.nvml.NVML_ERROR_INVALID_ARGUMENT,
                self.nvml.NVML_ERROR_NOT_SUPPORTED,
            ):
                break  # the device has no further links
            link: Dict[str, Plain] = {"state": state}
            if state == 1:
                link["remote_type"] = self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
                link["remote"] = self.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)
            links.append(link)
            for name, counter in LINK_COUNTERS if errors else ():
                link[name] = self.ask("nvmlDeviceGetNvLinkErrorCounter", handle, number, counter)
            if isinstance(link.get("replay"), dict):
                link.update(self.fields(handle, LINK_FIELDS, number))
        return links


def _field(value: FieldValue) -> Plain:
    """A field value by the type NVML gives it."""
    if value.nvmlReturn:
        return {"error": int(value.nvmlReturn)}
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    kind = int(value.valueType)
    return _plain(getattr(value.value, names[kind])) if kind < len(names) else {"error": 999}


def _plain(value: Any) -> Plain:
    """Structures of ctypes, the binding's objects and lists of them as dictionaries, lists, numbers and text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    fields = getattr(value, "_fields_", None)
    if fields is not None:
        return {entry[0]: _plain(getattr(value, entry[0])) for entry in fields}
    if hasattr(value, "__len__"):  # an array of ctypes
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in vars(value).items()}


def _loaded(read: Callable[[Binding], Dict[str, Plain]]) -> Dict[str, Plain]:
    """`read(pynvml)` between NVML's start and its shutdown; the code where it cannot start."""
    try:
        nvml: Binding = __import__("pynvml")
    except ImportError as error:
        return {"error": BINDING_MISSING, "text": str(error)}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": int(error.value)}
    try:
        return read(nvml)
    except nvml.NVMLError as error:
        return {"error": int(error.value)}
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass


def snapshot(parts: Optional[AbstractSet[str]] = None) -> Dict[str, Plain]:
    """The node's driver and every device's answers, of these `nvml_parts.PARTS`; None for all of them."""

    def asks(part: str) -> bool:
        return parts is None or part in parts

    def read(nvml: Binding) -> Dict[str, Plain]:
        reader = _Queries(nvml)
        return {
            "driver": reader.ask("nvmlSystemGetDriverVersion"),
            "nvml": reader.ask("nvmlSystemGetNVMLVersion"),
            "devices": [reader.device(index, asks) for index in range(nvml.nvmlDeviceGetCount())],
        }

    return _loaded(read)


def inforom() -> Dict[str, Plain]:
    """Whether each device's InfoROM is whole: 0, or NVML's code. Reads flash, so it is asked for apart."""

    def read(nvml: Binding) -> Dict[str, Plain]:
        reader = _Queries(nvml)
        answers: List[Plain] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                answers.append(reader.ask("nvmlDeviceValidateInforom", nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError as error:
                answers.append({"error": int(error.value)})
            except _Lost:
                answers.append({"error": GPU_IS_LOST})
        return {"devices": answers}

    return _loaded(read)


def peers() -> Dict[str, Plain]:
    """Each device's row of peer-to-peer states over NVLink (capability 2) and over any path (0, reading)."""

    def read(nvml: Binding) -> Dict[str, Plain]:
        reader = _Queries(nvml)
        handles = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError:
                handles.append(None)

        def state(device: Handle, other: Handle, capability: int) -> Plain:
            if device is None or other is None:
                return {"error": GPU_IS_LOST}
            try:
                return reader.ask("nvmlDeviceGetP2PStatus", device, other, capability)
            except _Lost:
                return {"error": GPU_IS_LOST}

        def matrix(capability: int) -> List[List[Plain]]:
            return [[0 if a is b else state(a, b, capability) for b in handles] for a in handles]

        return {"read": matrix(0), "nvlink": matrix(2)}

    return _loaded(read)
