"""Users can profile their programs."""

from __future__ import annotations

from nhc.core.check import Judged, check, opt
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Outcome, ok, skip, warn
from nhc.core.units import integer

if TYPE_CHECKING:
    from typing import List

PARANOID, KPTR = "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/kptr_restrict"
PARAMETERS = "/proc/driver/nvidia/params"
GPU_COUNTERS = "RmProfilingAdminOnly"


@check(
    "check_profiling",
    opt("-p --paranoid", "paranoid", integer, "the most that kernel.perf_event_paranoid may be", 1),
    every=3600,
)
def check_profiling(host: Host, paranoid: int = 1) -> Judged:
    """Users may read performance counters, of the processors and of NVIDIA's GPUs.

    Reads kernel.perf_event_paranoid (perf), kernel.kptr_restrict (names of the kernel's functions) and the loaded
    NVIDIA driver's RmProfilingAdminOnly (ncu, nsys; NVreg_RestrictProfilingToAdminUsers). Closed is WARN: nodes that
    tenants share may want it so, nodes that a job has alone rarely (ClusterMAX asks for paranoid <= 1, kptr_restrict
    0 and counters for all).

    Example: *gpu* |every 1h| check_profiling
    """
    outcomes: List[Outcome] = []
    for path, most in ((PARANOID, paranoid), (KPTR, 0)):
        value = host.read_or(path)
        if not value.lstrip("-").isdigit():
            continue
        name = path.replace("/proc/sys/", "").replace("/", ".")
        if int(value) > most:
            outcomes.append(warn("ProfilingRestricted", f"{name} is {value}, {most} at most", target=name))
        else:
            outcomes.append(ok(f"{name} is {value}", target=name))
    parameters = host.read_or(PARAMETERS)
    if parameters:
        words = dict(line.partition(": ")[::2] for line in parameters.splitlines())
        if words.get(GPU_COUNTERS, "0").strip() != "0":
            message = "the NVIDIA driver gives GPU performance counters to root alone"
            outcomes.append(warn("ProfilingRestricted", message, target=GPU_COUNTERS))
        else:
            outcomes.append(ok("GPU performance counters are open to users", target=GPU_COUNTERS))
    return outcomes or skip("NothingToCompare", "the kernel tells nothing of performance counters")
