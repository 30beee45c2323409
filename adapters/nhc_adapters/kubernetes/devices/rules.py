"""Our DeviceTaintRules: how one is made, read back, changed and deleted. Rules of others are never touched.

A rule has our label, our mark as text, the device's UUID and PCI address, and the mark's sources. Its node owns it, so
that the cluster itself deletes it with the node. Every change names the exact rule version that was read.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote

from nhc.core.model import DeviceId, printable
from nhc.core.timestamps import utc
from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.marks import mark_text, read_mark_text
from nhc_adapters.kubernetes.api.client import JSON_PATCH, MERGE_PATCH, Client
from nhc_adapters.kubernetes.api.errors import ApiError
from nhc_adapters.kubernetes.devices.slices import SliceDevice
from nhc_adapters.kubernetes.nodes.evidence import SOURCE
from nhc_adapters.kubernetes.nodes.own_marks import MANAGER, MARK, read_hold
from nhc_adapters.kubernetes.nodes.vocabulary import label_value

Item = Mapping[str, Any]
GROUP = "resource.k8s.io"
RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
"""Of DeviceTaintRule, the newest first: stable from 1.37, beta in 1.36, alpha before."""
SLICE_VERSIONS = ("v1", "v1beta2")

TAINT = "nhc/unhealthy"
SELECTOR = "app.kubernetes.io/managed-by=nhc"
NODE, NAME, REASON = "nhc/node", "nhc/device", "nhc/reason"
"""Labels of a rule, for people (`kubectl get devicetaintrules -L nhc/node,nhc/device`): a label's value may be cut."""

DEVICE = "nhc/device-id"
"""Annotation: the device's PCI address and UUID, with a space between, `-` where one is not known."""

RELEASED = "nhc/released"
"""Annotation: who put the device back in service by hand, and when. The effect is None until the fault has ended."""

WOULD_EVICT = "nhc/would-evict"
"""Annotation: what the API server's dry run with effect None said before the effect became NoExecute."""

WITNESS = "nhc/witness"
"""Annotation: what the device's driver says of it, if that agrees."""

NONE, NO_SCHEDULE, NO_EXECUTE = "None", "NoSchedule", "NoExecute"
DRY = "nhc-dry-run"
"""What the name of a rule begins with that only asks what an eviction would do."""

_PODS = re.compile(r"\b(\d+) pods? would be evicted\b")


class DeviceApi(NamedTuple):
    """The versions that a cluster serves."""

    rules: str
    slices: str

    def rule_path(self, name: str = "") -> str:
        path = f"/apis/{GROUP}/{self.rules}/devicetaintrules"
        return f"{path}/{quote(name, safe='')}" if name else path

    def slice_path(self, name: str = "") -> str:
        path = f"/apis/{GROUP}/{self.slices}/resourceslices"
        return f"{path}/{quote(name, safe='')}" if name else path

    def claim_path(self) -> str:
        return f"/apis/{GROUP}/{self.slices}/resourceclaims"


def find_api(client: Client) -> Optional[DeviceApi]:
    """The newest versions that the cluster serves, None if it serves no DeviceTaintRule. Raises AdapterError."""
    group = client.find(f"/apis/{GROUP}")
    served = [str(entry.get("version", "")) for entry in (group or {}).get("versions") or ()]

    def newest(resource: str, versions: Sequence[str]) -> str:
        for version in versions:
            listed = client.find(f"/apis/{GROUP}/{version}") if version in served else None
            if any(entry.get("name") == resource for entry in (listed or {}).get("resources") or ()):
                return version
        return ""

    rules, slices = newest("devicetaintrules", RULE_VERSIONS), newest("resourceslices", SLICE_VERSIONS)
    return DeviceApi(rules, slices) if rules and slices else None


class DeviceRule(NamedTuple):
    """A rule of ours. `device` is the physical device that it is meant for, even if its name now selects another."""

    name: str
    node: str
    node_uid: str
    device: DeviceId
    driver: str
    pool: str
    slice_name: str
    mark: Mark
    reason: str
    effect: str
    sources: Tuple[str, ...]
    released: str
    would_evict: str
    hold: str
    uid: str
    evicts: Optional[int]
    """How many pods the server says NoExecute would evict, None if it has not said so."""
    status: str

    @property
    def dry(self) -> bool:
        """Whether it only asks what an eviction would do."""
        return self.name.startswith(f"{DRY}.")

    @property
    def out(self) -> bool:
        """Whether it keeps its device out: a dry run does not, nor a rule that a person has released."""
        return not self.dry and self.effect != NONE

    @property
    def selects(self) -> Tuple[str, str, str]:
        return self.driver, self.pool, self.slice_name


def rule_name(device: SliceDevice, dry: bool = False) -> str:
    """A rule's name, for its node and device; a hash replaces it if it is too long, or if two drivers might collide."""
    begin = DRY if dry else "nhc"
    tail = hashlib.sha256(f"{device.node}/{device.driver}/{device.pool}/{device.name}".encode()).hexdigest()[:8]
    return f"{begin}.{device.node[:160].strip('.-')}.{device.name[:63].strip('.-')}.{tail}"


def rule_body(
    api: DeviceApi, name: SliceDevice, device: DeviceId, uid: str, mark: Mark, reason: str, sources: Sequence[str],
    witness: str = "", dry: bool = False,
) -> Dict[str, Any]:  # fmt: skip
    """A new rule for a device under one of its names. `uid` is its node's."""
    return {
        "apiVersion": f"{GROUP}/{api.rules}",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule_name(name, dry),
            "labels": {
                "app.kubernetes.io/managed-by": MANAGER,
                NODE: label_value(name.node),
                NAME: label_value(name.name),
                REASON: label_value(reason),
            },
            "annotations": {
                MARK: mark_text(mark, with_since=True),
                DEVICE: f"{device.pci or '-'} {device.uuid or '-'}",
                SOURCE: " ".join(sources),
                **({WITNESS: witness} if witness else {}),
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name.node, "uid": uid}],
        },
        "spec": {
            "deviceSelector": name.selector,
            "taint": {"key": TAINT, "value": label_value(reason), "effect": NONE if dry else NO_SCHEDULE},
        },
    }


def read_rule(item: Mapping[str, Any]) -> Optional[DeviceRule]:
    """A rule of ours, None for anybody else's and for one that makes no sense."""
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    owner = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("kind") == "Node"), None)
    mark = read_mark_text(str(annotations.get(MARK, "")))
    pair = str(annotations.get(DEVICE, "")).split()
    selector, taint = spec.get("deviceSelector") or {}, spec.get("taint") or {}
    driver, pool, slice_name = (str(selector.get(key) or "") for key in ("driver", "pool", "device"))
    if labels.get("app.kubernetes.io/managed-by") != MANAGER or taint.get("key") != TAINT or owner is None:
        return None
    if mark is None or not mark.ours or len(pair) != 2 or not (driver and pool and slice_name):
        return None
    pci, uuid = ("" if one == "-" else one for one in pair)
    status = _eviction(item, int(metadata.get("generation") or 0))
    pods = _PODS.search(status)
    return DeviceRule(
        str(metadata["name"]), str(owner.get("name", "")), str(owner.get("uid", "")), DeviceId(pci, uuid), driver,
        pool, slice_name, mark, str(taint.get("value") or ""), str(taint.get("effect", "")),
        tuple(str(annotations.get(SOURCE, "")).split()), str(annotations.get(RELEASED, "")),
        str(annotations.get(WOULD_EVICT, "")), read_hold(annotations), str(metadata.get("uid", "")),
        int(pods[1]) if pods else None, status,
    )  # fmt: skip


def _eviction(item: Mapping[str, Any], generation: int) -> str:
    """What the device taint eviction controller says of the rule as it is now."""
    for entry in (item.get("status") or {}).get("conditions") or ():
        if entry.get("type") == "EvictionInProgress" and int(entry.get("observedGeneration") or 0) == generation:
            return printable(str(entry.get("message") or ""), 400)
    return ""


def trim_rule(item: Mapping[str, Any]) -> Dict[str, Any]:
    """What is kept of a rule."""
    metadata = {key: value for key, value in (item.get("metadata") or {}).items() if key != "managedFields"}
    return {"metadata": metadata, "spec": item.get("spec") or {}, "status": item.get("status") or {}}


class RuleWriter:
    """Writes rules. Each call is safe to repeat: a rule's name follows from its node and device.

    `took` is called with each rule's name and what the server then has of it, None if it is gone.
    """

    def __init__(
        self, client: Client, api: DeviceApi, took: Callable[[str, Optional[Item]], None] = lambda name, item: None
    ) -> None:
        self.client, self.api, self._took = client, api, took

    def create(self, body: Item) -> Item:
        """A new rule, or the existing one of its name. Raises AdapterError, also if that one is not ours."""
        name = str(body["metadata"]["name"])
        try:
            made = self.client.post(self.api.rule_path(), body)
        except ApiError as error:
            if error.status != 409:
                raise
            made = self.client.get(self.api.rule_path(name))
            if read_rule(made) is None or made["spec"]["deviceSelector"] != body["spec"]["deviceSelector"]:
                raise ApiError(409, "AlreadyExists", f"a DeviceTaintRule {name} stands that is not ours") from None
        self._took(name, made)
        return made

    def renew(self, rule: DeviceRule, body: Item) -> None:
        """Let a rule of ours tell of another fault, and keep its device out if it was released. Raises AdapterError."""
        taint = body["spec"]["taint"]
        effect = taint["effect"] if rule.effect == NONE else rule.effect
        texts = body["metadata"]["annotations"]
        change: Dict[str, Any] = {
            "metadata": {
                "uid": rule.uid,
                "labels": body["metadata"]["labels"],
                "annotations": {**texts, RELEASED: None},
            },
            "spec": {"taint": {"value": taint["value"], "effect": effect}},
        }

        def send(version: str) -> Dict[str, Any]:
            change["metadata"]["resourceVersion"] = version
            return self.client.patch(self.api.rule_path(rule.name), change, MERGE_PATCH, fieldManager=MANAGER)

        self._took(rule.name, self._as_it_stands(rule, send))

    def change(self, rule: DeviceRule, effect: str, **annotations: str) -> None:
        """Give a rule another effect, and annotations (by name, with `_` for `-`). Raises AdapterError."""
        ops: List[Dict[str, Any]] = [
            # The version changes with each status that the eviction controller writes.
            {"op": "test", "path": "/metadata/uid", "value": rule.uid},
            {"op": "test", "path": "/spec/taint/effect", "value": rule.effect},
            {"op": "replace", "path": "/spec/taint/effect", "value": effect},
        ]
        for key, value in annotations.items():
            ops.append({"op": "add", "path": f"/metadata/annotations/nhc~1{key.replace('_', '-')}", "value": value})
        changed = self.client.patch(self.api.rule_path(rule.name), ops, JSON_PATCH, fieldManager=MANAGER)
        self._took(rule.name, changed)

    def delete(self, rule: DeviceRule) -> None:
        """Delete this very rule, if it is still there. Raises AdapterError."""
        try:
            self._as_it_stands(
                rule,
                lambda version: self.client.delete(
                    self.api.rule_path(rule.name), {"preconditions": {"uid": rule.uid, "resourceVersion": version}}
                ),
            )
        except ApiError as error:
            if error.status != 404:
                raise
        self._took(rule.name, None)

    def _as_it_stands(self, rule: DeviceRule, send: Callable[[str], Dict[str, Any]]) -> Dict[str, Any]:
        """Send a change of the present version; repeat it if the eviction controller has just written its status."""
        for _again in range(2):
            try:
                return send(self._version(rule))
            except ApiError as error:
                if error.status != 409:
                    raise
        return send(self._version(rule))

    def _version(self, rule: DeviceRule) -> str:
        """The version of a rule that is still its owner's: the remedy loop takes the controller's rules over, and what
        is known of them may be older. Raises AdapterError.
        """
        standing = self.client.get(self.api.rule_path(rule.name))
        known = read_rule(standing)
        if known is None or (known.uid, known.mark.owner) != (rule.uid, rule.mark.owner):
            raise ApiError(409, "Conflict", f"the DeviceTaintRule {rule.name} is not the one that was looked at")
        return str(standing["metadata"]["resourceVersion"])

    def release(self, rule: DeviceRule, by: str, now: float) -> None:
        """Back in service by a person's decision: the rule stays, without effect, until its fault has ended."""
        self.change(rule, NONE, released=f"by {by} at {utc(now)}" if by else f"at {utc(now)}")
