"""What moto's server does truly: Auto Scaling's health flag and Standby, EC2's stops, CloudWatch's figures, and the
instance metadata service."""

from __future__ import annotations

import time

import pytest

from nhc.core.model import Action, CheckResult, Report, crit, ok
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Stage
from nhc.marks.ports.sinks import Delivery
from nhc_adapters.cloud.aws.client import Aws, AwsAccess, InstanceSettings, OwnInstance
from nhc_adapters.cloud.aws.cloudwatch import CloudWatchMetric, CloudWatchSettings, CloudWatchSink, metrics, sink
from nhc_adapters.cloud.aws.repairer import AwsRepairer
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.moto_server import moto_server

DMA = "NeuronHasError_DMA_ERROR"
MINE = "i-0123456789abcdef0"


@pytest.fixture(scope="module")
def moto():
    with moto_server() as url:
        yield url


@pytest.fixture(scope="module")
def aws(moto):
    return Aws(AwsAccess(endpoint=moto), ENVIRON, 20.0)


@pytest.fixture(scope="module")
def member(aws):
    """An instance in a group of two."""
    (image,) = aws.call("ec2", "DescribeImages", MaxResults=5)["Images"][:1]
    template = {"LaunchTemplateName": "workers", "LaunchTemplateData": {"ImageId": image["ImageId"]}}
    aws.call("ec2", "CreateLaunchTemplate", **template)
    aws.call(
        "autoscaling",
        "CreateAutoScalingGroup",
        AutoScalingGroupName="workers",
        MinSize=2,
        MaxSize=3,
        AvailabilityZones=["us-east-1a"],
        LaunchTemplate={"LaunchTemplateName": "workers"},
    )
    (group,) = aws.call("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
    return [one["InstanceId"] for one in group["Instances"]]


def order(one, rung):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "1", 1, Machine("n1", f"aws:///us-east-1a/{one}"), rung, "why")


def health(aws, one):
    (seen,) = aws.call("autoscaling", "DescribeAutoScalingInstances", InstanceIds=[one])["AutoScalingInstances"]
    return seen["HealthStatus"].lower(), seen["LifecycleState"]


def test_a_member_becomes_unhealthy_once_and_only_when_it_is_sent(moto, aws, member):
    mine = AwsRepairer({"endpoint": moto, "respect-grace-period": "no"}, ENVIRON)
    todo = order(member[0], Rung.REPLACE)
    assert mine.can(todo.machine, Rung.REPLACE) == ""
    assert mine.rights()
    assert health(aws, member[0]) == ("healthy", "InService")
    assert mine.send(todo).answer is Answer.ACCEPTED
    assert health(aws, member[0]) == ("unhealthy", "InService")


def test_standby(moto, aws, member):
    mine = AwsRepairer({"endpoint": moto, "in-group": "standby"}, ENVIRON)
    assert mine.send(order(member[1], Rung.REPLACE)).answer is Answer.ACCEPTED
    assert health(aws, member[1])[1] == "Standby"


def test_a_stop_and_a_start(moto, aws):
    (image,) = aws.call("ec2", "DescribeImages", MaxResults=5)["Images"][:1]
    made = aws.call("ec2", "RunInstances", ImageId=image["ImageId"], MinCount=1, MaxCount=1)["Instances"][0]
    mine, todo = AwsRepairer({"endpoint": moto}, ENVIRON), order(made["InstanceId"], Rung.POWER_CYCLE)
    before = mine.look(todo.machine)
    assert before.power == "running"
    sent = mine.send(todo)
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    assert mine.look(todo.machine).power == "stopped"
    assert mine.complete(todo, sent).answer is Answer.ACCEPTED
    assert mine.look(todo.machine).power == "running"
    assert mine.send(order(made["InstanceId"], Rung.REBOOT)).answer is Answer.ACCEPTED


# CloudWatch.


def report(*outcomes):
    results = tuple(CheckResult(f"check_{number}", outcome) for number, outcome in enumerate(outcomes))
    return Report("n1", "boot", time.time(), 0.1, results)


def dma():
    return crit(DMA, "nd-id=0", action=Action.REPLACE)


def values(aws, namespace, name):
    now = time.time()
    found = aws.call(
        "cloudwatch",
        "GetMetricStatistics",
        Namespace=namespace,
        MetricName=name,
        Dimensions=[{"Name": "InstanceId", "Value": "i-0123456789abcdef0"}],
        StartTime=now - 600,
        EndTime=now + 60,
        Period=60,
        Statistics=["Maximum", "Minimum", "SampleCount"],
    )["Datapoints"]
    return (max(one["Maximum"] for one in found), min(one["Minimum"] for one in found)) if found else None


def test_the_metrics_of_a_report():
    assert metrics(report(ok()), frozenset(), "NHC") == [
        CloudWatchMetric("NHC", "NodeHealthy", 1.0),
        CloudWatchMetric("NHC", "Problems", 0),
    ]
    found = metrics(report(dma(), ok()), frozenset({"NeuronHasError_HBM_UNCORRECTABLE_ERROR"}), "NHC")
    assert found == [
        CloudWatchMetric("NeuronHealthCheck", DMA, 1.0),
        CloudWatchMetric("NeuronHealthCheck", "NeuronHasError_HBM_UNCORRECTABLE_ERROR", 0.0),
        CloudWatchMetric("NHC", "NodeHealthy", 0.0),
        CloudWatchMetric("NHC", "Problems", 1.0),
    ]
    assert [one.name for one in metrics(report(), frozenset(), "NHC")] == ["Problems"], "nobody knows: no value"


def test_an_error_is_one_while_it_stands_and_nought_when_it_has_ended(moto, aws):
    own = CloudWatchSettings(3600.0, access=AwsAccess(endpoint=moto), instance=InstanceSettings(instance=MINE))
    mine = CloudWatchSink(own, ENVIRON)
    mine.deliver(Delivery(report(dma()), complete=False))
    assert values(aws, "NHC", "NodeHealthy") is None, "nothing while not all is judged"
    mine.deliver(Delivery(report(dma()), complete=True))
    assert values(aws, "NeuronHealthCheck", DMA) == (1.0, 1.0)
    assert values(aws, "NHC", "NodeHealthy") == (0.0, 0.0)
    mine.deliver(Delivery(report(ok()), complete=True))
    assert values(aws, "NeuronHealthCheck", DMA) == (1.0, 0.0)
    assert values(aws, "NHC", "NodeHealthy") == (1.0, 0.0)


def test_the_node_asks_the_metadata_service_who_it_is(moto):
    environ = {name: value for name, value in ENVIRON.items() if name != "AWS_REGION"}
    own = OwnInstance(InstanceSettings(moto), Aws(AwsAccess(endpoint=moto), environ, 10.0), 10.0)
    assert own.id().startswith("i-")
    assert own.region() == "us-east-1"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"namespace": "AWS/EC2"}, "namespace"),
        ({"period": "soon"}, "period"),
        ({"regoin": "us-east-1"}, "did you mean 'region'"),
        ({"endpoint": "http://example.com"}, "https://"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(AdapterError, match=said):
        sink(settings, "n1", print)
