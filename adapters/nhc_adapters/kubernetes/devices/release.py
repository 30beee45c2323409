"""`nhc kubernetes release-device`: a person puts a device back in service. Returns its exit status.

The rule stays without effect until the fault has ended once. Until then the same fault does not take the device out
again; another fault does at once. A node's `uncordon` works the same way.
"""

from __future__ import annotations

import time
from typing import List, Sequence

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.cluster import Cluster
from nhc_adapters.kubernetes.devices.rules import NONE, DeviceRule, RuleWriter
from nhc_adapters.kubernetes.devices.slices import agree
from nhc_adapters.kubernetes.devices.watch import DeviceWatch
from nhc_adapters.kubernetes.nodes.operator_actions import DONE, FAILED


def release_device(cluster: Cluster, node: str, devices: Sequence[str], by: str) -> int:
    """Put devices of a node back, each named by PCI address, UUID, or name in its ResourceSlice."""
    client = cluster.client()
    watch = DeviceWatch(client)
    watch.load()
    if watch.api is None:
        cluster.complain(watch.why_not())
        return FAILED
    writer, failed = RuleWriter(client, watch.api), False
    for name in dict.fromkeys(devices):
        rules = rules_of(watch.rules(node), name)
        held = next((rule.hold for rule in rules if rule.hold), "")
        if not rules or held:
            why = f"left alone: {held}" if held else "no rule of nhc's is about it"
            cluster.complain(f"{node}/{name}: {why}")
            failed = True
        for rule in rules if not held else ():
            if rule.dry:
                writer.delete(rule)
            elif rule.effect == NONE:
                cluster.say(f"{node}/{rule.slice_name}: released already {rule.released}".rstrip())
            else:
                failed |= not _release(cluster, writer, rule, by)
    return FAILED if failed else DONE


def _release(cluster: Cluster, writer: RuleWriter, rule: DeviceRule, by: str) -> bool:
    try:
        writer.release(rule, by, time.time())
    except AdapterError as error:
        cluster.complain(f"{rule.node}/{rule.slice_name}: {error}")
        return False
    cluster.say(f"{rule.node}/{rule.slice_name}: released; was: {rule.mark.why}")
    return True


def rules_of(rules: Sequence[DeviceRule], name: str) -> List[DeviceRule]:
    """The rules about the device of this name, under all its names."""
    named = [rule for rule in rules if name.lower() in (rule.slice_name, rule.device.pci, rule.device.uuid.lower())]
    return [rule for rule in rules if any(agree(rule.device, other.device) for other in named)]
