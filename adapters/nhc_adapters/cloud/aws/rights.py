"""Whether we may do on AWS what a repair takes: EC2 is asked with DryRun, reads are made, the rest cannot be tried."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Tuple

from nhc.ports.repair import Right
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.cloud.aws.ways import AwsRepairPolicy
from nhc_adapters.repair.calls import CallFailed

DENIED = frozenset(("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"))
NO_COMMAND = "00000000-0000-0000-0000-000000000000"
NO_SUCH_COMMAND = frozenset(("InvocationDoesNotExist", "InvalidCommandId"))
NOT_TRIED = "cannot be tried without doing it"


def tried(aws: Aws, policy: AwsRepairPolicy, cluster: str, tag: Optional[Tuple[str, str]]) -> List[Right]:
    """Every permission that the settings make use of. Raises CallFailed where AWS cannot be asked at all."""
    filters = _running(tag)
    found = [_asked(aws, "ec2", "DescribeInstances", {"Filters": filters, "MaxResults": 5})]
    found += [
        _asked(aws, "ec2", "DescribeInstanceStatus", {"MaxResults": 5}),
        _asked(aws, "autoscaling", "DescribeAutoScalingInstances", {"MaxRecords": 1}),
        _asked(aws, "autoscaling", "DescribeAutoScalingGroups", {"MaxRecords": 1}),
        _asked(aws, "autoscaling", "DescribeScalingActivities", {"MaxRecords": 1}),
    ]
    one = _an_instance(aws, filters) if found[0].granted else ""
    found += [
        _dry(aws, "RebootInstances", one, {"InstanceIds": [one]}),
        _dry(aws, "StopInstances", one, {"InstanceIds": [one], "Force": True}),
        _dry(aws, "StartInstances", one, {"InstanceIds": [one]}),
        _dry(aws, "ReportInstanceStatus", one, {"Instances": [one], "Status": "impaired", "ReasonCodes": ["other"]}),
        _dry(aws, "GetConsoleOutput", one, {"InstanceId": one}),
        _dry(aws, "GetConsoleScreenshot", one, {"InstanceId": one}),
    ]
    if policy.alone == "terminate":
        found.append(_dry(aws, "TerminateInstances", one, {"InstanceIds": [one]}))
    group = {
        "set-health": "SetInstanceHealth",
        "standby": "EnterStandby",
        "terminate": "TerminateInstanceInAutoScalingGroup",
    }[policy.in_group]
    found.append(Right(f"autoscaling:{group}", None, NOT_TRIED))
    if cluster:
        found += [
            _asked(aws, "sagemaker", "DescribeCluster", {"ClusterName": cluster}),
            _asked(aws, "sagemaker", "ListClusterNodes", {"ClusterName": cluster, "MaxResults": 1}),
        ]
        if policy.hyperpod == "api":
            found += [Right(f"sagemaker:Batch{word}ClusterNodes", None, NOT_TRIED) for word in ("Reboot", "Replace")]
    return found


def of_suite(aws: Aws, tag: Optional[Tuple[str, str]]) -> List[Right]:
    """Every permission that a suite by Systems Manager needs. Raises CallFailed where AWS cannot be asked at all."""
    filters = _running(tag)
    found = [_asked(aws, "ec2", "DescribeInstances", {"Filters": filters, "MaxResults": 5})]
    one = (_an_instance(aws, filters) if found[0].granted else "") or "i-00000000000000000"
    found += [
        _asked(aws, "ssm", "ListCommandInvocations", {"InstanceId": one, "MaxResults": 1}),
        _asked(aws, "ssm", "GetCommandInvocation", {"CommandId": NO_COMMAND, "InstanceId": one}, NO_SUCH_COMMAND),
        Right("ssm:SendCommand", None, NOT_TRIED),
    ]
    return found


def _running(tag: Optional[Tuple[str, str]]) -> List[Dict[str, object]]:
    found: List[Dict[str, object]] = [{"Name": "instance-state-name", "Values": ["running"]}]
    return found + ([{"Name": f"tag:{tag[0]}", "Values": [tag[1]]}] if tag else [])


def _an_instance(aws: Aws, filters: List[Dict[str, object]]) -> str:
    answer = aws.call("ec2", "DescribeInstances", "", Filters=filters, MaxResults=5)
    seen = [one["InstanceId"] for some in answer.get("Reservations") or [] for one in some.get("Instances") or []]
    return str(seen[0]) if seen else ""


def _asked(
    aws: Aws, service: str, operation: str, words: Dict[str, object], allowed: FrozenSet[str] = frozenset()
) -> Right:
    """`allowed` are codes of refusals that only a caller gets who may make the call."""
    name = f"{service}:{operation}"
    try:
        aws.call(service, operation, "", **words)
    except CallFailed as error:
        if error.code in DENIED:
            return Right(name, False, str(error))
        return Right(name, True) if error.code in allowed else Right(name, None, str(error))
    return Right(name, True)


def _dry(aws: Aws, operation: str, instance: str, words: Dict[str, object]) -> Right:
    """EC2 answers a DryRun with DryRunOperation where the call would have been allowed."""
    name = f"ec2:{operation}"
    if not instance:
        return Right(name, None, "no running instance was found to try it on")
    try:
        aws.call("ec2", operation, "", DryRun=True, **words)
    except CallFailed as error:
        if error.code == "DryRunOperation":
            return Right(name, True)
        return Right(name, False if error.code in DENIED else None, str(error))
    return Right(name, None, "EC2 ignored DryRun")
