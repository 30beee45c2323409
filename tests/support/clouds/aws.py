"""AWS on loopback, for what moto does not do: lost answers, throttling, reboots, replacements, HyperPod.

Each request and each answer is checked against the model that botocore ships (service-2.json): members, lengths,
patterns, enumerations, none of which botocore checks beyond the members' names. moto reads and writes the protocols.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any
from urllib.parse import unquote

from botocore.loaders import Loader
from botocore.model import Shape
from moto.core.model import ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import SERIALIZERS
from werkzeug.datastructures import Headers, MultiDict

from tests.support.clouds.server import Asked, FakeCloud, Operation, Reply

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)

CHANGES = {
    "RebootInstances", "StopInstances", "StartInstances", "TerminateInstances", "ReportInstanceStatus",
    "SetInstanceHealth", "EnterStandby", "TerminateInstanceInAutoScalingGroup", "BatchRebootClusterNodes",
    "BatchReplaceClusterNodes", "CompleteLifecycleAction", "BatchAddClusterNodes", "BatchDeleteClusterNodes",
    "SendCommand",
    "CancelCommand",
}  # fmt: skip


@cache
def model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def check(value: Any, shape: Shape, where: str) -> None:
    """A value is what its shape says. Raises AssertionError."""
    if shape.type_name == "structure":
        unknown = set(value) - set(shape.members)
        assert not unknown, f"{where}: no members {unknown}"
        missing = [name for name in shape.required_members if name not in value]
        assert not missing, f"{where}: {missing} missing"
        for name, inner in value.items():
            check(inner, shape.members[name], f"{where}.{name}")
    elif shape.type_name == "list":
        _within(len(value), shape, where)
        for number, inner in enumerate(value):
            check(inner, shape.member, f"{where}[{number}]")
    elif shape.type_name == "map":
        for key, inner in value.items():
            check(inner, shape.value, f"{where}[{key}]")
    elif shape.type_name == "string":
        assert isinstance(value, str), f"{where}: {value!r} is no text"
        _within(len(value), shape, where)
        if getattr(shape, "enum", None):
            assert value in shape.enum, f"{where}: {value!r} is none of {shape.enum}"
        pattern = shape.metadata.get("pattern")
        # The models' patterns are Java's: \p{L} and the like are not Python's.
        if pattern and "\\p" not in pattern and "[\\u" not in pattern:
            assert re.fullmatch(pattern, value), f"{where}: {value!r} does not match {pattern}"
    elif shape.type_name in ("integer", "long"):
        assert isinstance(value, int), f"{where}: {value!r} is no number"
        _within(value, shape, where)
    elif shape.type_name == "boolean":
        assert isinstance(value, bool), f"{where}: {value!r} is not true or false"
    elif shape.type_name == "timestamp":
        assert isinstance(value, datetime), f"{where}: {value!r} is no time"


def _within(size: int, shape: Shape, where: str) -> None:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    assert low is None or size >= low, f"{where}: {size} is below {low}"
    assert high is None or size <= high, f"{where}: {size} is above {high}"


class AwsError(Exception):
    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class FakeAws(FakeCloud):
    """`instances` and `nodes` (HyperPod's) by id, `members` of Auto Scaling groups by instance."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = datetime.now(timezone.utc)
        self.instances: dict[str, dict[str, Any]] = {}
        self.members: dict[str, dict[str, Any]] = {}
        self.activities: list[dict[str, Any]] = []
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.refreshes: list[dict[str, Any]] = []
        self.hooks: list[dict[str, Any]] = []
        self.heartbeats: list[str] = []
        self.node_repair = False
        self.grace = 0
        self.capacity = True
        self.recovery = "None"
        self.nodes: dict[str, dict[str, Any]] = {}
        self.batch_error = ""
        self.tokens: dict[str, list[str]] = {}
        self.page = 100
        self.pending: list[tuple[str, str]] = []
        self.asked: list[dict[str, Any]] = []
        self.commands: list[FakeCommand] = []
        self.command_ends = ""
        self._number = 0

    # The other side's state.

    def instance(self, group: str = "", **more: Any) -> str:
        self._number += 1
        found = f"i-{self._number:017x}"
        tags = {"nhc": "managed", **({"aws:autoscaling:groupName": group} if group else {}), **more.pop("tags", {})}
        self.instances[found] = {
            "State": "running", "LaunchTime": NOW, "PrivateIpAddress": f"10.0.0.{self._number}",
            "RootDeviceType": "ebs", "Tags": tags, **more,
        }  # fmt: skip
        if group:
            self.members[found] = {
                "AutoScalingGroupName": group,
                "LifecycleState": "InService",
                "HealthStatus": "HEALTHY",
            }
        return found

    def node(self, group: str = "gpus") -> str:
        self._number += 1
        found = f"i-{self._number:017x}"
        self.nodes[found] = {"InstanceGroupName": group, "Status": "Running", "LaunchTime": NOW, "Message": ""}
        return found

    def settle(self) -> None:
        """What was begun has its effect."""
        todo, self.pending = self.pending, []
        for what, one in todo:
            getattr(self, f"_effect_{what}")(one)

    def tick(self) -> datetime:
        self.clock += timedelta(seconds=1)
        return self.clock

    def _effect_stop(self, one: str) -> None:
        self.instances[one]["State"] = "stopped"

    def _effect_start(self, one: str) -> None:
        self.instances[one].update(State="running", LaunchTime=self.tick())

    def _effect_end(self, one: str) -> None:
        self.instances[one]["State"] = "terminated"

    def _effect_replace(self, one: str) -> None:
        group = self.members.pop(one)["AutoScalingGroupName"]
        self.instances[one].update(State="terminated", Tags={})
        self._activity(f"Terminating EC2 instance: {one}", group, "Successful")
        self._launch(group)

    def _effect_standby(self, one: str) -> None:
        member = self.members[one]
        member["LifecycleState"] = "Standby"
        self._activity(f"Moving EC2 instance to Standby: {one}", member["AutoScalingGroupName"], "Successful")
        self._launch(member["AutoScalingGroupName"])

    def _launch(self, group: str) -> None:
        if not self.capacity:
            said = "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested"
            self._activity(f"Launching a new EC2 instance.  Status Reason: {said}", group, "Failed", said)
            return
        new = self.instance(group, LaunchTime=self.tick())
        self._activity(f"Launching a new EC2 instance: {new}", group, "Successful")

    def _activity(self, description: str, group: str, status: str, message: str = "") -> None:
        self.activities.insert(0, {
            "ActivityId": f"a-{len(self.activities)}", "AutoScalingGroupName": group, "Description": description,
            "Cause": "an instance was taken out of service", "StartTime": self.tick(), "StatusCode": status,
            **({"StatusMessage": message} if message else {}),
        })  # fmt: skip

    def _effect_node_replace(self, one: str) -> None:
        old = self.nodes.pop(one)
        self.nodes[self.node(old["InstanceGroupName"])]["LaunchTime"] = self.tick()

    def _effect_nothing(self, one: str) -> None:
        pass

    # The wire.

    def route(self, asked: Asked) -> Operation:
        found = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", asked.headers.get("authorization", ""))
        assert found, "no signature"
        service = model(found[1])
        operation, values = self._operation(service, asked)
        words = PROTOCOL_PARSERS[service.protocol](operation).parse({
            "body": asked.body, "headers": Headers(asked.headers), "method": asked.method,
            "url_params": values, "url_path": asked.path,
            "values": MultiDict(_form(asked.body) if service.protocol in ("query", "ec2") else asked.query),
        })  # fmt: skip
        words = {key: value for key, value in words.items() if value is not None}
        self.asked.append(words)
        dry = words.pop("DryRun", False)

        def run() -> Reply:
            check(words, operation.input_shape, operation.name)
            try:
                if dry:
                    raise AwsError("UnauthorizedOperation" if self.denied else "DryRunOperation", "would have", 412)
                result = getattr(self, f"do_{operation.name}")(**words) or {}
            except AwsError as error:
                return self._error(service.protocol, error)
            if operation.output_shape is not None:
                check(result, operation.output_shape, operation.name)
            made = SERIALIZERS[service.protocol](operation).serialize(result)
            body = made["body"]
            return Reply(made["status_code"], body.encode() if isinstance(body, str) else body, dict(made["headers"]))

        about = operation.name
        self._protocol = service.protocol
        return Operation(about, operation.name in CHANGES and not dry, run)

    def _operation(self, service: ServiceModel, asked: Asked) -> tuple[Any, dict[str, str]]:
        if service.protocol in ("query", "ec2"):
            return service.operation_model(dict(_form(asked.body))["Action"]), {}
        if service.protocol == "json":
            return service.operation_model(asked.headers["x-amz-target"].rpartition(".")[2]), {}
        for name in service.operation_names:
            operation = service.operation_model(name)
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", operation.http["requestUri"].partition("?")[0])
            found = re.fullmatch(pattern, asked.path)
            if found and operation.http["method"] == asked.method:
                return operation, {key: unquote(value) for key, value in found.groupdict().items()}
        raise AssertionError(f"no operation at {asked.path}")

    def _error(self, protocol: str, error: AwsError) -> Reply:
        import json

        if protocol in ("json", "rest-json"):
            body = json.dumps({"__type": error.code, "message": str(error)})
            return Reply(error.status, body.encode(), {"x-amzn-errortype": error.code})
        inner = f"<Error><Code>{error.code}</Code><Message>{error}</Message></Error>"
        whole = (
            f"<Response><Errors>{inner}</Errors></Response>"
            if protocol == "ec2"
            else f"<ErrorResponse>{inner}</ErrorResponse>"
        )
        return Reply(error.status, whole.encode(), {"Content-Type": "text/xml"})

    def failure(self, kind: str, operation: Operation) -> Reply:
        code, status = {
            "throttled": ("RequestLimitExceeded", 503) if self._protocol == "ec2" else ("ThrottlingException", 400),
            "error": ("InternalError", 500),
            "denied": ("UnauthorizedOperation", 403) if self._protocol == "ec2" else ("AccessDenied", 403),
        }[kind]
        return self._error(self._protocol, AwsError(code, f"{kind}: {operation.name}", status))

    # EC2.

    def _found(self, ids: list[str]) -> list[str]:
        missing = [one for one in ids if one not in self.instances]
        if missing:
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist")
        return ids

    def do_DescribeInstances(self, InstanceIds=None, Filters=(), MaxResults=None):
        wanted = self._found(InstanceIds) if InstanceIds else list(self.instances)
        for one in Filters:
            name, values = one["Name"], one["Values"]
            if name == "instance-state-name":
                wanted = [i for i in wanted if self.instances[i]["State"] in values]
            elif name.startswith("tag:"):
                wanted = [i for i in wanted if self.instances[i]["Tags"].get(name[4:]) in values]
        found = []
        for one in wanted:
            seen = self.instances[one]
            extra = {
                key: seen[key]
                for key in ("PrivateIpAddress", "RootDeviceType", "LaunchTime", "InstanceLifecycle")
                if key in seen
            }
            tags = [{"Key": key, "Value": value} for key, value in seen["Tags"].items()]
            found.append({"InstanceId": one, "State": {"Name": seen["State"], "Code": 16}, "Tags": tags, **extra})
        return {"Reservations": [{"ReservationId": "r-1", "Instances": found}] if found else []}

    def do_DescribeInstanceStatus(self, InstanceIds=(), IncludeAllInstances=False, MaxResults=None):
        found = [
            {
                "InstanceId": one,
                "InstanceState": {"Name": self.instances[one]["State"]},
                "Events": self.events.get(one, []),
            }
            for one in self._found(list(InstanceIds))
        ]
        return {"InstanceStatuses": found}

    def do_RebootInstances(self, InstanceIds):
        self.pending += [("nothing", one) for one in self._found(InstanceIds)]

    def do_StopInstances(self, InstanceIds, Force=False):
        return self._turned(InstanceIds, "stop", "stopping")

    def do_StartInstances(self, InstanceIds):
        return self._turned(InstanceIds, "start", "pending")

    def do_TerminateInstances(self, InstanceIds):
        return self._turned(InstanceIds, "end", "shutting-down")

    def _turned(self, ids: list[str], what: str, state: str) -> dict[str, Any]:
        list_name = {"stop": "StoppingInstances", "start": "StartingInstances", "end": "TerminatingInstances"}[what]
        changed = []
        for one in self._found(ids):
            before, self.instances[one]["State"] = self.instances[one]["State"], state
            self.pending.append((what, one))
            changed.append({"InstanceId": one, "PreviousState": {"Name": before}, "CurrentState": {"Name": state}})
        return {list_name: changed}

    def do_ReportInstanceStatus(self, Instances, Status, ReasonCodes, Description=""):
        assert len(Description) <= 255, f"a description of {len(Description)} characters"
        self._found(Instances)

    def do_GetConsoleOutput(self, InstanceId, Latest=False):
        import base64

        text = "x" * 4000 + "\nNVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n"
        return {"InstanceId": self._found([InstanceId])[0], "Output": base64.b64encode(text.encode()).decode()}

    def do_GetConsoleScreenshot(self, InstanceId, WakeUp=False):
        return {"InstanceId": self._found([InstanceId])[0], "ImageData": "/9j/4AAQSkZJRg=="}

    # Auto Scaling.

    def do_DescribeLifecycleHooks(self, AutoScalingGroupName, LifecycleHookNames=()):
        found = [one for one in self.hooks if one["AutoScalingGroupName"] == AutoScalingGroupName]
        return {"LifecycleHooks": [one for one in found if one["LifecycleHookName"] in LifecycleHookNames]}

    def do_RecordLifecycleActionHeartbeat(self, LifecycleHookName, AutoScalingGroupName, InstanceId):
        self._waiting(InstanceId, LifecycleHookName)
        self.heartbeats.append(InstanceId)

    def do_CompleteLifecycleAction(self, LifecycleHookName, AutoScalingGroupName, LifecycleActionResult, InstanceId):
        self._waiting(InstanceId, LifecycleHookName)
        passed = LifecycleActionResult == "CONTINUE"
        assert passed or LifecycleActionResult == "ABANDON"
        self.members[InstanceId]["LifecycleState"] = "InService" if passed else "Terminating"

    def _waiting(self, one: str, hook: str) -> None:
        names = [found["LifecycleHookName"] for found in self.hooks]
        if hook not in names or not self.members[one]["LifecycleState"].endswith(":Wait"):
            raise AwsError("ValidationError", f"No active Lifecycle Action found with instance ID {one}")

    def do_DescribeAutoScalingInstances(self, InstanceIds=(), MaxRecords=None):
        found = [
            {"InstanceId": one, "AvailabilityZone": "us-east-1a", "ProtectedFromScaleIn": False, **self.members[one]}
            for one in InstanceIds
            if one in self.members
        ]
        return {"AutoScalingInstances": found}

    def do_DescribeAutoScalingGroups(self, AutoScalingGroupNames=(), MaxRecords=None):
        found = [
            {
                "AutoScalingGroupName": name, "MinSize": 0, "MaxSize": 9, "DesiredCapacity": 3, "DefaultCooldown": 300,
                "AvailabilityZones": ["us-east-1a"], "HealthCheckType": "EC2", "CreatedTime": NOW,
                "HealthCheckGracePeriod": self.grace,
            }
            for name in AutoScalingGroupNames
        ]  # fmt: skip
        return {"AutoScalingGroups": found}

    def do_DescribeScalingActivities(self, AutoScalingGroupName="", MaxRecords=None):
        return {
            "Activities": [one for one in self.activities if AutoScalingGroupName in ("", one["AutoScalingGroupName"])]
        }

    def do_DescribeInstanceRefreshes(self, AutoScalingGroupName):
        return {"InstanceRefreshes": self.refreshes}

    def _member(self, one: str) -> dict[str, Any]:
        if one not in self.members:
            raise AwsError(
                "ValidationError", f"Instance Id not found - No managed instance found for instance ID: {one}"
            )
        return self.members[one]

    def do_SetInstanceHealth(self, InstanceId, HealthStatus, ShouldRespectGracePeriod=True):
        if not (ShouldRespectGracePeriod and self.grace):
            self._member(InstanceId)["HealthStatus"] = "UNHEALTHY"
            self.pending.append(("replace", InstanceId))

    def do_EnterStandby(self, AutoScalingGroupName, ShouldDecrementDesiredCapacity, InstanceIds=()):
        for one in InstanceIds:
            self._member(one)["LifecycleState"] = "EnteringStandby"
            self.pending.append(("standby", one))

    def do_TerminateInstanceInAutoScalingGroup(self, InstanceId, ShouldDecrementDesiredCapacity):
        member = self._member(InstanceId)
        member["LifecycleState"] = "Terminating"
        self.pending.append(("replace", InstanceId))
        activity = {
            "ActivityId": "a-77", "AutoScalingGroupName": member["AutoScalingGroupName"], "Cause": "a user asked",
            "StartTime": self.tick(), "StatusCode": "InProgress",
        }  # fmt: skip
        return {"Activity": activity}

    # EKS, HyperPod.

    def do_DescribeNodegroup(self, clusterName, nodegroupName):
        repair = {"enabled": self.node_repair}
        return {"nodegroup": {"nodegroupName": nodegroupName, "clusterName": clusterName, "nodeRepairConfig": repair}}

    def do_DescribeCluster(self, ClusterName):
        arn = "arn:aws:sagemaker:us-east-1:123456789012:cluster/abcdefghijkl"
        return {"ClusterArn": arn, "ClusterStatus": "InService", "InstanceGroups": [], "NodeRecovery": self.recovery}

    def do_DescribeClusterNode(self, ClusterName, NodeId="", NodeLogicalId=""):
        NodeId = NodeId or next((one for one, seen in self.nodes.items() if seen.get("Logical") == NodeLogicalId), "")
        if NodeId not in self.nodes:
            raise AwsError("ResourceNotFound", f"no node {NodeId or NodeLogicalId}")
        seen = self.nodes[NodeId]
        if seen["Status"] == "Pending" and NodeLogicalId:
            pending = {"InstanceGroupName": seen["InstanceGroupName"], "InstanceStatus": {"Status": "Pending"}}
            return {"NodeDetails": {**pending, "NodeLogicalId": NodeLogicalId}}
        status = {"Status": seen["Status"], "Message": seen["Message"]}
        details = {"InstanceId": NodeId, "InstanceGroupName": seen["InstanceGroupName"], "InstanceStatus": status}
        more = {"PrivateDnsHostname": seen["Host"]} if "Host" in seen else {}
        return {"NodeDetails": {**details, "LaunchTime": seen["LaunchTime"], **more}}

    def do_ListClusterNodes(
        self, ClusterName, CreationTimeAfter=NOW, InstanceGroupNameContains="", MaxResults=100,
        IncludeNodeLogicalIds=False, NextToken="0",
    ):  # fmt: skip
        after = CreationTimeAfter.replace(tzinfo=timezone.utc)
        size, start = min(MaxResults, self.page), int(NextToken)
        found = [
            {
                "InstanceId": one, "InstanceGroupName": seen["InstanceGroupName"], "InstanceType": "ml.p5.48xlarge",
                "LaunchTime": seen["LaunchTime"], "InstanceStatus": {"Status": seen["Status"]},
                **({"NodeLogicalId": seen["Logical"]} if IncludeNodeLogicalIds and "Logical" in seen else {}),
            }
            for one, seen in self.nodes.items()
            if seen["LaunchTime"] >= after and InstanceGroupNameContains in seen["InstanceGroupName"]
            and (IncludeNodeLogicalIds or seen["Status"] != "Pending")
        ]  # fmt: skip
        more = {"NextToken": str(start + size)} if len(found) > start + size else {}
        return {"ClusterNodeSummaries": found[start : start + size], **more}

    def do_BatchAddClusterNodes(self, ClusterName, NodesToAdd, ClientToken=""):
        wanted = NodesToAdd[0]
        name, count = wanted["InstanceGroupName"], wanted["IncrementTargetCountBy"]
        if self.batch_error:
            bad = {"InstanceGroupName": name, "ErrorCode": self.batch_error, "FailedCount": count, "Message": "no"}
            return {"Successful": [], "Failed": [bad]}
        made = self.tokens.setdefault(ClientToken, [])
        while len(made) < count:
            one = self.node(name)
            self.nodes[one].update(Status="Pending", Logical=f"node-{one[2:]}", LaunchTime=self.tick())
            made.append(one)
            self.pending.append(("node_run", one))
        good = [{"NodeLogicalId": self.nodes[one]["Logical"], "InstanceGroupName": name,
                 "Status": self.nodes[one]["Status"]} for one in made]  # fmt: skip
        return {"Successful": good, "Failed": []}

    def do_BatchDeleteClusterNodes(self, ClusterName, NodeIds=(), NodeLogicalIds=()):
        assert not NodeIds
        good, bad = [], []
        for one in NodeLogicalIds:
            known = [instance for instance, seen in self.nodes.items() if seen.get("Logical") == one]
            code = self.batch_error or ("" if known else "NodeIdNotFound")
            if code:
                bad.append({"NodeLogicalId": one, "Code": code, "Message": f"{code} {one}"})
                continue
            good.append(one)
            self.nodes[known[0]]["Status"] = "ShuttingDown"
            self.pending.append(("node_gone", known[0]))
        return {name: some for name, some in
                (("SuccessfulNodeLogicalIds", good), ("FailedNodeLogicalIds", bad)) if some}  # fmt: skip

    def _effect_node_run(self, one: str) -> None:
        self.nodes[one]["Status"] = "Running"

    def _effect_node_gone(self, one: str) -> None:
        del self.nodes[one]

    def do_BatchRebootClusterNodes(self, ClusterName, NodeIds=()):
        return self._batch(NodeIds, "nothing")

    def do_BatchReplaceClusterNodes(self, ClusterName, NodeIds=()):
        return self._batch(NodeIds, "node_replace")

    def _batch(self, ids: list[str], what: str) -> dict[str, Any]:
        good, bad = [], []
        for one in ids:
            code = self.batch_error or ("" if one in self.nodes else "InstanceIdNotFound")
            if code:
                bad.append({"NodeId": one, "ErrorCode": code, "Message": f"{code} {one}"})
            else:
                good.append(one)
                self.pending.append((what, one))
        return {name: some for name, some in (("Successful", good), ("Failed", bad)) if some}

    # Systems Manager. A command's script is run here, by the shell, as the SSM Agent does.

    def do_SendCommand(self, DocumentName, InstanceIds, Comment, TimeoutSeconds, Parameters):
        assert DocumentName == "AWS-RunShellScript"
        assert re.fullmatch("[1-9][0-9]{0,5}", Parameters["executionTimeout"][0])
        assert int(Parameters["executionTimeout"][0]) <= 172800
        (one,) = InstanceIds
        if self.instances[one]["State"] != "running":
            raise AwsError("InvalidInstanceId", f"Instances [[{one}]] not in a valid state for account 123456789012")
        made = FakeCommand(f"{len(self.commands):036x}", one, Comment, self.tick(), self.command_ends)
        if not made.ends:
            made.run("\n".join(Parameters["commands"]))
        self.commands.append(made)
        return {"Command": {"CommandId": made.id, "DocumentName": DocumentName, "Status": "Pending"}}

    def do_GetCommandInvocation(self, CommandId, InstanceId):
        found = [one for one in self.commands if (one.id, one.instance) == (CommandId, InstanceId)]
        if not found:
            raise AwsError("InvocationDoesNotExist", "")
        return found[0].shown()

    def do_CancelCommand(self, CommandId, InstanceIds):
        """The agent ends the process group of the command, and it alone."""
        (found,) = [one for one in self.commands if (one.id, [one.instance]) == (CommandId, InstanceIds)]
        if found.done is None and not found.ends:
            found.ends = "Cancelled"
            os.killpg(found.process.pid, signal.SIGKILL)
        return {}

    def do_ListCommandInvocations(self, InstanceId, MaxResults, Filters=(), NextToken="0"):
        (after,) = [one["value"] for one in Filters] or ["1970-01-01T00:00:00Z"]
        since = datetime.strptime(after, "%Y-%m-%dT%H:%M:%S%z")
        found = [one.listed() for one in self.commands if one.instance == InstanceId and one.at > since]
        start, size = int(NextToken), min(MaxResults, self.page)
        more = {"NextToken": str(start + size)} if len(found) > start + size else {}
        return {"CommandInvocations": found[start : start + size], **more}


@dataclass
class FakeCommand:
    """One command of Run Command. `ends` is the StatusDetails that it has without being run."""

    id: str
    instance: str
    comment: str
    at: datetime
    ends: str = ""
    thread: threading.Thread | None = None
    process: Any = None
    done: subprocess.CompletedProcess[str] | None = None

    def run(self, script: str) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

        def work() -> None:
            out, err = self.process.communicate()
            self.done = subprocess.CompletedProcess([], self.process.returncode, out, err)

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def details(self) -> str:
        return self.ends or ("InProgress" if self.done is None else "Failed" if self.done.returncode else "Success")

    def listed(self) -> dict[str, Any]:
        details = self.details()
        status = {"AccessDenied": "Failed", "Undeliverable": "Failed", "Terminated": "Failed"}.get(details, details)
        status = "TimedOut" if details.endswith("TimedOut") else status
        return {
            "CommandId": self.id, "InstanceId": self.instance, "Comment": self.comment, "Status": status,
            "StatusDetails": details, "RequestedDateTime": self.at,
        }  # fmt: skip

    def shown(self) -> dict[str, Any]:
        listed = self.listed()
        del listed["RequestedDateTime"]
        if self.done is None or self.ends:
            return {**listed, "ResponseCode": -1, "StandardOutputContent": ""}
        return {
            **listed, "ResponseCode": self.done.returncode, "StandardOutputContent": self.done.stdout[:24000],
            "StandardErrorContent": self.done.stderr[:8000],
        }  # fmt: skip


def _form(body: bytes) -> list[tuple[str, str]]:
    from urllib.parse import parse_qsl

    return parse_qsl(body.decode(), keep_blank_values=True)
