"""Slurm and AWS as one piece: a node of a real Slurm, a member of moto's Auto Scaling group, and the loop as a process.

moto keeps an unhealthy member for ever and lists no activities: a stub in front of it launches the successor after a
time, as Auto Scaling does, and says so.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import urllib.request
from urllib.parse import parse_qs

import pytest

if sys.version_info < (3, 10):
    pytest.skip("moto has no release for Python 3.9 beside urllib3 2", allow_module_level=True)

from nhc.core.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.core.timestamps import utc
from nhc.store import nodes
from nhc.store.connect import open_store
from nhc_adapters.cloud.aws.client import Aws, AwsAccess
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.moto_server import moto_server
from tests.support.http_server import Reply, answering, serving
from tests.support.slurm_remedy import Service, served
from tests.support.waiting import until

NODE = "n1"
LATER = 8.0
"""Seconds after which the group has launched another: more than `limits.stalled` below."""
MORE = """
[limits]
stalled = "3s"
[approval]
replace = 0
[repairers.aws]
endpoint = "{endpoint}"
region = "us-east-1"
respect-grace-period = "no"
rungs = ["replace"]
"""
ACTIVITY = """<member><ActivityId>{id}</ActivityId><AutoScalingGroupName>workers</AutoScalingGroupName>
<Description>{description}</Description><Cause>an instance was taken out of service</Cause><StartTime>{at}</StartTime>
<StatusCode>{status}</StatusCode><Progress>50</Progress></member>"""
ANSWER = """<{action}Response xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
<{action}Result>{rows}</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>"""
PRIVATE = re.compile(rb"<privateIpAddress>[^<]*</privateIpAddress>")


class Group:
    """A group of one in moto, behind a stub that does what Auto Scaling does of itself. Its instances have the address
    that Slurm has of the node: a repairer compares the two.
    """

    def __init__(self, moto, address):
        self.moto, self.address = moto, address
        self.activities, self.marked = [], []
        self.aws = Aws(AwsAccess(endpoint=moto), ENVIRON, 20.0)
        (image,) = self.aws.call("ec2", "DescribeImages", MaxResults=5)["Images"][:1]
        data = {"ImageId": image["ImageId"]}
        self.aws.call("ec2", "CreateLaunchTemplate", LaunchTemplateName="workers", LaunchTemplateData=data)
        self.aws.call("autoscaling", "CreateAutoScalingGroup", AutoScalingGroupName="workers", MinSize=1, MaxSize=1,
                      AvailabilityZones=["us-east-1a"], LaunchTemplate={"LaunchTemplateName": "workers"})  # fmt: skip

    def member(self):
        (group,) = self.aws.call("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        return group["Instances"][0]["InstanceId"]

    def answer(self, asked):
        """The stub: what moto has no answer for, and what follows from an unhealthy member."""
        words = {name: value[0] for name, value in parse_qs(asked.body.decode()).items()}
        done = "".join(ACTIVITY.format(**row) for row in reversed(self.activities))
        own = {
            "DescribeScalingActivities": f"<Activities>{done}</Activities>",
            "DescribeInstanceRefreshes": "<InstanceRefreshes></InstanceRefreshes>",
        }
        action = words.get("Action", "")
        if action in own:
            text = ANSWER.format(action=action, rows=own[action])
            return Reply(200, text.encode(), {"Content-Type": "text/xml"})
        if action == "SetInstanceHealth":
            self.marked.append((words["InstanceId"], words["HealthStatus"]))
            threading.Timer(LATER, self.replace, (words["InstanceId"],)).start()
        kept = {name: value for name, value in asked.headers.items() if name.lower() not in ("host", "content-length")}
        request = urllib.request.Request(self.moto + asked.path, asked.body, kept, method="POST")
        with urllib.request.urlopen(request, timeout=20) as done:
            text = PRIVATE.sub(f"<privateIpAddress>{self.address}</privateIpAddress>".encode(), done.read())
            return Reply(done.status, text, {"Content-Type": done.headers["Content-Type"]})

    def replace(self, old):
        self._did(f"Terminating EC2 instance: {old}")
        self.aws.call("autoscaling", "TerminateInstanceInAutoScalingGroup", InstanceId=old,
                      ShouldDecrementDesiredCapacity=False)  # fmt: skip
        self._did(f"Launching a new EC2 instance: {self.member()}")

    def _did(self, description):
        row = {"id": len(self.activities), "description": description, "at": utc(time.time()), "status": "Successful"}
        self.activities.append(row)


@pytest.fixture
def group(cluster):
    with moto_server() as moto:
        made = Group(moto, cluster.address(NODE))
        with serving(answering(made.answer)) as server:
            made.url = f"http://127.0.0.1:{server.server_port}"
            yield made


class InGroup(Service):
    """The loop, and reports of whatever instance has the node's name."""

    instance = ""

    @property
    def env(self):
        return {**super().env, **ENVIRON}

    def without_a_scheduler(self):
        """The store says which nodes there are, and keeps the marks."""
        path = self.place / "remedy.toml"
        text = path.read_text().replace('adapter = "slurm"', 'adapter = "store"')
        path.write_text(text.replace('[repairers.slurm]\nboot-time = "60"\nrungs = ["reboot"]\n', ""))

    def mark(self):
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        with store.read() as connection:
            row = nodes.get(connection, NODE)
        store.close()
        return row.mark if row is not None else ""

    def report(self, boot, sick, node="", action=Action.REPLACE):
        bad = Outcome(Verdict.CRIT, "GpuFallenOffBus", "gpu3 is gone", "gpu3", action=action)
        result = CheckResult("check_gpu_lost", bad if sick else Outcome(Verdict.OK))
        labels = {"machine/provider-id": f"aws:///us-east-1a/{self.instance}", "machine/uuid": f"uuid-{self.instance}"}
        text = json.dumps(to_dict(Report(NODE, boot, time.time(), 0.1, (result,), labels=labels)))
        (self.reports / "n1.tmp").write_text(text)
        (self.reports / "n1.tmp").replace(self.reports / "n1.json")


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["slurm", "none"])
def test_an_unhealthy_member_is_replaced_watched_and_proved_and_a_long_wait_alarms(
    group, cluster, tmp_path, scheduler
):  # fmt: skip
    first = group.member()
    made = InGroup(tmp_path, cluster, actions='replace = "on"', slurm='rungs = ["reboot"]',
                   more=MORE.format(endpoint=group.url))  # fmt: skip
    made.instance = first
    if scheduler == "none":
        made.without_a_scheduler()

    def is_out():
        return "DRAIN" in cluster.show(NODE)["State"] if scheduler == "slurm" else "gpu3 is gone" in made.mark()

    with served(made) as service:
        service.report("boot1", sick=True)
        service.start()
        until(
            lambda: group.marked,
            90,
            what="the member to be unhealthy",
            said=lambda: service.nhc("show", "episode", "1").stdout,
        )
        assert group.marked == [(first, "Unhealthy")]
        assert is_out()
        until(lambda: "episode.stalled" in service.states()[2], 60, what="the alarm of a long wait")
        assert service.state() == "watching"
        until(lambda: len(group.activities) == 2, 60, what="the group to launch another")
        second = group.member()
        assert second != first
        service.instance = second

        def back():
            service.report("boot2", sick=False)
            return service.state() in ("returned", "escalated")

        until(back, 90, 0.3, what="the successor to be proved")
        rows, tried, whats = service.states()
        assert [row.state for row in rows] == ["returned"], service.log()
        assert [(one.rung, one.repairer, one.outcome) for one in tried] == [("replace", "aws", "succeeded")]
        assert group.marked == [(first, "Unhealthy")], "sent once"
        assert "node.replaced" in whats
        until(lambda: not is_out(), 60, what="the node to take work")
