"""Whether we may do on AWS what a repair takes: EC2 is asked with DryRun, reads are made, the rest cannot be tried."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Tuple

from nhc.marks.ports.repair import Right
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.cloud.aws.ways import AwsRepairPolicy
from nhc_adapters.repair.calls import CallFailed

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
        Right("ssm:SendCommand", None, NOT_TRIED),
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
