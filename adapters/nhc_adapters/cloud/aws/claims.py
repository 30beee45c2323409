"""Who else repairs nodes on AWS: EKS node repair, HyperPod, scheduled events, Auto Scaling, Karpenter."""

from __future__ import annotations

from typing import List, Mapping

from nhc.core.model import printable
from nhc.marks.ports.repair import Claim, Machine
from nhc_adapters.cloud.aws import ec2, groups, hyperpod
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.cloud.aws.identity import AwsIdentity

_ENDED = ("[Completed]", "[Canceled]")
"""How the description of a scheduled event begins that is over; it stays listed for two weeks [EC2 User Guide]."""

_REFRESHES = ("Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking")


def of_labels(labels: Mapping[str, str], karpenter_repairs: bool) -> List[Claim]:
    """What a node's labels tell of its platform. Pure.

    Karpenter's NodeRepair gate shows on no node, so the setting karpenter-node-repair says whether it is on.
    """
    claims: List[Claim] = []
    if labels.get("eks.amazonaws.com/compute-type") == "auto":
        source = "label eks.amazonaws.com/compute-type=auto"
        claims.append(Claim("eks-auto-mode", "replaces unhealthy nodes, always", source))
    elif "karpenter.sh/nodepool" in labels and karpenter_repairs:
        source = f"label karpenter.sh/nodepool={labels['karpenter.sh/nodepool']}, repairers.aws.karpenter-node-repair"
        claims.append(Claim("karpenter", "replaces unhealthy nodes (NodeRepair)", source))
    return claims


def of_hyperpod(aws: Aws, who: AwsIdentity, machine: Machine, *, acting: bool) -> List[Claim]:
    """HyperPod's own recovery. Where we ask for repairs by label, HyperPod carries ours out: it is no other actor."""
    claims: List[Claim] = []
    asked = hyperpod.asked_for(machine.labels, machine.settings.get("reason", ""))
    if not who.hyperpod:
        return claims
    automatic = hyperpod.recovery(aws, who.hyperpod, who.region) == hyperpod.AUTOMATIC
    if automatic and acting:
        claims.append(Claim("hyperpod", "NodeRecovery is Automatic", f"sagemaker:DescribeCluster {who.hyperpod}"))
    if automatic and asked is not None:
        claims.append(Claim("hyperpod", f"has been asked to {asked.value} it", "the node's label or reason"))
    seen = hyperpod.sighting(hyperpod.node(aws, who.hyperpod, who.instance, who.region))
    if seen.actor:
        claims.append(Claim(seen.actor, f"{seen.doing} of {who.instance}", "sagemaker:DescribeClusterNode"))
    return claims


def of_instance(aws: Aws, who: AwsIdentity, machine: Machine, cluster: str) -> List[Claim]:
    """Everybody else who acts on one instance, or has announced to. Raises CallFailed."""
    claims = _events(aws, who)
    seen = ec2.describe(aws, who.instance, who.region)
    member = groups.member(aws, who.instance, who.region)
    if member is not None:
        claims += _group(aws, who, member)
    tags: Mapping[str, str] = seen.tags if seen else {}
    nodegroup = machine.labels.get("eks.amazonaws.com/nodegroup") or tags.get("eks:nodegroup-name", "")
    cluster = cluster or tags.get("eks:cluster-name", "")
    if nodegroup and cluster:
        claims += _eks(aws, who.region, cluster, nodegroup)
    return claims


def _events(aws: Aws, who: AwsIdentity) -> List[Claim]:
    answer = aws.call("ec2", "DescribeInstanceStatus", who.region, InstanceIds=[who.instance], IncludeAllInstances=True)
    return [
        Claim(
            "aws",
            printable(f"{event.get('Code')}, not before {event.get('NotBefore')}: {event.get('Description')}", 200),
            f"ec2:DescribeInstanceStatus {event.get('InstanceEventId') or ''}".strip(),
        )
        for status in answer.get("InstanceStatuses") or []
        for event in status.get("Events") or []
        if not str(event.get("Description") or "").startswith(_ENDED)
    ]


def _group(aws: Aws, who: AwsIdentity, member: groups.Member) -> List[Claim]:
    claims = []
    source = f"autoscaling:DescribeAutoScalingInstances {member.group}"
    if member.lifecycle not in (groups.IN_SERVICE, groups.STANDBY):
        claims.append(Claim("autoscaling", f"{who.instance} is {member.lifecycle}", source))
    elif member.lifecycle == groups.STANDBY:
        claims.append(Claim("operator", f"{who.instance} is in Standby", source))
    elif member.health.upper() != "HEALTHY":
        claims.append(Claim("autoscaling", f"will replace {who.instance}: {member.health}", source))
    answer = aws.call("autoscaling", "DescribeInstanceRefreshes", who.region, AutoScalingGroupName=member.group)
    claims += [
        Claim(
            "autoscaling",
            f"an instance refresh of {member.group} is {refresh.get('Status')}",
            f"autoscaling:DescribeInstanceRefreshes {refresh.get('InstanceRefreshId')}",
        )
        for refresh in answer.get("InstanceRefreshes") or []
        if refresh.get("Status") in _REFRESHES
    ]
    return claims


def _eks(aws: Aws, region: str, cluster: str, nodegroup: str) -> List[Claim]:
    answer = aws.call("eks", "DescribeNodegroup", region, clusterName=cluster, nodegroupName=nodegroup)
    repair = (answer.get("nodegroup") or {}).get("nodeRepairConfig") or {}
    if not repair.get("enabled"):
        return []
    return [
        Claim("eks-node-repair", f"repairs the nodes of {nodegroup}", f"eks:DescribeNodegroup {cluster}/{nodegroup}")
    ]
