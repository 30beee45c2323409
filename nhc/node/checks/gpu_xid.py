"""NVIDIA's errors in the kernel log, with the name and the argument of Azure's health checks."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import skip
from nhc.core.units import number
from nhc.node.checks.kmsg import GPU_STATE, outcomes, read, unreadable
from nhc.node.facts.pci import shows, switch_functions
from nhc.node.kernlog.findings import NVIDIA
from nhc.node.kernlog.source import LogSource

if TYPE_CHECKING:
    from typing import Optional


@check(
    "check_gpu_xid",
    arg("hours", number, "leave out faults that were older than this when they were first read (default: none)"),
    timeout=20,
    parts=GPU_STATE,
)
def check_gpu_xid(host: Host, hours: Optional[float] = None) -> Judged:
    """No NVIDIA GPU or NVSwitch has logged a fault that still stands.

    The findings of check_kmsg that are NVIDIA's: Xid by code and words, SXid by its own Fatal or Non-fatal word, a
    GPU off the bus or not initialised without an Xid. Azure's check of this name looks for 18 codes in a syslog
    file, back HOURS hours (2), and reports each once; this one reads the kernel log of this boot, does not care for
    the form of time stamps, and reports a fault until it is shown to be gone or acknowledged (`nhc ack`). HOURS limits
    how far back the first run looks: a fault that nobody had seen and that is older is left out.

    Example: * || check_gpu_xid
    Example: * || check_gpu_xid 2
    """
    try:
        reading = read(host, LogSource(), False, NVIDIA)
    except OSError as error:
        return unreadable(error)
    pairs = list(reading.pairs)
    if hours is not None:
        pairs = [(key, f) for key, f in pairs if f["noticed"] - f["last"] <= hours * 3600]
    if not pairs and not (shows(host, "nvidia") or host.fact(switch_functions)):
        return skip("NoGpu", "no NVIDIA device on this node's PCI bus, and none in the kernel log")
    return outcomes(reading.log, pairs, "the NVIDIA driver")
