"""NoExecute, if the settings ask for it: first a rule with effect None asks the server how many pods it would evict.

The answer comes once, in the status of that rule. So it is a separate rule, which is deleted after it was read; the
rule that keeps the device out stays. If the answer does not come or cannot be read, nothing is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from nhc.marks.ports.adapter import OWNER
from nhc_adapters.kubernetes.devices.rules import NO_EXECUTE, NO_SCHEDULE, DeviceRule, RuleWriter, rule_body
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice


def ours(rule: DeviceRule) -> bool:
    """Whether a rule is the controller's, and not the remedy loop's, which drains by its own rules."""
    return rule.mark.owner == OWNER


@dataclass
class Evictions:
    """One step for one device at a time; all state is in the cluster."""

    writer: RuleWriter
    settings: DeviceRuleSettings
    log: Callable[[str], None]

    def step(self, rules: Sequence[DeviceRule], physical: Optional[PhysicalDevice]) -> None:
        """Go on with the eviction from a device. Raises AdapterError."""
        asking = {rule.selects: rule for rule in rules if rule.dry}
        for rule in rules:
            if rule.dry:
                continue
            dry = asking.pop(rule.selects, None)
            if self.settings.effect != NO_EXECUTE or rule.effect != NO_SCHEDULE or rule.hold or not ours(rule):
                if dry is not None:
                    self.writer.delete(dry)
            elif dry is None and not rule.would_evict:
                self._ask(rule, physical)
            elif dry is not None and dry.evicts is not None:
                self._answered(rule, dry, dry.evicts)
        for left in asking.values():
            self.writer.delete(left)

    def _ask(self, rule: DeviceRule, physical: Optional[PhysicalDevice]) -> None:
        for name in physical.names if physical is not None else ():
            if name.selects == rule.selects:
                body = rule_body(
                    self.writer.api, name, rule.device, rule.node_uid, rule.mark, rule.reason, rule.sources, dry=True
                )
                self.writer.create(body)

    def _answered(self, rule: DeviceRule, dry: DeviceRule, pods: int) -> None:
        if pods <= self.settings.evict_most:
            self.log(f"{rule.node}: {rule.slice_name}: NoExecute: the dry run says: {dry.status}")
            self.writer.change(rule, NO_EXECUTE, would_evict=f"{pods} pods")
        else:
            self.log(
                f"{rule.node}: {rule.slice_name}: NoExecute withheld: {pods} pods would be evicted, "
                f"at most {self.settings.evict_most}"
            )
            self.writer.change(rule, NO_SCHEDULE, would_evict=f"{pods} pods")
        self.writer.delete(dry)
