"""The identity that a verdict holds for: the machine, its kernel, drivers and image, and a suite of the site's own.

If one of them changes, the node is not the one that was tested. A value that cannot be read is left out; a value that
appears or disappears is a change.
"""

from __future__ import annotations

import hashlib
from typing import Dict, List, Mapping

from nhc.core.host import Host
from nhc.core.same_machine import another_machine

MODULES = ("nvidia", "amdgpu", "neuron", "habanalabs", "mlx5_core", "efa", "bnxt_re", "irdma", "xe")
"""Drivers whose update can break a node: GPUs, accelerators, RDMA adapters."""

MACHINE = ("machine", "board")
"""Marks of the machine itself. Another value means another, new machine under the same name."""

IMAGE = ("BUILD_ID", "IMAGE_VERSION", "VERSION_ID")
"""The fields of /etc/os-release that name an image (os-release(5))."""


RETIRED = ("nhc", "suite")
"""Marks of records of earlier versions: an upgrade of nhc, and of the suites that come with it, closes no gate."""
OWN_SUITE = "own suite"


def marks(host: Host, suite: str) -> Dict[str, str]:
    """The marks of this node; `suite` is the text of a suite of the site's own, "" for one that comes with nhc."""
    values = {
        "machine": host.read_or("/sys/class/dmi/id/product_uuid"),
        "board": host.read_or("/sys/class/dmi/id/board_serial"),
        "bios": host.read_or("/sys/class/dmi/id/bios_version"),
        "kernel": host.read_or("/proc/sys/kernel/osrelease"),
        "image": _image(host.read_or("/etc/os-release")),
        OWN_SUITE: hashlib.sha256(suite.encode()).hexdigest()[:16] if suite else "",
    }
    for name in MODULES:
        values[f"driver {name}"] = host.read_or(f"/sys/module/{name}/version")
    values["gpus"] = _devices(host)
    return {name: value.strip() for name, value in values.items() if value.strip()}


def _image(text: str) -> str:
    values = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return " ".join(values[name].strip("\"'") for name in IMAGE if values.get(name))


def _devices(host: Host) -> str:
    """The PCI devices that compute (class 03 and 12), by address and device id: this shows a board that was replaced by
    another model or moved. Serial numbers need the vendor's library, for which a gate at boot does not wait.
    """
    boards: List[str] = []
    try:
        addresses = host.listdir("/sys/bus/pci/devices")
    except OSError:
        return ""
    for address in sorted(addresses):
        kind = host.read_or(f"/sys/bus/pci/devices/{address}/class")
        if kind.startswith(("0x0302", "0x0380", "0x1200")):
            boards.append(f"{address} {host.read_or(f'/sys/bus/pci/devices/{address}/device')}")
    return hashlib.sha256("\n".join(boards).encode()).hexdigest()[:16] if boards else ""


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> List[str]:
    """What differs, one text each: `kernel 6.1 -> 6.2`."""
    names = sorted({*before, *now} - {*RETIRED, *([OWN_SUITE] if "suite" in before else [])})
    return [
        f"{name} {before.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def is_another(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether this is not the machine of the verdict."""
    return another_machine(*({name: marks.get(name, "") for name in MACHINE} for marks in (before, now)))
