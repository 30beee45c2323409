"""What a snapshot of NVML (`nhc.node.facts.nvml`) asks of each device, by the parts that checks name. Numbers:
nvml.h.
"""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Tuple

    from typing_extensions import TypeAlias

Queries: TypeAlias = "Tuple[Tuple[str, str, Tuple[int, ...]], ...]"
"""Queries of a device: the key of the answer, the function, its arguments after the handle."""

ECC = (("corrected", 0), ("uncorrected", 1))
COUNTERS = (("volatile", 0), ("aggregate", 1))
LOCATIONS = (("dram", 2), ("sram", 7))
LIMITS = (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("gpu_max", 3))
CLOCKS = (("graphics", 0), ("memory", 2))
LINK_COUNTERS = (("replay", 0), ("recovery", 1), ("crc_flit", 2), ("crc_data", 3), ("ecc_data", 4))

DEVICE_FIELDS: Dict[str, int] = {
    "memory_temperature": 82,
    "link_count": 91,
    "shutdown_margin": 193,
    "slowdown_margin": 194,
    "memory_max_margin": 195,
    "gpu_max_margin": 196,
    "recovery_action": 230,
}
LINK_FIELDS: Dict[str, int] = {  # what NVLink 5 counts in place of LINK_COUNTERS; the scope is the link
    "malformed_packets": 206,
    "buffer_overruns": 207,
    "receive_errors": 208,
    "receive_remote_errors": 209,
    "local_integrity_errors": 211,
    "recovery_failed": 214,
    "recovery_events": 215,
    "effective_errors": 219,
}
"""NVML_FI_DEV_... identifiers, as nvml.h numbers them."""

ALWAYS: Queries = (
    ("pci", "nvmlDeviceGetPciInfo", ()),
    ("uuid", "nvmlDeviceGetUUID", ()),
    ("name", "nvmlDeviceGetName", ()),
    ("serial", "nvmlDeviceGetSerial", ()),
    ("memory", "nvmlDeviceGetMemoryInfo", ()),
    ("temperature", "nvmlDeviceGetTemperature", (0,)),
)
"""What every snapshot asks of a device: which it is, and enough to see whether it answers. So are DEVICE_FIELDS."""

PARTS: Dict[str, Queries] = {
    "vbios": (("vbios", "nvmlDeviceGetVbiosVersion", ()),),
    "inforom": (("inforom", "nvmlDeviceGetInforomImageVersion", ()),),
    "ecc_mode": (("ecc_mode", "nvmlDeviceGetEccMode", ()),),
    "persistence": (("persistence", "nvmlDeviceGetPersistenceMode", ()),),
    "compute_mode": (("compute_mode", "nvmlDeviceGetComputeMode", ()),),
    "mig_mode": (("mig_mode", "nvmlDeviceGetMigMode", ()),),
    "utilization": (("utilization", "nvmlDeviceGetUtilizationRates", ()),),
    "processes": (("processes", "nvmlDeviceGetComputeRunningProcesses", ()),),
    "row_remap": (
        ("row_remap", "nvmlDeviceGetRemappedRows", ()),
        ("row_banks", "nvmlDeviceGetRowRemapperHistogram", ()),
    ),
    "retired_pages": (
        ("retired_single", "nvmlDeviceGetRetiredPages", (0,)),
        ("retired_double", "nvmlDeviceGetRetiredPages", (1,)),
        ("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus", ()),
    ),
    "power": (
        ("power_usage", "nvmlDeviceGetPowerUsage", ()),
        ("power_limit", "nvmlDeviceGetPowerManagementLimit", ()),
        ("power_default", "nvmlDeviceGetPowerManagementDefaultLimit", ()),
        ("power_range", "nvmlDeviceGetPowerManagementLimitConstraints", ()),
    ),
    "thermal": (
        ("margin", "nvmlDeviceGetMarginTemperature", ()),
        *((f"limit_{name}", "nvmlDeviceGetTemperatureThreshold", (number,)) for name, number in LIMITS),
    ),
    "pcie": (
        ("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
        ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
        ("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
        ("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth", ()),
        ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", ()),
    ),
    "clocks": tuple((f"clock_{name}", "nvmlDeviceGetClockInfo", (number,)) for name, number in CLOCKS),
    "application_clocks": (
        *((f"application_{name}", "nvmlDeviceGetApplicationsClock", (number,)) for name, number in CLOCKS),
        *((f"default_{name}", "nvmlDeviceGetDefaultApplicationsClock", (number,)) for name, number in CLOCKS),
    ),
    "errors": tuple(
        (f"{place}_{counter}_{kind}", "nvmlDeviceGetMemoryErrorCounter", (kind_number, counter_type, location))
        for counter, counter_type in COUNTERS
        for kind, kind_number in ECC
        for place, location in LOCATIONS
    ),
    "fabric": (),
    "links": (),
    "link_errors": (),
}
"""The parts of a snapshot that a check names as `parts` of what it reads, each with its plain queries.

A query takes 0.1 to 3 ms on an H100 with driver 580; application clocks, limits and margins of heat and remapped rows
take the longest. A node has eight GPUs, and a GPU up to 18 links, so that what nobody judges is not asked.
"""
