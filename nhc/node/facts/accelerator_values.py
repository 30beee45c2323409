"""The description of an accelerator, the same for all vendors: NVIDIA, AMD, Neuron and Gaudi.

A vendor's module (`nvidia`, `amd`, `neuron`, `gaudi`) fills in what its device reports. None means that the device has
no such thing, or that it could not be read: then the field's name is in `Device.unread` with the reason. So a check can
skip the first and call the second UNKNOWN, and neither can be mistaken for 0.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import FrozenSet, List, Mapping, Optional, Tuple

    from nhc.node.facts.pci import PciFunction

LOST = "lost"
"""`Device.fault`: the driver can no longer reach the device; it stays lost until the node restarts."""
RESET_REQUIRED = "reset-required"
"""`Device.fault`: the device refuses work until it is reset."""
FAILED = "failed"
"""`Device.fault`: the driver shows the device but cannot make it work."""
UNREADABLE = "unreadable"
"""`Device.fault`: nothing is known, as we may not ask; `Device.problem` says why."""

UNNAMED = "reason-"
"""The start of a reason for lower clocks that has no name here: its bits follow."""
HARDWARE_REASONS = ("hw-slowdown", "hw-thermal", "hw-power-brake")
"""Throttle reasons caused by the machine: heat, power supply, board."""

SERVICES = ("nvidia-cuda-mps", "nv-hostengine", "nv-fabricmanage", "dcgm-exporter", "nvidia-persiste")
"""Daemons that hold a GPU on purpose. The kernel keeps 15 characters of a name."""


class ErrorCount(NamedTuple):
    """Memory errors that hardware corrected, and those it could not."""

    corrected: Optional[int] = None
    uncorrected: Optional[int] = None


class MemoryErrors(NamedTuple):
    """Error counts, DRAM (HBM) and SRAM (caches, register files) apart.

    Volatile counts start at 0 when the driver loads, aggregate counts stay on the board for its lifetime.
    `sram_threshold_exceeded` is the vendor's own verdict that the SRAM is worn out.
    """

    dram: ErrorCount = ErrorCount()
    sram: ErrorCount = ErrorCount()
    dram_aggregate: ErrorCount = ErrorCount()
    sram_aggregate: ErrorCount = ErrorCount()
    sram_threshold_exceeded: Optional[bool] = None


class RowRemap(NamedTuple):
    """Rows of DRAM that spare rows stand in for (NVIDIA from Ampere on, Gaudi).

    `pending` remaps happen at the next reset; `failed` means that one could not be done. The banks count
    how many spares are left: `banks_exhausted` have none.
    """

    corrected: Optional[int] = None
    uncorrected: Optional[int] = None
    pending: Optional[bool] = None
    failed: Optional[bool] = None
    banks_exhausted: Optional[int] = None


class RetiredPages(NamedTuple):
    """Pages of DRAM that the driver no longer uses (NVIDIA before Ampere, AMD)."""

    single_bit: Optional[int] = None
    double_bit: Optional[int] = None
    pending: Optional[bool] = None


class Link(NamedTuple):
    """One link to another accelerator or to a switch. `kind` is "NVLink", "XGMI", "NeuronLink" ...

    `up` is None if it could not be read. `errors` are counts since the driver loaded, by the
    vendor's name for them; `fatal` the names among them that a healthy link never shows.
    """

    kind: str
    number: int
    up: Optional[bool]
    remote: str = ""
    errors: Mapping[str, int] = {}
    fatal: Tuple[str, ...] = ()


class Clocks(NamedTuple):
    """Why clocks are held down (an empty tuple: they are not), and what they are set to, in MHz."""

    reasons: Optional[Tuple[str, ...]] = None
    graphics: Optional[int] = None
    memory: Optional[int] = None
    application_graphics: Optional[int] = None
    application_memory: Optional[int] = None
    default_graphics: Optional[int] = None
    default_memory: Optional[int] = None


class Thermal(NamedTuple):
    """Temperatures and the device's own limits, in degrees Celsius.

    Instead of limits, newer devices report the distance to their highest allowed temperature (`margin`); below
    `slowdown_margin`, which is 0 or less, they slow down.
    """

    gpu: Optional[int] = None
    memory: Optional[int] = None
    gpu_max: Optional[int] = None
    memory_max: Optional[int] = None
    slowdown: Optional[int] = None
    shutdown: Optional[int] = None
    margin: Optional[int] = None
    slowdown_margin: Optional[int] = None


class PowerDraw(NamedTuple):
    """Watts: drawn now, the limit in force, the limit from the factory, and the least and most it can be set to."""

    usage: Optional[float] = None
    limit: Optional[float] = None
    default: Optional[float] = None
    least: Optional[float] = None
    most: Optional[float] = None


class PcieLink(NamedTuple):
    """The PCIe link as it runs, and as the device and its slot together could run."""

    generation: Optional[int] = None
    width: Optional[int] = None
    max_generation: Optional[int] = None
    max_width: Optional[int] = None
    replays: Optional[int] = None


class Modes(NamedTuple):
    """Settings that a site chooses. A `..._pending` one takes effect at the next reset."""

    persistence: Optional[bool] = None
    ecc: Optional[bool] = None
    ecc_pending: Optional[bool] = None
    mig: Optional[bool] = None
    mig_pending: Optional[bool] = None
    compute: Optional[str] = None


class Firmware(NamedTuple):
    """Versions of what runs on the device."""

    vbios: Optional[str] = None
    inforom: Optional[str] = None


class Fabric(NamedTuple):
    """The device's registration with the NVLink fabric.

    `state` is "not-started", "in-progress" or "completed"; `status` the error of the registration ("" for none);
    `problems` what the fabric reports as wrong now; `summary` its own summary, if it gives one.
    """

    state: str
    status: str = ""
    problems: Tuple[str, ...] = ()
    summary: str = ""
    cluster: str = ""
    clique: Optional[int] = None


class DeviceProcess(NamedTuple):
    """A process that holds the device. Memory in bytes."""

    pid: int
    name: str = ""
    memory: Optional[int] = None


class Device(NamedTuple):
    """One accelerator. `number` is what its vendor's tools and Slurm call it, `pci` its address in sysfs' form.

    `fault` is "", LOST, RESET_REQUIRED, FAILED or UNREADABLE, `problem` the vendor's words for it. `recovery` is
    what the vendor says would repair the device ("" for nothing to repair, None if it says nothing). `utilization`
    is the share of recent time, in percent, in which some kernel ran on it: a kernel that only waits counts, too.
    """

    vendor: str
    number: int
    id: str = ""
    pci: str = ""
    name: str = ""
    serial: Optional[str] = None
    driver: str = ""
    fault: str = ""
    problem: str = ""
    recovery: Optional[str] = None
    memory_total: Optional[int] = None
    memory_used: Optional[int] = None
    utilization: Optional[int] = None
    errors: MemoryErrors = MemoryErrors()
    row_remap: Optional[RowRemap] = None
    retired_pages: Optional[RetiredPages] = None
    links: Optional[Tuple[Link, ...]] = None
    clocks: Clocks = Clocks()
    thermal: Thermal = Thermal()
    power: PowerDraw = PowerDraw()
    pcie: PcieLink = PcieLink()
    modes: Modes = Modes()
    firmware: Firmware = Firmware()
    fabric: Optional[Fabric] = None
    processes: Optional[Tuple[DeviceProcess, ...]] = None
    hardware_errors: Mapping[str, int] = {}
    unread: Mapping[str, str] = {}

    @property
    def label(self) -> str:
        """What a message calls the device: `gpu3`, or `neuron3`."""
        return f"{'neuron' if self.vendor == 'neuron' else 'hpu' if self.vendor == 'gaudi' else 'gpu'}{self.number}"


class Source(NamedTuple):
    """The answer of one vendor's driver. `reason` and `problem` are set if it did not answer at all.

    `certain` is True for a fault (the driver is not loaded), False if the driver could not be asked (the library is not
    installed).
    """

    vendor: str
    devices: Tuple[Device, ...] = ()
    driver: str = ""
    reason: str = ""
    problem: str = ""
    certain: bool = False


class Inventory(NamedTuple):
    """Every accelerator of a node: as the PCI bus shows them, and as their drivers do.

    `others` are accelerators on the bus of vendors whose drivers nhc cannot ask. `parts` are those that the drivers
    were asked for besides what is always asked, None for all.
    """

    on_bus: Tuple[PciFunction, ...] = ()
    sources: Tuple[Source, ...] = ()
    switches: Tuple[PciFunction, ...] = ()
    parts: Optional[FrozenSet[str]] = None
    others: Tuple[PciFunction, ...] = ()

    @property
    def devices(self) -> Tuple[Device, ...]:
        return tuple(device for source in self.sources for device in source.devices)

    def lost_from_driver(self) -> Tuple[PciFunction, ...]:
        """Functions on the bus that are missing in the driver's list, of vendors whose drivers answered with
        addresses.
        """
        known = {device.pci for device in self.devices}
        spoke = {source.vendor for source in self.sources if not source.reason and all(d.pci for d in source.devices)}
        return tuple(f for f in self.on_bus if f.vendor_name in spoke and f.address not in known)


def whole(value: object) -> Optional[int]:
    """A whole number out of what a tool printed (`12`, `12 MHz`, `0x1f`), None if there is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    fields = str(value).split()
    try:
        return int(fields[0], 0) if fields else None
    except ValueError:
        try:
            return int(float(fields[0]))
        except (ValueError, OverflowError):  # infinity and NaN, which Python's JSON reader takes for numbers, as well
            return None


def by_number(devices: List[Device]) -> Tuple[Device, ...]:
    return tuple(sorted(devices, key=lambda device: device.number))
