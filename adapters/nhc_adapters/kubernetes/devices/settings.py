"""`[devices]` of the controller's settings: whether one device is taken out instead of its node, and how."""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.settings.settings_file import Table
from nhc.marks.policy.devices import DEVICE, DeviceSettings, read_devices
from nhc_adapters.kubernetes.devices.rules import NO_EXECUTE, NO_SCHEDULE

EVICT_MOST = 8
"""Pods that an eviction from one device may end: a GPU that is shared by more is a person's to decide."""


class DeviceRuleSettings(NamedTuple):
    """`devices.keep` is `device` where a device's fault takes the device out alone. With `effect` NoExecute its pods
    are evicted as well, if the server's dry run says that these are at most `evict_most`.
    """

    devices: DeviceSettings = DeviceSettings()
    effect: str = NO_SCHEDULE
    evict_most: int = EVICT_MOST

    @property
    def on(self) -> bool:
        return self.devices.keep == DEVICE


def read_device_rules(file: Table) -> DeviceRuleSettings:
    """The table `[devices]` of a settings file. Raises SettingsError."""
    table, effects = file.table("devices"), {effect: effect for effect in (NO_SCHEDULE, NO_EXECUTE)}
    return DeviceRuleSettings(
        read_devices(file), table.choice("effect", effects, NO_SCHEDULE), table.count("evict-most", EVICT_MOST)
    )
