"""Rules follow their devices: a driver may publish its devices anew, under other names."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from nhc_adapters.kubernetes.devices.rules import DeviceRule, RuleWriter, rule_body
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice
from nhc_adapters.kubernetes.devices.watch import DeviceWatch


def follow_names(
    writer: RuleWriter, watch: DeviceWatch, physical: Optional[PhysicalDevice], rules: Sequence[DeviceRule],
    log: Callable[[str], None],
) -> None:  # fmt: skip
    """A rule for each name that a device has now, where rules keep it out; none for a name that is another's now.

    `rules` are those about one device of a node. Raises AdapterError.
    """
    standing = [rule for rule in rules if rule.out]
    ours = {name.selects: name for name in physical.names} if physical is not None else {}
    if physical is not None and standing:
        first = standing[0]
        for selects in ours.keys() - {rule.selects for rule in standing}:
            body = rule_body(
                writer.api, ours[selects], physical.device, first.node_uid, first.mark, first.reason, first.sources
            )
            writer.create(body)
    for rule in rules:
        names = {name.selects for name in watch.slices.names(rule.node)}
        if rule.selects in names and rule.selects not in ours:
            log(f"{rule.node}: {rule.slice_name} is not {rule.device} any more: its rule goes")
            writer.delete(rule)
