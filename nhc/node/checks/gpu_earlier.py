"""Compares accelerators with earlier runs: which are on the bus, and the counters of their memory."""

from __future__ import annotations

from nhc.core import memory
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, warn
from nhc.node.facts.accelerator_values import Device, Inventory

if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List

HAD = "accelerators-on-bus"
"""Memory of the accelerators that the PCI bus showed, and in which boot."""
LOOKS = "gpu-corrected-errors"
"""Memory of the corrected errors of each device at an earlier look: when (seconds since boot), in DRAM, in SRAM."""
LIFE = "gpu-uncorrected-errors"
"""Memory of each board's lifetime count of uncorrected errors: the boot, the count at the end of the boot before, the
last count."""
APART = 60.0
"""Seconds between looks that are compared: those of hooks follow each other directly."""
DAY = 86400.0


def gone_from_bus(host: Host, inventory: Inventory) -> List[Outcome]:
    """What the PCI bus showed before and no longer shows. Virtual functions are left out: they come and go.

    Without an expected number this is all that is known.
    """
    on_bus = (*inventory.on_bus, *inventory.others)
    here = sorted(f.address for f in on_bus if not host.exists(f"/sys/bus/pci/devices/{f.address}/physfn"))
    held = memory.recall(host.memory, HAD)
    if not here and not held:
        return []
    boot = host.boot_id()
    listed = held.get("addresses")
    had = [address for address in listed if isinstance(address, str)] if isinstance(listed, list) else []
    missing = sorted(set(had) - set(here)) if len(here) < len(had) else []
    if not missing:
        memory.store_everywhere(host.memory, HAD, {"addresses": here, "boot": boot})
        return []
    same = held.get("boot") == boot
    verb = "are gone" if len(missing) > 1 else "is gone"
    since = "since an earlier look of this boot" if same else "since before the node restarted"
    message = f"{', '.join(missing)} {verb} from the PCI bus {since}: {len(here)} of {len(had)} accelerators are left"
    metrics = (Metric("gpu_on_bus", len(here)), Metric("gpu_expected", len(had)))
    verdict = crit if same else warn
    return [verdict("GpuGone", message, target=missing[0], metrics=metrics, action=Action.REBOOT)]


def memory_errors(host: Host, device: Device, dram: int, sram: int) -> Iterable[Outcome]:
    """Errors that grow fast, and errors from before the restart that no run has reported. `dram`, `sram`: the
    limits.
    """
    yield from _growth(host, device, dram, sram)
    yield from _before_load(host, device)


def _growth(host: Host, device: Device, dram: int, sram: int) -> Iterable[Outcome]:
    """Corrected errors that will reach the limit within a day at this rate, and are at least a hundredth of it."""
    now, counted = host.monotonic(), [device.errors.dram.corrected or 0, device.errors.sram.corrected or 0]
    name = device.id or device.label
    held: Any = host.memory.load(LOOKS).get(name)
    known = isinstance(held, list) and len(held) == 3 and all(isinstance(value, (int, float)) for value in held)
    if known and 0 <= now - held[0] < APART:
        return

    def change(looks: Dict[str, Any]) -> None:
        looks[name] = [now, *counted]

    host.memory.update(LOOKS, change)
    if not known or now <= held[0]:
        return
    for place, before, number, limit in (("DRAM", held[1], counted[0], dram), ("SRAM", held[2], counted[1], sram)):
        more, took = number - before, now - held[0]
        if limit and more >= max(1, limit // 100) and more / took * DAY >= limit and number <= limit:
            message = f"{device.label}: {more} corrected {place} errors within {took:.0f} s (limit {limit})"
            reason = f"Gpu{place.capitalize()}Corrected"
            yield warn(reason, message, target=device.label, action=Action.INSPECT)


def _before_load(host: Host, device: Device) -> Iterable[Outcome]:
    """Uncorrected errors that the board counted since the last look in the previous boot, and not in this boot."""
    total = device.errors.dram_aggregate.uncorrected
    if total is None or not device.id:
        return
    total += device.errors.sram_aggregate.uncorrected or 0
    fresh = (device.errors.dram.uncorrected or 0) + (device.errors.sram.uncorrected or 0)
    boot, boards = host.boot_id(), memory.recall(host.memory, LIFE)
    held: Any = boards.get(device.id)
    known = isinstance(held, list) and len(held) == 3 and all(isinstance(value, int) for value in held[1:])
    base = total if not known else held[1] if held[0] == boot else held[2]
    memory.store_everywhere(host.memory, LIFE, {**boards, device.id: [boot, base, total]})
    unseen = total - base - fresh
    if known and unseen > 0:
        message = f"{device.label}: {unseen} uncorrected errors since the last look before the restart"
        yield warn("GpuUncorrectedBefore", message, target=device.label, action=Action.INSPECT)
