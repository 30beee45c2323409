"""Which nodes a pod's node selector and required node affinity choose. Pure.

The rules are the scheduler's: terms are alternatives, expressions in a term all hold, and a term without any chooses
nothing (k8s.io/component-helpers/scheduling/corev1/nodeaffinity).
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple


def chooses(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a pod of this spec may run on the node, as far as labels go."""
    labels = node.get("metadata", {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(_term(term, labels, str(node["metadata"]["name"])) for term in terms)


def required_terms(spec: Mapping[str, Any]) -> Any:
    """The terms of the required node affinity, None where there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def keys(spec: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """The labels that are looked for, each with the values that are wanted, as text."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield key, str(value)
    for term in required_terms(spec) or ():
        for one in term.get("matchExpressions") or ():
            if one.get("operator") in ("In", "Exists"):
                yield str(one["key"]), "|".join(one.get("values") or ()) or "any value"


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {"metadata.name": name}) for one in fields
    )


def _holds(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator, values = str(one.get("key")), one.get("operator"), one.get("values") or ()
    found = labels.get(key)
    if operator == "In":
        return found in values
    if operator == "NotIn":
        return found not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return _compared(str(operator), found, values)


def _compared(operator: str, found: Any, values: Sequence[str]) -> bool:
    try:
        left, right = int(found), int(values[0])
    except (TypeError, ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right if operator == "Lt" else False
