"""Which way a repair goes on AWS: by what the machine is part of, and what the settings allow. Pure but for looks."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nhc.core.settings import declared
from nhc.marks.ports.repair import Rung


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
    """The way, or why there is none: `why` is "" where there is one."""

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
