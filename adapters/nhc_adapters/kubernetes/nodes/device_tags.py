"""The devices that a condition's faults speak of, near the end of its message: `[device: PCI UUID REASON ACTION]`.

An agent may write only its node's conditions, so it names the device there. A condition has tags only if each of its
faults belongs to one device: with a fault of the node, or a tag that was cut off, the whole condition belongs to the
node. `[action: ACTION]` is last: readers that do not know device tags look for it there.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Sequence, Tuple

from nhc.core.model import Action, CheckResult, DeviceId, Scope

ROOM = 640
"""Characters for all tags of a message: eight devices with all that is known of them."""

_TAG = re.compile(r" ?\[device: (\S+) (\S+) ([A-Za-z0-9_]+) ([a-z-]+)\]$")
_ACTION = re.compile(r" ?\[action: [a-z-]+\]$")
_BROKEN = re.compile(r" ?\[device: ")
_MORE = re.compile(r" \(and \d+ more\)(?=$| \[action: )")


class TaggedDevice(NamedTuple):
    """One device at fault: the reason of its first fault, and the repair that this suggests."""

    device: DeviceId
    reason: str
    action: Action


def device_tags(failures: Sequence[CheckResult]) -> str:
    """The tags of a condition with these faults, one a device; "" if they are the node's."""
    tags: List[str] = []
    seen: List[DeviceId] = []
    for outcome in (result.outcome for result in failures):
        if outcome.scope is not Scope.DEVICE or not outcome.device.known or not outcome.reason:
            return ""
        if any(outcome.device.same(other) for other in seen):
            continue
        seen.append(outcome.device)
        pci, uuid = outcome.device.pci or "-", outcome.device.uuid or "-"
        tags.append(f" [device: {pci} {uuid} {outcome.reason} {outcome.action.value}]")
    text = "".join(tags)
    return text if len(text) <= ROOM else ""


def read_device_tags(message: str) -> Tuple[str, Tuple[TaggedDevice, ...]]:
    """A message without its tags, and the devices that they name; none where one of them makes no sense."""
    devices: List[TaggedDevice] = []
    last = _ACTION.search(message)
    action_tag = last[0] if last else ""
    text, sound = message[: len(message) - len(action_tag)], True
    while tag := _TAG.search(text):
        pci, uuid, reason, action = ("" if part == "-" else part for part in tag.groups())
        sound = sound and bool(pci or uuid) and action in {known.value for known in Action}
        if sound:
            devices.insert(0, TaggedDevice(DeviceId(pci, uuid), reason, Action(action)))
        text = text[: tag.start()]
    if _BROKEN.search(text):  # cut off, or part of a fault's text: which devices are meant is not known
        return message, ()
    return text + action_tag, tuple(devices) if sound else ()


def without_count(why: str) -> str:
    """Without "(and 2 more)": the devices that were only counted are named beside it."""
    return _MORE.sub("", why)
