"""Which calls make a repair on AWS, and whether we have the rights for them.

The machine's groups and the settings decide the way. To check rights, nhc sends EC2 calls with DryRun and makes the
reads; it cannot try the rest.
"""

from __future__ import annotations

from enum import Enum
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from nhc.core.settings import declared
from nhc.marks.ports.repair import Right, Rung
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.repair import CallFailed

NO_COMMAND = "00000000-0000-0000-0000-000000000000"
NO_SUCH_COMMAND = frozenset(("InvocationDoesNotExist", "InvalidCommandId"))
NOT_TRIED = "cannot be tried without doing it"


def tried(aws: Aws, policy: AwsRepairPolicy, cluster: str, tag: Optional[Tuple[str, str]]) -> List[Right]:
    """Every permission that the settings make use of. Raises CallFailed where AWS cannot be asked at all."""
    filters = _running(tag)
    rights = [_asked(aws, "ec2", "DescribeInstances", {"Filters": filters, "MaxResults": 5})]
    rights += [
        _asked(aws, "ec2", "DescribeInstanceStatus", {"MaxResults": 5}),
        _asked(aws, "autoscaling", "DescribeAutoScalingInstances", {"MaxRecords": 1}),
        _asked(aws, "autoscaling", "DescribeAutoScalingGroups", {"MaxRecords": 1}),
        _asked(aws, "autoscaling", "DescribeScalingActivities", {"MaxRecords": 1}),
    ]
    instance = _an_instance(aws, filters) if rights[0].granted else ""
    report: Dict[str, object] = {"Instances": [instance], "Status": "impaired", "ReasonCodes": ["other"]}
    rights += [
        _dry(aws, "RebootInstances", instance, {"InstanceIds": [instance]}),
        _dry(aws, "StopInstances", instance, {"InstanceIds": [instance], "Force": True}),
        _dry(aws, "StartInstances", instance, {"InstanceIds": [instance]}),
        _dry(aws, "ReportInstanceStatus", instance, report),
        _dry(aws, "GetConsoleOutput", instance, {"InstanceId": instance}),
        _dry(aws, "GetConsoleScreenshot", instance, {"InstanceId": instance}),
    ]
    if policy.alone == "terminate":
        rights.append(_dry(aws, "TerminateInstances", instance, {"InstanceIds": [instance]}))
    group = {
        "set-health": "SetInstanceHealth",
        "standby": "EnterStandby",
        "terminate": "TerminateInstanceInAutoScalingGroup",
    }[policy.in_group]
    rights.append(Right(f"autoscaling:{group}", None, NOT_TRIED))
    if cluster:
        rights += [
            _asked(aws, "sagemaker", "DescribeCluster", {"ClusterName": cluster}),
            _asked(aws, "sagemaker", "ListClusterNodes", {"ClusterName": cluster, "MaxResults": 1}),
        ]
        if policy.hyperpod == "api":
            rights += [Right(f"sagemaker:Batch{verb}ClusterNodes", None, NOT_TRIED) for verb in ("Reboot", "Replace")]
    return rights


def of_suite(aws: Aws, tag: Optional[Tuple[str, str]]) -> List[Right]:
    """Every permission that a suite by Systems Manager needs. Raises CallFailed where AWS cannot be asked at all."""
    filters = _running(tag)
    rights = [_asked(aws, "ec2", "DescribeInstances", {"Filters": filters, "MaxResults": 5})]
    instance = (_an_instance(aws, filters) if rights[0].granted else "") or "i-00000000000000000"
    rights += [
        _asked(aws, "ssm", "ListCommandInvocations", {"InstanceId": instance, "MaxResults": 1}),
        _asked(aws, "ssm", "GetCommandInvocation", {"CommandId": NO_COMMAND, "InstanceId": instance}, NO_SUCH_COMMAND),
        *(Right(f"ssm:{name}", None, NOT_TRIED) for name in ("SendCommand", "CancelCommand")),
    ]
    return rights


def _running(tag: Optional[Tuple[str, str]]) -> List[Dict[str, object]]:
    filters: List[Dict[str, object]] = [{"Name": "instance-state-name", "Values": ["running"]}]
    return filters + ([{"Name": f"tag:{tag[0]}", "Values": [tag[1]]}] if tag else [])


def _an_instance(aws: Aws, filters: List[Dict[str, object]]) -> str:
    answer = aws.call("ec2", "DescribeInstances", "", Filters=filters, MaxResults=5)
    reservations = answer.get("Reservations") or []
    return next((str(seen["InstanceId"]) for some in reservations for seen in some.get("Instances") or []), "")


def _asked(
    aws: Aws, service: str, operation: str, parameters: Dict[str, object], allowed: FrozenSet[str] = frozenset()
) -> Right:
    """`allowed` are codes of refusals that only a caller gets who may make the call."""
    name = f"{service}:{operation}"
    try:
        aws.call(service, operation, "", **parameters)
    except CallFailed as error:
        return Right(name, True) if error.code in allowed else _refused(name, error)
    return Right(name, True)


def _refused(name: str, error: CallFailed) -> Right:
    """What a failed call says of the right to make it."""
    return Right(name, False if error.right else None, str(error))


def _dry(aws: Aws, operation: str, instance: str, parameters: Dict[str, object]) -> Right:
    """EC2 answers a DryRun with DryRunOperation where the call would have been allowed."""
    name = f"ec2:{operation}"
    if not instance:
        return Right(name, None, "no running instance was found to try it on")
    try:
        aws.call("ec2", operation, "", DryRun=True, **parameters)
    except CallFailed as error:
        return Right(name, True) if error.code == "DryRunOperation" else _refused(name, error)
    return Right(name, None, "EC2 ignored DryRun")


class Way(str, Enum):
    """One call, or one pair of calls."""

    REBOOT = "ec2:RebootInstances"
    STOP_START = "ec2:StopInstances, then ec2:StartInstances"
    TERMINATE = "ec2:TerminateInstances"
    REPORT = "ec2:ReportInstanceStatus"
    SET_UNHEALTHY = "autoscaling:SetInstanceHealth"
    STANDBY = "autoscaling:EnterStandby"
    GROUP_TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"
    HYPERPOD_API = "sagemaker:Batch{Reboot,Replace}ClusterNodes"
    HYPERPOD_LABEL = "the label sagemaker.amazonaws.com/node-health-status"
    HYPERPOD_SLURM = "scontrol update state=fail reason=Action:…"


IN_GROUP = {"set-health": Way.SET_UNHEALTHY, "standby": Way.STANDBY, "terminate": Way.GROUP_TERMINATE}
ALONE = {"none": None, "stop-start": Way.STOP_START, "terminate": Way.TERMINATE}


@declared.settings
class AwsRepairPolicy(NamedTuple):
    """What the settings allow."""

    in_group: str = declared.word("in-group", tuple(IN_GROUP), "", "how a member of an Auto Scaling group is replaced")
    alone: str = declared.word("alone", tuple(ALONE), "", "how any other instance is replaced")
    respect_grace: bool = declared.flag("respect-grace-period", True, "a new instance is left its group's grace period")
    hyperpod: str = declared.word("hyperpod", ("ask", "api"), "", "ask: by label or reason; api: by SageMaker's API")
    scheduler: str = declared.word("scheduler", ("kubernetes", "slurm"), "", "how HyperPod is asked")


class ChosenWay(NamedTuple):
    """The way, or why there is none: `why` is "" if there is one."""

    way: Way
    why: str = ""


def in_hyperpod(policy: AwsRepairPolicy, rung: Rung) -> ChosenWay:
    """HyperPod owns its instances: EC2's calls do not reach them."""
    asked = Way.HYPERPOD_SLURM if policy.scheduler == "slurm" else Way.HYPERPOD_LABEL
    way = Way.HYPERPOD_API if policy.hyperpod == "api" else asked
    if rung in (Rung.REBOOT, Rung.REPLACE):
        return ChosenWay(way)
    return ChosenWay(way, f"HyperPod reboots and replaces nodes; it has no {rung.value}")


def of_instance(policy: AwsRepairPolicy, rung: Rung, group: str, root: str, spot: bool) -> ChosenWay:
    """The way for an instance of one's own. `group` is its Auto Scaling group, "" for none."""
    if rung is Rung.REBOOT:
        return ChosenWay(Way.REBOOT)
    if rung is Rung.ESCALATE:
        return ChosenWay(Way.REPORT)
    if rung is Rung.POWER_CYCLE:
        if group:
            return ChosenWay(Way.STOP_START, f"{group} would replace an instance that is stopped: replace it")
        return ChosenWay(Way.STOP_START, _cannot_stop(root, spot))
    if rung is Rung.REPLACE and group:
        return ChosenWay(IN_GROUP[policy.in_group])
    if rung is Rung.REPLACE:
        way = ALONE[policy.alone]
        if way is None:
            return ChosenWay(
                Way.TERMINATE,
                'it is in no Auto Scaling group, so nothing would replace it (repairers.aws.alone = "none")',
            )
        return ChosenWay(way, _cannot_stop(root, spot) if way is Way.STOP_START else "")
    return ChosenWay(Way.REBOOT, f"EC2 has no {rung.value}")


def _cannot_stop(root: str, spot: bool) -> str:
    if root == "instance-store":
        return "its root is an instance store: it cannot be stopped"
    return "it is a Spot instance: EC2 may not start it again" if spot else ""
