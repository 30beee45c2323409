"""Accelerators: all present, none lost. Also what all checks of accelerators share: the choice of devices, the faults.

A device that is lost or needs a reset, and a driver that is not loaded although the bus shows its devices, are CRIT in
every GPU check: even one GPU check alone fails on a lost or dead GPU. If the state cannot be found out (a library is
not installed, no permission), the result is UNKNOWN.
"""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Metric, Outcome, Verdict, crit, ok, skip, unknown, warn
from nhc.core.units import show_number, text, whole
from nhc.node.facts import accelerator_values as model
from nhc.node.facts.accelerator import accelerators
from nhc.node.facts.accelerator_values import Device, Inventory, Source
from nhc.node.facts.pci import normal_address
from nhc.node.facts.pci_index import VENDORS

if TYPE_CHECKING:
    from typing import Callable, Iterable, List, Optional, Sequence, Tuple, Union

    from nhc.node.facts.pci import PciFunction


DEVICES = opt(
    "-d --devices",
    "devices",
    text,
    "judge only these: numbers as in 0,2-3, UUIDs or PCI addresses (default: the setting NHC_DEVICES, else all)",
    "",
)
"""The option that every GPU check has. A Slurm prolog sets NHC_DEVICES from SLURM_JOB_GPUS."""


SOURCE = "accelerators"
"""What checks read that `pick` their devices: NVML starts in 85 to 180 ms, or in seconds if the driver sleeps."""


class Picked(NamedTuple):
    """The devices to judge, all of which answer, and the outcomes of those that cannot be judged."""

    devices: Tuple[Device, ...]
    outcomes: Tuple[Outcome, ...]
    inventory: Inventory


def selected(device: Device, names: Sequence[str]) -> bool:
    """Whether one of `names` names the device: its number, a range, its UUID or the start of it, its address."""
    for name in names:
        low, dash, high = name.partition("-")
        if low.isdigit() and (not dash or high.isdigit()):
            if int(low) <= device.number <= int(high or low):
                return True
        elif device.id.lower().startswith(name.lower()) or (":" in name and normal_address(name) == device.pci):
            return True
    return False


def _selection(host: Host, devices: str) -> List[str]:
    return [name for name in (devices or host.setting("NHC_DEVICES")).replace(",", " ").split() if name]


def fault(device: Device) -> Optional[Outcome]:
    """The outcome of a device that does not answer; None for one that does."""
    name = f"{device.label} ({device.pci or device.name or device.vendor})"
    if device.fault == model.LOST:
        return crit("GpuLost", f"{name} is lost: {device.problem}", target=device.label, action=Action.REBOOT)
    if device.fault == model.RESET_REQUIRED:
        message = f"{name} needs a reset: {device.problem}"
        return crit("GpuResetRequired", message, target=device.label, action=Action.RESET_DEVICE)
    if device.fault == model.FAILED:
        return crit("GpuFailed", f"{name} does not work: {device.problem}", target=device.label, action=Action.REBOOT)
    if device.fault:
        return unknown("GpuUnreadable", f"{name} does not answer: {device.problem}", target=device.label)
    return None


_ACTIONS = {
    "DriverNotLoaded": Action.RELOAD_DRIVER,
    "DriverMismatch": Action.REBOOT,
    "GpuLost": Action.REBOOT,
    "GpuInterruptProblem": Action.REBOOT,
}


def silent(source: Source, inventory: Inventory) -> Outcome:
    """The outcome of a vendor whose driver did not answer at all."""
    there = sum(function.vendor_name == source.vendor for function in inventory.on_bus)
    message = f"{show_number(there, f'{source.vendor} device')} on the PCI bus, but {source.problem}"
    if not source.certain:
        return unknown(source.reason, message)
    reason = source.reason if source.reason.startswith("Gpu") else f"Gpu{source.reason}"
    return crit(reason, message, action=_ACTIONS.get(source.reason, Action.INSPECT))


def pick(host: Host, devices: str = "", vendor: str = "") -> Picked:
    """The devices that a check judges: of one vendor if `vendor` is given, else of all."""
    inventory = accelerators(host)
    sources = [source for source in inventory.sources if not vendor or source.vendor == vendor]
    if not sources:
        what = f"no {vendor} device" if vendor else "no accelerator"
        what += " that nhc can ask" if inventory.others and not vendor else ""
        return Picked((), (skip("NoAccelerator", f"{what} on this node's PCI bus"),), inventory)
    outcomes = [silent(source, inventory) for source in sources if source.reason]
    names = _selection(host, devices)
    chosen: List[Device] = []
    every = [device for source in sources for device in source.devices]
    for device in every:
        if names and not selected(device, names):
            continue
        problem = fault(device)
        if problem:
            outcomes.append(problem)
        else:
            chosen.append(device)
    if not any(source.reason for source in sources):
        outcomes += [
            unknown("GpuNotFound", f"no device {name} on this node", target=name)
            for name in names
            if not any(selected(device, [name]) for device in every)
        ]
        if not every:
            outcomes.append(_none_listed(sources, inventory))
    return Picked(tuple(chosen), tuple(outcomes), inventory)


def _none_listed(sources: Sequence[Source], inventory: Inventory) -> Outcome:
    names = " and ".join(source.vendor for source in sources)
    message = f"the {names} driver lists none of the {len(inventory.on_bus)} devices on the PCI bus"
    return crit("GpuMissing", message, action=Action.REBOOT)


def each(
    host: Host,
    devices: str,
    judge: Callable[[Device], Union[Outcome, Iterable[Outcome]]],
    vendor: str = "",
) -> List[Outcome]:
    """Judge each picked device: at least one outcome a device; first those of devices that cannot be judged.

    If only some devices have the thing, the skips of the others are dropped.
    """
    picked = pick(host, devices, vendor)
    judged: List[Outcome] = []
    for device in picked.devices:
        judgement = judge(device)
        judged += [judgement] if isinstance(judgement, Outcome) else list(judgement)
    judgements = [outcome for outcome in judged if outcome.verdict]
    return [*picked.outcomes, *(_folded(judgements) or judged[:1])]


def _folded(outcomes: List[Outcome]) -> List[Outcome]:
    """Passes with the same message and no number become one outcome."""
    passed = [outcome for outcome in outcomes if outcome.verdict is Verdict.OK]
    messages = {outcome.message[len(outcome.target) :].lstrip(": ") for outcome in passed}
    if len(passed) < 2 or len(messages) != 1 or any(outcome.metrics for outcome in passed):
        return outcomes
    rest = [outcome for outcome in outcomes if outcome.verdict is not Verdict.OK]
    return [*rest, ok(f"{len(passed)} devices: {messages.pop()}")]


def not_reported(device: Device, area: str, what: str) -> Outcome:
    """`what` is None in the description: UNKNOWN if reading it failed, SKIP if the device has no such thing."""
    reason = device.unread.get(area)
    if reason:
        return unknown("GpuUnreadable", f"{device.label}: {what} cannot be read: {reason}", target=device.label)
    return skip("NotSupported", f"{device.name or device.vendor} does not tell {what}", target=device.label)


def partly_unread(device: Device, area: str, what: str) -> List[Outcome]:
    """UNKNOWN if a part of what a check judges could not be read, though another part of it could."""
    return [not_reported(device, area, what)] if area in device.unread else []


def checked_vendor(value: str) -> str:
    """The second argument of Azure's check_gpu_count: `rocm` for AMD, a vendor's name, or its id on the PCI bus."""
    vendor = {"rocm": "amd", "cuda": "nvidia"}.get(value.lower(), value.lower())
    if vendor in ("", *VENDORS.values()):
        return vendor
    try:
        number = int(vendor, 16) if len(vendor) == 4 else -1
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{value!r} is not a vendor (nvidia, amd, neuron, gaudi, rocm, or a PCI id as in 8086)")
    return VENDORS.get(number, vendor)


COMING_UP = ("GpuMissing", "GpuDriverNotLoaded")
"""Reasons that leave checks of accelerators nothing to judge, as right after a boot."""


@check(
    "check_gpu_count",
    DEVICES,
    arg("count", whole, "how many accelerators the node has (default: as many as the PCI bus shows)"),
    arg(
        "vendor",
        checked_vendor,
        "count only nvidia, amd (or rocm), neuron, gaudi, or a vendor by PCI id, as in 8086",
        "",
    ),
    timeout=30,
    source=SOURCE,
    parts=(),
    on_timeout="crit",
    samples=("CheckTimeout",),
    settles=("GpuCountMismatch", *COMING_UP),
    tags=("nvidia", "amd", "neuron", "gaudi"),
)
def check_gpu_count(host: Host, count: Optional[int] = None, vendor: str = "", devices: str = "") -> Judged:
    """The driver shows every accelerator that the node has.

    Reads the PCI bus (/sys/bus/pci) and asks the driver: NVML for NVIDIA, the amdgpu, Neuron and habanalabs drivers'
    files. CRIT when the driver lists another number than COUNT, or lacks a device that is on the bus (one that has
    fallen off the driver stays on the bus until the node restarts). Without COUNT the bus alone is the measure, and
    what was on it at the last look: a device that has gone since then is CRIT, and WARN once the node has restarted,
    until a line with COUNT says how many are right. With a subset of devices (-d, NHC_DEVICES) only their presence is
    judged, as a job sees it. UNKNOWN where the driver cannot be asked; CRIT where it was asked and does not answer in
    time at two looks in a row, as a driver hangs when a GPU is dying. Of a vendor whose driver nhc cannot ask (a
    processing accelerator, a 3D controller, a display controller that maps more than 256 MB), VENDOR is its PCI id:
    such devices are counted on the bus, those alone that have a driver. Without it a COUNT of them is UNKNOWN, and
    so is one that no driver serves.

    Example: * || check_gpu_count 8
    """
    inventory = accelerators(host)
    if count is None and not vendor and not _selection(host, devices):
        from nhc.node.checks.gpu_earlier import gone_from_bus

        gone = gone_from_bus(host, inventory)
        if gone:
            return gone
    sources = [source for source in inventory.sources if not vendor or source.vendor == vendor]
    on_bus = [f for f in inventory.on_bus if not vendor or f.vendor_name == vendor]
    if not sources:
        return _count_others(inventory.others, count, vendor)
    if _selection(host, devices):
        return _subset(host, devices, vendor)
    outcomes = [silent(source, inventory) for source in sources if source.reason]
    every = [device for source in sources for device in source.devices]
    faults = [faulty for faulty in map(fault, every) if faulty]
    there = len(every) - len(faults)
    expected = len(on_bus) if count is None else count
    metrics = (Metric("gpu_count", there), Metric("gpu_expected", expected), Metric("gpu_on_bus", len(on_bus)))
    outcomes += faults
    missing = [f for f in inventory.lost_from_driver() if not vendor or f.vendor_name == vendor]
    evidence = tuple(f"{f.address} {f.vendor:04x}:{f.device:04x} driver={f.driver or '-'}" for f in missing)
    addresses = ", ".join(function.address for function in missing)
    if not any(source.reason for source in sources):
        if len(every) != expected:
            where = f" (on the PCI bus but not with the driver: {addresses})" if missing else ""
            message = f"Expected to see {expected} but found {len(every)}{where}"
            outcomes.append(crit("GpuCountMismatch", message, metrics=metrics, action=Action.REBOOT, evidence=evidence))
        elif missing:
            message = f"the driver does not show {addresses}, which the PCI bus does"
            outcomes.append(crit("GpuMissing", message, metrics=metrics, action=Action.REBOOT, evidence=evidence))
    return outcomes or ok(show_number(there, "accelerator"), metrics=metrics)


def _count_others(others: Sequence[PciFunction], count: Optional[int], vendor: str) -> Judged:
    """No device of a vendor whose driver nhc can ask is on the bus: only the bus shows how many of other vendors there
    are.
    """
    there = [f for f in others if f"{f.vendor:04x}" == vendor] if vendor else list(others)
    if not there and not count:
        return skip("NoAccelerator", "no accelerator on this node's PCI bus")
    if not vendor and count is None:  # whether they work is check_gpu_lost's question
        bare = [_not_asked(f) for f in there if not f.driver]
        return bare or ok(show_number(len(there), "accelerator"), metrics=(Metric("gpu_on_bus", len(there)),))
    served = [f for f in there if f.driver] if vendor else there
    expected = len(there) if count is None else count
    metrics = (Metric("gpu_count", len(served)), Metric("gpu_expected", expected), Metric("gpu_on_bus", len(there)))
    if (len(served) != expected) if vendor else len(there) < expected:
        where = ", ".join(f.address for f in there if f not in served)
        kind = f"no {vendor or 'accelerator'} device is on the PCI bus" if not there else ""
        why = kind or (f"no driver serves {where}" if where else "")
        message = f"Expected to see {expected} but found {len(served)}" + (f": {why}" if why else "")
        return crit("GpuCountMismatch", message, metrics=metrics)
    return ok(show_number(len(served), "accelerator"), metrics=metrics) if vendor else [_not_asked(f) for f in there]


def _not_asked(function: PciFunction) -> Outcome:
    """An accelerator of a vendor whose driver nhc cannot ask: its health is not known."""
    by = f"driver {function.driver}" if function.driver else "no driver"
    message = (f"{function.address} ({function.ids}, class {function.class_code:04x}, {by}) is an accelerator whose "
               "driver nhc cannot ask")  # fmt: skip
    return unknown("AcceleratorUnknown", message, target=function.address)


def _subset(host: Host, devices: str, vendor: str) -> Judged:
    """A subset is judged by its own: each named device is there and answers."""
    picked = pick(host, devices, vendor)
    metrics = (Metric("gpu_count", len(picked.devices)),)
    bad = [
        outcome._replace(verdict=Verdict.CRIT, reason="GpuMissing") if outcome.reason == "GpuNotFound" else outcome
        for outcome in picked.outcomes
    ]
    return bad or ok(f"{len(picked.devices)} of the node's devices asked for, all there", metrics=metrics)


@check(
    "check_gpu_lost",
    DEVICES,
    timeout=30,
    source=SOURCE,
    parts=(),
    on_timeout="crit",
    samples=("CheckTimeout",),
    tags=("nvidia", "amd", "neuron", "gaudi"),
)
def check_gpu_lost(host: Host, devices: str = "") -> Judged:
    """Every accelerator answers its driver, and none asks to be reset.

    Asks NVML for each GPU ("GPU is lost", "reset required") and for the recovery action that it names itself (driver
    555 and newer), the amdgpu and habanalabs drivers for their devices' state, and the Neuron driver for hardware
    errors of its cores. CRIT for a lost device (reboot), for one that needs a reset or a reboot, for a device on the
    PCI bus that its driver does not show, and for a driver that does not answer in time at two looks in a row. WARN
    where the driver asks for less: peer-to-peer traffic drained, the IMEX domain recovered, or what nobody knows yet.
    UNKNOWN for an accelerator of a vendor whose driver nhc cannot ask.

    Example: * || check_gpu_lost
    """

    def judge(device: Device) -> Iterable[Outcome]:
        if device.recovery:
            from nhc.node.kernlog import xid
            from nhc.node.kernlog.match import FATAL

            severity, action, reason = xid.recovery_of_device(device.recovery)
            message = f"{device.label}: its driver asks to {device.recovery}"
            yield (crit if severity == FATAL else warn)(reason, message, target=device.label, action=action)
        elif "recovery" in device.unread:
            yield not_reported(device, "recovery", "what would recover it")
        elif any(name != "repairable_dram" for name in device.hardware_errors):
            counts = ", ".join(f"{name} {number}" for name, number in device.hardware_errors.items())
            message = f"{device.label}: hardware errors: {counts}"
            yield crit("GpuHardwareError", message, target=device.label, action=Action.REPLACE)
        elif "hardware" in device.unread:
            yield not_reported(device, "hardware", "its hardware errors")
        else:
            yield ok(f"{device.label}: answering", target=device.label)

    outcomes = each(host, devices, judge)
    inventory = accelerators(host)
    if not _selection(host, devices):
        for function in inventory.lost_from_driver():
            message = f"{function.address} is on the PCI bus, but its driver does not show it"
            outcomes.append(crit("GpuMissing", message, target=function.address, action=Action.REBOOT))
        unasked = [_not_asked(function) for function in inventory.others]
        outcomes = [*unasked, *(one for one in outcomes if not unasked or one.verdict is not Verdict.SKIP)]
    return outcomes


def on_or_off(value: str) -> bool:
    """`on` or `off`, for checks of a mode."""
    states = {"on": True, "enabled": True, "1": True, "off": False, "disabled": False, "0": False}
    if value.lower() not in states:
        raise ValueError(f"{value!r} is neither on nor off")
    return states[value.lower()]
