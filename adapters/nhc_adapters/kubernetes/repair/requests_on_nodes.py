"""Operators' requests to the loop on a node: nhc's own annotation, and HyperPod's label. Pure.

    kubectl annotate node n1 nhc/request=reboot
    kubectl label --overwrite node n1 sagemaker.amazonaws.com/node-health-status=UnschedulablePendingReboot

A request stays the same while it is there and no answer was written: its key is made of the node, its text and the last
answer. So it is carried out once, and the same text after an answer is a new request.
"""

from __future__ import annotations

import hashlib
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.marks.ports.repair import RUNG_OF, Request, Rung
from nhc_adapters.kubernetes.nodes.marks import Op, Patch
from nhc_adapters.kubernetes.nodes.own_marks import annotations_of, labels_of

REQUEST = "nhc/request"
"""Annotation that a person sets: a repair (`reboot`), and of a device where it is for one (`reset-device gpu3`)."""

ANSWERED = "nhc/answered"
"""Annotation: what became of the last request."""

HEALTH = "sagemaker.amazonaws.com/node-health-status"
HYPERPOD = {
    "unschedulablependingreboot": Rung.REBOOT,
    "unschedulablependingreplacement": Rung.REPLACE,
    "unschedulablependingreplace": Rung.REPLACE,  # the spelling of one of AWS's posts
}
SOURCES = ("nhc", "hyperpod")

RUNGS = {rung.value: rung for rung in RUNG_OF.values() if rung is not Rung.ESCALATE}


class RequestRead(NamedTuple):
    """A request, if its text is valid; else what is wrong with it."""

    request: Optional[Request]
    problem: str = ""


def asked(node: Mapping[str, Any], sources: Sequence[str]) -> RequestRead:
    """What is asked of a node."""
    text = annotations_of(node).get(REQUEST, "").strip() if "nhc" in sources else ""
    if text:
        rung, device = _read(text)
        if rung is None:
            name = str(node.get("metadata", {}).get("name", ""))
            known = ", ".join(RUNGS)
            return RequestRead(None, f"{name}: {REQUEST}: {printable(text, 60)!r} is not one of {known}")
        return RequestRead(Request(rung, _key(node, text), printable(f"{REQUEST}={text}", 100), device))
    hyperpod = asks_hyperpod(node) if "hyperpod" in sources else None
    if hyperpod is not None:
        label = labels_of(node)[HEALTH]
        return RequestRead(Request(hyperpod, _key(node, label), f"{HEALTH}={printable(label, 60)}"))
    return RequestRead(None)


def asks_hyperpod(node: Mapping[str, object]) -> Optional[Rung]:
    """The repair that HyperPod's label asks for, None if it asks for none."""
    return HYPERPOD.get(labels_of(node).get(HEALTH, "").lower())


def _read(text: str) -> Tuple[Optional[Rung], str]:
    rung, _space, device = text.partition(" ")
    known = RUNGS.get(rung.lower())
    wrong = device and (known not in (Rung.RESET_DEVICE, Rung.RESTART_APP) or len(device.split()) != 1)
    return (None, "") if wrong else (known, device.strip())


def _key(node: Mapping[str, Any], text: str) -> str:
    parts = (str(node.get("metadata", {}).get("uid", "")), text, annotations_of(node).get(ANSWERED, ""))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def answer(node: Mapping[str, Any], request: Request, text: str, returned: bool) -> List[Op]:
    """The patch that removes a request from the node, with the answer; none if another request is there now. HyperPod's
    label then shows the node's state: Schedulable if it is back, Unschedulable if it is not.
    """
    standing = asked(node, SOURCES).request
    if standing is None or standing.key != request.key:
        return []
    patch = Patch(node)
    if REQUEST in annotations_of(node) and request.words.startswith(REQUEST):
        patch.annotations[REQUEST] = None
    else:
        patch.labels[HEALTH] = "Schedulable" if returned else "Unschedulable"
    patch.annotations[ANSWERED] = printable(text, 400)
    return patch.ops()
