"""Reads all that NVML reports of a node once, into plain values that can be recorded and replayed.

NVML is NVIDIA's management library, reached through NVIDIA's own binding (nvidia-ml-py, imported as
`pynvml`), which is imported here and nowhere else. Nothing is judged or interpreted here: a query that failed gives
`{"error": CODE}` instead of its value, and `nhc.node.facts.nvidia` interprets the result.

A call into NVML can hang in the driver or bring the process down. The engine runs checks in processes that may hang or
die, so there is no protection against that here.

Peer-to-peer states of pairs and InfoROM checksums are queried only for the checks that judge them.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.nvml_codes import error_code, error_text

if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Optional, Tuple

    from typing_extensions import TypeAlias

    from nhc.node.facts.nvml_binding import Binding, FieldValue, Handle, Plain

GPU_IS_LOST = 15
BINDING_MISSING = -1
"""The code for "nvidia-ml-py is not installed": NVML's own codes are not negative."""


class _Lost(Exception):
    """The device no longer answers: each further query would take seconds."""


class _Queries:
    """Queries of one loaded NVML; each failure is returned as its code."""

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
        """Why clocks are reduced. Drivers before 535 know the query only by its old name."""
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


Queries: TypeAlias = "Tuple[Tuple[str, str, Tuple[int, ...]], ...]"
"""Queries of a device: the key of the answer, the function, its arguments after the handle."""

ECC = (("corrected", 0), ("uncorrected", 1))
COUNTERS = (("volatile", 0), ("aggregate", 1))
LOCATIONS = (("dram", 2), ("sram", 7))
LIMITS = (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("gpu_max", 3))
CLOCKS = (("graphics", 0), ("memory", 2))
LINK_COUNTERS = (("replay", 0), ("recovery", 1), ("crc_flit", 2), ("crc_data", 3), ("ecc_data", 4))

DEVICE_FIELDS: Dict[str, int] = {
    "memory_temperature": 82,
    "link_count": 91,
    "shutdown_margin": 193,
    "slowdown_margin": 194,
    "memory_max_margin": 195,
    "gpu_max_margin": 196,
    "recovery_action": 230,
}
LINK_FIELDS: Dict[str, int] = {  # what NVLink 5 counts in place of LINK_COUNTERS; the scope is the link
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "receive_remote_errors": 209,
    "local_integrity_errors": 211,
    "recovery_failed": 214,
    "recovery_events": 215,
    "effective_errors": 219,
}
"""NVML_FI_DEV_... identifiers, as nvml.h numbers them."""

ALWAYS: Queries = (
    ("pci", "nvmlDeviceGetPciInfo", ()),
    ("uuid", "nvmlDeviceGetUUID", ()),
    ("name", "nvmlDeviceGetName", ()),
    ("serial", "nvmlDeviceGetSerial", ()),
    ("memory", "nvmlDeviceGetMemoryInfo", ()),
    ("temperature", "nvmlDeviceGetTemperature", (0,)),
)
"""What every snapshot asks of a device, like DEVICE_FIELDS: its identity, and enough to see whether it answers."""

PARTS: Dict[str, Queries] = {
    "vbios": (("vbios", "nvmlDeviceGetVbiosVersion", ()),),
    "inforom": (("inforom", "nvmlDeviceGetInforomImageVersion", ()),),
    "ecc_mode": (("ecc_mode", "nvmlDeviceGetEccMode", ()),),
    "persistence": (("persistence", "nvmlDeviceGetPersistenceMode", ()),),
    "compute_mode": (("compute_mode", "nvmlDeviceGetComputeMode", ()),),
    "mig_mode": (("mig_mode", "nvmlDeviceGetMigMode", ()),),
    "utilization": (("utilization", "nvmlDeviceGetUtilizationRates", ()),),
    "processes": (("processes", "nvmlDeviceGetComputeRunningProcesses", ()),),
    "row_remap": (
        ("row_remap", "nvmlDeviceGetRemappedRows", ()),
        ("row_banks", "nvmlDeviceGetRowRemapperHistogram", ()),
    ),
    "retired_pages": (
        ("retired_single", "nvmlDeviceGetRetiredPages", (0,)),
        ("retired_double", "nvmlDeviceGetRetiredPages", (1,)),
        ("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", ()),
    ),
    "power": (
        ("power_usage", "nvmlDeviceGetPowerUsage", ()),
        ("power_limit", "nvmlDeviceGetPowerManagementLimit", ()),
        ("power_default", "nvmlDeviceGetPowerManagementDefaultLimit", ()),
        ("power_range", "nvmlDeviceGetPowerManagementLimitConstraints", ()),
    ),
    "thermal": (
        ("margin", "nvmlDeviceGetMarginTemperature", ()),
        *((f"limit_{name}", "nvmlDeviceGetTemperatureThreshold", (number,)) for name, number in LIMITS),
    ),
    "pcie": (
        ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
        ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
        ("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
        ("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth", ()),
        ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", ()),
    ),
    "clocks": tuple((f"clock_{name}", "nvmlDeviceGetClockInfo", (number,)) for name, number in CLOCKS),
    "application_clocks": (
        *((f"application_{name}", "nvmlDeviceGetApplicationsClock", (number,)) for name, number in CLOCKS),
        *((f"default_{name}", "nvmlDeviceGetDefaultApplicationsClock", (number,)) for name, number in CLOCKS),
    ),
    "errors": tuple(
        (f"{place}_{counter}_{kind}", "nvmlDeviceGetMemoryErrorCounter", (kind_number, counter_type, location))
        for counter, counter_type in COUNTERS
        for kind, kind_number in ECC
        for place, location in LOCATIONS
    ),
    "fabric": (),
    "links": (),
    "link_errors": (),
}
"""The parts of a snapshot that a check names as `parts` of what it reads, each with its plain queries.

A query takes 0.1 to 3 ms on an H100 with driver 580; application clocks, limits and margins of heat and remapped rows
take the longest. A node has eight GPUs, and a GPU up to 18 links, so values that no check judges are not queried.
"""


if TYPE_CHECKING:
    from typing import List, TypedDict, Union

    from typing_extensions import TypeAlias

    class NvmlRefusal(TypedDict):
        """What NVML answers in place of a value: its code."""

        error: int

    PeerState: TypeAlias = "Union[int, NvmlRefusal]"
    """NVML's state of a pair (`nhc.node.facts.nvml_codes.PEER_STATES`), 0 if one reaches the other."""

    class PeerStates(TypedDict, total=False):
        """A row for each device, in the order of indices; `error` where NVML gave none."""

        read: List[List[PeerState]]
        nvlink: List[List[PeerState]]
        error: int

    class Inforoms(TypedDict, total=False):
        """`devices` in the order of indices, None if it is whole; else why NVML gave none."""

        devices: List[Union[int, NvmlRefusal, None]]
        error: int
        text: str


class Peers:
    """Which GPUs can reach each other: `read` over any path, `nvlink` over NVLink, by pair of indices."""

    def __init__(self, answers: PeerStates) -> None:
        code = error_code(answers)
        self.problem = "" if code is None else error_text(code)
        self.read = answers.get("read", [])
        self.nvlink = answers.get("nvlink", [])


def ask_peers(host: Host) -> Peers:
    """The peer-to-peer matrix."""
    answers: PeerStates = host.system.ask("nvml-peers", peers)
    return Peers(answers)


def ask_inforoms(host: Host) -> Inforoms:
    """Each device's InfoROM checksums, or why NVML gave none."""
    answers: Inforoms = host.system.ask("nvml-inforom", inforom)
    return answers


def _at(nvml: Binding, pci: str) -> Any:
    """NVML's form of a PCI address; drain state, removal and discovery read its numbers alone."""
    domain, bus, rest = pci.split(":")
    numbers = {"domain": int(domain, 16), "bus": int(bus, 16), "device": int(rest.partition(".")[0], 16)}
    return nvml.nvmlPciInfo_t(busId=f"{numbers['domain']:08X}:{bus}:{rest}".encode(), **numbers)


def take_out(pci: str) -> Dict[str, Plain]:
    """Remove a GPU from the driver as if it were gone: persistence off, drained, removed. For a drill, as root.

    Returns `persistence`, to be switched on again; or `error` and the failed `step`, with all steps undone. NVML
    refuses if a process holds the GPU (IN_USE). Source: nvml.h, Drain states.
    """

    def act(nvml: Binding) -> Dict[str, Plain]:
        reader = _Queries(nvml)
        place = _at(nvml, pci)
        try:
            device = nvml.nvmlDeviceGetHandleByPciBusId(place.busId)
        except nvml.NVMLError as error:
            return {"error": int(error.value), "step": "find"}
        persistence = reader.ask("nvmlDeviceGetPersistenceMode", device)
        answer: Plain = None
        done: List[str] = []
        steps: List[Tuple[str, str, Tuple[object, ...]]] = []
        steps += [("persistence", "nvmlDeviceSetPersistenceMode", (device, 0))] if persistence == 1 else []
        steps += [("drain", "nvmlDeviceModifyDrainState", (place, 1)), ("remove", "nvmlDeviceRemoveGpu", (place,))]
        for step, function, arguments in steps:
            answer = reader.ask(function, *arguments)
            if isinstance(answer, dict) and "error" in answer:
                break
            done.append(step)
        else:
            return {"persistence": persistence == 1}
        if "drain" in done:
            reader.ask("nvmlDeviceModifyDrainState", place, 0)
        if "persistence" in done:
            reader.ask("nvmlDeviceSetPersistenceMode", device, 1)
        return {**answer, "step": step}

    return _loaded(act)


def put_back(pci: str, persistence: bool) -> Dict[str, Plain]:
    """Let the driver find a GPU again that `take_out` removed; `error` and the failed `step` if it does not."""

    def act(nvml: Binding) -> Dict[str, Plain]:
        reader = _Queries(nvml)
        place = _at(nvml, pci)
        for step, function, arguments in (
            ("discover", "nvmlDeviceDiscoverGpus", (place,)),
            ("undrain", "nvmlDeviceModifyDrainState", (place, 0)),
        ):
            answer = reader.ask(function, *arguments)
            if isinstance(answer, dict) and "error" in answer:
                return {**answer, "step": step}
        try:
            device = nvml.nvmlDeviceGetHandleByPciBusId(place.busId)
        except nvml.NVMLError as error:
            return {"error": int(error.value), "step": "find"}
        if persistence:
            reader.ask("nvmlDeviceSetPersistenceMode", device, 1)
        return {"found": True}

    return _loaded(act)


def operational_events(wait: int, least: int) -> Iterator[Dict[str, Plain]]:
    """The driver's GPU Operational Events from now on, each as its fields, with the `xid` that it stands for.

    After `wait` milliseconds without an event there is an empty answer, so that the caller gets control. Events below
    severity `least` are not sent. The first answer says that all GPUs are followed; `error` is the last answer, 13 if
    this driver has no such events (before R615). It keeps the GPUs open: none can be reset during this time. Source:
    nvml.h of R615, nvmlEventSetRegisterGpuOperationalEvents_v1 and nvmlEventSetWait_v3.
    """
    try:
        nvml: Any = __import__("pynvml")
    except ImportError as error:
        yield {"error": BINDING_MISSING, "text": str(error)}
        return
    try:
        nvml.nvmlInit()
        events = nvml.nvmlEventSetCreate()
        places: Dict[str, Plain] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = nvml.nvmlDeviceGetUUID(device)
            places[uuid] = _plain(nvml.nvmlDeviceGetPciInfo(device).busId)
            config = nvml.c_nvmlGpuOperationalEventConfig_v1_t(uuid=uuid, minSeverity=least)
            nvml.nvmlEventSetRegisterGpuOperationalEvents_v1(events, config)
        yield {}
        while True:
            waited = nvml.c_nvmlEventSetWait_v3_t(timeoutMs=wait)
            try:
                nvml.nvmlEventSetWait_v3(events, waited)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    raise
                yield {}
                continue
            if waited.dataType == nvml.NVML_EVENT_DATA_TYPE_GPU_OPERATIONAL_EVENT:
                answer = {name: _plain(getattr(waited, name)) for name, *_ in waited._fields_}
                yield {**answer, "pci": places.get(str(answer["uuid"]), ""), "xid": _event_xid(nvml, events)}
    except AttributeError:  # a binding older than the events
        yield {"error": 13}
    except nvml.NVMLError as error:
        yield {"error": int(error.value)}


def _event_xid(nvml: Any, events: object) -> Optional[int]:
    """The Xid that the event last returned stands for; None for one that has none."""
    counted = nvml.c_nvmlEventSetGetContextCount_v1_t()
    nvml.nvmlEventSetGetContextCount_v1(events, counted)
    for index in range(min(counted.count, 64)):
        about = nvml.c_nvmlEventSetGetContextInfo_v1_t(index=index)
        nvml.nvmlEventSetGetContextInfo_v1(events, about)
        if about.nvmlGpuOperationalEventContextType == nvml.NVML_GPU_OPERATIONAL_EVENT_CONTEXT_TYPE_LEGACY_XID:
            legacy = nvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t(index=index)
            nvml.nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(events, legacy)
            return int(legacy.xidCode)
    return None
