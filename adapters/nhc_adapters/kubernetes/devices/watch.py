"""A cluster's devices and the rules on them: followed while a controller or a loop runs, or read once."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.api.reflector import Reflector
from nhc_adapters.kubernetes.devices.rules import (
    SELECTOR,
    DeviceApi,
    DeviceRule,
    RuleWriter,
    find_api,
    read_rule,
    rule_body,
    trim_rule,
)
from nhc_adapters.kubernetes.devices.slices import PhysicalDevice, Slices, trim_slice, whole

LOOK_AGAIN = 300.0
"""Seconds after which a cluster without DeviceTaintRules, or without those that were followed, is asked again: it may
have been upgraded.
"""

PATIENT = 20.0
"""Seconds that the first answer about devices may take before the nodes are judged without it."""


class DeviceWatch:
    """`changed` is called with the name of each node whose devices or rules changed. Without `api` the server's version
    is requested. `everything` follows others' rules and the claims, too.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[str], None] = lambda node: None,
        report: Callable[[str, str], None] = lambda what, cause: None,
        api: Optional[DeviceApi] = None,
        everything: bool = False,
    ) -> None:
        self.client, self._changed, self._report = client, changed, report
        self.api = api
        self.slices = Slices()
        self.settled = threading.Event()
        """Whether it is known what the cluster has, or that it cannot be known."""
        self._everything = everything
        self._rules: Dict[str, DeviceRule] = {}
        self._others: Dict[str, Mapping[str, Any]] = {}
        self._claims: Dict[str, Sequence[Tuple[str, str, str]]] = {}
        self._versions: Dict[str, int] = {}
        self._following: List[Reflector] = []
        self._loaded = False

    def why_not(self) -> str:
        """Why no device can be taken out by a rule, "" if it can."""
        if self.api is None:
            return "the cluster serves no DeviceTaintRule"
        synced = [reflector.synced.is_set() for reflector in self._following]
        if not self._loaded and not (synced and all(synced)):
            return "the cluster's devices cannot be read"
        return ""

    def rules(self, node: str = "") -> List[DeviceRule]:
        """Our rules, of one node where it is named, by name."""
        rules = [rule for rule in list(self._rules.values()) if not node or rule.node == node]
        return sorted(rules, key=lambda rule: rule.name)

    @property
    def current(self) -> bool:
        """Whether what is followed is as the cluster has it, but for a moment."""
        if self.api is None:
            return self.settled.is_set()
        return bool(self._following) and all(reflector.current for reflector in self._following)

    @property
    def others(self) -> List[Mapping[str, Any]]:
        """The rules that are not ours, if these were loaded or everything is followed."""
        return list(self._others.values())

    @property
    def held(self) -> Set[Tuple[str, str, str]]:
        """The names of the devices that were given to claims: a pod may start on a claim's device as long as the claim
        has it. Known where claims were loaded or everything is followed.
        """
        return {name for devices in list(self._claims.values()) for name in devices}

    def load(self) -> None:
        """Read everything once, by the versions that are known already if any are. Raises AdapterError."""
        self.load_rules()
        self.load_slices()
        self.settled.set()

    def load_rules(self) -> None:
        """Read the rules once, and which are others'. Raises AdapterError."""
        self.api = self.api or find_api(self.client)
        for item in self.client.items(self.api.rule_path()) if self.api is not None else ():
            self.take_rule(str(item["metadata"]["name"]), item)

    def load_claims(self) -> None:
        """Read the claims once. The rules come first. Raises AdapterError."""
        if self.api is not None:
            for item in self.client.items(self.api.claim_path()):
                self._take_claim(f"{item['metadata'].get('namespace')}/{item['metadata']['name']}", trim_claim(item))

    def load_slices(self, nodes: Optional[Iterable[str]] = None) -> None:
        """Read the devices of these nodes once, or of all. The rules come first. Raises AdapterError."""
        if self.api is None:
            return
        queries: List[Dict[str, str]] = [{}]
        if nodes is not None:  # and the slices without a node: their devices may name nodes
            queries = [{"fieldSelector": f"spec.nodeName={name}"} for name in {*nodes, ""}]
        for query in queries:
            for item in self.client.items(self.api.slice_path(), **query):
                self.slices.put(str(item["metadata"]["name"]), trim_slice(item))
        self._loaded = True

    def renew(self, node: str) -> None:
        """Read a node's devices again: the watch of the nodes may be ahead of the slices'. Raises AdapterError.

        The slices that are known are read by name, which etcd answers at once. A list waits for the API server's cache
        to catch up with etcd, and that is asked every 100 ms only (k8s.io/apiserver, progressRequestPeriod). So a list
        is read only if a slice is gone, or if a pool has more slices than are known.
        """
        if self.api is not None and not self._renew_known(node, self.api):
            pages = list(self.client.pages(self.api.slice_path(), fieldSelector=f"spec.nodeName={node}"))
            slices = [trim_slice(item) for page in pages for item in page.get("items") or ()]
            self.slices.replace(node, slices, int(pages[0]["metadata"]["resourceVersion"]))

    def _renew_known(self, node: str, api: DeviceApi) -> bool:
        names = self.slices.published(node)
        try:
            answers = [self.client.find(api.slice_path(name)) for name in names]
        except ApiError:  # the right to get them may be missing
            return False
        slices = [trim_slice(item) for item in answers if item is not None]
        if not slices or len(slices) < len(names) or not whole(slices):
            return False
        for name, item in zip(names, slices):
            self.slices.put(name, item)
        return True

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set. For a thread of its own."""
        until = time.monotonic() + PATIENT
        while not stop.is_set() and self.api is None:
            try:
                self.api = find_api(self.client)
            except AdapterError as error:
                self._report("asking for DeviceTaintRules", str(error))
                if time.monotonic() >= until:
                    self.settled.set()
                stop.wait(1.0)
                continue
            self._report("asking for DeviceTaintRules", "")
            if self.api is None:
                self.settled.set()
                stop.wait(LOOK_AGAIN)
        if self.api is not None and not stop.is_set():
            self._follow(self.api, stop)

    def _follow(self, api: DeviceApi, stop: threading.Event) -> None:
        slices = Reflector(
            self.client, api.slice_path(), self._take_slice, trim=trim_slice,
            report=lambda cause: self._report("following the ResourceSlices", cause),
        )  # fmt: skip
        rules = Reflector(
            self.client, api.rule_path(), self.take_rule, trim=trim_rule,
            selector="" if self._everything else SELECTOR,
            report=lambda cause: self._report("following the DeviceTaintRules", cause),
        )  # fmt: skip
        following = [slices, rules]
        if self._everything:
            following.append(Reflector(
                self.client, api.claim_path(), self._take_claim, trim=trim_claim,
                report=lambda cause: self._report("following the ResourceClaims", cause),
            ))  # fmt: skip
        self._following = following
        threads = [threading.Thread(target=reflector.run, args=(stop,), daemon=True) for reflector in self._following]
        for thread in threads:
            thread.start()
        until = time.monotonic() + PATIENT
        while not stop.is_set() and self.why_not() and time.monotonic() < until:
            stop.wait(0.02)
        self.settled.set()
        while not stop.is_set() and self.why_not():
            stop.wait(1.0)
        self._all_changed()
        while not stop.wait(LOOK_AGAIN):
            if any(reflector.error for reflector in following):
                self._ask_again()

    def _ask_again(self) -> None:
        """Follow what the cluster serves now: an upgrade may have taken away the versions that were followed."""
        try:
            api = find_api(self.client)
        except AdapterError:
            return  # what cannot be followed is reported already
        if api != self.api:
            self.api = api
            if api is not None:
                for reflector, path in zip(self._following, (api.slice_path(), api.rule_path(), api.claim_path())):
                    reflector.move(path)
            self._all_changed()

    def _all_changed(self) -> None:
        for node in {*self.slices.nodes(), *(rule.node for rule in self.rules())}:
            self._changed(node)

    def _take_slice(self, name: str, item: Optional[Mapping[str, Any]]) -> None:
        for node in self.slices.put(name, item):
            self._changed(node)

    def take_rule(self, name: str, item: Optional[Mapping[str, Any]]) -> None:
        """A rule as the server has it, None if it is gone. One that a write of ours returned is newer than what is
        followed, for a moment.
        """
        version = int((item or {}).get("metadata", {}).get("resourceVersion") or 0)
        if item is not None and version < self._versions.get(name, 0):
            return  # the watch is behind what a write of ours returned
        before = self._rules.get(name)
        after = read_rule(item) if item is not None else None
        _put(self._rules, name, after)
        _put(self._others, name, item if after is None else None)
        _put(self._versions, name, version if item is not None else None)
        for node in {rule.node for rule in (before, after) if rule is not None}:
            self._changed(node)

    def _take_claim(self, name: str, item: Optional[Mapping[str, Any]]) -> None:
        _put(self._claims, name, (item or {}).get("held") or None)


def _put(table: Dict[str, Any], name: str, value: object) -> None:
    """Set an entry, or remove it (None)."""
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def trim_claim(item: Mapping[str, Any]) -> Dict[str, Any]:
    """What is kept of a ResourceClaim: the devices that it holds. Who only watches one (adminAccess) does not."""
    allocation = (item.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    held = [
        (str(result.get("driver")), str(result.get("pool")), str(result.get("device")))
        for result in results if not result.get("adminAccess")
    ]  # fmt: skip
    metadata = {key: item["metadata"].get(key) for key in ("namespace", "name", "resourceVersion")}
    return {"metadata": metadata, "held": held}


# Rules follow their devices: a driver may publish its devices under other names.


def follow_names(
    writer: RuleWriter, watch: DeviceWatch, physical: Optional[PhysicalDevice], rules: Sequence[DeviceRule],
    log: Callable[[str], None],
) -> None:  # fmt: skip
    """A rule for each name that a device has now, if rules keep it out; none for a name that another device has now.

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
