"""Devices of a cluster's nodes, as `nhc.marks.ports.adapter.MarksDevices`, for the remedy loop.

A command that asks once reads the cluster. A loop that asks each round uses a watch. A device that is about to be
marked, cleared or repaired is read again: a watch may be behind.
"""

from __future__ import annotations

from typing import Any, Container, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from nhc.core.model import DeviceId
from nhc.marks.ports.adapter import Applied, DeviceState, Effect, Mark, NodeState
from nhc.marks.ports.marks import in_place_of, left_alone, mark_text, may_clear, may_mark
from nhc_adapters.kubernetes.api.client import Client, node_path
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.devices.rules import (
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceApi,
    DeviceRule,
    RuleWriter,
    read_rule,
    rule_body,
    rule_name,
)
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice, agree
from nhc_adapters.kubernetes.devices.watch import DeviceWatch, follow_names
from nhc_adapters.kubernetes.devices.witness import disputed, taint_texts, taints_of
from nhc_adapters.kubernetes.nodes.accelerators import device_plugin
from nhc_adapters.kubernetes.nodes.evidence import REPORT
from nhc_adapters.kubernetes.nodes.following import Following
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, read_hold
from nhc_adapters.kubernetes.nodes.vocabulary import label_value

GONE = "no ResourceSlice has {} of this node"


class DeviceMarker:
    """Takes devices out and gives them back as `owner`."""

    def __init__(self, client: Client, owner: str) -> None:
        self.client, self.owner = client, owner
        self._api: Optional[DeviceApi] = None
        self._watch = DeviceWatch(client)
        """The watch, if anything is followed."""
        self._following = Following("nhc-kubernetes-devices")

    def states(self, nodes: Sequence[str], plugins: Iterable[str] = (), anew: bool = False) -> List[DeviceState]:
        """The devices of these nodes that can be marked, or are; `anew`: as they are at this moment. If a device plugin
        allocates a node's devices (`plugins`), none can be marked. Raises AdapterError.
        """
        if self._following.due() and not anew:
            self._watch = DeviceWatch(self.client, report=self._failed, api=self._api, everything=True)
            self._following.begin(self._watch.run, self._watch.settled)
        watch = None if anew else self._followed()
        if watch is None:
            watch = self._read(nodes if anew else None)
            watch.load_claims()
        states, without = [], set(plugins)
        if watch.api is None:
            return []
        held, others = watch.held, _marks(watch.others)
        for node in nodes:
            left = watch.rules(node)
            for physical in watch.slices.physical(node):
                rules = [rule for rule in left if agree(rule.device, physical.device)]
                left = [rule for rule in left if rule not in rules]
                mark = self._mark(rules) or _chosen(others, physical)
                busy = any(name.selects in held for name in physical.names)
                if mark is not None or node not in without:
                    states.append(DeviceState(node, physical.device, busy, mark, _disputed(physical)))
            for device in dict.fromkeys(rule.device for rule in left):  # its driver restarts
                rules = [rule for rule in left if rule.device == device]
                mark = self._mark(rules)
                if mark is not None:
                    states.append(DeviceState(node, device, any(rule.selects in held for rule in rules), mark))
        return states

    def mark(self, node: str, device: DeviceId, mark: Mark) -> Applied:
        """Take a device out by a rule for each of its names. Raises AdapterError."""
        watch, item = self._read([node]), self.client.find(node_path(node))
        known = watch.slices.find(node, device)
        if item is None:
            return Applied(node, Effect.FAILED, "not a node that the cluster knows")
        if watch.api is None or known is None:
            return Applied(node, Effect.REFUSED, watch.why_not() or GONE.format(device))
        plugin = device_plugin(item)
        if plugin:
            return Applied(node, Effect.REFUSED, f"a device plugin gives its devices out as {plugin}")
        rules = self._rules(watch, node, known.device)
        state, wanted = self._state(node, item, rules), mark._replace(owner=self.owner)
        if state.hold:
            # Not REFUSED: that it is to be left alone does not say that its node is to be marked instead.
            return Applied(node, Effect.FAILED, left_alone(state))
        if rules and state.available and all(rule.reason == label_value(_reason(mark)) for rule in rules):
            by = f"a person released it from {mark.cause or mark.why} {rules[0].released}"
            return Applied(node, Effect.FAILED, f"left alone until this has ended: {by}")
        wanted = in_place_of(state, wanted)
        effect, why = may_mark(state, wanted)
        missing = {rule_name(name) for name in known.names} - {rule.name for rule in rules if rule.out}
        if effect is Effect.CHANGED or (effect is Effect.UNCHANGED and missing):
            self._write(self._writer(watch.api), known, str(item["metadata"]["uid"]), wanted, rules)
            return Applied(node, Effect.CHANGED, why)
        return Applied(node, effect, why)

    def clear(self, node: str, device: DeviceId) -> Applied:
        """Delete our rules about a device. Raises AdapterError."""
        watch, item = self._read([node]), self.client.find(node_path(node))
        known = watch.slices.find(node, device)
        rules = self._rules(watch, node, known.device if known is not None else device)
        if watch.api is None or item is None or not rules:
            return Applied(node, Effect.UNCHANGED, "carries no mark of ours")
        effect, why = may_clear(self._state(node, item, rules), self.owner)
        if effect is Effect.CHANGED:
            writer = self._writer(watch.api)
            for rule in rules:
                writer.delete(rule)
        return Applied(node, effect, why)

    def left_by_driver(self, node: str, device: DeviceId) -> str:
        """Taints of a device's own driver that still keep it out, "" for none. Raises AdapterError."""
        known = self._read([node]).slices.find(node, device)
        taints = taints_of(known) if known is not None else ()
        return taint_texts([taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)])

    def tidy(self, nodes: Iterable[str], good: Container[str]) -> List[Tuple[str, str]]:
        """Have our own rules select the names that their devices have now, and delete those that a person has released
        from a fault that has ended: their nodes are among `good`. Returns what was changed, each with its node.

        The controller does so for its rules alone. Raises AdapterError.
        """
        wanted, followed = set(nodes), self._followed()
        if followed is not None and not self._own(followed, wanted):
            return []
        watch = self._read(())
        changes: List[Tuple[str, str]] = []
        own_of = self._own(watch, wanted)
        if watch.api is None or not own_of:
            return []
        watch.load_slices(own_of)
        writer = self._writer(watch.api)
        for node, own in own_of.items():
            ended = [rule for rule in own if not rule.out and node in good]
            for rule in ended:
                writer.delete(rule)
            changes += [(node, f"{rule.slice_name} is well: its released rule goes") for rule in ended]
            out = [rule for rule in own if rule.out]
            for device in dict.fromkeys(rule.device for rule in out):
                rules = [rule for rule in out if rule.device == device]
                changed: List[str] = []
                follow_names(writer, watch, watch.slices.find(node, device), rules, changed.append)
                changes += [(node, line) for line in changed]
        return changes

    def _write(
        self, writer: RuleWriter, known: PhysicalDevice, uid: str, mark: Mark, rules: Sequence[DeviceRule]
    ) -> None:
        standing = {rule.name: rule for rule in rules}
        sources = tuple(dict.fromkeys((*(source for rule in rules for source in rule.sources), REPORT)))
        for name in known.names:
            body = rule_body(writer.api, name, known.device, uid, mark, _reason(mark), sources)
            before = standing.get(rule_name(name))
            if before is not None and before.node_uid != uid:
                # Of a node that was deleted and created again: the cluster would delete it, too.
                writer.delete(before)
                before = None
            if before is None:
                before = read_rule(writer.create(body))
            if before is not None and not (before.out and _text(before.mark) == _text(mark)):
                writer.renew(before, body)

    def _writer(self, api: DeviceApi) -> RuleWriter:
        return RuleWriter(self.client, api, self._watch.take_rule)

    def _own(self, watch: DeviceWatch, nodes: Container[str]) -> Dict[str, List[DeviceRule]]:
        """Our own rules about devices of these nodes, by node."""
        by_node: Dict[str, List[DeviceRule]] = {}
        for rule in watch.rules():
            if rule.node in nodes and not rule.dry and rule.mark.owner == self.owner:
                by_node.setdefault(rule.node, []).append(rule)
        return by_node

    def _followed(self) -> Optional[DeviceWatch]:
        """What is followed, if it is sure to be up to date."""
        return self._watch if self._following.goes_on and self._watch.current else None

    def _failed(self, _what: str, cause: str) -> None:
        self._following.failed(cause)  # the right to watch may be missing

    def close(self) -> None:
        """Follow no longer."""
        self._following.close()

    def _read(self, nodes: Optional[Sequence[str]] = None) -> DeviceWatch:
        """All rules, and the devices of these nodes, or of all."""
        watch = DeviceWatch(self.client, api=self._api)
        try:
            watch.load_rules()
            if nodes is None or nodes:
                watch.load_slices(nodes)
        except ApiError:
            self._api = None  # the cluster may serve other versions by now
            raise
        self._api = watch.api
        return watch

    def _rules(self, watch: DeviceWatch, node: str, device: DeviceId) -> List[DeviceRule]:
        return [rule for rule in watch.rules(node) if agree(rule.device, device) and not rule.dry]

    def _mark(self, rules: Sequence[DeviceRule]) -> Optional[Mark]:
        """The mark that keeps a device out: another owner's before ours, because it must still be taken over."""
        marks = [rule.mark for rule in rules if rule.out]
        return min(marks, key=lambda mark: mark.owner == self.owner, default=None)

    def _state(self, node: str, item: Mapping[str, Any], rules: Sequence[DeviceRule]) -> NodeState:
        mark = self._mark(rules)
        hold = next((rule.hold for rule in rules if rule.hold), "") or read_hold(annotations_of(item))
        return NodeState(node, "free" if mark is None else "tainted", mark is None, mark=mark, hold=hold)


def _disputed(physical: PhysicalDevice) -> Tuple[Tuple[str, str], ...]:
    """As `DeviceState.disputed`."""
    taints = taints_of(physical)
    text = taint_texts(taints)
    return tuple((reason, f"its driver says {text}; {why}") for reason, why in disputed(taints).items())


def _marks(others: Sequence[Mapping[str, Any]]) -> List[Tuple[Mapping[str, Any], Mark]]:
    """The devices that others' rules keep out, and their reasons: who set a rule is responsible for it."""
    marks = []
    for item in others:
        spec, name = item.get("spec") or {}, str(item["metadata"]["name"])
        taint = spec.get("taint") or {}
        selector = spec.get("deviceSelector")
        if selector is not None and taint.get("effect") in (NO_SCHEDULE, NO_EXECUTE):
            mark = Mark(f"{taint.get('key')}={taint.get('value') or ''}", owner=f"the DeviceTaintRule {name}")
            marks.append((selector, mark))
    return marks


def _chosen(others: Sequence[Tuple[Mapping[str, Any], Mark]], physical: PhysicalDevice) -> Optional[Mark]:
    """The mark of a rule of another owner that selects a device by one of its names; a field missing in a selector
    matches all.
    """
    for selector, mark in others:
        for name in physical.names:
            if all(selector.get(key) in (None, "", wanted) for key, wanted in name.selector.items()):
                return mark
    return None


def _reason(mark: Mark) -> str:
    """The reason that a mark's cause (`nhc.marks.ports.marks.cause_text`) names."""
    return (*mark.cause.split("|"), "", "")[1] or "Unhealthy"


def _text(mark: Mark) -> str:
    return mark_text(mark, with_since=True)
