"""AMD Instinct GPUs: what the amdgpu driver and its compute part (kfd) show in sysfs.

Sources: the kernel's amdgpu documentation (RAS error counts, bad pages, hwmon, driver-core sysfs) and
the kfd topology as ROCm reads it. No tool has to be installed.

`xgmi_error` is not read: reading it clears it (amdgpu_xgmi.c), so that the next reader would not see the error. The RAS
counter of the same block keeps its count.

The driver's binary `gpu_metrics` file says why GPUs are slowed down. Source: struct gpu_metrics_v1_* in the
kernel's kgd_pp_interface.h, and for what the residencies mean AMD's rocm_smi.h. MI200 (1.3) has the current state as
bits; MI300 and newer (1.6 to 1.8) count the firmware's cycles under each throttler. The fields of 1.4 and 1.5 differ
between chips; these and unknown forms are not used.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts import accelerator_values as model
from nhc.node.facts.accelerator_values import Device, ErrorCount, Source, by_number, whole
from nhc.node.facts.history import growth
from nhc.node.facts.pci import DEVICES, PciFunction, accelerator_functions, reads_as_ones
from nhc.node.facts.pcie import link_speed

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

KFD = "/sys/class/kfd/kfd"
XGMI = 11
"""HSA_IOLINK_TYPE_XGMI of the kfd topology."""

_COUNT = re.compile(r"^(ue|ce|de):\s*(\d+)", re.MULTILINE)


def parse_ras(text: str) -> ErrorCount:
    """One `ras/*_err_count` file: `ue: 0` and `ce: 4` (uncorrected and corrected errors); what was not read is None."""
    counts = {name: int(number) for name, number in _COUNT.findall(text) if not reads_as_ones(int(number))}
    return ErrorCount(counts.get("ce"), counts.get("ue"))


def parse_bad_pages(text: str) -> Tuple[int, int, int]:
    """How many pages of `ras/gpu_vram_bad_pages` are retired (R), pending (P) and impossible to retire (F)."""
    flags = [line.rsplit(":", 1)[-1].strip() for line in text.splitlines() if line.count(":") == 2]
    return flags.count("R"), flags.count("P"), flags.count("F")


class _Files:
    """A device's small files, and those that exist but could not be read: `Device.unread`, by area."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.areas: Dict[str, str] = {}

    def text(self, area: str, path: str) -> str:
        """A file's content, "" if there is none or it cannot be read, which is noted."""
        text = self.host.read_or(path)
        if not text:
            self.note(area, path)
        return text

    def number(self, area: str, path: str) -> Optional[int]:
        return whole(self.text(area, path))

    def note(self, area: str, *paths: str) -> None:
        for path in paths:
            why = self.host.why_unread(path)
            if why:
                self.areas.setdefault(area, f"{path.rsplit('/', 1)[-1]}: {why}")


class KfdNode(NamedTuple):
    """A GPU of the kfd topology: its number there, its GPU id, PCI address, hive, the nodes XGMI joins it to, and what
    compilers call its instruction set (`gfx942`), "" if kfd does not tell.
    """

    number: int
    gpu_id: int
    pci: str
    hive: int
    peers: Tuple[int, ...]
    architecture: str = ""


def parse_properties(text: str) -> Dict[str, int]:
    """A `properties` file of the topology: a name and a number on each line."""
    properties = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            properties[name] = int(value)
    return properties


def address(properties: Mapping[str, int]) -> str:
    """The PCI address in a node's properties: `location_id` holds bus, device and function."""
    place = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def architecture(properties: Mapping[str, int]) -> str:
    """`gfx90a` of a node's gfx_target_version 90010: major, minor and stepping, two digits each."""
    version = properties.get("gfx_target_version", 0)
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def topology(host: Host) -> Tuple[KfdNode, ...]:
    """The GPUs that kfd knows. Empty if the driver's compute part is not there.

    GPUs that may not be read are left out: kfd answers EPERM for a GPU that the control group may not use
    (`unread_nodes`).
    """
    nodes = []
    for path in host.glob(f"{KFD}/topology/nodes/*/gpu_id"):
        base = path[: -len("/gpu_id")]
        gpu_id = whole(host.read_or(path))
        if not gpu_id:
            continue  # a processor
        own = parse_properties(host.read_or(f"{base}/properties"))
        peers = set()
        for link in host.glob(f"{base}/io_links/*/properties") + host.glob(f"{base}/p2p_links/*/properties"):
            end = parse_properties(host.read_or(link))
            if end.get("type") == XGMI and "node_to" in end:
                peers.add(end["node_to"])
        number = int(base.rsplit("/", 1)[-1])
        place, hive = address(own), own.get("hive_id", 0)
        nodes.append(KfdNode(number, gpu_id, place, hive, tuple(sorted(peers)), architecture(own)))
    return tuple(nodes)


def unread_nodes(host: Host) -> str:
    """Why one of kfd's nodes cannot be read, "" if all can be."""
    files = _Files(host)
    for base in host.glob(f"{KFD}/topology/nodes/*"):
        files.note("kfd", f"{base}/gpu_id", f"{base}/properties")
    return files.areas.get("kfd", "")


def links(node: KfdNode, nodes: Tuple[KfdNode, ...], errors: ErrorCount) -> Optional[Tuple[model.Link, ...]]:
    """A link for each other GPU of the same hive, up where the driver has joined the two.

    kfd joins the GPUs of a hive by XGMI as it starts. So this finds a GPU that did not come up with all others (no hive
    on a node that has one) or with some of them. A link that fails later shows in the RAS counts. gpu_metrics'
    xgmi_link_status is not used: its slots do not name the peer, and unused slots read as down.
    """
    hives = {other.hive for other in nodes} - {0}
    if not hives:
        return None
    counted = {
        name: count
        for name, count in (("uncorrected", errors.uncorrected), ("corrected", errors.corrected))
        if count is not None
    }
    hive = {node.hive} if node.hive else hives
    others = [other for other in nodes if other.hive in hive and other.number != node.number]
    return (
        tuple(
            model.Link(
                "XGMI", place, other.number in node.peers, other.pci, counted if place == 0 else {}, ("uncorrected",)
            )
            for place, other in enumerate(others)
        )
        or None
    )


def amd(host: Host) -> Source:
    """The node's AMD GPUs, numbered by PCI address as amd-smi numbers them."""
    driver = host.read_or("/sys/module/amdgpu/version")
    if not host.exists("/sys/module/amdgpu"):
        return Source("amd", reason="DriverNotLoaded", problem="the amdgpu driver is not loaded", certain=True)
    nodes = topology(host)
    hidden = unread_nodes(host)
    devices: List[Device] = []
    for function in host.fact(accelerator_functions):
        if function.vendor_name == "amd" and function.driver == "amdgpu":
            devices.append(_device(host, function, len(devices), driver, nodes, hidden))
    reasons = throttle_reasons(host, {device.pci: f"{DEVICES}/{device.pci}/gpu_metrics" for device in devices})
    devices = [_with_clocks(host, device, reasons[device.pci]) for device in devices]
    return Source("amd", by_number(devices), driver)


def _with_clocks(host: Host, device: Device, reasons: Optional[Tuple[str, ...]]) -> Device:
    why = host.why_unread(f"{DEVICES}/{device.pci}/gpu_metrics") if reasons is None else ""
    unread = {**device.unread, "clocks": f"gpu_metrics: {why}"} if why else device.unread
    return device._replace(clocks=model.Clocks(reasons=reasons), unread=unread)


def _device(
    host: Host, function: PciFunction, number: int, driver: str, nodes: Tuple[KfdNode, ...], hidden: str
) -> Device:
    """One GPU. `hidden` says why some of kfd's nodes could not be read: one that is missing may be among them."""
    base = f"{DEVICES}/{function.address}"
    files = _Files(host)
    blocks = {}
    for path in host.glob(f"{base}/ras/*_err_count"):
        block = path.rsplit("/", 1)[-1][: -len("_err_count")]
        area = "links" if block == "xgmi_wafl" else "errors"
        text = files.text(area, path)
        blocks[block] = parse_ras(text)
        if text and blocks[block] == ErrorCount():  # "Query currently inaccessible", as during a reset (amdgpu_ras.c)
            files.areas.setdefault(area, f"{block}_err_count: {text[:60]!r} is no count")
    dram = blocks.pop("umc", ErrorCount())
    fabric = blocks.pop("xgmi_wafl", ErrorCount())
    node = next((node for node in nodes if node.pci == function.address), None)
    serial = host.read_or(f"{base}/serial_number")
    device = Device(
        vendor="amd",
        number=number,
        id=host.read_or(f"{base}/unique_id"),
        pci=function.address,
        name=host.read_or(f"{base}/product_name"),
        serial=serial or None,
        driver=driver,
        memory_total=files.number("memory", f"{base}/mem_info_vram_total"),
        memory_used=files.number("memory", f"{base}/mem_info_vram_used"),
        errors=model.MemoryErrors(dram=dram, sram=_sum(blocks)),
        retired_pages=_pages(files, f"{base}/ras/gpu_vram_bad_pages"),
        links=None if node is None else links(node, nodes, fabric),
        thermal=_thermal(files, base),
        power=_power(files, base),
        pcie=_pcie(files, function.address),
        firmware=model.Firmware(vbios=files.text("vbios", f"{base}/vbios_version") or None),
        processes=None if node is None else _processes(host, node.gpu_id),
        unread=files.areas,
    )
    if not host.exists(f"{base}/drm"):
        return device._replace(fault=model.FAILED, problem="the driver holds it but could not start it")
    if node is None and hidden:
        return device._replace(fault=model.UNREADABLE, problem=f"its compute part (kfd) cannot be read: {hidden}")
    if nodes and node is None:
        return device._replace(fault=model.FAILED, problem="the driver shows it, its compute part (kfd) does not")
    return device


def _sum(blocks: Mapping[str, ErrorCount]) -> ErrorCount:
    """The errors of every block other than DRAM and links: caches, register files and buffers on the chip."""
    corrected = [count.corrected for count in blocks.values() if count.corrected is not None]
    uncorrected = [count.uncorrected for count in blocks.values() if count.uncorrected is not None]
    return ErrorCount(sum(corrected) if corrected else None, sum(uncorrected) if uncorrected else None)


def _pages(files: _Files, path: str) -> Optional[model.RetiredPages]:
    try:
        retired, pending, failed = parse_bad_pages(files.host.read(path))
    except OSError:
        files.note("retired_pages", path)
        return None
    return model.RetiredPages(None, retired + pending + failed, bool(pending or failed))


def _pcie(files: _Files, address: str) -> model.PcieLink:
    base = f"{DEVICES}/{address}"
    link = link_speed(files.host, address)
    if None in link[:4]:
        files.note("pcie", *(f"{base}/{end}_link_{what}" for end in ("current", "max") for what in ("width", "speed")))
    return link._replace(replays=files.number("pcie", f"{base}/pcie_replay_count"))


def _thermal(files: _Files, base: str) -> model.Thermal:
    """Junction and memory temperatures with their limits (hwmon, in thousandths of a degree)."""
    sensors: Dict[str, Dict[str, Optional[int]]] = {}
    for path in files.host.glob(f"{base}/hwmon/hwmon*/temp*_label"):
        stem = path[: -len("label")]
        sensors[files.text("thermal", path)] = {
            name: _milli(files.number("thermal", f"{stem}{name}")) for name in ("input", "crit", "emergency")
        }
    junction = sensors.get("junction") or sensors.get("edge") or {}
    memory = sensors.get("mem") or {}
    return model.Thermal(
        gpu=junction.get("input"),
        memory=memory.get("input"),
        gpu_max=junction.get("crit"),
        memory_max=memory.get("crit"),
        shutdown=junction.get("emergency"),
    )


def _milli(value: Optional[int]) -> Optional[int]:
    return None if value is None else value // 1000


def _power(files: _Files, base: str) -> model.PowerDraw:
    """Power and its cap (hwmon, in microwatts). Newer devices report the current power, older ones a mean."""
    stem = next(iter(files.host.glob(f"{base}/hwmon/hwmon*/power1_cap")), "")[: -len("cap")]

    def watts(*names: str) -> Optional[float]:
        for name in names:
            value = files.number("power", f"{stem}{name}") if stem else None
            if value is not None:
                return value / 1e6
        return None

    return model.PowerDraw(
        watts("input", "average"), watts("cap"), watts("cap_default"), watts("cap_min"), watts("cap_max")
    )


def _processes(host: Host, gpu_id: int) -> Tuple[model.DeviceProcess, ...]:
    """Processes that hold memory of the GPU; a process that has only opened the driver shows 0."""
    processes = []
    for path in host.glob(f"{KFD}/proc/*/vram_{gpu_id}"):
        memory = whole(host.read_or(path))
        if memory:
            pid = int(path.split("/")[-2])
            processes.append(model.DeviceProcess(pid, host.read_or(f"/proc/{pid}/comm"), memory))
    return tuple(processes)


WINDOW = 60.0
PERCENT = 1.0
"""AMD calls more than 0 % a violation, and computes whole percents."""

_COUNTERS: Dict[Tuple[int, int], int] = {(1, 6): 32, (1, 7): 40, (1, 8): 40}
"""Where the cycle counter lies in each form; the residencies follow it, four bytes each."""
_STATUS: Dict[Tuple[int, int], int] = {(1, 3): 112}
"""Where the bits of the throttle status lie that are the same on every chip."""

_RESIDENCIES = ("hw-slowdown", "sw-power-cap", "hw-thermal", "hw-thermal", "hw-thermal")
"""What each residency means here: PROCHOT, package power, socket, voltage regulator and HBM temperature."""
_NAMES = ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")

# SMU_THROTTLER_..._BIT of amdgpu_smu.h: bits 0-15 power, 16-31 current, 32-45 temperature, 46-47 PROCHOT.
_BITS = ((0xFFFFFFFF, "sw-power-cap"), (0x3FFF << 32, "hw-thermal"), (0x3 << 46, "hw-slowdown"))
_NO_VALUE = (1 << 32) - 1


class Throttling(NamedTuple):
    """Reasons that hold now (None if only counters tell), and cycles counted under each throttler."""

    reasons: Optional[Tuple[str, ...]] = None
    cycles: Optional[int] = None
    residencies: Mapping[str, int] = {}


def parse_gpu_metrics(data: bytes) -> Optional[Throttling]:
    """What a `gpu_metrics` file says of throttling, None if its form says nothing that can be read."""
    if len(data) < 4:
        return None
    form = (data[2], data[3])
    at = _STATUS.get(form)
    if at is not None and len(data) >= at + 8:
        bits = int.from_bytes(data[at : at + 8], "little")
        return Throttling(tuple(name for mask, name in _BITS if bits & mask)) if bits != (1 << 64) - 1 else None
    at = _COUNTERS.get(form)
    if at is None or len(data) < at + 24:
        return None
    numbers = [int.from_bytes(data[place : place + 4], "little") for place in range(at, at + 24, 4)]
    if numbers[0] == _NO_VALUE:
        return None
    return Throttling(None, numbers[0], {n: w for n, w in zip(_NAMES, numbers[1:]) if w != _NO_VALUE})


def throttle_reasons(host: Host, paths: Mapping[str, str]) -> Dict[str, Optional[Tuple[str, ...]]]:
    """Why each device is slowed down, by its address; `paths` are their gpu_metrics files."""
    reported: Dict[str, Throttling] = {}
    for address, path in paths.items():
        try:
            table = parse_gpu_metrics(host.read_bytes(path, 1 << 16))
        except OSError:
            table = None
        if table:
            reported[address] = table
    counters = {
        f"{address}/{name}": float(count)
        for address, table in reported.items()
        if table.cycles is not None
        for name, count in {**table.residencies, "cycles": table.cycles}.items()
    }
    grown = growth(host, "amd_throttling", counters, WINDOW) if counters else {}
    reasons: Dict[str, Optional[Tuple[str, ...]]] = {}
    for address in paths:
        table = reported.get(address)
        if table is None or table.cycles is None:
            reasons[address] = table.reasons if table else None
            continue
        cycles = grown[f"{address}/cycles"].amount
        held = {
            meaning
            for name, meaning in zip(_NAMES, _RESIDENCIES)
            if name in table.residencies and cycles and grown[f"{address}/{name}"].amount * 100 / cycles >= PERCENT
        }
        reasons[address] = tuple(sorted(held))
    return reasons
