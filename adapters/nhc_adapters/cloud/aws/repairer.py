"""AWS as a repairer: EC2 instances, members of Auto Scaling groups, nodes of SageMaker HyperPod.

    [repairers.aws]
    region = "us-east-1"
    tag = "nhc=managed"
    in-group = "set-health"      # or standby, terminate
    alone = "none"               # or stop-start, terminate
    respect-grace-period = "yes"
    hyperpod = "ask"             # by label or Slurm reason; or api

The rights that it needs are in adapters/aws; docs/repairers.md says which call makes which repair.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError, Effect, Operation
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Answer,
    Claim,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Request,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters.cloud.aws import ec2, groups, hyperpod, rights
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, AwsIdentity, identity
from nhc_adapters.cloud.aws.rights import AwsRepairPolicy, ChosenWay, Way, in_hyperpod, of_instance
from nhc_adapters.kubernetes.api.access import ClusterSettings
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from nhc_adapters.kubernetes.repair.requests_on_nodes import HEALTH
from nhc_adapters.repair import LATER, RepairRefused, accepted, pair, possible, send_once, unknown, untouched

# Who else repairs nodes on AWS: EKS node repair, HyperPod, scheduled events, Auto Scaling, Karpenter.


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
    """HyperPod's own recovery. If we ask for repairs by label, HyperPod carries out our repairs, so it is not another
    actor.
    """
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


def claims_of_instance(aws: Aws, who: AwsIdentity, machine: Machine, cluster: str) -> List[Claim]:
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


GROUP_LABEL = "sagemaker.amazonaws.com/instance-group-name"


class AwsTarget(NamedTuple):
    """A machine whose identity was checked, and the way to repair it."""

    who: AwsIdentity
    way: Way
    group: str = ""


@declared.settings
class AwsSettings(NamedTuple):
    """The table of a repairer of this kind (docs/repairers.md)."""

    access: AwsAccess = declared.part("", AwsAccess)
    policy: AwsRepairPolicy = declared.part("", AwsRepairPolicy)
    cluster: str = declared.text("cluster", "", "the HyperPod cluster")
    eks_cluster: str = declared.text("eks-cluster", "", "its own node repair is looked for")
    tag: Optional[Tuple[str, str]] = declared.converted(
        "tag", pair, None, "NAME=VALUE: only instances with it are touched", show="=".join
    )
    karpenter_repairs: bool = declared.flag("karpenter-node-repair", False, "Karpenter's node repair is on")
    nodes: ClusterSettings = declared.part("", ClusterSettings)


class AwsRepairer:
    """As `nhc.marks.ports.repair.Repairer`, Completes, OtherActors, EvidenceSource, Requests."""

    SETTINGS = AwsSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        self.own = read(AwsSettings, settings)
        self.policy, self.tag = self.own.policy, self.own.tag
        self.environ = environ
        self.aws = Aws(self.own.access, environ, timeout)
        self.nodes = RepairCluster.of(self.own.nodes, environ, timeout)

    # What is possible.

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        who = self._who(machine)
        if not who.instance:
            return str(unknown("EC2 instance", machine))
        if device:
            return f"AWS repairs whole instances, not {device}"

        def choose() -> None:
            why = self._choose(who, rung, machine).why
            if why:
                raise RepairRefused(why)

        return possible(choose)

    def _who(self, machine: Machine) -> AwsIdentity:
        who = identity(machine)
        return who._replace(hyperpod=who.hyperpod or self.own.cluster) if who.in_hyperpod else who

    def _choose(self, who: AwsIdentity, rung: Rung, machine: Machine) -> ChosenWay:
        if who.in_hyperpod:
            choice = in_hyperpod(self.policy, rung)
            missing = choice.way is Way.HYPERPOD_API and not who.hyperpod
            return (
                choice._replace(why="the HyperPod cluster is not known (repairers.aws.cluster)") if missing else choice
            )
        if rung not in (Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE, Rung.ESCALATE):
            return of_instance(self.policy, rung, "", "", False)
        instance = ec2.compared(self.aws, machine, who, self.tag)
        if instance.state != "running" and rung is not Rung.ESCALATE:
            raise RepairRefused(f"{who.instance} is {instance.state}", LATER if instance.state == "pending" else 0.0)
        return of_instance(self.policy, rung, instance.group, instance.root, instance.spot)

    # Looking.

    def look(self, machine: Machine) -> Sighting:
        who = self._known(machine)
        if who.in_hyperpod:
            if who.hyperpod:
                return hyperpod.sighting(hyperpod.node(self.aws, who.hyperpod, who.instance, who.region))
            node = self.nodes.known(machine.node)
            return Sighting(time.time(), who.instance, node.boot, "Ready" if node.ready else "NotReady")
        return ec2.sighting(ec2.describe(self.aws, who.instance, who.region))

    def _known(self, machine: Machine) -> AwsIdentity:
        who = self._who(machine)
        if not who.instance:
            raise unknown("EC2 instance", machine)
        return who

    # Acting.

    def send(self, order: Order) -> Sent:
        return send_once(lambda: self._prepare(order), lambda target: self._act(order, target))

    def _prepare(self, order: Order) -> AwsTarget:
        machine = order.machine
        who = self._known(machine)
        if order.device:
            raise RepairRefused(f"AWS repairs whole instances, not {order.device}")
        choice = self._choose(who, order.rung, machine)
        if choice.why:
            raise RepairRefused(choice.why)
        if choice.way is Way.HYPERPOD_API:
            node = hyperpod.node(self.aws, who.hyperpod, who.instance, who.region)
            hyperpod.compare(node, who.instance, who.hyperpod)
        if choice.way not in (Way.SET_UNHEALTHY, Way.STANDBY, Way.GROUP_TERMINATE):
            return AwsTarget(who, choice.way)
        member = groups.member(self.aws, who.instance, who.region)
        if member is None:
            raise RepairRefused(f"{who.instance} is in no Auto Scaling group any more")
        if member.lifecycle != groups.IN_SERVICE:
            raise RepairRefused(f"{who.instance} is {member.lifecycle} in {member.group}: somebody else acts on it")
        if choice.way is Way.SET_UNHEALTHY and self.policy.respect_grace:
            seen = ec2.describe(self.aws, who.instance, who.region)
            left = groups.grace_left(self.aws, member.group, seen.launched if seen else "", who.region, time.time())
            if left:
                raise RepairRefused(
                    f"{who.instance} is in the grace period of {member.group} for {left:.0f} s more", left
                )
        return AwsTarget(who, choice.way, member.group)

    def _act(self, order: Order, target: AwsTarget) -> Sent:
        who, aws = target.who, self.aws
        acts: Dict[Way, Callable[[], Sent]] = {
            Way.REBOOT: lambda: ec2.reboot(aws, who.instance, who.region),
            Way.STOP_START: lambda: ec2.stop(aws, who.instance, who.region),
            Way.TERMINATE: lambda: ec2.terminate(aws, who.instance, who.region),
            Way.REPORT: lambda: ec2.report(aws, who.instance, who.region, order.because),
            Way.SET_UNHEALTHY: lambda: groups.set_unhealthy(
                aws, who.instance, who.region, self.policy.respect_grace),
            Way.STANDBY: lambda: groups.enter_standby(aws, who.instance, target.group, who.region),
            Way.GROUP_TERMINATE: lambda: groups.terminate(aws, who.instance, who.region),
            Way.HYPERPOD_API: lambda: hyperpod.order(aws, who.hyperpod, who.instance, order.rung, who.region),
            Way.HYPERPOD_LABEL: lambda: self.nodes.label(
                self.nodes.compare(order.machine), {HEALTH: hyperpod.ASKED[order.rung]}),
            Way.HYPERPOD_SLURM: lambda: self._in_slurm(order),
        }  # fmt: skip
        return acts[target.way]()

    def _in_slurm(self, order: Order) -> Sent:
        """HyperPod's agent acts on the state FAIL with its reason; jobs that run are waited for."""
        from nhc_adapters.slurm.adapter import Slurm

        slurm = Slurm({"NHC_HYPERPOD": "1"}, self.environ, self.aws.timeout)
        operation = Operation.REBOOT if order.rung is Rung.REBOOT else Operation.REPLACE
        try:
            (applied,) = slurm.repair(operation, [order.machine.node], order.because)
        except AdapterError as error:
            return Sent(Answer.AMBIGUOUS, printable(str(error), 400))
        if applied.effect is Effect.CHANGED:
            return accepted(f"Slurm: {order.machine.node} is FAIL with Action:{operation.value.capitalize()}")
        return Sent(Answer.REFUSED, printable(applied.message, 400))

    def complete(self, order: Order, sent: Sent) -> Sent:
        """The start after a stop. EC2 changes nothing if the instance runs already."""
        who = self._who(order.machine)
        return send_once(lambda: who, lambda seen: ec2.start(self.aws, seen.instance, seen.region))

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        who = self._known(order.machine)
        if who.in_hyperpod:
            return self._hyperpod_progress(order, who, before)
        if order.rung is Rung.ESCALATE:
            done = sent.answer is Answer.ACCEPTED
            return Progress(Stage.DONE if done else Stage.FAILED, "reported to AWS" if done else "not reported")
        instance = ec2.describe(self.aws, who.instance, who.region)
        if order.rung is Rung.REBOOT:
            if instance is None or instance.state in (*ec2.GONE, "stopping", "stopped"):
                return Progress(Stage.FAILED, f"{who.instance} is {instance.state if instance else 'gone'}")
            return Progress(Stage.WORKING, f"{who.instance} is {instance.state}; EC2 shows no reboots: see the boot id")
        group = instance.group if instance else ""
        if order.rung is Rung.REPLACE and (group or instance is None or instance.state in ec2.GONE):
            # What is gone shows its group no longer: then the group whose activity ended it.
            seen = groups.activities(self.aws, group, who.region)
            group = group or next((activity.group for activity in seen if activity.instance == who.instance), "")
            if group:
                now_in = groups.member(self.aws, who.instance, who.region)
                seen = [activity for activity in seen if activity.group == group]
                return groups.replaced(instance, now_in, seen, who.instance, sent, before, time.time())
        if order.rung is Rung.REPLACE and self.policy.alone == "terminate":
            gone = instance is None or instance.state == "terminated"
            if instance is not None and instance.state == before.power:
                return untouched(sent, before, f"{who.instance} is {instance.state}, as before")
            return Progress(
                Stage.DONE if gone else Stage.WORKING, f"{who.instance} is {instance.state if instance else 'gone'}"
            )
        return _started_again(instance, who.instance, sent, before)

    def _hyperpod_progress(self, order: Order, who: AwsIdentity, before: Sighting) -> Progress:
        if not who.hyperpod:
            node = self.nodes.known(order.machine.node)
            return Progress(Stage.WORKING, f"{order.machine.node} is labelled {node.labels.get(HEALTH, '')!r}")
        if (
            self.policy.hyperpod != "api"
            and hyperpod.recovery(self.aws, who.hyperpod, who.region) != hyperpod.AUTOMATIC
        ):
            return Progress(Stage.FAILED, f"{who.hyperpod} has NodeRecovery None: the label is set, and nobody acts")
        seen = hyperpod.node(self.aws, who.hyperpod, who.instance, who.region)
        if order.rung is Rung.REBOOT:
            return hyperpod.rebooted(seen, who.instance)
        group = (seen.group if seen else "") or order.machine.labels.get(GROUP_LABEL, "")
        fresh = hyperpod.newer(self.aws, who.hyperpod, group, before.at - 1, who.region)
        return hyperpod.replaced(seen, fresh, who.instance)

    # Rights, others, evidence, requests.

    def rights(self) -> Sequence[Right]:
        return rights.tried(self.aws, self.policy, self.own.cluster, self.tag)

    def claims(self, machine: Machine) -> Sequence[Claim]:
        who = self._who(machine)
        claims: List[Claim] = []
        if who.in_hyperpod:
            return of_hyperpod(self.aws, who, machine, acting=self.policy.hyperpod == "api")
        if who.instance:
            claims += claims_of_instance(self.aws, who, machine, self.own.eks_cluster)
        claims += of_labels(machine.labels, self.own.karpenter_repairs)
        return claims

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        who = self._known(machine)
        if who.in_hyperpod:
            raise AdapterError("AWS: a HyperPod node's console is not shown to its user")
        return ec2.evidence(self.aws, who.instance, who.region, budget)

    def requested(self, machine: Machine) -> Optional[Request]:
        """What an operator asked of this node by HyperPod's label, or by its reason in Slurm (settings `reason`)."""
        rung = hyperpod.asked_for(machine.labels, machine.settings.get("reason", ""))
        who = self._who(machine)
        if rung is None or not who.instance:
            return None
        text = machine.labels.get(HEALTH, "") or machine.settings.get("reason", "")
        return Request(rung, f"hyperpod/{who.instance}/{rung.value}/{machine.boot_id}", printable(text, 100))


def _started_again(seen: Optional[ec2.Ec2Instance], instance: str, sent: Sent, before: Sighting) -> Progress:
    """A stop and start: stopped, then running since a later time."""
    if seen is None or seen.state in ec2.GONE:
        return Progress(Stage.FAILED, f"{instance} is {seen.state if seen else 'gone'}")
    if seen.state == "stopped":
        return Progress(Stage.HALFWAY, f"{instance} is stopped; it is to be started")
    if seen.state == "running" and before.boot and seen.launched > before.boot:
        return Progress(Stage.DONE, f"{instance} runs since {seen.launched}", instance)
    text = f"{instance} is {seen.state} since {seen.launched}"
    if (seen.state, seen.launched) == (before.power, before.boot):
        return untouched(sent, before, text)
    return Progress(Stage.WORKING, text)
