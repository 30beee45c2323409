"""GPUs, network adapters and disks hang where they should: on the right processor, below the right switch."""

from __future__ import annotations

from nhc.check import arg, check
from nhc.checks.gpu import Judged
from nhc.facts.topology import Place, parse_description, places
from nhc.host import Host
from nhc.model import Action, Metric, Outcome, crit, ok, unknown
from nhc.units import text
from nhc.values import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import List


@check(
    "check_hw_topology",
    arg("file", text, "the description: `numa NODE: DEVICE ...` and `near: DEVICE ...` lines, or an NCCL topology",
        required=True),
    timeout=30,
    tags=("gpu", "topology"),
)  # fmt: skip
def check_hw_topology(host: Host, file: str) -> Judged:
    """Every device is on its NUMA node, and those that belong together are below one PCIe switch.

    A GPU behind the wrong processor halves a job's bandwidth and breaks no other check. Reads each
    device's numa_node and its path in /sys/devices and compares them with FILE. Its lines are
    `numa 0: gpu0 gpu1 mlx5_0` and `near: gpu0 mlx5_0`; devices are gpu0, mlx5_0, nvme0, eth0 or PCI
    addresses. A topology file for NCCL serves too (Azure's are in /opt/microsoft). A missing device and a
    wrong node are CRIT; UNKNOWN where the firmware names no NUMA node, or FILE cannot be read.

    Example: nd96isr* || check_hw_topology /opt/microsoft/ndv5-topo.xml
    """
    try:
        description = parse_description(host.read(file, 1 << 20), file)
    except OSError as error:
        return unknown("Unreadable", f"{file}: {error.strerror}")
    except ValueError as error:
        return unknown("BadTopology", str(error))
    found = places(host, description)
    outcomes: List[Outcome] = []
    absent = [name for name, where in found.items() if where is None]
    if absent:
        message = f"not on this node: {', '.join(absent)}"
        outcomes.append(crit("TopologyDeviceMissing", message, action=Action.INSPECT))
    for device, node in description.numa:
        where = found[device]
        if where is None:
            continue
        name = device if device == where.address else f"{device} ({where.address})"
        if where.numa is None:
            outcomes.append(unknown("NumaUnknown", f"{name}: the firmware names no NUMA node", target=device))
        elif where.numa != node:
            message = f"{name} is on NUMA node {where.numa}, {node} expected"
            outcomes.append(crit("TopologyNuma", message, target=device, action=Action.INSPECT))
    for group in description.near:
        known = [where for where in (found[device] for device in group) if where is not None]
        if len(known) > 1 and not _together(known):
            message = f"{', '.join(group)} are not below one PCIe switch"
            outcomes.append(crit("TopologyPath", message, target=group[0], action=Action.INSPECT))
    return outcomes or ok(f"{len(found)} devices in their places", metrics=(Metric("devices", len(found)),))


def _together(places_found: List[Place]) -> bool:
    """Whether one bridge is above them all; devices that hang on the root itself have none to share."""
    return bool(set.intersection(*(set(where.path) for where in places_found)))
