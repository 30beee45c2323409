"""Rights in a cluster: which ones a task needs, whether the API server grants them, and the rule that would.

The question is a SelfSubjectAccessReview, which every authenticated user may ask (ClusterRole system:basic-user).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from nhc.marks.ports.repair import Right
from nhc_adapters.kubernetes.api.client import Client

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
COORDINATION = "coordination.k8s.io"


class ClusterRight(NamedTuple):
    """One verb on one resource. No namespace means all of them; `resource` may have a /subresource.

    `acting` says that it is needed only once `apply` is true.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    purpose: str = ""
    acting: bool = False

    def __str__(self) -> str:
        named = f" {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{named}{where}"

    def rule(self) -> str:
        """The rule to add, as YAML on one line."""
        named = f", resourceNames: [{self.name}]" if self.name else ""
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}]{named}, verbs: [{self.verb}]}}'

    def missing(self) -> str:
        """One line: what may not be done, what it is for, and the rule that allows it."""
        role = f"a Role in namespace {self.namespace}" if self.namespace else "a ClusterRole"
        return f"missing right: {self} ({self.purpose}); add to {role} of this account: {self.rule()}"


def of_lease(namespace: str, name: str, who: str) -> Tuple[ClusterRight, ...]:
    """What it takes to lead by a Lease."""
    purpose = f"to hold the Lease: without it {who} never leads"
    return (
        ClusterRight("create", "leases", COORDINATION, namespace, purpose=purpose),
        ClusterRight("get", "leases", COORDINATION, namespace, name, purpose),
        ClusterRight("update", "leases", COORDINATION, namespace, name, purpose),
    )


def denied(client: Client, rights: Sequence[ClusterRight], account: str = "") -> List[ClusterRight]:
    """Those that the API server does not grant, to us or to an account of ours. Raises AdapterError.

    `account` is `system:serviceaccount:NAMESPACE:NAME`; to ask about it takes the right to create SubjectAccessReviews.
    """
    return [right for right in rights if not _granted(client, right, account)]


def tried(client: Client, needed: Sequence[ClusterRight]) -> List[Right]:
    """Each right, and whether the API server grants it to us. Raises AdapterError."""
    missing = set(denied(client, needed))
    return [
        Right(str(right), right not in missing, right.missing() if right in missing else right.purpose)
        for right in needed
    ]


def _granted(client: Client, right: ClusterRight, account: str) -> bool:
    resource, _, sub = right.resource.partition("/")
    asked: Dict[str, str] = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": sub,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: Dict[str, Any] = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
    kind, path = "SelfSubjectAccessReview", REVIEW
    if account:
        own = f"system:serviceaccounts:{account.split(':')[2]}"
        spec.update(user=account, groups=["system:serviceaccounts", own, "system:authenticated"])
        kind, path = "SubjectAccessReview", REVIEW.replace("self", "")
    answer = client.post(path, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    return bool((answer.get("status") or {}).get("allowed"))
