"""SageMaker HyperPod: its labels and reasons for a repair on Kubernetes, in Slurm and in its API; its clusters and
nodes.

HyperPod acts by itself on a label or a reason if the cluster's NodeRecovery is Automatic. If it is None, a label only
informs people and nothing acts on it [docs.aws.amazon.com/sagemaker, HyperPod resilience].
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from nhc.marks.ports.repair import RUNG_OF, Answer, Progress, Rung, Sent, Sighting, Stage
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.kubernetes.repair.requests_on_nodes import HEALTH
from nhc_adapters.kubernetes.repair.requests_on_nodes import HYPERPOD as ASKED_BY_LABEL
from nhc_adapters.repair import LATER, CallFailed, RepairRefused, accepted
from nhc_adapters.slurm.states import HYPERPOD as REASONS

ASKED = {Rung.REBOOT: "UnschedulablePendingReboot", Rung.REPLACE: "UnschedulablePendingReplacement"}
"""The label's values that ask for a repair."""

OPERATIONS = {Rung.REBOOT: "BatchRebootClusterNodes", Rung.REPLACE: "BatchReplaceClusterNodes"}

GONE = ("ResourceNotFound", "ResourceNotFoundException")
"""Codes for a node that the cluster does not have (any more)."""
AUTOMATIC = "Automatic"
RUNNING = "Running"
_PROOF = {"InstanceIdNotFound": 0.0, "InvalidInstanceStatus": LATER, "InstanceIdInUse": LATER}
"""Errors of one node in a batch that prove nothing was begun, with when to ask again. InternalServerError is none."""


class HyperPodNode(NamedTuple):
    """A node of a HyperPod cluster. `rack` is its UltraServer's id."""

    instance: str
    group: str
    status: str
    message: str
    launched: float
    rack: str


def asked_for(labels: Mapping[str, str], reason: str = "") -> Optional[Rung]:
    """The repair that a node's label, or its reason in Slurm, asks for. None if none does."""
    action = REASONS.get(reason.strip().lower())
    return ASKED_BY_LABEL.get(labels.get(HEALTH, "").lower()) or (RUNG_OF[action] if action is not None else None)


def recovery(aws: Aws, cluster: str, region: str = "") -> str:
    """The cluster's NodeRecovery: Automatic or None. Raises CallFailed."""
    answer = aws.call("sagemaker", "DescribeCluster", region, ClusterName=cluster)
    return str(answer.get("NodeRecovery") or "None")


def node(aws: Aws, cluster: str, instance: str, region: str = "") -> Optional[HyperPodNode]:
    """A node of the cluster, None if it is not (or no longer) in it. Raises CallFailed."""
    try:
        answer = aws.call("sagemaker", "DescribeClusterNode", region, ClusterName=cluster, NodeId=instance)
    except CallFailed as error:
        if error.code in GONE:
            return None
        raise
    own: Mapping[str, Any] = answer.get("NodeDetails") or {}
    status: Mapping[str, Any] = own.get("InstanceStatus") or {}
    seen = _node(own)._replace(
        message=str(status.get("Message") or ""), rack=str((own.get("UltraServerInfo") or {}).get("Id") or "")
    )
    return None if seen.status == "NotFound" else seen


def newer(aws: Aws, cluster: str, group: str, since: float, region: str = "") -> List[HyperPodNode]:
    """The nodes of a group ("": of all) that were launched since then, the oldest first. Raises CallFailed."""
    after = datetime.fromtimestamp(max(since, 0.0), timezone.utc)
    parameters: Dict[str, object] = {"ClusterName": cluster, "CreationTimeAfter": after, "MaxResults": 100}
    if group:
        parameters["InstanceGroupNameContains"] = group
    nodes = map(_node, aws.pages("sagemaker", "ListClusterNodes", "ClusterNodeSummaries", region, **parameters))
    return sorted(
        (node for node in nodes if group in ("", node.group) and node.launched >= since),
        key=lambda node: (node.launched, node),
    )


def _node(details: Mapping[str, Any]) -> HyperPodNode:
    launched = details.get("LaunchTime")
    return HyperPodNode(
        instance=str(details.get("InstanceId") or ""),
        group=str(details.get("InstanceGroupName") or ""),
        status=str((details.get("InstanceStatus") or {}).get("Status") or ""),
        message="",
        launched=launched.timestamp() if isinstance(launched, datetime) else 0.0,
        rack="",
    )


def order(aws: Aws, cluster: str, instance: str, rung: Rung, region: str = "") -> Sent:
    """Reboot or replace one node by the API. A failure of one node comes with HTTP 200. Raises CallFailed."""
    operation = OPERATIONS[rung]
    answer = aws.call("sagemaker", operation, region, ClusterName=cluster, NodeIds=[instance])
    for failed in answer.get("Failed") or []:
        code = str(failed.get("ErrorCode") or "")
        kind = Answer.REFUSED if code in _PROOF else Answer.AMBIGUOUS
        raise CallFailed(kind, f"{operation}: {code}: {failed.get('Message') or ''}", code, _PROOF.get(code, 0.0))
    if instance not in (answer.get("Successful") or []):
        raise CallFailed(Answer.AMBIGUOUS, f"{operation} says nothing of {instance}")
    meta: Mapping[str, Any] = answer.get("ResponseMetadata") or {}
    return accepted(f"HyperPod will {rung.value} {instance}", str(meta.get("RequestId") or ""))


def compare(seen: Optional[HyperPodNode], instance: str, cluster: str) -> HyperPodNode:
    """The node, if it can be repaired. Raises RepairRefused."""
    if seen is None:
        raise RepairRefused(f"the HyperPod cluster {cluster} has no node {instance}")
    if seen.status == "ShuttingDown":
        raise RepairRefused(f"{instance} is shutting down already")
    if seen.status in ("SystemUpdating", "DeepHealthCheckInProgress"):
        raise RepairRefused(f"{instance} is held by HyperPod: {seen.status}", LATER)
    return seen


def sighting(seen: Optional[HyperPodNode]) -> Sighting:
    """As a repairer shows it. A status other than Running and Failure is HyperPod's own work on the node."""
    if seen is None:
        return Sighting(time.time(), power="gone")
    acting = seen.status if seen.status not in (RUNNING, "Failure") else ""
    return Sighting(
        time.time(), seen.instance, f"{seen.launched:.0f}", seen.status, "hyperpod" if acting else "", acting
    )


def rebooted(seen: Optional[HyperPodNode], instance: str) -> Progress:
    """What HyperPod shows of a reboot: only that it failed. Pure."""
    if seen is None:
        return Progress(Stage.FAILED, f"{instance} left the cluster")
    if seen.status == "Failure":
        return Progress(Stage.FAILED, f"{instance}: {seen.message or 'Failure'}")
    return Progress(Stage.WORKING, f"{instance} is {seen.status}; only the node's boot id tells that it rebooted")


def replaced(seen: Optional[HyperPodNode], fresh: List[HyperPodNode], instance: str) -> Progress:
    """How far the replacement of a node is. Pure. DONE if the old one left and a new one of its group is Running."""
    if seen is not None and seen.status != "ShuttingDown":
        if seen.status == "Failure" and seen.message:
            return Progress(Stage.FAILED, f"{instance}: {seen.message}")
        return Progress(Stage.WORKING, f"{instance} is {seen.status}")
    running = [node for node in fresh if node.status == RUNNING and node.instance != instance]
    if running:
        return Progress(Stage.DONE, f"{instance} left, {running[0].instance} is Running", running[0].instance)
    coming = [node for node in fresh if node.instance != instance]
    if coming:
        return Progress(Stage.WORKING, f"{instance} left; {coming[0].instance} is {coming[0].status}")
    return Progress(Stage.WORKING, f"{instance} left; no other has been launched yet")
