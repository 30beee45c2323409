"""An episode about one accelerator, whose node goes on working with the others. Pure.

It is the node's only open episode, and counts as its node against every bound. It uses the state and health of its
device instead of the node's; its only repair is the reset of that device. If more of the node fails, the reset did not
help, or a train has left the node out, it becomes the node's episode: the node is marked, and only then the device's
mark is removed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import DefaultDict, Iterable, List, Mapping, Sequence

from nhc.core.model import DeviceId, Verdict
from nhc.marks.policy.devices import DEVICE, DeviceSettings, distinct
from nhc.marks.ports.adapter import REMEDY_OWNER, DeviceState, NodeState
from nhc.remedy.ladder import NodeFault
from nhc.remedy.view import Health


def of_one(faults: Sequence[NodeFault], new: Sequence[NodeFault], settings: DeviceSettings) -> DeviceId:
    """The device that has the node's faults; unknown if they are the whole node's. Of several devices with a `new`
    fault it is the one that failed first; the others wait until it is repaired.
    """
    devices = distinct(fault.device for fault in faults)
    every_is_known = all(device.known for device in devices)
    if settings.keep != DEVICE or not devices or not every_is_known or len(devices) >= settings.most:
        return DeviceId()
    first = min(new, key=lambda fault: (fault.began, fault.cause)).device
    return next(device for device in devices if device.same(first))


def by_node(devices: Iterable[DeviceState]) -> Mapping[str, Sequence[DeviceState]]:
    """The devices of each node."""
    by_name: DefaultDict[str, List[DeviceState]] = defaultdict(list)
    for device in devices:
        by_name[device.node].append(device)
    return by_name


def can_be_marked(about: DeviceId, devices: Iterable[DeviceState]) -> bool:
    """Whether the cluster can take this device out by itself. `devices` are the node's."""
    return any(device.device.same(about) for device in devices)


def disputed(faults: Iterable[NodeFault], about: DeviceId, devices: Iterable[DeviceState]) -> str:
    """Why nothing is begun about a device: its driver says that none of these is a fault; "" if it does not."""
    reasons = {fault.reason for fault in faults if fault.device.same(about)}
    against = {reason: why for device in devices if device.device.same(about) for reason, why in device.disputed}
    return against[min(reasons)] if reasons and reasons <= against.keys() else ""


def strangers(faults: Iterable[NodeFault], about: DeviceId) -> List[NodeFault]:
    """The faults of an episode that are not this device's: with them the episode becomes the node's."""
    return [fault for fault in faults if not fault.device.same(about)]


def health_of(health: Health, about: DeviceId, joined: Sequence[NodeFault]) -> Health:
    """The health of one device, derived from its node's: by its own faults, and those that have joined its episode."""
    causes = {fault.cause for fault in joined}
    faults = tuple(fault for fault in health.faults if fault.device.same(about) or fault.cause in causes)
    fine = health.verdict is Verdict.CRIT and not faults
    return health._replace(faults=faults, verdict=Verdict.WARN if fine else health.verdict)


def out_with_it(node: NodeState) -> str:
    """Why the whole node of a device is out by a mark of the loop or of a train, which this episode must remove because
    nothing else does; "" if it is not.
    """
    mark = node.mark
    return mark.why if mark is not None and mark.owner == REMEDY_OWNER and not node.available else ""


def state_of(node: NodeState, about: DeviceId, devices: Iterable[DeviceState]) -> NodeState:
    """A node from the view of one of its `devices`: in service while the device has no mark, busy while work holds the
    device.

    If somebody else has taken out the node, its devices are left alone too.
    """
    own = [device for device in devices if device.device.same(about)]
    mark = next((device.mark for device in own if device.mark is not None), None)
    hold = node.hold
    if not hold and not node.available and not (node.mark is not None and node.mark.ours):
        hold = f"the node is out ({node.shown})"
    return node._replace(
        available=mark is None, busy=any(device.busy for device in own), mark=mark, hold=hold,
        shown=f"{about} {'in service' if mark is None else 'out of service'}", machine=(),
    )  # fmt: skip
