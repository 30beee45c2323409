"""AMD's scale-up fabric of the MI4XX (IFoE): stations of each GPU by the driver, devices, vPOD and ports by AFM.

Sources: ROCm CVS, cvs/lib/preflight/scaleup_fabric.py (AMD's own admission of nodes): `ualink/stations/lane_en_bitmap`
of a GPU has a hexadecimal digit a station, f with all lanes, 0 without; `afmctl show device --json` and
`afmctl show port -b BDF,... --json`, where a device is function 1 of its GPU and each station has two ports.
"""

from __future__ import annotations

import json

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.pci import DEVICES, accelerator_functions, normal_address

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

BITMAP = "ualink/stations/lane_en_bitmap"
MODULE = "/sys/module/ifoe"
STATIONS = 18


class FabricDevice(NamedTuple):
    """One GPU's end of the fabric as AFM has it: its phase, the accelerators of this node, and those of its vPOD."""

    pci: str
    phase: str
    local: Tuple[int, ...]
    vpod: Tuple[int, ...]


class FabricPort(NamedTuple):
    """One port. `station` is None where AFM does not tell it."""

    number: int
    state: str
    station: Optional[int]


def bitmaps(host: Host) -> Dict[str, str]:
    """The stations of each AMD GPU that has such a fabric, by its address. Raises OSError where one cannot be read."""
    found: Dict[str, str] = {}
    for function in host.fact(accelerator_functions):
        path = f"{DEVICES}/{function.address}/{BITMAP}"
        if function.vendor_name == "amd" and host.exists(path):
            found[function.address] = host.read(path, 4096).strip().lower()
    return found


def parse_bitmap(text: str) -> Tuple[int, ...]:
    """The lanes of each station, four bits each. Raises ValueError."""
    if len(text) != STATIONS or any(letter not in "0123456789abcdef" for letter in text):
        raise ValueError(f"{text[:40]!r} is no bitmap of {STATIONS} stations")
    return tuple(int(letter, 16) for letter in text)


def parse_devices(text: str) -> List[FabricDevice]:
    """Of `afmctl show device --json`. Raises ValueError."""
    return [
        FabricDevice(
            _gpu(one), str(one.get("config_phase", "")).strip().upper(),
            _numbers(one, "local_accelerators"), _numbers(one, "vpod_accelerators"),
        )
        for one in _devices(text)
    ]  # fmt: skip


def parse_ports(text: str) -> Dict[str, List[FabricPort]]:
    """Of `afmctl show port --json`, by GPU. Raises ValueError."""
    found: Dict[str, List[FabricPort]] = {}
    for one in _devices(text):
        ports = one.get("ports")
        if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
            raise ValueError("a device without a list of ports")
        for port in ports:
            spec = port.get("spec")
            station = spec.get("station_id") if isinstance(spec, dict) else None
            number = port.get("port")
            if not isinstance(number, int):
                raise ValueError(f"a port without a number: {number!r}")
            state = str(port.get("state", "")).strip().upper()
            found.setdefault(_gpu(one), []).append(FabricPort(number, state, _whole(station)))
    return found


def _devices(text: str) -> List[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    listed = document.get("devices") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("no list of devices")
    return listed


def _gpu(device: Mapping[str, Any]) -> str:
    """The address of the GPU, which is function 0 of what AFM calls a device."""
    place = device.get("bdf")
    if not isinstance(place, str) or "." not in place:
        raise ValueError(f"a device without a PCI address: {place!r}")
    return f"{normal_address(place).rpartition('.')[0]}.0"


def _numbers(device: Mapping[str, Any], name: str) -> Tuple[int, ...]:
    listed = device.get(name)
    numbers = [_whole(value) for value in listed] if isinstance(listed, list) else [None]
    if None in numbers:
        raise ValueError(f"a device without its {name}: {listed!r}")
    return tuple(sorted(number for number in numbers if number is not None))


def _whole(value: object) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
