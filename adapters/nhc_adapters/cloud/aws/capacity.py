"""Spares of SageMaker HyperPod: a node is added to an instance group when one of it is out for too long.

    [pools.gpu]
    type = "hyperpod"
    cluster = "ml-cluster"       # name or ARN
    group = "gpus"               # the instance group
    group-limit = "66"           # the group never gets more nodes than this by nhc
    after-repair = "keep"        # or delete
    region, profile, endpoint, proxy

BatchAddClusterNodes is for clusters whose NodeProvisioningMode is Continuous. A request with the same ClientToken is
answered with the same NodeLogicalId for 8 hours; the id stays when HyperPod replaces the instance under it
[botocore's model of sagemaker, service-2.json].
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, List, Mapping, NamedTuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import Applied, Effect
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import Answer
from nhc.marks.ports.spares import AddedNode, AddedPhase, AddFailed
from nhc_adapters.cloud.aws.client import Aws, AwsAccess
from nhc_adapters.cloud.aws.hyperpod import GONE
from nhc_adapters.repair import CallFailed

_CLUSTER = r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:cluster/[a-z0-9]{12}|[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
_PHASES = {
    "Running": AddedPhase.RUNNING, "Failure": AddedPhase.FAILED, "ShuttingDown": AddedPhase.LEAVING,
    "NotFound": AddedPhase.GONE, "Pending": AddedPhase.COMING, "SystemUpdating": AddedPhase.COMING,
    "DeepHealthCheckInProgress": AddedPhase.COMING,
}  # fmt: skip


def _cluster(text: str) -> str:
    if not re.fullmatch(_CLUSTER, text):
        raise ValueError(f"{printable(text, 60)!r} is not the name or the ARN of a HyperPod cluster")
    return text


def _group(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", text) or len(text) > 63:
        raise ValueError(f"{printable(text, 60)!r} is not an instance group: up to 63 letters, digits and single -")
    return text


@declared.settings
class HyperPodSpareSettings(NamedTuple):
    """A pool of spares that a HyperPod cluster adds."""

    cluster: str = declared.converted(
        "cluster", _cluster, declared.NEEDED, "the name or the ARN of the HyperPod cluster", shown='"training"'
    )
    group: str = declared.converted("group", _group, declared.NEEDED, "its instance group", shown='"gpu"')
    limit: int = declared.count(
        "group-limit", declared.NEEDED, "the most nodes that the group may have", least=1, most=999999, shown="16"
    )
    after_repair: str = declared.word("after-repair", ("keep", "delete"), "", "what becomes of a node that was added")
    access: AwsAccess = declared.part("", AwsAccess)


class HyperPodCapacity:
    """One instance group of one cluster; as `nhc.marks.ports.spares.CapacityPool`."""

    SETTINGS = HyperPodSpareSettings
    token_valid = 8 * 3600.0

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        own = read(HyperPodSpareSettings, settings)
        self.cluster, self.group, self.limit = own.cluster, own.group, own.limit
        self.deletes = own.after_repair == "delete"
        self.aws = Aws(own.access, environ, timeout)

    def name(self) -> str:
        """CLUSTER/GROUP."""
        return f"{self.cluster}/{self.group}"

    def room(self) -> int:
        """How many nodes the group is below its limit. Nodes that are being provisioned count. Raises CallFailed."""
        return max(0, self.limit - len(self._nodes()))

    def launched(self, since: float) -> List[str]:
        """The ids of the group's nodes that were launched since then, and of those not launched yet."""
        ids = []
        for node in self._nodes():
            at = node.get("LaunchTime")
            if not node.get("InstanceId") or (isinstance(at, datetime) and at.timestamp() >= since):
                ids.append(str(node.get("NodeLogicalId") or node.get("InstanceId")))
        return sorted(ids)

    def _nodes(self) -> List[Mapping[str, Any]]:
        nodes = self.aws.pages(
            "sagemaker", "ListClusterNodes", "ClusterNodeSummaries", ClusterName=self.cluster, MaxResults=100,
            InstanceGroupNameContains=self.group, IncludeNodeLogicalIds=True,
        )  # fmt: skip
        return [node for node in nodes if node["InstanceGroupName"] == self.group]

    def add(self, token: str) -> str:
        """Raise the group's target by one; the new node's NodeLogicalId. Raises AddFailed."""
        wanted = [{"InstanceGroupName": self.group, "IncrementTargetCountBy": 1}]
        try:
            answer = self.aws.call(
                "sagemaker", "BatchAddClusterNodes", ClusterName=self.cluster, ClientToken=token, NodesToAdd=wanted
            )
        except CallFailed as error:
            raise AddFailed(str(error), error.answer is Answer.REFUSED) from None
        made = [str(node.get("NodeLogicalId") or "") for node in answer.get("Successful") or []]
        if len(made) == 1 and made[0]:
            return made[0]
        for failed in answer.get("Failed") or []:
            why = f"BatchAddClusterNodes: {failed.get('ErrorCode')}: {failed.get('Message') or 'no reason given'}"
            raise AddFailed(why, not made)
        raise AddFailed(f"BatchAddClusterNodes names {len(made)} nodes, not one", False)

    def find(self, added: str) -> AddedNode:
        """The node as HyperPod shows it. Raises CallFailed."""
        try:
            answer = self.aws.call("sagemaker", "DescribeClusterNode", ClusterName=self.cluster, NodeLogicalId=added)
        except CallFailed as error:
            if error.code in GONE:
                return AddedNode(AddedPhase.GONE, f"{added} is not of {self.cluster}")
            raise
        details: Mapping[str, Any] = answer.get("NodeDetails") or {}
        status: Mapping[str, Any] = details.get("InstanceStatus") or {}
        state, instance = str(status.get("Status") or ""), str(details.get("InstanceId") or "")
        host = str(details.get("PrivateDnsHostname") or "")
        # EKS names a node by its instance; in Slurm it is the host's name.
        names = [f"hyperpod-{instance}"] if instance else []
        names += [host, host.partition(".")[0]] if host else []
        message = f": {status['Message']}" if status.get("Message") else ""
        phase = _PHASES.get(state, AddedPhase.COMING)
        return AddedNode(phase, f"{added} ({instance or 'no instance yet'}) is {state}{message}", tuple(names))

    def delete(self, added: str) -> Applied:
        """Delete this node and lower the group's target by it. One request."""
        try:
            answer = self.aws.call(
                "sagemaker", "BatchDeleteClusterNodes", ClusterName=self.cluster, NodeLogicalIds=[added]
            )
        except CallFailed as error:
            return Applied(added, Effect.REFUSED if error.answer is Answer.REFUSED else Effect.FAILED, str(error))
        for failed in answer.get("FailedNodeLogicalIds") or []:
            why = f"BatchDeleteClusterNodes: {failed.get('Code')}: {failed.get('Message')}"
            return Applied(added, Effect.REFUSED, why)
        if added in (answer.get("SuccessfulNodeLogicalIds") or []):
            return Applied(added, Effect.CHANGED, f"HyperPod deletes {added}")
        return Applied(added, Effect.FAILED, f"BatchDeleteClusterNodes says nothing of {added}")
