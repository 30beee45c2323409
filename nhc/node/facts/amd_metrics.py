"""Why AMD GPUs are slowed down: the driver's binary `gpu_metrics` file.

Source: struct gpu_metrics_v1_* in the kernel's kgd_pp_interface.h, and for what the residencies mean
AMD's rocm_smi.h. MI200 (1.3) tells the state of the moment as bits, MI300 and newer (1.6 to 1.8) count
the firmware's cycles spent under each throttler. 1.4 and 1.5 tell nothing that is the same on two
chips; they, and any form that is not known, are taken as telling nothing.
"""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.history import growth

if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

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
    """Reasons that hold now (None where only counters tell), and cycles counted under each throttler."""

    reasons: Optional[Tuple[str, ...]] = None
    cycles: Optional[int] = None
    residencies: Mapping[str, int] = {}


def parse_gpu_metrics(data: bytes) -> Optional[Throttling]:
    """What a `gpu_metrics` file says of throttling, None where its form says nothing that can be read."""
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
