"""The marks on a node, and which are ours: our annotations, and the values that they list as set by us."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from nhc.core.json_values import object_from, object_of, text_of, texts_of
from nhc.core.model import printable
from nhc.marks.ports.adapter import Mark
from nhc.marks.ports.marks import read_mark_text
from nhc_adapters.kubernetes.nodes.boots import booted_since
from nhc_adapters.kubernetes.nodes.vocabulary import NodeTaint, read_taint

MARK = "nhc/mark"
"""Annotation: our mark as text, the same that Slurm would show as a reason."""

SET = "nhc/set"
"""Annotation: what we set on the node, for clearing."""

DRAIN = "nhc/drain"
"""Annotation: how far a drain of ours has come."""

REPAIR = "nhc/repair"
"""Annotation: the repair requested from the platform (`reboot`, `replace`), if a vocabulary has a term for it."""

HOLD = "nhc/hold"
"""Annotation that an operator sets: leave this node alone; its value says why."""

PUT_BACK = "nhc/put-back"
"""Annotation: what others ask for (`nodes.evidence`: ASKED, SLURM) that an operator overruled by putting the node back,
until it has ended."""

COLLECTS = "nhc/collects"
"""Annotation of a pod of ours that only reads: it is no work that a drain or a repair waits for. Its node may die under
it, and then it would stay for ever."""

REMEDY = "nhc/remedy"
"""Label: the state of the remedy loop's episode on a node. Annotation of the same name: its number, and why."""

LEFT = ("escalated", "aborted")
"""Its values on nodes at which the loop is no more at work, and which are a person's."""

MANAGER = "nhc"
"""Our name as a field manager: the API server remembers who set a field last."""

Node = Mapping[str, Any]


@dataclass
class Own:
    """What we set on a node, as its annotation says. `note` is an operator's text that was in the place of our mark,
    `boot` the node's boot id when we last set a cordon or a taint.
    """

    cordon: bool = False
    note: str = ""
    boot: str = ""
    taints: List[str] = field(default_factory=list)
    labels: Dict[str, str] = field(default_factory=dict)
    annotations: Dict[str, str] = field(default_factory=dict)

    def keep_note(self, text: str) -> None:
        """An operator's text stood where our mark is to stand."""
        self.note = text

    def hold_cordon(self, boot: str) -> None:
        """The cordon is ours, set in this boot of the node."""
        self.cordon, self.boot = True, boot

    def hold_taints(self, taints: Iterable[str], boot: str = "") -> None:
        """These taints are ours, and no other; one was set in the boot `boot` of the node, "" for none."""
        self.taints, self.boot = list(dict.fromkeys(taints)), boot or self.boot

    def text(self) -> str:
        """The annotation's text, without what is empty."""
        value = {name: part for name, part in vars(self).items() if part}
        return json.dumps(value, separators=(",", ":"), sort_keys=True)


def read_own(node: Node) -> Own:
    """What we set on this node; nothing if the annotation is missing or not valid."""
    text = annotations_of(node).get(SET)
    if text is None:
        # A mark left by hand or by another tool in our name: the cordon goes with it.
        return Own(cordon=read_own_mark(node) is not None)
    raw = object_from(text)
    return Own(
        raw.get("cordon") is True,
        text_of(raw.get("note")),
        text_of(raw.get("boot")),
        texts_of(raw.get("taints")),
        {key: str(value) for key, value in object_of(raw.get("labels")).items()},
        {key: str(value) for key, value in object_of(raw.get("annotations")).items()},
    )


def read_own_mark(node: Node) -> Optional[Mark]:
    """Our mark on this node, None if it carries none."""
    text = annotations_of(node).get(MARK)
    mark = read_mark_text(text) if text else None
    return mark if mark is not None and mark.ours else None


def annotations_of(node: Node) -> Mapping[str, str]:
    return node.get("metadata", {}).get("annotations") or {}


def labels_of(node: Node) -> Mapping[str, str]:
    return node.get("metadata", {}).get("labels") or {}


def read_hold(annotations: Mapping[str, Any]) -> str:
    """Why a person put the annotation HOLD on a node, or on a rule of ours; "" if it is not there."""
    if HOLD not in annotations:
        return ""
    return f"{HOLD}: {printable(str(annotations[HOLD]), 120) or 'no reason given'}"


def taints_of(node: Node) -> List[NodeTaint]:
    return [read_taint(entry) for entry in node.get("spec", {}).get("taints") or ()]


def cordoned(node: Node) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


CORDON, TAINT = "cordon", "taint"
"""What of a mark keeps work away from its node."""


def undone(node: Node) -> Tuple[str, ...]:
    """What of our mark somebody has undone: CORDON, TAINT.

    One alone is no person's decision: automation uncordons at the end of its own work, no matter who set the cordon
    (NVIDIA's driver manager at each start of a driver pod, k8s-driver-manager 212; kured; the node upgrades of AKS and
    GKE).
    """
    own, gone = read_own(node), []
    if own.cordon and not cordoned(node):
        gone.append(CORDON)
    if own.taints and {str(taint) for taint in taints_of(node)}.isdisjoint(own.taints):
        gone.append(TAINT)
    return tuple(gone)


def released(node: Node) -> bool:
    """Whether somebody undid by hand all that our mark did to keep work away.

    If a mark was only a cordon, or only taints, one change undoes all. While the remedy loop repairs the node, or once
    it has booted since we set the mark, it is no person's decision either: automation uncordons at a boot. The mark is
    set again, once in each boot.
    """
    own, gone = read_own(node), undone(node)
    parts = int(own.cordon) + bool(own.taints)
    if not parts or len(gone) < parts:
        return False
    return parts > 1 or not (in_repair(node) or booted_since(node, own.boot))


def in_repair(node: Node) -> bool:
    """Whether the remedy loop is at work on a node, as it shows there."""
    return labels_of(node).get(REMEDY, "") not in ("", *LEFT)


def we_cordoned(node: Node) -> bool:
    """Whether the present cordon is still ours: no one uncordoned the node and cordoned it again since.

    The API server records who set the field last; if it does not (a client that leaves managedFields out), our own
    annotation decides.
    """
    owners = [
        str(entry.get("manager"))
        for entry in node.get("metadata", {}).get("managedFields") or ()
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return not owners or MANAGER in owners
