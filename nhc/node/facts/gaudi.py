"""Intel Gaudi accelerators: `hl-smi` and the kernel driver's status files.

Sources: the hl-smi page of the Gaudi documentation (queries of `-Q`, `-n link`), and the kernel's
Documentation/ABI/testing/sysfs-driver-habanalabs (`status`). hl-smi asks for each query by name, and
a version that does not know one refuses the whole, so a second, shorter list is tried.
"""

from __future__ import annotations

import re

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.node.facts import accelerator_values as model
from nhc.node.facts.accelerator_values import Device, ErrorCount, Source, by_number, whole
from nhc.node.facts.pci import normal_address

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

BASIC = ("index", "uuid", "bus_id", "name", "serial", "driver_version", "temperature.aip", "memory.total",
         "memory.used", "power.draw", "ecc.errors.uncorrected.aggregate.total",
         "ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.aggregate.total",
         "ecc.errors.corrected.volatile.total", "ecc.errors.dram.aggregate.total", "ecc.mode.current",
         "ecc.mode.pending")  # fmt: skip
FULL = (*BASIC, "ecc.errors.dram-corrected.aggregate.total", "ecc.errors.dram.volatile.total",
        "ecc.errors.dram-corrected.volatile.total", "pcie.link.gen.max", "pcie.link.gen.current",
        "pcie.link.width.max", "pcie.link.width.current")  # fmt: skip

_PORT = re.compile(r"port\s+(\d+)\s*:\s*(\w+)", re.IGNORECASE)


def parse_query(text: str, queries: Tuple[str, ...]) -> List[Dict[str, str]]:
    """The rows of `hl-smi -Q ... -f csv,noheader,nounits`; lines of another width are left out."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(queries):
            rows.append(dict(zip(queries, cells)))
    return rows


def parse_links(text: str) -> Optional[Tuple[model.Link, ...]]:
    """The ports of `hl-smi -n link -i ADDRESS`: `port 0: UP`."""
    links = [model.Link("port", int(number), state.upper() == "UP") for number, state in _PORT.findall(text)]
    return tuple(links) or None


def device(row: Mapping[str, str]) -> Device:
    """One row of the query as a device."""

    def count(name: str) -> Optional[int]:
        text = row.get(name, "")
        return whole(text[3:] if text.startswith("Gen") else text[1:] if text.startswith("x") else text)

    def less(total: Optional[int], part: Optional[int]) -> Optional[int]:
        """What is left for SRAM when DRAM's share is taken from the total."""
        return None if total is None else total if part is None else max(total - part, 0)

    dram = ErrorCount(count("ecc.errors.dram-corrected.volatile.total"), count("ecc.errors.dram.volatile.total"))
    dram_life = ErrorCount(count("ecc.errors.dram-corrected.aggregate.total"), count("ecc.errors.dram.aggregate.total"))
    modes = {"enabled": True, "disabled": False}
    return Device(
        vendor="gaudi",
        number=count("index") or 0,
        id=row.get("uuid", ""),
        pci=normal_address(row.get("bus_id", "")),
        name=row.get("name", ""),
        serial=row.get("serial") or None,
        driver=row.get("driver_version", ""),
        memory_total=_mib(count("memory.total")),
        memory_used=_mib(count("memory.used")),
        errors=model.MemoryErrors(
            dram,
            ErrorCount(
                less(count("ecc.errors.corrected.volatile.total"), dram.corrected),
                less(count("ecc.errors.uncorrected.volatile.total"), dram.uncorrected),
            ),
            dram_life,
            ErrorCount(
                less(count("ecc.errors.corrected.aggregate.total"), dram_life.corrected),
                less(count("ecc.errors.uncorrected.aggregate.total"), dram_life.uncorrected),
            ),
        ),
        thermal=model.Thermal(gpu=count("temperature.aip")),
        power=model.PowerDraw(usage=count("power.draw")),
        pcie=model.PcieLink(
            count("pcie.link.gen.current"),
            count("pcie.link.width.current"),
            count("pcie.link.gen.max"),
            count("pcie.link.width.max"),
        ),
        modes=model.Modes(
            ecc=modes.get(row.get("ecc.mode.current", "").lower()),
            ecc_pending=modes.get(row.get("ecc.mode.pending", "").lower()),
        ),
    )


def _mib(value: Optional[int]) -> Optional[int]:
    return None if value is None else value << 20


def gaudi(host: Host) -> Source:
    """The node's Gaudi devices."""
    if not host.exists("/sys/module/habanalabs"):
        return Source("gaudi", reason="DriverNotLoaded", problem="the habanalabs driver is not loaded", certain=True)
    if host.which("hl-smi") is None:
        return Source("gaudi", reason="ToolMissing", problem="hl-smi is not installed")
    rows: List[Dict[str, str]] = []
    for queries in (FULL, BASIC):
        ended = host.run(["hl-smi", "-Q", ",".join(queries), "-f", "csv,noheader,nounits"], timeout=8)
        if ended.timed_out:
            return Source("gaudi", reason="ToolFailed", problem="hl-smi did not answer within 8s")
        rows = parse_query(ended.stdout, queries)
        if not ended.status and rows:
            break
    if not rows:
        return Source("gaudi", reason="ToolFailed", problem=f"hl-smi -Q failed with status {ended.status}")
    states = _states(host)
    devices = []
    for row in rows:
        hpu = device(row)
        links = host.run(["hl-smi", "-n", "link", "-i", hpu.pci], timeout=5)
        hpu = hpu._replace(links=parse_links(links.stdout))
        if links.status or hpu.links is None:
            hpu = hpu._replace(unread={**hpu.unread, "links": f"hl-smi -n link failed with status {links.status}"})
        devices.append(_judged(hpu, states.get(hpu.pci, "")))
    return Source("gaudi", by_number(devices), devices[0].driver)


def _states(host: Host) -> Dict[str, str]:
    """The driver's status of each device, by PCI address."""
    states = {}
    for path in host.glob("/sys/class/accel/accel*/device/status"):
        device_path = path[: -len("/status")]
        address = host.read_or(f"{device_path}/pci_addr") or host.realpath(device_path).rsplit("/", 1)[-1]
        states[normal_address(address)] = host.read_or(path).lower()
    return states


def _judged(device: Device, state: str) -> Device:
    if state in ("malfunction", "disabled"):
        return device._replace(fault=model.FAILED, problem=f"the driver calls it {state}")
    if state in ("needs reset", "in reset"):
        return device._replace(fault=model.RESET_REQUIRED, problem=f"the driver calls it {state}")
    return device
