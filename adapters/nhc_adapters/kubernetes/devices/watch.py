"""What a cluster's devices are, and which rules of ours stand: followed while a controller runs, or read once."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from nhc.ports.adapter import AdapterError
from nhc_adapters.kubernetes.api.client import Client
from nhc_adapters.kubernetes.api.reflector import Reflector
from nhc_adapters.kubernetes.devices.rules import SELECTOR, DeviceApi, DeviceRule, find_api, read_rule, trim_rule
from nhc_adapters.kubernetes.devices.slices import Slices, trim_slice

LOOK_AGAIN = 300.0
"""Seconds after which a cluster without DeviceTaintRules, or without those that were followed, is asked anew: it may
have been upgraded.
"""

PATIENT = 20.0
"""Seconds that the first answer about devices may take before the nodes are judged without it."""


class DeviceWatch:
    """`changed` is called with the name of each node whose devices or rules changed. Without `api` it is asked for."""

    def __init__(
        self,
        client: Client,
        changed: Callable[[str], None] = lambda node: None,
        report: Callable[[str, str], None] = lambda what, cause: None,
        api: Optional[DeviceApi] = None,
    ) -> None:
        self.client, self._changed, self._report = client, changed, report
        self.api = api
        self.slices = Slices()
        self.others: List[Mapping[str, Any]] = []
        """The rules that are not ours, where these were loaded."""
        self.settled = threading.Event()
        """Whether it is known what the cluster has, or that it cannot be known."""
        self._rules: Dict[str, DeviceRule] = {}
        self._versions: Dict[str, int] = {}
        self._following: List[Reflector] = []
        self._loaded = False

    def why_not(self) -> str:
        """Why no device can be taken out by a rule, "" where it can."""
        if self.api is None:
            return "the cluster serves no DeviceTaintRule"
        if not self._loaded and not (self._following and all(one.synced.is_set() for one in self._following)):
            return "the cluster's devices cannot be read"
        return ""

    def rules(self, node: str = "") -> List[DeviceRule]:
        """Our rules, of one node where it is named, by name."""
        found = [rule for rule in list(self._rules.values()) if not node or rule.node == node]
        return sorted(found, key=lambda rule: rule.name)

    def take(self, item: Mapping[str, Any]) -> None:
        """A rule as a write of ours returned it: newer than what is followed, for a moment."""
        self._take_rule(str(item["metadata"]["name"]), item)

    def gone(self, name: str) -> None:
        """A rule that we deleted."""
        self._take_rule(name, None)

    def load(self) -> None:
        """Read everything once, by the versions that are known already if any are. Raises AdapterError."""
        self.load_rules()
        self.load_slices()
        self.settled.set()

    def load_rules(self) -> None:
        """Read the rules once, and which are others'. Raises AdapterError."""
        self.api = self.api or find_api(self.client)
        found = list(self.client.items(self.api.rule_path())) if self.api is not None else []
        for item in found:
            self.take(item)
        self.others = [item for item in found if str(item["metadata"]["name"]) not in self._rules]

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
        """Read a node's devices anew: the watch of the nodes may be ahead of the slices'. Raises AdapterError."""
        if self.api is not None:
            pages = list(self.client.pages(self.api.slice_path(), fieldSelector=f"spec.nodeName={node}"))
            found = [trim_slice(item) for page in pages for item in page.get("items") or ()]
            self.slices.replace(node, found, int(pages[0]["metadata"]["resourceVersion"]))

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
            self.client, api.rule_path(), self._take_rule, trim=trim_rule, selector=SELECTOR,
            report=lambda cause: self._report("following the DeviceTaintRules", cause),
        )  # fmt: skip
        self._following = [slices, rules]
        threads = [threading.Thread(target=one.run, args=(stop,), daemon=True) for one in self._following]
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
            if slices.error or rules.error:
                self._ask_again(slices, rules)

    def _ask_again(self, slices: Reflector, rules: Reflector) -> None:
        """Follow what the cluster serves now: an upgrade may have taken away the versions that were followed."""
        try:
            api = find_api(self.client)
        except AdapterError:
            return  # what cannot be followed is reported already
        if api != self.api:
            self.api = api
            if api is not None:
                slices.move(api.slice_path())
                rules.move(api.rule_path())
            self._all_changed()

    def _all_changed(self) -> None:
        for node in {*self.slices.nodes(), *(rule.node for rule in self.rules())}:
            self._changed(node)

    def _take_slice(self, name: str, item: Optional[Mapping[str, Any]]) -> None:
        for node in self.slices.put(name, item):
            self._changed(node)

    def _take_rule(self, name: str, item: Optional[Mapping[str, Any]]) -> None:
        version = int((item or {}).get("metadata", {}).get("resourceVersion") or 0)
        if item is not None and version < self._versions.get(name, 0):
            return  # the watch is behind what a write of ours returned
        before = self._rules.get(name)
        after = read_rule(item) if item is not None else None
        if after is not None:
            self._rules[name] = after
        else:
            self._rules.pop(name, None)
        if item is not None:
            self._versions[name] = version
        else:
            self._versions.pop(name, None)
        for node in {one.node for one in (before, after) if one is not None}:
            self._changed(node)
