"""NVIDIA GPUs: what NVML said (`nhc.facts.nvml`), read into the vendor-neutral description.

Sources of meaning: nvml.h and NVIDIA's NVML API reference. A query that NVML answers with "not
supported" leaves None; any other failure leaves None and a line in `Device.unread`.
"""

from __future__ import annotations

from nhc.facts import accelerator_values as model
from nhc.facts import nvml
from nhc.facts.accelerator_values import Device, ErrorCount, Source
from nhc.facts.nvml_codes import (
    ABSENT,
    COMPUTE,
    FABRIC_FIELDS,
    FABRIC_STATE,
    FABRIC_SUMMARY,
    NOT_SUPPORTED,
    REASONS,
    RECOVERY,
    error_text,
)
from nhc.facts.pci import accelerator_functions, link_speed, normal_address
from nhc.host import Host
from nhc.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple, TypedDict, Union

    from typing_extensions import TypeAlias

    class NvmlRefusal(TypedDict):
        """What NVML answers in place of a value: its code."""

        error: int

    PeerState: TypeAlias = "Union[int, NvmlRefusal]"
    """NVML's state of a pair (`nhc.facts.nvml_codes.PEER_STATES`), 0 where one reaches the other."""

    class Inforoms(TypedDict, total=False):
        """`devices` in the order of indices, None where it is whole; else why NVML gave none."""

        devices: List[Union[int, NvmlRefusal, None]]
        error: int
        text: str


# What a refused handle says of the device. "Unknown error" is how a GPU that has dropped off the bus often shows.
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


class _Answers:
    """One device's answers, with what could not be read noted on the way."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.unread: Dict[str, str] = {}

    def get(self, key: str, area: str) -> Any:
        """The value at `key`, None where there is none; a failure other than "not supported" is noted under `area`."""
        value = self.answers.get(key, {"error": NOT_SUPPORTED})
        if isinstance(value, dict) and "error" in value:
            if value["error"] not in ABSENT:
                self.unread.setdefault(area, error_text(value["error"]))
            return None
        return value

    def field(self, key: str, area: str) -> Any:
        fields = self.answers.get("fields")
        return _Answers.get(_Within(self, fields), key, area) if isinstance(fields, dict) else None


class _Within(_Answers):
    """A nested set of answers that notes failures in its parent."""

    def __init__(self, parent: _Answers, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.unread = parent.unread


def parse_device(answers: Mapping[str, Any], driver: str = "") -> Device:
    """One device of an NVML snapshot."""
    a = _Answers(answers)
    pci = a.get("pci", "pci") or {}
    device = Device(
        vendor="nvidia",
        number=int(answers["index"]),
        id=a.get("uuid", "id") or "",
        pci=normal_address(pci["busId"]) if pci.get("busId") else "",
        name=a.get("name", "name") or "",
        serial=a.get("serial", "serial"),
        driver=driver,
    )
    if "error" in answers:
        code = int(answers["error"])
        fault = _FAULTS.get(code, model.UNREADABLE)
        return device._replace(fault=fault, problem=error_text(code))
    needs_reset = any(
        isinstance(value, dict) and value.get("error") == 16 for key, value in answers.items() if key != "links"
    )
    memory = a.get("memory", "memory") or {}
    recovery = a.field("recovery_action", "recovery")
    return device._replace(
        fault=model.RESET_REQUIRED if needs_reset else "",
        problem=error_text(16) if needs_reset else "",
        recovery=None if recovery is None else RECOVERY.get(recovery, f"recovery action {recovery}"),
        memory_total=memory.get("total"),
        memory_used=memory.get("used"),
        errors=_errors(a),
        row_remap=_row_remap(a),
        retired_pages=_retired(a),
        links=_links(answers.get("links", []), a.unread),
        clocks=_clocks(a),
        thermal=_thermal(a),
        power=_power(a),
        pcie=model.PcieLink(
            *(
                a.get(key, "pcie")
                for key in ("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width", "pcie_replays")
            )
        ),
        modes=_modes(a),
        firmware=model.Firmware(a.get("vbios", "vbios"), a.get("inforom", "inforom"), a.get("gsp", "gsp")),
        fabric=_fabric(a),
        processes=_processes(a),
        unread=a.unread,
    )


def _errors(a: _Answers) -> model.MemoryErrors:
    def count(place: str, counter: str) -> ErrorCount:
        return ErrorCount(
            a.get(f"{place}_{counter}_corrected", "errors"), a.get(f"{place}_{counter}_uncorrected", "errors")
        )

    status = a.get("sram", "sram") or {}

    def sram(counter: str) -> ErrorCount:
        """SRAM by location, or by the SRAM status where the newer driver answers only that."""
        found = count("sram", counter)
        if found == ErrorCount() and status:
            return ErrorCount(status[f"{counter}Cor"], status[f"{counter}UncParity"] + status[f"{counter}UncSecDed"])
        return found

    return model.MemoryErrors(
        dram=count("dram", "volatile"),
        sram=sram("volatile"),
        dram_aggregate=count("dram", "aggregate"),
        sram_aggregate=sram("aggregate"),
        sram_threshold_exceeded=bool(status["bThresholdExceeded"]) if status else None,
    )


def _row_remap(a: _Answers) -> Optional[model.RowRemap]:
    rows, banks = a.get("row_remap", "row_remap"), a.get("row_banks", "row_banks") or {}
    if rows is None:
        return None
    corrected, uncorrected, pending, failed = rows
    return model.RowRemap(corrected, uncorrected, bool(pending), bool(failed), banks.get("none"), banks.get("low"))


def _retired(a: _Answers) -> Optional[model.RetiredPages]:
    single, double = a.get("retired_single", "retired_pages"), a.get("retired_double", "retired_pages")
    pending = a.get("retired_pending", "retired_pages")
    if single is None and double is None and pending is None:
        return None
    return model.RetiredPages(
        None if single is None else len(single),
        None if double is None else len(double),
        None if pending is None else bool(pending),
    )


def _links(found: Any, unread: Dict[str, str]) -> Optional[Tuple[model.Link, ...]]:
    """The NVLinks; None where the device has none."""
    links: List[model.Link] = []
    for number, link in enumerate(found):
        state = link["state"]
        remote = link.get("remote")
        if isinstance(state, dict):
            unread.setdefault("links", error_text(state["error"]))
        errors = {
            name: link[name]
            for name in (*(name for name, _ in nvml.LINK_COUNTERS), *nvml.LINK_FIELDS)
            if isinstance(link.get(name), int)
        }
        address = remote.get("busId", "") if isinstance(remote, dict) else ""
        links.append(
            model.Link(
                "NVLink",
                number,
                None if isinstance(state, dict) else bool(state),
                "switch" if link.get("remote_type") == 2 else normal_address(address) if address else "",
                errors,
                FATAL_LINK_ERRORS,
            )
        )
    return tuple(links) or None


def _clocks(a: _Answers) -> model.Clocks:
    bits = a.get("reasons", "clocks")
    reasons = None
    if bits is not None:
        known = tuple(name for bit, name in REASONS.items() if bits & bit)
        other = bits & ~sum(REASONS)
        reasons = known + ((f"reason-{other:#x}",) if other else ())
    return model.Clocks(
        reasons,
        *(
            a.get(key, "clocks")
            for key in (
                "clock_graphics", "clock_memory", "application_graphics", "application_memory",
                "default_graphics", "default_memory", "max_graphics", "max_memory",
            )
        ),
    )  # fmt: skip


def _thermal(a: _Answers) -> model.Thermal:
    return model.Thermal(
        gpu=a.get("temperature", "thermal"),
        memory=a.field("memory_temperature", "thermal") or None,  # 0 where the board has no sensor
        gpu_max=a.get("limit_gpu_max", "thermal"),
        memory_max=a.get("limit_memory_max", "thermal"),
        slowdown=a.get("limit_slowdown", "thermal"),
        shutdown=a.get("limit_shutdown", "thermal"),
        margin=a.get("margin", "thermal"),
        slowdown_margin=a.field("slowdown_margin", "thermal"),
    )


def _power(a: _Answers) -> model.PowerDraw:
    def watts(key: str) -> Optional[float]:
        value = a.get(key, "power")
        return None if value is None else value / 1000

    least, most = a.get("power_range", "power") or (None, None)
    return model.PowerDraw(
        watts("power_usage"),
        watts("power_limit"),
        watts("power_default"),
        None if least is None else least / 1000,
        None if most is None else most / 1000,
    )


def _modes(a: _Answers) -> model.Modes:
    def both(key: str) -> Tuple[Optional[bool], Optional[bool]]:
        value = a.get(key, key)
        return (None, None) if value is None else (bool(value[0]), bool(value[1]))

    persistence = a.get("persistence", "persistence")
    compute = a.get("compute_mode", "compute_mode")
    return model.Modes(
        None if persistence is None else bool(persistence),
        *both("ecc_mode"),
        *both("mig_mode"),
        compute=None if compute is None else COMPUTE.get(compute, f"mode-{compute}"),
    )


def _fabric(a: _Answers) -> Optional[model.Fabric]:
    info = a.get("fabric", "fabric")
    if info is None or info["state"] == 0:
        return None
    mask = info.get("healthMask", 0)
    problems = tuple(
        words[mask >> shift & width] for shift, width, words in FABRIC_FIELDS if mask >> shift & width in words
    )
    done = info["state"] == 3
    return model.Fabric(
        state=FABRIC_STATE.get(info["state"], f"state-{info['state']}"),
        # "Must be checked only if Probe state returns complete" (NVML reference).
        status=error_text(info["status"]) if done and info["status"] else "",
        problems=problems,
        summary=FABRIC_SUMMARY.get(info.get("healthSummary", 0), ""),
        cluster="".join(f"{byte:02x}" for byte in info["clusterUuid"]) if any(info["clusterUuid"]) else "",
        clique=info["cliqueId"],
    )


def _processes(a: _Answers) -> Optional[Tuple[model.DeviceProcess, ...]]:
    found = a.get("processes", "processes")
    if found is None:
        return None
    return tuple(model.DeviceProcess(entry["pid"], "", entry.get("usedGpuMemory")) for entry in found)


def parse_nvml(answers: Mapping[str, Any]) -> Source:
    """An NVML snapshot as one vendor's source."""
    if "error" in answers:
        return _failed(int(answers["error"]), answers.get("text", ""))
    driver = answers.get("driver")
    version = driver if isinstance(driver, str) else ""
    return Source("nvidia", tuple(parse_device(each, version) for each in answers["devices"]), version)


def _failed(code: int, text: str) -> Source:
    """NVML did not start. Certain is what the driver itself says; that a library is missing is not the GPUs' fault."""
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
    """The node's NVIDIA GPUs."""
    source = parse_nvml(host.system.ask("nvml", nvml.snapshot))
    return source._replace(devices=tuple(_complete(host, device) for device in _placed(host, source.devices)))


def _placed(host: Host, devices: Tuple[Device, ...]) -> List[Device]:
    """The devices with addresses for those too lost to tell theirs: NVML numbers GPUs in the order of the bus."""
    known = {device.pci for device in devices}
    free = [f.address for f in host.fact(accelerator_functions) if f.vendor_name == "nvidia" and f.address not in known]
    if len(free) != sum(not device.pci for device in devices):
        return list(devices)
    return [device if device.pci else device._replace(pci=free.pop(0)) for device in devices]


def _complete(host: Host, device: Device) -> Device:
    """What NVML leaves open and the kernel knows: the link of a device that does not answer, processes' names."""
    if device.fault and device.pci and device.pcie == model.PcieLink():
        return device._replace(pcie=model.PcieLink(*link_speed(host, device.pci)))
    if device.processes:
        named = tuple(p._replace(name=host.read_or(f"/proc/{p.pid}/comm")) for p in device.processes)
        return device._replace(processes=named)
    return device


class Peers:
    """Which GPUs can reach each other: `read` over any path, `nvlink` over NVLink, by pair of indices."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.problem = error_text(int(answers["error"])) if "error" in answers else ""
        self.read: List[List[PeerState]] = answers.get("read", [])
        self.nvlink: List[List[PeerState]] = answers.get("nvlink", [])


def peers(host: Host) -> Peers:
    """The peer-to-peer matrix."""
    return Peers(host.system.ask("nvml-peers", nvml.peers))


def inforoms(host: Host) -> Inforoms:
    """Each device's InfoROM checksums, or why NVML gave none."""
    answers: Inforoms = host.system.ask("nvml-inforom", nvml.inforom)
    return answers
