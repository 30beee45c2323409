"""NVIDIA GPUs: turns NVML's answers (`nhc.node.facts.nvml`) into the vendor-neutral description.

Sources of meaning: nvml.h and NVIDIA's NVML API reference. A query that NVML answers with "not
supported" leaves None; any other failure leaves None and a line in `Device.unread`.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts import accelerator_values as model
from nhc.node.facts import nvml
from nhc.node.facts.accelerator_values import Device, ErrorCount, Source
from nhc.node.facts.nvml import LINK_COUNTERS, LINK_FIELDS
from nhc.node.facts.nvml_codes import (
    ABSENT,
    COMPUTE,
    FABRIC_FIELDS,
    FABRIC_STATE,
    FABRIC_SUMMARY,
    NOT_SUPPORTED,
    REASONS,
    RECOVERY,
    error_code,
    error_text,
)
from nhc.node.facts.pci import accelerator_functions, normal_address

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from nhc.node.facts.nvml_binding import Plain

# What a refused handle means for the device. A GPU that has dropped off the bus often gives "Unknown error".
_FAULTS = {
    8: model.FAILED,
    11: model.FAILED,
    15: model.LOST,
    16: model.RESET_REQUIRED,
    17: model.FAILED,
    29: model.FAILED,
    999: model.FAILED,
}

FATAL_LINK_ERRORS = ("recovery_failed",)


def parse_device(answers: Mapping[str, Plain], driver: str = "") -> Device:
    """One device of an NVML snapshot."""
    a = NvmlAnswers(answers)
    address = a.table("pci", "pci").text("busId", "pci")
    device = Device(
        vendor="nvidia",
        number=a.whole("index", "index") or 0,
        id=a.text("uuid", "id") or "",
        pci=normal_address(address) if address else "",
        name=a.text("name", "name") or "",
        serial=a.text("serial", "serial"),
        driver=driver,
    )
    code = error_code(answers)
    if code is not None:
        fault = _FAULTS.get(code, model.UNREADABLE)
        return device._replace(fault=fault, problem=error_text(code))
    needs_reset = any(error_code(value) == 16 for key, value in answers.items() if key != "links")
    memory = a.table("memory", "memory")
    recovery = a.field("recovery_action", "recovery")
    return device._replace(
        fault=model.RESET_REQUIRED if needs_reset else "",
        problem=error_text(16) if needs_reset else "",
        recovery=None if recovery is None else RECOVERY.get(recovery, f"recovery action {recovery}"),
        memory_total=memory.whole("total", "memory"),
        memory_used=memory.whole("used", "memory"),
        utilization=a.table("utilization", "utilization").whole("gpu", "utilization"),
        errors=_errors(a),
        row_remap=_row_remap(a),
        retired_pages=_retired(a),
        links=_links(a),
        clocks=_clocks(a),
        thermal=_thermal(a),
        power=_power(a),
        pcie=model.PcieLink(
            *(
                a.whole(key, "pcie")
                for key in ("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width", "pcie_replays")
            )
        ),
        modes=_modes(a),
        firmware=model.Firmware(a.text("vbios", "vbios"), a.text("inforom", "inforom")),
        fabric=_fabric(a),
        processes=_processes(a),
        unread=a.unread,
    )


def _errors(a: NvmlAnswers) -> model.MemoryErrors:
    def count(place: str, counter: str) -> ErrorCount:
        return ErrorCount(
            a.whole(f"{place}_{counter}_corrected", "errors"), a.whole(f"{place}_{counter}_uncorrected", "errors")
        )

    status = a.table("sram", "sram")
    exceeded = status.whole("bThresholdExceeded", "sram")

    def sram(counter: str) -> ErrorCount:
        """SRAM by location, or by the SRAM status where the newer driver answers only that."""
        errors = count("sram", counter)
        if errors != ErrorCount():
            return errors
        uncorrected = [status.whole(f"{counter}{kind}", "sram") for kind in ("UncParity", "UncSecDed")]
        known = [number for number in uncorrected if number is not None]
        return ErrorCount(status.whole(f"{counter}Cor", "sram"), sum(known) if len(known) == len(uncorrected) else None)

    return model.MemoryErrors(
        dram=count("dram", "volatile"),
        sram=sram("volatile"),
        dram_aggregate=count("dram", "aggregate"),
        sram_aggregate=sram("aggregate"),
        sram_threshold_exceeded=None if exceeded is None else bool(exceeded),
    )


def _row_remap(a: NvmlAnswers) -> Optional[model.RowRemap]:
    rows, banks = a.wholes("row_remap", "row_remap", 4), a.table("row_banks", "row_banks")
    if rows is None:
        return None
    corrected, uncorrected, pending, failed = rows
    return model.RowRemap(corrected, uncorrected, bool(pending), bool(failed), banks.whole("none", "row_banks"))


def _retired(a: NvmlAnswers) -> Optional[model.RetiredPages]:
    single, double = a.entries("retired_single", "retired_pages"), a.entries("retired_double", "retired_pages")
    pending = a.whole("retired_pending", "retired_pages")
    if single is None and double is None and pending is None:
        return None
    return model.RetiredPages(
        None if single is None else len(single),
        None if double is None else len(double),
        None if pending is None else bool(pending),
    )


def _links(a: NvmlAnswers) -> Optional[Tuple[model.Link, ...]]:
    """The NVLinks; None if the device has none."""
    links: List[model.Link] = []
    for number, answers in enumerate(a.entries("links", "links") or ()):
        if not isinstance(answers, dict):
            raise ValueError(f"NVML's answer for NVLink {number} makes no sense")
        link = NvmlAnswers(answers)  # of its failures only the state's is noted: a missing counter means nothing
        state, code = link.whole("state", "links"), error_code(answers.get("state"))
        if code is not None:
            a.unread.setdefault("links", error_text(code))
        names = (*(name for name, _ in LINK_COUNTERS), *LINK_FIELDS)
        counted = {name: link.whole(name, name) for name in names}
        address = link.table("remote", "remote").text("busId", "remote")
        links.append(
            model.Link(
                "NVLink",
                number,
                None if state is None else bool(state),
                "switch" if link.whole("remote_type", "remote") == 2 else normal_address(address) if address else "",
                {name: count for name, count in counted.items() if count is not None},
                FATAL_LINK_ERRORS,
            )
        )
    return tuple(links) or None


def _clocks(a: NvmlAnswers) -> model.Clocks:
    bits = a.whole("reasons", "clocks")
    reasons = None
    if bits is not None:
        known = tuple(name for bit, name in REASONS.items() if bits & bit)
        other = bits & ~sum(REASONS)
        reasons = known + ((f"{model.UNNAMED}{other:#x}",) if other else ())
    return model.Clocks(
        reasons,
        *(
            a.whole(key, "clocks")
            for key in (
                "clock_graphics", "clock_memory", "application_graphics", "application_memory",
                "default_graphics", "default_memory",
            )
        ),
    )  # fmt: skip


def _thermal(a: NvmlAnswers) -> model.Thermal:
    return model.Thermal(
        gpu=a.whole("temperature", "thermal"),
        memory=a.field("memory_temperature", "thermal") or None,  # 0 if the board has no sensor
        gpu_max=a.whole("limit_gpu_max", "thermal"),
        memory_max=a.whole("limit_memory_max", "thermal"),
        slowdown=a.whole("limit_slowdown", "thermal"),
        shutdown=a.whole("limit_shutdown", "thermal"),
        margin=a.whole("margin", "thermal"),
        slowdown_margin=a.field("slowdown_margin", "thermal"),
    )


def _power(a: NvmlAnswers) -> model.PowerDraw:
    def watts(key: str) -> Optional[float]:
        value = a.whole(key, "power")
        return None if value is None else value / 1000

    least, most = a.wholes("power_range", "power", 2) or (None, None)
    return model.PowerDraw(
        watts("power_usage"),
        watts("power_limit"),
        watts("power_default"),
        None if least is None else least / 1000,
        None if most is None else most / 1000,
    )


def _modes(a: NvmlAnswers) -> model.Modes:
    def both(key: str) -> Tuple[Optional[bool], Optional[bool]]:
        value = a.wholes(key, key, 2)
        return (None, None) if value is None else (bool(value[0]), bool(value[1]))

    persistence = a.whole("persistence", "persistence")
    compute = a.whole("compute_mode", "compute_mode")
    return model.Modes(
        None if persistence is None else bool(persistence),
        *both("ecc_mode"),
        *both("mig_mode"),
        compute=None if compute is None else COMPUTE.get(compute, f"mode-{compute}"),
    )


def _fabric(a: NvmlAnswers) -> Optional[model.Fabric]:
    info = a.table("fabric", "fabric")
    state = info.whole("state", "fabric")
    if not state:  # not read, or 0: the device has no fabric
        return None
    mask, status = info.whole("healthMask", "fabric") or 0, info.whole("status", "fabric")
    problems = tuple(
        meanings[mask >> shift & width] for shift, width, meanings in FABRIC_FIELDS if mask >> shift & width in meanings
    )
    cluster = info.wholes("clusterUuid", "fabric", 16) or []
    summary = info.whole("healthSummary", "fabric") or 0
    return model.Fabric(
        state=FABRIC_STATE.get(state, f"state-{state}"),
        # "Must be checked only if Probe state returns complete" (NVML reference).
        status=error_text(status) if state == 3 and status else "",
        problems=problems,
        summary=FABRIC_SUMMARY.get(summary, f"summary-{summary}" if summary else ""),
        cluster="".join(f"{byte:02x}" for byte in cluster) if any(cluster) else "",
        clique=info.whole("cliqueId", "fabric"),
    )


def _processes(a: NvmlAnswers) -> Optional[Tuple[model.DeviceProcess, ...]]:
    listed = a.entries("processes", "processes")
    if listed is None:
        return None
    processes = []
    for entry in listed:
        process = NvmlAnswers(entry if isinstance(entry, dict) else {}, a.unread)
        pid = process.whole("pid", "processes")
        if pid is None:
            raise ValueError("NVML names a process without its number")
        processes.append(model.DeviceProcess(pid, "", process.whole("usedGpuMemory", "processes")))
    return tuple(processes)


def parse_nvml(answers: Mapping[str, Plain]) -> Source:
    """An NVML snapshot as one vendor's source. Raises ValueError if it makes no sense."""
    code, driver, devices = error_code(answers), answers.get("driver"), answers.get("devices")
    if code is not None:
        return _failed(code)
    if not isinstance(devices, list):
        raise ValueError("NVML's answer names no devices")
    version = driver if isinstance(driver, str) else ""
    return Source("nvidia", tuple(parse_device(each, version) for each in devices if isinstance(each, dict)), version)


def _failed(code: int) -> Source:
    """NVML did not start. Only the driver's own answer is certain; a missing library is not a fault of the GPUs."""
    reason, certain = {
        -1: ("BindingMissing", False),
        9: ("DriverNotLoaded", True),
        11: ("GpuInterruptProblem", True),
        12: ("NvmlMissing", False),
        15: ("GpuLost", True),
        18: ("DriverMismatch", True),
    }.get(code, ("NvmlFailed", False))
    return Source("nvidia", (), "", reason, error_text(code), certain)


def nvidia(host: Host) -> Source:
    """The node's NVIDIA GPUs, with the parts (`nvml_parts.PARTS`) that the check in hand reads."""
    source = parse_nvml(host.system.ask("nvml", lambda: nvml.snapshot(host.parts)))
    return source._replace(devices=tuple(_complete(host, device) for device in _placed(host, source.devices)))


def _placed(host: Host, devices: Tuple[Device, ...]) -> List[Device]:
    """The devices, with addresses added for lost ones that do not report theirs: NVML numbers GPUs in the bus's
    order.
    """
    known = {device.pci for device in devices}
    free = [f.address for f in host.fact(accelerator_functions) if f.vendor_name == "nvidia" and f.address not in known]
    if len(free) != sum(not device.pci for device in devices):
        return list(devices)
    return [device if device.pci else device._replace(pci=free.pop(0)) for device in devices]


def _complete(host: Host, device: Device) -> Device:
    """Adds what NVML did not answer and the kernel knows: the link of a device that does not answer, processes'
    names.
    """
    if device.fault and device.pci and device.pcie == model.PcieLink():
        from nhc.node.facts.pcie import link_speed

        return device._replace(pcie=link_speed(host, device.pci))
    if device.processes:
        named = tuple(p._replace(name=host.read_or(f"/proc/{p.pid}/comm")) for p in device.processes)
        return device._replace(processes=named)
    return device


if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Type, TypeVar

    from nhc.node.facts.nvml_binding import Plain

    T = TypeVar("T")


class NvmlAnswers:
    """One device's answers by their type. What could not be read, or is of another type, is noted on the way."""

    def __init__(self, answers: Mapping[str, Plain], unread: Optional[Dict[str, str]] = None) -> None:
        self.answers = answers
        self.unread: Dict[str, str] = {} if unread is None else unread

    def get(self, key: str, area: str) -> Plain:
        """The value at `key`, None if there is none; a failure other than "not supported" is noted under `area`."""
        value = self.answers.get(key, {"error": NOT_SUPPORTED})
        code = error_code(value)
        if code is None:
            return value
        if code not in ABSENT:
            self.unread.setdefault(area, error_text(code))
        return None

    def whole(self, key: str, area: str) -> Optional[int]:
        """A whole number."""
        return self._of_type(int, key, area)

    def text(self, key: str, area: str) -> Optional[str]:
        """A text."""
        return self._of_type(str, key, area)

    def table(self, key: str, area: str) -> NvmlAnswers:
        """A structure's members; none if it was not read."""
        return NvmlAnswers(self._of_type(dict, key, area) or {}, self.unread)

    def entries(self, key: str, area: str) -> Optional[List[Plain]]:
        """A list."""
        return self._of_type(list, key, area)

    def wholes(self, key: str, area: str, count: int) -> Optional[List[int]]:
        """`count` whole numbers."""
        entries = self.entries(key, area)
        numbers = [entry for entry in entries or () if isinstance(entry, int)]
        if entries is None or len(numbers) == len(entries) == count:
            return None if entries is None else numbers
        self._odd(key, area)
        return None

    def field(self, key: str, area: str) -> Optional[int]:
        """A field value (`nhc.node.facts.nvml.DEVICE_FIELDS`)."""
        fields = self.answers.get("fields")
        return NvmlAnswers(fields, self.unread).whole(key, area) if isinstance(fields, dict) else None

    def _of_type(self, kind: Type[T], key: str, area: str) -> Optional[T]:
        value = self.get(key, area)
        if value is None or isinstance(value, kind):
            return value
        self._odd(key, area)
        return None

    def _odd(self, key: str, area: str) -> None:
        self.unread.setdefault(area, f"NVML's answer for {key} makes no sense")


_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")


def parse_mig(text: str) -> Dict[str, List[Tuple[str, str]]]:
    """By each GPU's UUID its instances: profile (`3g.20gb`) and UUID. A GPU that is whole has none.

    Raises ValueError if the text names no GPU.
    """
    instances: Dict[str, List[Tuple[str, str]]] = {}
    below = ""
    for line in text.splitlines():
        gpu, instance = _GPU.match(line), _INSTANCE.match(line)
        if gpu:
            below = gpu.group(1)
            instances[below] = []
        elif instance and below:
            instances[below].append((instance.group(1), instance.group(3)))
    if not instances:
        raise ValueError("no GPU is listed")
    return instances
