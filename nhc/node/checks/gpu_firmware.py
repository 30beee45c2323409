"""Versions: driver, VBIOS and InfoROM are as expected, and equal on devices of the same model."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check, flag
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, unknown
from nhc.core.units import text
from nhc.node.checks.gpu import DEVICES, SOURCE, not_reported, pick
from nhc.node.facts.accelerator_values import Device

if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Optional, Sequence


def _equal(
    what: str,
    area: str,
    reason: str,
    devices: Sequence[Device],
    version: Callable[[Device], Optional[str]],
    expected: str,
) -> Iterable[Outcome]:
    """Judge that all devices of a model have one version: the expected one if it is given (a shell pattern is fine)."""
    from fnmatch import fnmatchcase

    by_device = [(device, version(device)) for device in devices]
    judged: List[Outcome] = []
    by_model: Dict[str, Dict[str, List[Device]]] = {}
    for device, running in by_device:
        if not running:
            judged.append(not_reported(device, area, f"its {what}"))
            continue
        by_model.setdefault(device.name, {}).setdefault(running, []).append(device)
        if expected and not fnmatchcase(running, expected):
            message = f"{device.label}: {what} is {running}, {expected} expected"
            judged.append(crit(f"{reason}Unexpected", message, target=device.label, action=Action.INSPECT))
    for name, versions in by_model.items():
        if len(versions) > 1:
            held = "; ".join(f"{v} on {', '.join(d.label for d in on)}" for v, on in sorted(versions.items()))
            message = f"the node's {name or 'devices'} differ in {what}: {held}"
            judged.append(crit(f"{reason}Mixed", message, action=Action.INSPECT))
    judgements = [outcome for outcome in judged if outcome.verdict]
    if not judgements and by_model:
        seen = ", ".join(sorted({v for versions in by_model.values() for v in versions}))
        return [ok(f"{what} {seen} on {sum(bool(running) for _, running in by_device)} devices")]
    return judgements or judged[:1]


VERSION = arg("version", text, "the version expected, or a shell pattern of it as 550.* (default: only compare)", "")


@check(
    "check_gpu_driver", DEVICES, VERSION, timeout=30, source=SOURCE, parts=(), tags=("nvidia", "amd", "neuron", "gaudi")
)
def check_gpu_driver(host: Host, version: str = "", devices: str = "") -> Judged:
    """The accelerators' driver is the one that the site wants.

    Asks NVML, or reads the version of the amdgpu, Neuron or habanalabs module. A library of another version
    than the module in the kernel, as after an update without a reboot, is CRIT (NVML refuses to work).

    Example: *gpu* || check_gpu_driver 550.54.*
    """
    picked = pick(host, devices)
    outcomes: List[Outcome] = list(picked.outcomes)
    for vendor in dict.fromkeys(device.vendor for device in picked.devices):
        own = [device for device in picked.devices if device.vendor == vendor]
        outcomes += _equal(f"{vendor} driver", "driver", "GpuDriver", own, lambda d: d.driver, version)
    return outcomes


@check(
    "check_vbios_version", DEVICES, VERSION, timeout=30, source=SOURCE, parts=("vbios",), tags=("gpu", "nvidia", "amd")
)
def check_vbios_version(host: Host, version: str = "", devices: str = "") -> Judged:
    """Accelerators of one model have one VBIOS, the one that the site wants where it names one.

    Asks NVML, or reads amdgpu's vbios_version.

    Example: *nd96* || check_vbios_version 92.00.9E.00.03
    """
    picked = pick(host, devices)
    return [
        *picked.outcomes,
        *_equal("VBIOS", "vbios", "GpuVbios", picked.devices, lambda d: d.firmware.vbios, version),
    ]


@check(
    "check_gpu_inforom",
    DEVICES,
    flag("-q --quick", "quick", "compare versions only, leave the checksums alone"),
    VERSION,
    timeout=60,
    source=SOURCE,
    parts=("inforom",),
    every=3600,
    tags=("nvidia",),
)
def check_gpu_inforom(host: Host, version: str = "", quick: bool = False, devices: str = "") -> Judged:
    """Every GPU's InfoROM is intact, and of one version on GPUs of one model.

    The InfoROM is the board's memory of its configuration and its errors. Asks NVML for its version, and to
    verify its checksums, which reads flash on the board. A corrupted one is CRIT (replace).

    Example: * |every 6h| check_gpu_inforom
    """
    picked = pick(host, devices, "nvidia")
    outcomes: List[Outcome] = list(picked.outcomes)
    if picked.devices and not quick:
        from nhc.node.facts.nvml import ask_inforoms
        from nhc.node.facts.nvml_codes import ABSENT, NO_DATA, error_code, error_text

        answers = host.fact(ask_inforoms)
        if "error" in answers:
            outcomes.append(
                unknown("GpuUnreadable", f"the InfoROMs cannot be verified: {error_text(answers['error'])}")
            )
        for device in picked.devices if "error" not in answers else ():
            rows = answers["devices"]
            answer = rows[device.number] if device.number < len(rows) else {"error": NO_DATA}
            code = error_code(answer)
            if code == 14:
                message = f"{device.label}: its InfoROM is corrupted"
                outcomes.append(crit("GpuInforomCorrupt", message, target=device.label, action=Action.REPLACE))
            elif code is not None and code not in ABSENT:  # of what the driver does not know the version can be judged
                message = f"{device.label}: its InfoROM cannot be verified: {error_text(code)}"
                outcomes.append(unknown("GpuUnreadable", message, target=device.label))
    outcomes += _equal("InfoROM", "inforom", "GpuInforom", picked.devices, lambda d: d.firmware.inforom, version)
    return outcomes
