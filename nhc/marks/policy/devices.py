"""Which faults of a report may take one device out and leave the others at work, and which take the node.

Pure. In doubt it is the node: only if every failure names its device, and fewer than `most` devices fail, do they
belong to the devices. The node has decided what affects the device's peers too (a common reset, a link, the board):
such faults have a different scope (`nhc.node.facts.fault_scope`).

    [devices]
    keep = "device"
    most = 2
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Sequence, Tuple

from nhc.core.model import CheckResult, DeviceId, Scope, Verdict
from nhc.core.settings import declared

NODE, DEVICE = "node", "device"
"""What a failed device takes out of service: its node, or only itself if the cluster has a state for one device. Slurm
has none, and a smaller GRES costs the jobs on the node (docs/slurm.md)."""
KEEP = {name: name for name in (NODE, DEVICE)}


@declared.settings
class DeviceSettings(NamedTuple):
    """`keep` is one of KEEP. If `most` devices of a node fail, it is the node's fault (1: a single one is enough)."""

    keep: str = declared.choice(
        "keep", KEEP, NODE, '"node" takes its node out, "device" that device alone, where the cluster can'
    )
    most: int = declared.count("most", 2, "so many failed devices of a node are the node's fault", least=1)


class DeviceFault(NamedTuple):
    """One device that fails. `results` are its failures, which are one problem; the first in the report's order first.

    `device` has every name that one of them knows.
    """

    device: DeviceId
    results: Tuple[CheckResult, ...]


class SplitFailures(NamedTuple):
    """The failures of a report: all of devices, or all of the node; `why` tells a person why they are the node's."""

    devices: Tuple[DeviceFault, ...] = ()
    node: Tuple[CheckResult, ...] = ()
    why: str = ""


def split(results: Iterable[CheckResult], settings: DeviceSettings) -> SplitFailures:
    """Whether the failures (CRIT) of a report belong to devices, or all to the node."""
    failures = tuple(result for result in results if result.verdict is Verdict.CRIT)
    if settings.keep == NODE or not failures:
        return SplitFailures(node=failures)
    for result in failures:
        if not of_device(result):
            scope = result.outcome.scope
            whose = scope.value if scope is not Scope.DEVICE else "device that nothing names"
            return SplitFailures(node=failures, why=f"{result.outcome.reason} is of the {whose}")
    faults = by_device(failures)
    if len(faults) >= settings.most:
        return SplitFailures(node=failures, why=f"{len(faults)} devices fail, and {settings.most} are the node's fault")
    return SplitFailures(devices=faults)


def of_device(result: CheckResult) -> bool:
    """Whether a fault is of one device, and known of which."""
    return result.outcome.scope is Scope.DEVICE and result.outcome.device.known


def by_device(results: Sequence[CheckResult]) -> Tuple[DeviceFault, ...]:
    """Faults of devices, one a device, in the report's order."""
    groups: List[Tuple[DeviceId, List[CheckResult]]] = []
    for result in results:
        device, held = result.outcome.device, [result]
        for group in [group for group in groups if group[0].same(device)]:  # two, if it has the names of both
            device, held = merged(group[0], device), [*group[1], *held]
            groups.remove(group)
        groups.append((device, held))
    order = {id(result): number for number, result in enumerate(results)}
    faults = [DeviceFault(device, tuple(sorted(held, key=lambda result: order[id(result)]))) for device, held in groups]
    return tuple(sorted(faults, key=lambda fault: order[id(fault.results[0])]))


def distinct(devices: Iterable[DeviceId]) -> Tuple[DeviceId, ...]:
    """Each device once, with all its names."""
    whole: List[DeviceId] = []
    for device in devices:
        names = device
        for known in [known for known in whole if known.same(names)]:
            whole.remove(known)
            names = merged(known, names)
        whole.append(names)
    return tuple(whole)


def merged(device: DeviceId, other: DeviceId) -> DeviceId:
    """Every name that is known by either."""
    return DeviceId(*(mine or theirs for mine, theirs in zip(device, other)))
