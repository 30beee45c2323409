"""The kinds of other controllers on the test plane: as their projects publish them, where a Go module has them.

medik8s and NVSentinel publish theirs in no module that can be had: theirs are written here, with the fields that nhc
reads and writes, each naming where its types are. All writes here are strict: an unknown field is refused.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any, Dict, Mapping, NamedTuple

from nhc_adapters.kubernetes.api.client import MERGE_PATCH
from tests.support import published
from tests.support.kube import Kube

TEXT: Dict[str, Any] = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}
FLAG = {"type": "boolean"}
CONDITIONS: Dict[str, Any] = {"type": "array", "items": {"type": "object", "properties": {
    "type": TEXT, "status": TEXT, "reason": TEXT, "message": TEXT, "lastTransitionTime": TIME}}}  # fmt: skip


def record(**fields: Any) -> Dict[str, Any]:
    return {"type": "object", "properties": fields}


ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXTS = {"type": "object", "additionalProperties": TEXT}


class Kind(NamedTuple):
    """One kind. `spec` and `status` are its schema where it is written here; {} where it is the published one.

    `given` is what its spec must hold besides what a test cares for.
    """

    group: str
    version: str
    kind: str
    plural: str
    spec: Dict[str, Any]
    status: Dict[str, Any]
    source: str
    namespaced: bool = True
    given: Mapping[str, Any] = MappingProxyType({})

    def definition(self) -> Dict[str, Any]:
        """Its CustomResourceDefinition."""
        name = f"{self.plural}.{self.group}"
        if not self.spec:
            return published.published(name)
        schema = {"type": "object", "properties": {"spec": self.spec, "status": self.status}}
        version = {"name": self.version, "served": True, "storage": True, "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": schema}}  # fmt: skip
        names = {"kind": self.kind, "plural": self.plural, "singular": self.kind.lower()}
        return {"metadata": {"name": name}, "spec": {
            "group": self.group, "scope": "Namespaced" if self.namespaced else "Cluster", "names": names,
            "versions": [version]}}  # fmt: skip


def as_published(group: str, version: str, kind: str, plural: str, namespaced: bool = True, **given: Any) -> Kind:
    """A kind of `tests/kube/published.json`."""
    return Kind(group, version, kind, plural, {}, {}, "", namespaced, given)


FENCE: Dict[str, Any] = {**record(
    agent=TEXT, nodeSecretNames=TEXTS, nodeparameters={"type": "object", "additionalProperties": TEXTS},
    remediationStrategy={"type": "string", "enum": ["ResourceDeletion", "OutOfServiceTaint"],
                         "default": "ResourceDeletion"},
    retrycount={"type": "integer", "default": 5}, retryinterval={"type": "string", "default": "5s"},
    sharedSecretName=TEXT, sharedparameters=TEXTS, timeout={"type": "string", "default": "60s"},
), "required": ["agent"]}  # fmt: skip
"""The spec of a FenceAgentsRemediation, and of its template."""

HOST = {"operationalStatus": "OK", "poweredOn": True, "errorMessage": "",
        "provisioning": {"ID": "", "state": "provisioned"}}  # fmt: skip
"""The status of a BareMetalHost that is well, with all that must be in it."""

READINESS: Dict[str, Any] = {**record(
    conditions={"type": "array", "minItems": 1, "items": {**record(
        type=TEXT, requiredStatus={"type": "string", "enum": ["True", "False", "Unknown"]}, defaultStatus=TEXT),
        "required": ["type", "requiredStatus"]}},
    enforcementMode={"type": "string", "enum": ["bootstrap-only", "continuous"]},
    taint={**record(key={"type": "string", "pattern": "^readiness.k8s.io/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"},
                    value=TEXT, effect={"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}),
           "required": ["key", "effect"]},
    nodeSelector=record(matchLabels=TEXTS), dryRun=FLAG,
), "required": ["conditions", "enforcementMode", "taint", "nodeSelector"]}  # fmt: skip
"""The spec of a NodeReadinessRule."""

KINDS = (
    as_published("cluster.x-k8s.io", "v1beta2", "Machine", "machines", bootstrap={"dataSecretName": "s"},
                 infrastructureRef={"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "M", "name": "m"}),
    as_published("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck", "machinehealthchecks"),
    as_published("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts"),
    as_published("karpenter.sh", "v1", "NodeClaim", "nodeclaims", False, requirements=[],
                 nodeClassRef={"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}),
    Kind("self-node-remediation.medik8s.io", "v1alpha1", "SelfNodeRemediation", "selfnoderemediations",
         record(remediationStrategy={"type": "string", "default": "Automatic",
                                     "enum": ["Automatic", "ResourceDeletion", "OutOfServiceTaint"]}),
         record(timeAssumedRebooted=TIME, phase=TEXT, lastError=TEXT, conditions=CONDITIONS),
         "medik8s/self-node-remediation api/v1alpha1/selfnoderemediation_types.go"),
    Kind("self-node-remediation.medik8s.io", "v1alpha1", "SelfNodeRemediationTemplate", "selfnoderemediationtemplates",
         record(template=record(spec=record(remediationStrategy=TEXT))), ANY,
         "medik8s/self-node-remediation api/v1alpha1/selfnoderemediationtemplate_types.go"),
    Kind("fence-agents-remediation.medik8s.io", "v1alpha1", "FenceAgentsRemediation", "fenceagentsremediations",
         FENCE,
         record(conditions=CONDITIONS),
         "medik8s/fence-agents-remediation api/v1alpha1/fenceagentsremediation_types.go"),
    Kind("fence-agents-remediation.medik8s.io", "v1alpha1", "FenceAgentsRemediationTemplate",
         "fenceagentsremediationtemplates",
         record(template=record(spec=FENCE)), ANY,
         "medik8s/fence-agents-remediation api/v1alpha1/fenceagentsremediationtemplate_types.go"),
    Kind("janitor.dgxc.nvidia.com", "v1alpha1", "RebootNode", "rebootnodes",
         record(nodeName=TEXT, force=FLAG), record(startTime=TIME, completionTime=TIME, conditions=CONDITIONS),
         "NVIDIA/NVSentinel janitor/api/v1alpha1/rebootnode_types.go", False),
    Kind("readiness.node.x-k8s.io", "v1alpha1", "NodeReadinessRule", "nodereadinessrules", READINESS, ANY,
         "kubernetes-sigs/node-readiness-controller api/v1alpha1/nodereadinessrule_types.go", False),
)  # fmt: skip


WHOLE = {"type": "integer"}
OVERRIDES = record(force=FLAG, skip=FLAG)
MAINTENANCE = Kind(
    "nvsentinel.dgxc.nvidia.com", "v1", "MaintenanceRequest", "maintenancerequests",
    record(startTime=TIME, healthEvent=record(
        version=WHOLE, agent=TEXT, componentClass=TEXT, checkName=TEXT, nodeName=TEXT, message=TEXT, isHealthy=FLAG,
        isFatal=FLAG, recommendedAction=TEXT, customRecommendedAction=TEXT, id=TEXT, generatedTimestamp=TIME,
        errorCode={"type": "array", "items": TEXT}, metadata=TEXTS, processingStrategy=TEXT,
        entitiesImpacted={"type": "array", "items": record(entityType=TEXT, entityValue=TEXT)},
        quarantineOverrides=OVERRIDES, drainOverrides=OVERRIDES)),
    record(conditions=CONDITIONS),
    "NVIDIA/NVSentinel data-models/protobufs/health_event.proto, lifecycle-manager/api/v1alpha1 and pkg/webhook", False,
)  # fmt: skip
"""Not among KINDS: a test sees what a cluster without it is like."""


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
    whole = {**one.given, **(spec or {})}
    body = {"apiVersion": f"{one.group}/{one.version}", "kind": kind, "metadata": meta, "spec": whole}
    made = kube.strict().post(path_of(kube, kind), body)
    return set_status(kube, kind, name, status) if status else made


def set_status(kube: Kube, kind: str, name: str, status: Any) -> Any:
    """What its controller would write; conditions need only say what matters."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    filled = [{"lastTransitionTime": now, "reason": "Test", "message": "", **one}
              for one in status.get("conditions", ())]  # fmt: skip
    whole = {**status, **({"conditions": filled} if filled else {})}
    return kube.strict().patch(f"{path_of(kube, kind, name)}/status", {"status": whole}, MERGE_PATCH)


def annotate(kube: Kube, kind: str, name: str, **notes: Any) -> Any:
    """Set or (None) remove annotations."""
    return kube.admin.patch(path_of(kube, kind, name), {"metadata": {"annotations": notes}}, MERGE_PATCH)


def install(kube: Kube) -> None:
    """Have the API server serve all of them; they stay for the session."""
    published.install(kube.admin, [one.definition() for one in KINDS])
