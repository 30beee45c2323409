"""Who else acts on a node, by its labels, annotations and taints. Pure.

Each line names the actor, its action, and the source. An actor that is only installed claims nothing: a claim is work
that is under way or announced for this node. The actors' own kinds are in `actor_kinds`.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple

from nhc.core.json_values import objects_in, parse_object, text_of
from nhc.core.model import printable
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Claim, Right
from nhc_adapters.kubernetes.api.client import namespaced, node_path
from nhc_adapters.kubernetes.api.objects import notes_of, texts, true_conditions
from nhc_adapters.kubernetes.api.rights import ClusterRight
from nhc_adapters.kubernetes.nodes.maintenance import DRAIN_IN_PROGRESS, IN_PROGRESS, SHUTS_DOWN, of_others
from nhc_adapters.kubernetes.repair import gke
from nhc_adapters.kubernetes.repair.actor_kinds import ActorKinds
from nhc_adapters.kubernetes.repair.cluster import RepairCluster, read_node


class SignOnNode(NamedTuple):
    """What an actor puts on a node while it works there: a label, annotation or taint, with the values that count.

    `values` none: any value that is not among `but`. `key` may end in "*".
    """

    actor: str
    doing: str
    where: str
    key: str
    values: Tuple[str, ...] = ()
    but: Tuple[str, ...] = ("", "false")


SIGNS = (
    # NVSentinel: fault-quarantine, node-drainer and fault-remediation move this label (peers' own sources).
    SignOnNode("nvsentinel", "quarantines and repairs it", "label", "dgxc.nvidia.com/nvsentinel-state",
          ("quarantined", "draining", "drain-succeeded", "drain-failed", "remediating", "remediation-succeeded",
           "remediation-failed")),
    # NVIDIA's GPU Operator: a new MIG geometry, and a new driver (k8s-operator-libs, upgrade states).
    SignOnNode("mig-manager", "changes the MIG geometry of its GPUs", "label", "nvidia.com/mig.config.state",
          ("pending", "rebooting")),
    SignOnNode("gpu-operator", "upgrades its driver", "label", "nvidia.com/gpu-driver-upgrade-state",
          ("cordon-required", "wait-for-jobs-required", "pod-deletion-required", "drain-required",
           "node-maintenance-required", "post-maintenance-required", "pod-restart-required", "validation-required",
           "uncordon-required", "upgrade-failed")),
    # medik8s: both remediators taint the node that they fence.
    SignOnNode("medik8s", "fences it", "taint", "medik8s.io/*"),
    SignOnNode("medik8s", "maintains it (NodeMaintenance)", "label", "medik8s.io/node-maintenance"),
    # kured, with --annotate-nodes.
    SignOnNode("kured", "reboots it", "annotation", "weave.works/kured-reboot-in-progress"),
    # AKS' auto-repair and auto-drain, in the old spelling and the new one.
    SignOnNode("aks-auto-repair", "drains or repairs it", "taint", "remediator.aks.microsoft.com/unschedulable"),
    SignOnNode("aks-auto-repair", "drains or repairs it", "taint", "remediator.kubernetes.azure.com/unschedulable"),
    SignOnNode("cloud-provider", "has shut it down", "taint", "node.cloudprovider.kubernetes.io/shutdown"),
    SignOnNode("karpenter", "removes or replaces it", "taint", "karpenter.sh/disrupted"),
    SignOnNode("karpenter", "removes or replaces it", "taint", "karpenter.sh/disruption"),
    SignOnNode("cluster-autoscaler", "removes it", "taint", "ToBeDeletedByClusterAutoscaler"),
    # GKE's own maintenance (its labels that ask for a repair are read by `gke.claims`).
    SignOnNode("gke", "maintains it", "taint", "cloud.google.com/impending-node-termination"),
    SignOnNode("gke", "maintains it", "taint", "cloud.google.com/maintenance-window-started"),
    # OpenShift's machine-config-operator.
    SignOnNode("machine-config-operator", "changes its configuration", "annotation",
          "machineconfiguration.openshift.io/state", ("Working", "Rebooting", "Degraded")),
    SignOnNode("operator", "has declared it out of service", "taint", "node.kubernetes.io/out-of-service"),
)  # fmt: skip

EKS_AUTO = "eks.amazonaws.com/compute-type"
EKS_CONDITIONS = {
    "AcceleratedHardwareReady": "False", "ContainerRuntimeReady": "False", "KernelReady": "False",
    "NetworkingReady": "False", "StorageReady": "False",
}  # fmt: skip
"""Conditions of EKS' node monitoring agent on which Auto Mode replaces a node (and Karpenter with NodeRepair)."""

SOPERATOR = {
    "SlurmNodeReboot": "reboots it", "SlurmNodeDrain": "drains it",
    "SoperatorChecksNodeMaintenance": "has it maintained or replaced",
}  # fmt: skip
"""Conditions of soperator's controllers and rebooter while they work on a node (internal/consts/conditions.go,
internal/rebooter/reconcile.go)."""
REBOOTED = "NodeRebooted"
"""The reason with which SlurmNodeReboot stays True when the reboot is over."""

KURED_LOCK = "weave.works/kured-node-lock"


def of_node(node: Mapping[str, Any], karpenter_repairs: bool = False) -> List[Claim]:
    """What a node object shows of others at work on it.

    Karpenter's gate NodeRepair shows on no node: `karpenter_repairs` says whether the site has it on.
    """
    meta: Mapping[str, Any] = node.get("metadata") or {}
    labels, annotations = texts(meta.get("labels")), notes_of(node)
    taints = {str(taint.get("key")): str(taint.get("value") or "true")
              for taint in (node.get("spec") or {}).get("taints") or ()}  # fmt: skip
    places = {"label": labels, "annotation": annotations, "taint": taints}
    claims = [
        Claim(sign.actor, sign.doing, f"{sign.where} {key}={printable(value, 80)}")
        for sign in SIGNS
        for key, value in sorted(places[sign.where].items())
        if _matches(sign, key, value)
    ]
    conditions = true_conditions(node)
    if meta.get("deletionTimestamp"):
        claims.append(Claim("cluster", "deletes the node", "metadata.deletionTimestamp"))
    claims += [
        Claim("administrator", printable(f"{one.message or one.reason or 'works on it'}", 120), f"condition {one.type}")
        for one in of_others(node, DRAIN_IN_PROGRESS, IN_PROGRESS, SHUTS_DOWN)
    ]
    claims += [
        Claim("soperator", doing, f"condition {kind}")
        for kind, doing in SOPERATOR.items()
        if kind in conditions and conditions[kind].get("reason") != REBOOTED
    ]
    claims += gke.claims(labels, auto_repair=False)
    claims += _eks(node, labels, karpenter_repairs)
    wanted, current = (annotations.get(f"machineconfiguration.openshift.io/{which}Config") for which in
                       ("desired", "current"))  # fmt: skip
    if wanted and current and wanted != current:
        claims.append(Claim("machine-config-operator", f"is to bring it to {wanted}", "annotation desiredConfig"))
    return claims


def _matches(sign: SignOnNode, key: str, value: str) -> bool:
    if not (key == sign.key or (sign.key.endswith("*") and key.startswith(sign.key[:-1]))):
        return False
    return value in sign.values if sign.values else value.lower() not in sign.but


def _eks(node: Mapping[str, Any], labels: Mapping[str, str], karpenter_repairs: bool) -> List[Claim]:
    """EKS Auto Mode always replaces what its monitoring agent finds; Karpenter does where its gate is on."""
    auto = labels.get(EKS_AUTO) == "auto"
    if not auto and not (karpenter_repairs and "karpenter.sh/nodepool" in labels):
        return []
    actor = "eks-auto-mode" if auto else "karpenter"
    watched = {**EKS_CONDITIONS, "Ready": "False"}
    conditions = [
        (str(entry.get("type")), entry.get("status")) for entry in (node.get("status") or {}).get("conditions") or ()
    ]
    return [
        Claim(actor, f"replaces nodes whose {kind} is {status}", f"condition {kind}")
        for kind, status in conditions
        if status == watched.get(kind) or (kind, status) == ("Ready", "Unknown")
    ]


def of_kured(daemonset: Mapping[str, Any], node: str) -> List[Claim]:
    """The lock that kured keeps on its DaemonSet: who holds it reboots next. It names one node, or several."""
    text = notes_of(daemonset).get(KURED_LOCK, "")
    try:
        value = parse_object(text) if text else {}
        names = {text_of(holder.get("nodeID")) for holder in (value, *objects_in(value, "locks"))}
    except ValueError:
        return [Claim("kured", "holds a lock that cannot be read", f"annotation {KURED_LOCK}")]
    return [Claim("kured", "drains and reboots it", f"annotation {KURED_LOCK}")] if node in names else []


# Who else repairs a node of this cluster: the node itself, the actors' own kinds, and kured's lock, read right now.


APPS = "apis/apps/v1"


class ClusterClaims:
    """One cluster's other actors. `kured` is where its DaemonSet is, as NAMESPACE/NAME."""

    def __init__(self, kubeconfig: str, context: str, timeout: float, kured: str, karpenter_repairs: bool) -> None:
        self.cluster = RepairCluster(kubeconfig, context, timeout)
        self._objects = ActorKinds(self.cluster)
        self._kured, self._karpenter = kured, karpenter_repairs
        if kured and kured.count("/") != 1:
            raise AdapterError(f"NHC_KUBE_KURED: {kured!r} is not NAMESPACE/NAME")

    def claims(self, name: str) -> List[Claim]:
        """Everybody else at work on a node. Raises AdapterError."""
        node = self.cluster.find(node_path(name))
        if node is None:
            return []
        claims = of_node(node, self._karpenter)
        claims += self._objects.claims(read_node(node))
        if self._kured:
            namespace, _, daemonset = self._kured.partition("/")
            kured = self.cluster.find(namespaced(namespace, "daemonsets", daemonset, APPS))
            claims += of_kured(kured, name) if kured is not None else []
        return list(dict.fromkeys(claims))

    def rights(self) -> Sequence[Right]:
        """What the loop needs to mark, drain and return nodes, and to see others. Raises AdapterError."""
        needed = [
            *(ClusterRight(verb, "nodes", purpose="to follow the nodes") for verb in ("get", "list")),
            ClusterRight("patch", "nodes", purpose="to mark and clear nodes, and to answer requests"),
            ClusterRight("patch", "nodes/status", purpose="to end what a preflight found, to say what is under way"),
            ClusterRight("list", "pods", purpose="to see what runs on a node"),
            ClusterRight("create", "pods/eviction", purpose="to drain nodes"),
            *(
                ClusterRight(verb, "events", "", "default", purpose="to tell the story of a node in its events")
                for verb in ("create", "patch")
            ),
            *self._objects.needed(),
        ]
        if self._kured:
            namespace, _, daemonset = self._kured.partition("/")
            needed.append(
                ClusterRight("get", "daemonsets", "apps", namespace, daemonset, "to see who holds kured's lock")
            )
        return self.cluster.rights(needed)

    def close(self) -> None:
        """End its connections."""
        self.cluster.close()
