"""GPUs, network adapters and disks hang where they should: on the right processor, below the right switch."""

from __future__ import annotations

from nhc.core.check import Judged, arg, check
from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING
from nhc.core.model import Action, Metric, Outcome, crit, ok, unknown
from nhc.core.units import text
from nhc.node.facts.topology import DevicePlace, parse_description, places

if TYPE_CHECKING:
    from typing import List, Union


@check(
    "check_hw_topology",
    arg("file", text, "the description: `numa NODE: DEVICE ...` and `near: DEVICE ...` lines, or an NCCL topology "
        "(default: $NCCL_TOPO_FILE, that of /etc/nccl.conf, Azure's)", ""),
    timeout=30,
    tags=("gpu", "topology"),
    parts=(),
)  # fmt: skip
def check_hw_topology(host: Host, file: str = "") -> Judged:
    """Every device is on its NUMA node, and those that belong together are below one PCIe switch.

    A GPU behind the wrong processor halves a job's bandwidth and breaks no other check. Reads each
    device's numa_node and its path in /sys/devices and compares them with FILE. Its lines are
    `numa 0: gpu0 gpu1 mlx5_0` and `near: gpu0 mlx5_0`; devices are gpu0, mlx5_0, nvme0, eth0 or PCI
    addresses. A topology file for NCCL serves too (Azure's are in /opt/microsoft). A missing device and a
    wrong node are CRIT; UNKNOWN where the firmware names no NUMA node, or FILE cannot be read.

    Without FILE it is the one that NCCL uses: the variable NCCL_TOPO_FILE, else that line of /etc/nccl.conf,
    else the one that Azure's image has for its type (/opt/microsoft/*topo.xml).

    Example: nd96isr* || check_hw_topology /opt/microsoft/ndv5-topo.xml
    """
    if not file:
        named = _default(host)
        if isinstance(named, Outcome):
            return named
        file = named
    try:
        description = parse_description(host.read(file, 1 << 20), file)
    except OSError as error:
        return unknown("Unreadable", f"{file}: {error.strerror}")
    except ValueError as error:
        return unknown("BadTopology", str(error))
    located = places(host, description)
    outcomes: List[Outcome] = []
    absent = [name for name, where in located.items() if where is None]
    if absent:
        message = f"not on this node: {', '.join(absent)}"
        outcomes.append(crit("TopologyDeviceMissing", message, action=Action.INSPECT))
    for device, node in description.numa:
        where = located[device]
        if where is None:
            continue
        name = device if device == where.address else f"{device} ({where.address})"
        if where.numa is None:
            outcomes.append(unknown("NumaUnknown", f"{name}: the firmware names no NUMA node", target=device))
        elif where.numa != node:
            message = f"{name} is on NUMA node {where.numa}, {node} expected"
            outcomes.append(crit("TopologyNuma", message, target=device, action=Action.INSPECT))
    for group in description.near:
        known = [where for where in (located[device] for device in group) if where is not None]
        if len(known) > 1 and not _together(known):
            message = f"{', '.join(group)} are not below one PCIe switch"
            outcomes.append(crit("TopologyPath", message, target=group[0], action=Action.INSPECT))
    return outcomes or ok(f"{len(located)} devices in their places", metrics=(Metric("devices", len(located)),))


_AZURE = "/opt/microsoft"


def _default(host: Host) -> Union[str, Outcome]:
    """The topology file that NCCL uses here, or why there is none to go by."""
    named = host.setting("NCCL_TOPO_FILE")
    for line in () if named else host.read_or("/etc/nccl.conf").splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == "NCCL_TOPO_FILE":
            named = value.strip().strip("'\"")
    if named:
        return named
    files = [f"{_AZURE}/{name}" for name in host.names(_AZURE) if name.endswith("topo.xml")]
    if len(files) == 1:
        return files[0]
    several = f"there are {', '.join(files)}: name one" if files else f"no file is named, and none is in {_AZURE}"
    return unknown("BadArguments", f"{several} (or set NCCL_TOPO_FILE)")


def _together(places_found: List[DevicePlace]) -> bool:
    """Whether one bridge is above them all; devices that hang on the root itself have none to share."""
    return bool(set.intersection(*(set(where.path) for where in places_found)))
