"""Auto Scaling groups: membership, the calls that replace a member, and the watch until the new one is in service."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from nhc.core.model import printable
from nhc.core.timestamps import from_iso
from nhc.marks.ports.repair import Answer, Progress, Sent, Sighting, Stage
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.cloud.aws.ec2 import GONE, Ec2Instance
from nhc_adapters.repair import accepted, untouched

IGNORED_AFTER = 120.0
"""Seconds after which a group that still counts the instance healthy has ignored the call. The flag turns at once."""

IN_SERVICE = "InService"
STANDBY = "Standby"


class Member(NamedTuple):
    """An instance in its group."""

    group: str
    lifecycle: str
    health: str


class Activity(NamedTuple):
    """One launch or termination of a group. `began` is Unix time."""

    group: str
    instance: str
    launches: bool
    began: float
    status: str
    message: str


def member(aws: Aws, instance: str, region: str = "") -> Optional[Member]:
    """The instance's membership, None if it is in no group. Raises CallFailed."""
    answer = aws.call("autoscaling", "DescribeAutoScalingInstances", region, InstanceIds=[instance])
    for details in answer.get("AutoScalingInstances") or []:
        if details.get("InstanceId") == instance:
            return Member(
                str(details.get("AutoScalingGroupName") or ""),
                str(details.get("LifecycleState") or ""),
                str(details.get("HealthStatus") or ""),
            )
    return None


def grace_left(aws: Aws, group: str, launched: str, region: str, now: float) -> float:
    """Seconds of the group's grace period that are left: a call within them would be ignored. Raises CallFailed."""
    answer = aws.call("autoscaling", "DescribeAutoScalingGroups", region, AutoScalingGroupNames=[group])
    for details in answer.get("AutoScalingGroups") or []:
        if details.get("AutoScalingGroupName") == group:
            began = from_iso(launched) or 0.0
            return max(0.0, began + float(details.get("HealthCheckGracePeriod") or 0) - now)
    return 0.0


def set_unhealthy(aws: Aws, instance: str, region: str, respect_grace: bool) -> Sent:
    """Have the group replace it."""
    aws.call(
        "autoscaling",
        "SetInstanceHealth",
        region,
        InstanceId=instance,
        HealthStatus="Unhealthy",
        ShouldRespectGracePeriod=respect_grace,
    )
    return accepted(f"{instance} is Unhealthy to its Auto Scaling group, which replaces it")


def enter_standby(aws: Aws, instance: str, group: str, region: str) -> Sent:
    """Keep it, out of the group's service, for a look at it; the group launches another at once."""
    aws.call(
        "autoscaling",
        "EnterStandby",
        region,
        InstanceIds=[instance],
        AutoScalingGroupName=group,
        ShouldDecrementDesiredCapacity=False,
    )
    return accepted(f"{instance} enters Standby, and {group} launches another")


def terminate(aws: Aws, instance: str, region: str) -> Sent:
    answer = aws.call(
        "autoscaling",
        "TerminateInstanceInAutoScalingGroup",
        region,
        InstanceId=instance,
        ShouldDecrementDesiredCapacity=False,
    )
    activity: Mapping[str, Any] = answer.get("Activity") or {}
    return accepted(f"the group terminates {instance} and launches another", str(activity.get("ActivityId") or ""))


def activities(aws: Aws, group: str, region: str) -> List[Activity]:
    """The last launches and terminations of a group ("": of all), the newest first. Raises CallFailed."""
    of: Dict[str, str] = {"AutoScalingGroupName": group} if group else {}
    answer = aws.call("autoscaling", "DescribeScalingActivities", region, MaxRecords=100, **of)
    return [each for each in map(_activity, answer.get("Activities") or []) if each.instance or each.launches]


_ABOUT = re.compile(
    r"^(Launching a new|Terminating|Moving) EC2 instance(?: (?:to|out of) Standby)?(?:: (i-[0-9a-f]+))?"
)
"""A launch that failed names no instance."""


def _activity(details: Mapping[str, Any]) -> Activity:
    about, began = _ABOUT.match(str(details.get("Description") or "")), details.get("StartTime")
    return Activity(
        group=str(details.get("AutoScalingGroupName") or ""),
        instance=(about[2] or "") if about else "",
        launches=bool(about and about[1].startswith("Launching")),
        began=began.timestamp() if isinstance(began, datetime) else 0.0,
        status=str(details.get("StatusCode") or ""),
        message=str(details.get("StatusMessage") or ""),
    )


def replacement(seen: List[Activity], instance: str, since: float) -> Tuple[Optional[Activity], str]:
    """The launch that replaces `instance`, and what keeps launches from succeeding.

    A group does not say which launch is for which instance. The n-th to leave since then gets the n-th to come, so that
    two replaced at a time do not both name the same new one. A launch that failed is tried again by the group.
    """
    recent = sorted((activity for activity in seen if activity.began >= since), key=lambda activity: activity.began)
    left = [activity.instance for activity in recent if not activity.launches]
    failed = [activity for activity in recent if activity.launches and activity.status == "Failed"]
    came = [activity for activity in recent if activity.launches and activity.status not in ("Failed", "Cancelled")]
    rank = left.index(instance) if instance in left else 0
    stalled = printable(failed[-1].message, 200) if failed and len(came) <= rank else ""
    return (came[rank] if rank < len(came) else None), stalled


def replaced(
    old: Optional[Ec2Instance],
    now_in: Optional[Member],
    seen: List[Activity],
    instance: str,
    sent: Sent,
    before: Sighting,
    now: float,
) -> Progress:
    """How far the replacement of `instance` is. Pure.

    DONE if the old one has left (or stands by) and the new one's launch succeeded: it is in service for the group.
    """
    lifecycle = now_in.lifecycle if now_in else ""
    left = old is None or old.state in GONE or lifecycle == STANDBY
    new, stalled = replacement(seen, instance, before.at - 1)
    if not left:
        if now_in and now_in.health.upper() == "HEALTHY" and lifecycle == IN_SERVICE:
            if sent.answer is Answer.AMBIGUOUS:
                return untouched(sent, before, f"{now_in.group} still counts {instance} healthy")
            if now - before.at > IGNORED_AFTER:
                return Progress(Stage.FAILED, f"{now_in.group} still counts {instance} healthy: the call was ignored")
            return Progress(Stage.WORKING, f"{now_in.group} still counts {instance} healthy")
        return Progress(Stage.WORKING, f"{instance} is {lifecycle or (old.state if old else 'gone')}")
    if new is not None and new.status == "Successful":
        return Progress(Stage.DONE, f"{instance} left, {new.instance} is in service", new.instance)
    if stalled:
        return Progress(Stage.WORKING, f"{instance} left, but no other comes: {stalled}")
    coming = f"{new.instance} is being launched" if new else "none has been launched yet"
    return Progress(Stage.WORKING, f"{instance} left; {coming}", new.instance if new else "")
