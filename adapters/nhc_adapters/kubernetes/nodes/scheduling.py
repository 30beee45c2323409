"""Which nodes a pod may run on: by its node selector, its required node affinity and its tolerations. Pure.

The rules are the scheduler's: terms are alternatives, all expressions of a term must hold, and a term without any
expression chooses nothing (k8s.io/component-helpers/scheduling/corev1/nodeaffinity).
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple

from nhc_adapters.kubernetes.api.objects import is_ready
from nhc_adapters.kubernetes.nodes.own_marks import cordoned, labels_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def chooses(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec may run on the node, as far as labels go."""
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(_term(term, labels, str(node["metadata"]["name"])) for term in terms)


def required_terms(spec: Mapping[str, Any]) -> Any:
    """The terms of the required node affinity, None if there is none."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def keys(spec: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """The labels that are looked for, each with the values that are wanted, as text."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield key, str(value)
    for term in required_terms(spec) or ():
        for row in term.get("matchExpressions") or ():
            if row.get("operator") in ("In", "Exists"):
                yield str(row["key"]), "|".join(row.get("values") or ()) or "any value"


def takes_pods(node: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Whether a node is Ready, and lets a pod with these tolerations in."""
    if not is_ready(node) or cordoned(node) or node["metadata"].get("deletionTimestamp"):
        return False
    taints = (
        taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") != "PreferNoSchedule"
    )
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return toleration["key"] == taint.get("key") and same


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    named = {"metadata.name": name}
    return all(_holds(row, labels) for row in expressions) and all(_holds(row, named) for row in fields)


def _holds(row: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator = row.get("operator")
    values: Sequence[str] = row.get("values") or ()
    value = labels.get(str(row.get("key")))
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        mine, bound = int(str(value)), int(values[0])
    except (TypeError, ValueError, IndexError):
        return False
    return mine > bound if operator == "Gt" else operator == "Lt" and mine < bound
