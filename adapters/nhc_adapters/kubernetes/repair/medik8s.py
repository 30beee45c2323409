"""medik8s fences a node for which a remediation is made: SelfNodeRemediation, or FenceAgentsRemediation.

The remediation is made of the site's template, and bears the node's name, as NodeHealthCheck's do [medik8s,
selfnoderemediation_types.go, fenceagentsremediation_types.go]. Who made it deletes it: only then its taint goes off the
node. A node with the label `remediation.medik8s.io/exclude-from-remediation` is left alone.
"""

from __future__ import annotations

from typing import FrozenSet, List, Mapping, NamedTuple, Optional

from nhc.marks.ports.repair import Answer, Machine, Order, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.kubernetes.api.objects import conditions_of
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.repair.cluster import CONFLICT, KubeNode, Object
from nhc_adapters.kubernetes.repair.handover import Actor, ActorSettings, booted, is_of, order_notes
from nhc_adapters.repair.calls import LATER, CallFailed, RepairRefused, accepted

EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
FAILED_ID = "failed: "


class Remediation(NamedTuple):
    """One remediator's kind, and its template's."""

    group: str
    kind: str
    plural: str
    templates: str
    rungs: FrozenSet[Rung]


SELF_NODE = Remediation("self-node-remediation.medik8s.io", "SelfNodeRemediation", "selfnoderemediations",
                        "selfnoderemediationtemplates", frozenset({Rung.REBOOT}))  # fmt: skip
FENCE_AGENTS = Remediation("fence-agents-remediation.medik8s.io", "FenceAgentsRemediation", "fenceagentsremediations",
                           "fenceagentsremediationtemplates", frozenset({Rung.REBOOT, Rung.POWER_CYCLE}))  # fmt: skip


class Medik8s(Actor):
    """Asked by a remediation that is made for the node."""

    def __init__(self, given: ActorSettings, remediation: Remediation) -> None:
        super().__init__(given)
        self.made, self.rungs = remediation, remediation.rungs
        self.namespace, _, self.template = given.table.text("template").partition("/")
        if not self.template:
            raise given.table.wrong("template", f"NAMESPACE/NAME of one of the {remediation.templates}")

    def can(self, machine: Machine) -> str:
        excluded = machine.labels.get(EXCLUDED) == "true"
        return f"{machine.node} is excluded from remediation (label {EXCLUDED})" if excluded else ""

    def needed(self) -> List[ClusterRight]:
        purpose = "to have a node remediated, and to watch it"
        return [
            *(ClusterRight(verb, self.made.plural, self.made.group, self.namespace, purpose=purpose)
              for verb in ("create", "get", "delete")),
            ClusterRight("get", self.made.templates, self.made.group, self.namespace, self.template, purpose),
        ]  # fmt: skip

    def ask(self, order: Order, node: KubeNode) -> Sent:
        if node.labels.get(EXCLUDED) == "true":
            raise RepairRefused(f"{node.name} is excluded from remediation (label {EXCLUDED})")
        templates = self.objects.kind(self.made.group, self.made.templates, self.namespace, self.template)
        template = self.objects.find(templates)
        if template is None:
            raise RepairRefused(f"there is no template {self.namespace}/{self.template} ({self.made.templates})")
        spec = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
        version = self.objects.version(self.made.group)
        body = {
            "apiVersion": version, "kind": self.made.kind, "spec": spec,
            "metadata": {"name": node.name, "namespace": self.namespace, "annotations": order_notes(order)},
        }  # fmt: skip
        try:
            self.objects.create(self._path(""), body)
        except CallFailed as error:
            if error.code != str(CONFLICT):
                raise
            return self._taken(order, node.name)
        return accepted(f"made the {self.made.kind} {self.namespace}/{node.name}", node.name)

    def _taken(self, order: Order, name: str) -> Sent:
        standing = self.objects.find(self._path(name))
        if standing is not None and is_of(standing, order):
            return accepted(f"the {self.made.kind} {self.namespace}/{name} was made before", name)
        raise CallFailed(Answer.REFUSED, f"{name} has another {self.made.kind} already", retry_after=LATER)

    def progress(self, order: Order, sent: Sent, before: Sighting, node: Optional[KubeNode]) -> Progress:
        done, remediation = booted(before, order, node), self._ours(order)
        if remediation is None:
            if done is not None:
                return done
            if sent.request_id.startswith(FAILED_ID):
                return Progress(Stage.FAILED, f"{self.made.kind}: {sent.request_id[len(FAILED_ID) :]}")
            return Progress(Stage.WORKING, f"there is no {self.made.kind} of this order")
        if remediation["metadata"].get("deletionTimestamp"):
            return Progress(Stage.WORKING, f"the {self.made.kind} is being deleted")
        why = _failure(remediation)
        if why or (done is not None and _ended(remediation)):
            return Progress(Stage.HALFWAY, f"the {self.made.kind} has ended and is to be deleted: {why or 'it booted'}")
        processing: Mapping[str, object] = conditions_of(remediation).get("Processing") or {}
        return Progress(Stage.WORKING, f"the {self.made.kind}: {processing.get('reason') or 'has not begun'}")

    def finish(self, order: Order) -> Sent:
        """Delete the remediation, so that the node's taint goes."""
        remediation = self._ours(order)
        if remediation is None:
            return accepted(f"the {self.made.kind} is gone already", order.machine.node)
        why = _failure(remediation)
        self.objects.delete(self._path(order.machine.node), {"preconditions": {"uid": remediation["metadata"]["uid"]}})
        return accepted(f"deleted the {self.made.kind}", f"{FAILED_ID}{why}" if why else order.machine.node)

    def _ours(self, order: Order) -> Optional[Object]:
        remediation = self.objects.find(self._path(order.machine.node))
        return remediation if remediation is not None and is_of(remediation, order) else None

    def _path(self, name: str) -> str:
        return self.objects.kind(self.made.group, self.made.plural, self.namespace, name)


def _ended(remediation: Object) -> bool:
    """Whether the remediator says that it is through with it. Both conditions are medik8s' own for all of them."""
    conditions = conditions_of(remediation)
    return all((conditions.get(kind) or {}).get("status") == status for kind, status in
               (("Processing", "False"), ("Succeeded", "True")))  # fmt: skip


def _failure(remediation: Object) -> str:
    """Why the remediator has given it up, "" where it has not."""
    conditions = conditions_of(remediation)
    succeeded: Mapping[str, object] = conditions.get("Succeeded") or {}
    if succeeded.get("status") != "False" or (conditions.get("Processing") or {}).get("status") != "False":
        return ""
    return str(succeeded.get("message") or succeeded.get("reason") or "it failed")
