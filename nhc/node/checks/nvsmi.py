"""Checks by NVIDIA's own tools: nvidia-smi, and the older nvidia-healthmon.

Names and settings are LBNL NHC's and CSC's. The exit status of both says what the other GPU checks ask NVML for.
"""

from __future__ import annotations

from nhc.core.check import check
from nhc.core.host import Completed, Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Outcome, crit, ok, printable, skip, unknown
from nhc.node.facts.pci import shows

if TYPE_CHECKING:
    from typing import Dict, Sequence, Tuple, Union

EVIDENCE = 20
# nvidia-smi(1), "RETURN VALUE": reason, what it says, whether the node is at fault, and what repairs it.
_SMI: Dict[int, Tuple[str, str, bool, Action]] = {
    2: ("NvidiaSmiArguments", "an argument or flag is invalid", False, Action.NONE),
    3: ("NvidiaSmiUnsupported", "the operation is not available on this GPU", False, Action.NONE),
    4: ("NvidiaSmiPermission", "permission denied", False, Action.NONE),
    6: ("GpuMissing", "it finds no device", True, Action.REBOOT),
    8: ("GpuPowerCables", "a GPU's power cables are not attached", True, Action.INSPECT),
    9: ("GpuDriverNotLoaded", "the NVIDIA driver is not loaded", True, Action.RELOAD_DRIVER),
    10: ("GpuInterruptProblem", "a GPU has an interrupt problem", True, Action.REBOOT),
    12: ("NvmlMissing", "the NVML library is not installed", False, Action.NONE),
    13: ("NvidiaSmiOutdated", "the NVML library lacks a function", False, Action.NONE),
    14: ("GpuInforomCorrupt", "an InfoROM is corrupted", True, Action.REPLACE),
    15: ("GpuLost", "a GPU has fallen off the bus or is otherwise inaccessible", True, Action.REBOOT),
}


def _expected(host: Host, status: int, arguments: Sequence[str]) -> bool:
    """Whether a node on which nvidia-smi finds no driver (9) or no device (6) should have devices.

    Devices on its bus and devices that the arguments name are expected. A loaded driver means that there were devices:
    without any it does not load (nv.c, "No NVIDIA GPU found"). So if none is left on the bus, all are lost.
    """
    if shows(host, "nvidia"):
        return True
    named = any(argument[:2] == "-i" or argument.startswith("--id") for argument in arguments)
    return status == 6 and (named or host.exists("/proc/driver/nvidia/version"))


def _run(host: Host, command: str, arguments: Sequence[str], name: str, hung: Action) -> Union[Completed, Outcome]:
    """How the command ended with a fault of which its status tells; else what that means: it is not there, it found
    nothing wrong, it did not end (`hung` is the action then), it crashed.
    """
    if host.which(command) is None:
        if not shows(host, "nvidia"):
            return skip("NoAccelerator", "no NVIDIA device on this node's PCI bus")
        return unknown("CommandMissing", f"{command} is not installed")
    ended = host.run([command, *arguments], timeout=20)
    if ended.timed_out:
        return crit(f"{name}Hangs", f"{command} did not end within 20s", action=hung, evidence=ended.tail(EVIDENCE))
    lost = next((line.strip() for line in ended.output.splitlines() if _says_lost(line)), "")
    if lost:
        message = f"{command}: {printable(lost, 200)}"
        return crit("GpuLost", message, target=_gpu_in(lost), action=Action.REBOOT, evidence=ended.tail(EVIDENCE))
    if ended.status == 0:
        return ok(f"{command} completed successfully")
    if ended.signal:
        message = f"{command} was ended by signal {ended.signal}"
        return crit(f"{name}Crashed", message, evidence=ended.tail(EVIDENCE))
    return ended


def _says_lost(line: str) -> bool:
    """Whether a line of nvidia-smi says that it cannot reach a GPU; some releases end with status 255 then, or with 0.

    "Unable to determine the device handle for GPU 0000:BA:00.0: Unknown Error", "... GPU is lost.  Reboot the system".
    """
    text = line.lower()
    return "unable to determine the device handle for gpu" in text or "gpu is lost" in text


def _gpu_in(line: str) -> str:
    """The PCI address in such a line, "" for none."""
    from re import search

    found = search(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", line)
    return found[0] if found else ""


def _with_output(message: str, ended: Completed) -> str:
    """What is wrong, and in one line what the command printed of it."""
    printed = printable(ended.complaint, 200) if ended.output.strip() else ""
    return f"{message}: {printed}" if printed else message


@check("check_nvsmi_healthmon", timeout=30, tags=("gpu", "nvidia"))
def check_nvsmi_healthmon(host: Host) -> Outcome:
    """Nvidia-smi runs and finds nothing wrong.

    Runs nvidia-smi (settings NVIDIA_SMI_HEALTHMON and NVIDIA_SMI_HEALTHMON_ARGS name another command and
    its arguments) and reads its exit status: power cables, driver, interrupts, a corrupted InfoROM, a GPU
    off the bus, no device at all, a crash and any status that the manual does not know are CRIT; a missing
    library or permission and wrong arguments are UNKNOWN, as they tell nothing of the GPUs. UNKNOWN where the
    command is not installed although the node has NVIDIA GPUs. SKIP on a node that should have none: none is on
    its PCI bus, the driver is not loaded, and the arguments name none.

    Example: * || check_nvsmi_healthmon
    """
    from shlex import split

    command = host.setting("NVIDIA_SMI_HEALTHMON") or "nvidia-smi"
    arguments = split(host.setting("NVIDIA_SMI_HEALTHMON_ARGS"))
    ended = _run(host, command, arguments, "NvidiaSmi", Action.REBOOT)
    if isinstance(ended, Outcome):
        return ended
    evidence = ended.tail(EVIDENCE)
    if ended.status in (6, 9) and not _expected(host, ended.status, arguments):
        return skip("NoAccelerator", "no NVIDIA device on this node's PCI bus")
    known = _SMI.get(ended.status)
    if known is None:
        message = _with_output(f"{command} returned status {ended.status}", ended)
        return crit("NvidiaSmiFailed", message, evidence=evidence)
    reason, says, fault, action = known
    message = _with_output(f"{command} returned status {ended.status}: {says}", ended)
    if fault:
        return crit(reason, message, action=action, evidence=evidence)
    return unknown(reason, message, evidence=evidence)


@check("check_nv_healthmon", timeout=30, tags=("gpu", "nvidia"))
def check_nv_healthmon(host: Host) -> Outcome:
    """Nvidia-healthmon runs and finds nothing wrong.

    Runs nvidia-healthmon (settings NVIDIA_HEALTHMON and NVIDIA_HEALTHMON_ARGS, by default `-e -v`), which
    NVIDIA replaced by DCGM in 2016; for configurations that still name it. Any status but 0 is CRIT.
    UNKNOWN where it is not installed although the node has NVIDIA GPUs, SKIP where it has none.

    Example: * || check_nv_healthmon
    """
    from shlex import split

    command = host.setting("NVIDIA_HEALTHMON") or "nvidia-healthmon"
    arguments = split(host.setting("NVIDIA_HEALTHMON_ARGS") or "-e -v")
    ended = _run(host, command, arguments, "NvidiaHealthmon", Action.NONE)
    if isinstance(ended, Outcome):
        return ended
    message = _with_output(f"{command} returned status {ended.status}", ended)
    return crit("NvidiaHealthmonFailed", message, evidence=ended.tail(EVIDENCE))
