"""AMD's scale-up fabric of the MI4XX (IFoE): each GPU's stations from the driver; devices, vPOD and ports from AFM.

Sources: ROCm CVS, cvs/lib/preflight/scaleup_fabric.py (AMD's own admission of nodes): `ualink/stations/lane_en_bitmap`
of a GPU has a hexadecimal digit a station, f with all lanes, 0 without; `afmctl show device --json` and
`afmctl show port -b BDF,... --json`; there a device is function 1 of its GPU, and each station has two ports.
"""

from __future__ import annotations

import json

from nhc.core.check import Judged, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.core.model import Action, Outcome, crit, ok, skip, unknown, warn
from nhc.node.facts.pci import DEVICES, accelerator_functions, normal_address

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

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
    """One port. `station` is None if AFM does not tell it."""

    number: int
    state: str
    station: Optional[int]


def bitmaps(host: Host) -> Dict[str, str]:
    """The stations of each AMD GPU that has such a fabric, by its address. Raises OSError if one cannot be read."""
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


ALL_LANES = 0xF
_SECONDS = 15.0


@check("check_gpu_ifoe", timeout=45, tags=("gpu", "amd"), samples=("IfoeLinkDown", "IfoeNotActive"))
def check_gpu_ifoe(host: Host) -> Judged:
    """Every GPU's ports into AMD's scale-up fabric are up, and all are in one vPOD.

    On nodes with MI4XX GPUs: the module ifoe is loaded, no station of a GPU has a part of its lanes alone, AFM
    (afmctl) has each device ACTIVE, with all GPUs of this node in one and the same vPOD, and each port of a station
    that is switched on is up. A station that is switched off on purpose is no fault, but GPUs of one node with
    different stations are WARN. What AMD's own admission (ROCm CVS) refuses is CRIT, at two looks where it may pass
    by itself. UNKNOWN without afmctl; SKIP on GPUs without such a fabric. It was never tried on such hardware.

    Example: *mi4* || check_gpu_ifoe
    """
    try:
        texts = bitmaps(host)
    except OSError as error:
        return unknown("IfoeUnreadable", f"{error.filename}: {error.strerror}")
    if not texts:
        return skip("NotSupported", "no GPU with AMD's scale-up fabric")
    outcomes: List[Outcome] = []
    lanes: Dict[str, Tuple[int, ...]] = {}
    for address, text in texts.items():
        try:
            lanes[address] = parse_bitmap(text)
        except ValueError as error:
            outcomes.append(unknown("IfoeUnreadable", f"{address}: {error}", target=address))
    if not host.isdir(MODULE):
        outcomes.append(crit("IfoeNotLoaded", "the module ifoe is not loaded", action=Action.INSPECT))
    outcomes += _stations(lanes)
    outcomes += _by_afm(host, lanes)
    return outcomes or ok(
        f"{len(lanes)} GPUs with {len(_on(next(iter(lanes.values()))))} stations each are in one vPOD"
    )


def _on(stations: Sequence[int]) -> List[int]:
    return [number for number, lanes in enumerate(stations) if lanes == ALL_LANES]


def _stations(lanes: Dict[str, Tuple[int, ...]]) -> List[Outcome]:
    outcomes: List[Outcome] = []
    for address, stations in lanes.items():
        partial = [number for number, on in enumerate(stations) if on not in (0, ALL_LANES)]
        if partial:
            message = f"{address}: stations {', '.join(map(str, partial))} have a part of their lanes alone"
            outcomes.append(crit("IfoeStationPartial", message, target=address, action=Action.INSPECT))
        elif not any(stations):
            message = f"{address}: no station is switched on"
            outcomes.append(crit("IfoeStationPartial", message, target=address, action=Action.INSPECT))
    if not outcomes and len(set(lanes.values())) > 1:
        listing = "; ".join(f"{address} {len(_on(stations))}" for address, stations in lanes.items())
        outcomes.append(warn("IfoeStationsMixed", f"GPUs have different stations switched on ({listing})"))
    return outcomes


def _by_afm(host: Host, lanes: Dict[str, Tuple[int, ...]]) -> List[Outcome]:
    """What AFM says of devices and ports."""
    if host.which("afmctl") is None:
        return [unknown("CommandMissing", "afmctl is not installed: vPOD and ports cannot be judged")]
    try:
        devices = parse_devices(_afmctl(host, "device"))
        functions = ",".join(f"{address[:-1]}1" for address in lanes)
        ports = parse_ports(_afmctl(host, "port", "-b", functions))
    except (OSError, ValueError) as error:
        return [unknown("IfoeUnreadable", f"afmctl: {error}")]
    outcomes = []
    known = {device.pci: device for device in devices}
    for address, stations in lanes.items():
        device = known.get(address)
        if device is None or device.phase != "ACTIVE":
            state = f"is {device.phase or 'in no phase'}" if device else "is unknown to AFM"
            message = f"{address} {state}, not ACTIVE in the fabric"
            outcomes.append(crit("IfoeNotActive", message, target=address, action=Action.INSPECT))
            continue
        if not set(device.local) <= set(device.vpod):
            message = f"{address}: its vPOD {_few(device.vpod)} lacks GPUs of this node ({_few(device.local)})"
            outcomes.append(crit("IfoeVpod", message, target=address, action=Action.INSPECT))
        down = [
            port for port in ports.get(address, [])
            if port.state != "UP" and (port.station is None or port.station in _on(stations))
        ]  # fmt: skip
        if address not in ports:
            outcomes.append(unknown("IfoeUnreadable", f"{address}: AFM tells no ports", target=address))
        elif down:
            listing = ", ".join(f"{port.number} {port.state or '?'}" for port in down[:6])
            message = f"{address}: {len(down)} ports of stations that are switched on are not up: {listing}"
            outcomes.append(crit("IfoeLinkDown", message, target=address, action=Action.INSPECT))
    pods = {device.vpod for device in devices if device.pci in lanes}
    if len(pods) > 1:
        listing = "; ".join(_few(pod) for pod in sorted(pods))
        outcomes.append(crit("IfoeVpod", f"this node's GPUs are in different vPODs: {listing}", action=Action.INSPECT))
    return outcomes


def _afmctl(host: Host, *words: str) -> str:
    """What `afmctl show WORDS` prints. Raises OSError, ValueError."""
    done = host.run(["afmctl", "show", *words, "--json"], _SECONDS)
    if done.timed_out:
        raise ValueError(f"no answer within {_SECONDS:.0f} s")
    if done.status:
        raise ValueError((done.stderr or done.stdout).strip()[:200] or f"status {done.status}")
    return done.stdout


def _few(numbers: Sequence[int]) -> str:
    return f"{' '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}"
