"""An Auto Scaling group's lifecycle hook: a new instance stays Pending:Wait until its gate has decided.

    [groups.gpu.hook]
    type = "aws"
    every = "5m"               # how often the group is told to keep waiting
    name = "nhc-gate"          # the hook, for autoscaling:EC2_INSTANCE_LAUNCHING
    on-failure = "wait"        # or "abandon": the group terminates a failed instance and launches another
    region = "us-east-1"       # else $AWS_REGION, or the instance's own

The instance finds itself by the metadata service. HeartbeatTimeout is 30 to 7200 s, 3600 by default; heartbeats extend
it to 100 times that, 48 hours at most (Auto Scaling's guide, lifecycle hooks). Each call is sent once; after a lost
answer the instance's state shows whether it took effect.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.gates import GateLimit
from nhc.marks.ports.part_settings import read
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, InstanceSettings, OwnInstance
from nhc_adapters.cloud.aws.groups import Member, member

WAITING = ("Pending:Wait", "Warmed:Pending:Wait")
"""The states in which a group waits with a new instance (LifecycleState of Auto Scaling's model)."""
LONGEST = 48 * 3600.0
"""Seconds that heartbeats can extend a wait to."""
TIMES = 100
"""Or this many times the HeartbeatTimeout, if that is less."""


@declared.settings
class AwsHookSettings(NamedTuple):
    """The table [hook] of gate.toml."""

    name: str = declared.text("name", declared.NEEDED, "the lifecycle hook's", shown='"nhc"')
    group: str = declared.text("group", "", "default: the instance's own")
    on_failure: str = declared.word("on-failure", ("wait", "abandon"), "", "abandon: the group replaces the instance")
    access: AwsAccess = declared.part("", AwsAccess)
    instance: InstanceSettings = declared.part("", InstanceSettings)


class AwsLifecycleHook:
    """An instance at its group's hook."""

    SETTINGS = AwsHookSettings

    def __init__(
        self, settings: Mapping[str, str], environ: Optional[Mapping[str, str]] = None, timeout: float = 30.0
    ) -> None:
        own = read(AwsHookSettings, settings, "hook")
        self.name = own.name
        self.abandons = own.on_failure == "abandon"
        self._aws = Aws(own.access, environ, timeout)
        self._own, self._group = OwnInstance(own.instance, self._aws, timeout), own.group

    def waits(self) -> str:
        """The state in which the group waits with this instance, "" if it does not."""
        membership = self._member()
        return membership.lifecycle if membership is not None and membership.lifecycle in WAITING else ""

    def heartbeat(self) -> None:
        """Have the group wait for another HeartbeatTimeout."""
        self._call("RecordLifecycleActionHeartbeat")

    def complete(self, passed: bool) -> str:
        """CONTINUE into service, or ABANDON where the settings allow that."""
        if not passed and not self.abandons:
            return (
                f"lifecycle hook {self.name}: {self._own.id()} is left waiting; at its timeout the hook's default holds"
            )
        result = "CONTINUE" if passed else "ABANDON"
        self._call("CompleteLifecycleAction", LifecycleActionResult=result)
        return f"lifecycle hook {self.name}: {result} for {self._own.id()}"

    def limits(self) -> List[GateLimit]:
        """How long the group waits at most, and what happens then."""
        group = self._group_name()
        answer = self._aws.call(
            "autoscaling", "DescribeLifecycleHooks", self._own.region(), AutoScalingGroupName=group,
            LifecycleHookNames=[self.name],
        )  # fmt: skip
        hooks: List[Mapping[str, Any]] = list(answer.get("LifecycleHooks") or [])
        who = f"{group}: lifecycle hook {self.name}"
        if not hooks:
            return [GateLimit(who, None, "there is no such hook: the instance takes work at once",
                              "put it, for autoscaling:EC2_INSTANCE_LAUNCHING")]  # fmt: skip
        hook = hooks[0]
        limits: List[GateLimit] = []
        if hook.get("LifecycleTransition") != "autoscaling:EC2_INSTANCE_LAUNCHING":
            limits.append(GateLimit(who, None, f"it is for {hook.get('LifecycleTransition')}, not for launches",
                                   "LifecycleTransition autoscaling:EC2_INSTANCE_LAUNCHING"))  # fmt: skip
        beat = float(hook.get("HeartbeatTimeout") or 3600)
        longest = float(hook.get("GlobalTimeout") or min(LONGEST, TIMES * beat))
        default = str(hook.get("DefaultResult") or "ABANDON")
        then = "the instance takes work untested" if default == "CONTINUE" else "the instance is terminated"
        limits.append(
            GateLimit(who, longest, f"{then} (heartbeats extend no further)", "a shorter suite or fewer tries")
        )
        between = f"between two heartbeats ({then})"
        limits.append(GateLimit(f"{who}: heartbeats", beat, between, "a shorter hook.every"))
        return limits

    def _call(self, operation: str, **more: str) -> None:
        self._aws.call(
            "autoscaling", operation, self._own.region(), LifecycleHookName=self.name,
            AutoScalingGroupName=self._group_name(), InstanceId=self._own.id(), **more,
        )  # fmt: skip

    def _member(self) -> Optional[Member]:
        return member(self._aws, self._own.id(), self._own.region())

    def _group_name(self) -> str:
        if not self._group:
            membership = self._member()
            if membership is None:
                raise AdapterError(f"{self._own.id()} is in no Auto Scaling group")
            self._group = membership.group
        return self._group
