"""The kinds of other controllers on the test plane: the fields that nhc reads and writes, as their types have them.

Each names where its types are. The API server prunes what a schema does not name, so a field that nhc would invent is
lost here as it would be in a real cluster.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from nhc_adapters.kubernetes.api.client import MERGE_PATCH
from nhc_adapters.kubernetes.api.errors import ApiError
from tests.support.kube import Kube
from tests.support.waiting import until

TEXT: Dict[str, Any] = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}
FLAG = {"type": "boolean"}
CONDITIONS: Dict[str, Any] = {"type": "array", "items": {"type": "object", "properties": {
    "type": TEXT, "status": TEXT, "reason": TEXT, "message": TEXT, "lastTransitionTime": TIME}}}  # fmt: skip


def record(**fields: Any) -> Dict[str, Any]:
    return {"type": "object", "properties": fields}


ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXTS = {"type": "object", "additionalProperties": TEXT}
REFERENCE = record(name=TEXT, namespace=TEXT, kind=TEXT, apiGroup=TEXT)


class Kind(NamedTuple):
    """One kind. `source` is the Go file of its types."""

    group: str
    version: str
    kind: str
    plural: str
    spec: Dict[str, Any]
    status: Dict[str, Any]
    source: str
    namespaced: bool = True


KINDS = (
    Kind("cluster.x-k8s.io", "v1beta2", "Machine", "machines",
         record(clusterName=TEXT, providerID=TEXT, infrastructureRef=REFERENCE),
         record(nodeRef=record(name=TEXT), phase=TEXT, conditions=CONDITIONS,
                deprecated=record(v1beta1=record(conditions=CONDITIONS))),
         "kubernetes-sigs/cluster-api api/core/v1beta2/machine_types.go"),
    Kind("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck", "machinehealthchecks",
         record(clusterName=TEXT, selector=record(matchLabels=TEXTS, matchExpressions={"type": "array", "items": ANY}),
                remediation=record(templateRef=REFERENCE)),
         record(expectedMachines={"type": "integer"}, conditions=CONDITIONS),
         "kubernetes-sigs/cluster-api api/core/v1beta2/machinehealthcheck_types.go"),
    Kind("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts",
         record(online=FLAG, consumerRef=REFERENCE),
         record(operationalStatus=TEXT, errorType=TEXT, errorMessage=TEXT, poweredOn=FLAG,
                provisioning=record(state=TEXT)),
         "metal3-io/baremetal-operator apis/metal3.io/v1alpha1/baremetalhost_types.go"),
    Kind("self-node-remediation.medik8s.io", "v1alpha1", "SelfNodeRemediation", "selfnoderemediations",
         record(remediationStrategy={"type": "string", "default": "Automatic",
                                     "enum": ["Automatic", "ResourceDeletion", "OutOfServiceTaint"]}),
         record(timeAssumedRebooted=TIME, phase=TEXT, lastError=TEXT, conditions=CONDITIONS),
         "medik8s/self-node-remediation api/v1alpha1/selfnoderemediation_types.go"),
    Kind("self-node-remediation.medik8s.io", "v1alpha1", "SelfNodeRemediationTemplate", "selfnoderemediationtemplates",
         record(template=record(spec=record(remediationStrategy=TEXT))), ANY,
         "medik8s/self-node-remediation api/v1alpha1/selfnoderemediationtemplate_types.go"),
    Kind("fence-agents-remediation.medik8s.io", "v1alpha1", "FenceAgentsRemediation", "fenceagentsremediations",
         record(agent=TEXT, sharedparameters=TEXTS, nodeparameters={"type": "object", "additionalProperties": TEXTS}),
         record(conditions=CONDITIONS),
         "medik8s/fence-agents-remediation api/v1alpha1/fenceagentsremediation_types.go"),
    Kind("fence-agents-remediation.medik8s.io", "v1alpha1", "FenceAgentsRemediationTemplate",
         "fenceagentsremediationtemplates",
         record(template=record(spec=record(agent=TEXT, sharedparameters=TEXTS,
                                            nodeparameters={"type": "object", "additionalProperties": TEXTS}))), ANY,
         "medik8s/fence-agents-remediation api/v1alpha1/fenceagentsremediationtemplate_types.go"),
    Kind("janitor.dgxc.nvidia.com", "v1alpha1", "RebootNode", "rebootnodes",
         record(nodeName=TEXT, force=FLAG), record(startTime=TIME, completionTime=TIME, conditions=CONDITIONS),
         "NVIDIA/NVSentinel janitor/api/v1alpha1/rebootnode_types.go", False),
    Kind("karpenter.sh", "v1", "NodeClaim", "nodeclaims",
         record(nodeClassRef=ANY, terminationGracePeriod=TEXT),
         record(nodeName=TEXT, providerID=TEXT, imageID=TEXT, conditions=CONDITIONS),
         "kubernetes-sigs/karpenter pkg/apis/v1/nodeclaim_status.go", False),
)  # fmt: skip

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def path_of(kube: Kube, kind: str, name: str = "") -> str:
    """Where the objects of a kind are, in the test's own namespace."""
    (one,) = [each for each in KINDS if each.kind == kind]
    where = f"/namespaces/{kube.namespace}" if one.namespaced else ""
    return f"/apis/{one.group}/{one.version}{where}/{one.plural}" + (f"/{name}" if name else "")


def make(
    kube: Kube, kind: str, name: str, spec: Any = None, status: Any = None, annotations: Any = None, labels: Any = None
) -> Any:
    """Create an object, with a status where one is given."""
    (one,) = [each for each in KINDS if each.kind == kind]
    meta = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    body = {"apiVersion": f"{one.group}/{one.version}", "kind": kind, "metadata": meta, "spec": spec or {}}
    made = kube.admin.post(path_of(kube, kind), body)
    return set_status(kube, kind, name, status) if status else made


def set_status(kube: Kube, kind: str, name: str, status: Any) -> Any:
    """What its controller would write."""
    return kube.admin.patch(f"{path_of(kube, kind, name)}/status", {"status": status}, MERGE_PATCH)


def annotate(kube: Kube, kind: str, name: str, **notes: Any) -> Any:
    """Set or (None) remove annotations."""
    return kube.admin.patch(path_of(kube, kind, name), {"metadata": {"annotations": notes}}, MERGE_PATCH)


def install(kube: Kube) -> None:
    """Have the API server serve all of them; they stay for the session."""
    for one in KINDS:
        schema = {"type": "object", "properties": {"spec": one.spec, "status": one.status}}
        version = {"name": one.version, "served": True, "storage": True, "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": schema}}  # fmt: skip
        names: Dict[str, Any] = {"kind": one.kind, "plural": one.plural, "singular": one.kind.lower()}
        spec = {"group": one.group, "scope": "Namespaced" if one.namespaced else "Cluster", "names": names,
                "versions": [version]}  # fmt: skip
        try:
            kube.admin.post(DEFINITIONS, {"metadata": {"name": f"{one.plural}.{one.group}"}, "spec": spec})
        except ApiError as error:
            if error.status != 409:
                raise
    for one in KINDS:
        until(lambda one=one: _served(kube, one))  # type: ignore[misc]


def _served(kube: Kube, one: Kind) -> bool:
    try:
        found = kube.admin.get(f"/apis/{one.group}/{one.version}")
    except ApiError:
        return False
    listed: List[Any] = found.get("resources") or []
    return any(resource["name"] == one.plural for resource in listed)
