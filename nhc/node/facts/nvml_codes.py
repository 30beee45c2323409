"""What the numbers of NVML mean, as nvml.h names them."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict, Mapping, Optional, Tuple

NOT_SUPPORTED, NO_DATA = 3, 21
# Not supported, function not found, deprecated; and as our questions are well formed, an invalid argument or a
# version mismatch says that this driver is older than what was asked for.
ABSENT = (2, NOT_SUPPORTED, 13, 25, 26)

ERRORS: Dict[int, str] = {
    -1: "the Python binding nvidia-ml-py is not installed",
    1: "NVML was not initialised",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found",
    7: "insufficient size",
    8: "the power cables are not attached",
    9: "the NVIDIA driver is not loaded",
    10: "the query timed out",
    11: "a GPU has an interrupt problem",
    12: "libnvidia-ml.so.1 is not installed",
    13: "this driver does not know the query",
    14: "the InfoROM is corrupted",
    15: "the GPU has fallen off the bus or is otherwise inaccessible",
    16: "the GPU needs a reset before it can be used",
    17: "the operating system refused",
    18: "the driver in the kernel and NVML are of different versions",
    19: "in use",
    20: "out of memory",
    21: "no data",
    23: "insufficient resources",
    25: "the driver does not know this version of the query",
    27: "not ready",
    28: "no GPU was found",
    29: "the GPU is in an invalid state",
    999: "an unknown error of the driver",
}

REASONS = {  # nvmlClocksEventReason... bits
    0x1: "idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}

COMPUTE = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}

RECOVERY = {  # NVML_GPU_RECOVERY_ACTION_...
    0: "",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain the GPU and reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's bus",
    7: "reboot the system",
}

FABRIC_STATE = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited-capacity"}
# Each field of the health mask: where it starts, its width in bits, and which values mean what is wrong.
FABRIC_FIELDS: Tuple[Tuple[int, int, Mapping[int, str]], ...] = (
    (0, 0x3, {1: "bandwidth is degraded"}),
    (2, 0x3, {1: "a route recovery is in progress"}),
    (4, 0x3, {1: "a route is unhealthy"}),
    (6, 0x3, {1: "an access timeout recovery is in progress"}),
    (
        8,
        0xF,
        {
            2: "configuration: wrong system GUID",
            3: "configuration: wrong chassis serial number",
            4: "configuration: no partition",
            5: "configuration: too few NVLinks",
            6: "configuration: incompatible GPU firmware",
            7: "configuration: invalid location",
            8: "configuration: the GPU's state is invalid",
        },
    ),
    (12, 0x3, {2: "no partition is assigned"}),
    (14, 0x3, {2: "the global fabric manager is disconnected"}),
)

PEER_STATES = {  # NVML_P2P_STATUS_...
    0: "ok",
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the I/O hub between them does not support it",
    4: "disabled by a setting of the driver",
    5: "not supported",
    6: "unknown",
}


def error_code(answer: object) -> Optional[int]:
    """NVML's code where an answer is that a query failed (`{"error": CODE}`), else None."""
    code = answer.get("error") if isinstance(answer, dict) else None
    return code if isinstance(code, int) else None


def error_text(code: int) -> str:
    return ERRORS.get(code, f"NVML error {code}")
