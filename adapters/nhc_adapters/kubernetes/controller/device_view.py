"""Which faults of a node's report belong to a device: these take out the device and leave the node in service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import CheckResult, DeviceId, Report, Verdict, ok, unknown
from nhc.marks.policy.devices import DeviceFault, split
from nhc.marks.ports.adapter import REMEDY_OWNER
from nhc_adapters.kubernetes.controller.node_report import Judgement
from nhc_adapters.kubernetes.devices.rules import DeviceRule
from nhc_adapters.kubernetes.devices.settings import DeviceRuleSettings
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice, agree
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.devices.witness import Testimony, contradicted, hear
from nhc_adapters.kubernetes.nodes.accelerators import GRACE, device_plugin
from nhc_adapters.kubernetes.nodes.condition_times import HeardNode
from nhc_adapters.kubernetes.nodes.conditions import read_conditions
from nhc_adapters.kubernetes.nodes.device_tags import read_device_tags
from nhc_adapters.kubernetes.nodes.evidence import fresh, unsettled

STANDS = "DeviceRuleStands"
"""The reason of a device whose rule's sources have not said that its fault is gone."""


@dataclass
class NodeDevices:
    """What is known of one node's devices. `faults` are those that need a rule; `why_node` says why a device's fault
    takes the whole node out.
    """

    faults: Tuple[Tuple[PhysicalDevice, DeviceFault], ...] = ()
    contradicted: Tuple[Tuple[PhysicalDevice, DeviceFault, str], ...] = ()
    why_node: str = ""
    sources: Tuple[str, ...] = ()
    testimonies: Sequence[Testimony] = ()


@dataclass
class DeviceView:
    """Judges nodes' devices. `retry` schedules a node's next look."""

    settings: DeviceRuleSettings
    watch: DeviceWatch
    silent_after: float
    retry: Callable[[str, float], None]
    heard: Callable[[str], Optional[HeardNode]] = lambda name: None
    """A node's conditions by our clock."""
    nodes: Dict[str, NodeDevices] = field(default_factory=dict)
    _missing: Dict[Tuple[str, DeviceId], float] = field(default_factory=dict)

    def judged(self, name: str, node: Optional[Mapping[str, Any]], judgement: Judgement, now: float) -> Judgement:
        """A node's judgement without the faults that are its devices' own: they are worth a warning, not the node."""
        known = self.nodes[name] = NodeDevices()
        if node is None:
            return judgement
        physical = self.watch.slices.physical(name)
        faults = split(judgement.report.results, self.settings.devices)
        known.testimonies = hear(physical, faults.devices)
        bad = set(judgement.types)
        known.sources = tuple(source for source in judgement.sources if source.partition("=")[0] in bad)
        results = judgement.report.results
        if faults.devices:
            known.why_node = self._why_node(name, node, faults.devices, now)
            if not known.why_node:
                self._sort(known, physical, faults.devices)
                results = tuple(_lowered(result) for result in results)
        else:
            known.why_node = faults.why
        results = (*results, *(testimony.result() for testimony in known.testimonies))
        if results == judgement.report.results:
            return judgement
        report = judgement.report._replace(results=results)
        if report.verdict is Verdict.CRIT:
            return replace(judgement, report=report)
        return replace(judgement, report=report, reasons=(), types=())

    def _sort(self, known: NodeDevices, physical: Sequence[PhysicalDevice], faults: Sequence[DeviceFault]) -> None:
        """Put each fault with its device; one whose driver contradicts it is shown, and nothing is done."""
        for fault in faults:
            match = next((device for device in physical if agree(device.device, fault.device)), None)
            if match is None:
                continue  # its rule exists, and its driver restarts
            against = contradicted(known.testimonies, match.device)
            if against:
                known.contradicted = (*known.contradicted, (match, fault, against))
            else:
                known.faults = (*known.faults, (match, fault))

    def _why_node(self, name: str, node: Mapping[str, Any], faults: Sequence[DeviceFault], now: float) -> str:
        """Why faults of devices take the node out, "" if rules for the devices can answer them."""
        why = self.watch.why_not()
        if why:
            return why
        plugin = device_plugin(node)
        if plugin:
            return f"a device plugin gives its devices out as {plugin}, and knows no device taint"
        for fault in faults:
            key = (name, fault.device)
            if self.watch.slices.find(name, fault.device) is not None:
                self._missing.pop(key, None)
                continue
            rules = [rule for rule in self.watch.rules(name) if agree(rule.device, fault.device)]
            if any(rule.mark.owner == REMEDY_OWNER for rule in rules):
                continue  # the remedy loop is at work on it, and marks the node itself if need be
            if rules:
                # A driver that restarts takes its slices away for a while.
                until = self._missing.setdefault(key, now) + GRACE
                if now >= until:
                    return f"no ResourceSlice has had {fault.device} for {GRACE:.0f} s"
                self.retry(name, until)
            else:
                return f"no ResourceSlice has {fault.device}"
        return ""

    def rule_report(
        self, rules: Sequence[DeviceRule], node: Optional[Mapping[str, Any]], name: str, now: float
    ) -> Report:
        """The state of the device of these rules, if it is not among the faults: good once all sources of its rule have
        said so recently, else unknown.
        """
        device = rules[0].device
        why = next((text for rule in rules for text in self._held(rule, node or {}, now)), "")
        outcome = unknown(STANDS, why) if why else ok(f"nothing is said against {device} any more")
        return Report(name, "", now, 0.0, (CheckResult(STANDS, outcome),))

    def _held(self, rule: DeviceRule, node: Mapping[str, Any], now: float) -> List[str]:
        """Why a rule's sources do not say that its fault is gone."""
        name, reasons = str(node.get("metadata", {}).get("name", "")), []
        heard = self.heard(name)
        conditions = heard.conditions if heard is not None else read_conditions(node)
        for source in rule.sources or ("report",):
            why = unsettled(source, conditions, now, self.silent_after)
            condition = conditions.get(source.partition("=")[0])
            if why is not None and condition is not None and fresh(condition, now, self.silent_after):
                tags = read_device_tags(condition.message)[1]
                others = tags and not any(agree(tag.device, rule.device) for tag in tags)
                why = None if others and condition.status == source.partition("=")[2] else why
            if why is not None:
                reasons.append(why)
        return reasons


def _lowered(result: CheckResult) -> CheckResult:
    if result.verdict is not Verdict.CRIT:
        return result
    return result._replace(outcome=result.outcome._replace(verdict=Verdict.WARN))
