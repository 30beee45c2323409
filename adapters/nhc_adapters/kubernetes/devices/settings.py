"""`[devices]` of the controller's settings: whether one device is taken out instead of its node, and how."""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.settings import declared
from nhc.marks.policy.devices import DEVICE, DeviceSettings
from nhc_adapters.kubernetes.devices.rules import NO_EXECUTE, NO_SCHEDULE

EVICT_MOST = 8
"""Pods that an eviction from one device may end: a GPU that is shared by more is a person's to decide."""


@declared.settings
class DeviceRuleSettings(NamedTuple):
    """`devices.keep` is `device` if a device's fault takes out that device alone. With `effect` NoExecute its pods are
    evicted as well, if the server's dry run says that these are at most `evict_most`.
    """

    devices: DeviceSettings = declared.part("", DeviceSettings)
    effect: str = declared.choice(
        "effect", {effect: effect for effect in (NO_SCHEDULE, NO_EXECUTE)}, NO_SCHEDULE,
        "NoExecute evicts the pods that hold the GPU, after a dry run ...",
    )  # fmt: skip
    evict_most: int = declared.count("evict-most", EVICT_MOST, "... which says that these are at most so many")

    @property
    def on(self) -> bool:
        return self.devices.keep == DEVICE
