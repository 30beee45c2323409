"""The AWS repairer in the situations that are AWS's own."""

from __future__ import annotations

import ast
import json
import re
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Stage
from nhc_adapters.cloud.aws.client import identity
from nhc_adapters.cloud.aws.repairer import AwsRepairer
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.aws import FakeAws

ROOT = Path(__file__).resolve().parents[3]
HYPERPOD = "aws:///use1-az1/sagemaker/cluster/hyperpod-abcdefghijkl-"
HEALTH = "sagemaker.amazonaws.com/node-health-status"


@pytest.fixture
def fake():
    made = FakeAws()
    yield made
    made.close()
    assert made.wrong == []


def repairer(fake, timeout=5.0, **settings):
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    return AwsRepairer({"endpoint": fake.url, **given}, ENVIRON, timeout)


def machine(one, **more):
    return Machine("n1", f"aws:///us-east-1a/{one}", **more)


def order(of, rung, number=1):
    return Order(f"6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5{number}", "17", number, of, rung, "Xid79: gpu3 fell off the bus")


@pytest.mark.parametrize(
    ("node", "provider", "instance", "region", "cluster"),
    [
        ("n1", "i-0123456789abcdef0", "i-0123456789abcdef0", "", ""),  # Slurm's InstanceId
        ("n1", "aws:///us-east-1a/i-0123456789abcdef0", "i-0123456789abcdef0", "us-east-1", ""),
        ("n1", "aws:///us-gov-west-1b/i-01234567", "i-01234567", "us-gov-west-1", ""),
        ("hyperpod-i-0a2f", HYPERPOD + "i-0123456789abcdef0", "i-0123456789abcdef0", "", "abcdefghijkl"),
        ("hyperpod-i-0123456789abcdef0", "", "i-0123456789abcdef0", "", ""),
        ("i-0123456789abcdef0", "", "", "", ""),  # a name is no proof, but for HyperPod's own
        ("n1", "aws:///us-east-1a/fargate-ip-10-0-0-1", "", "us-east-1", ""),
        ("n1", "gce://project/zone/i-0123456789abcdef0x", "", "", ""),
        ("n1", "aws:///us-east-1a/i-0123456789ABCDEF0", "", "us-east-1", ""),
    ],
)
def test_the_instance_is_read_off_every_form_of_provider_id(node, provider, instance, region, cluster):
    found = identity(Machine(node, provider))
    assert (found.instance, found.region, found.hyperpod) == (instance, region, cluster)


@pytest.mark.thorough
def test_a_silent_endpoint_is_ambiguous_after_one_request(fake):
    one = fake.instance()
    mine = repairer(fake, timeout=3.0)
    mine.look(machine(one))  # the model of EC2 is read by now
    fake.next_fault = "silent"
    began = time.monotonic()
    sent = mine.send(order(machine(one), Rung.REBOOT))
    assert (sent.answer, fake.calls) == (Answer.AMBIGUOUS, ["RebootInstances"])
    assert time.monotonic() - began < 20, "the server is silent for thirty seconds"


def test_a_machine_outside_a_group_is_left_with_the_reason(fake):
    one = fake.instance()
    mine = repairer(fake)
    assert "no Auto Scaling group" in mine.can(machine(one), Rung.REPLACE)
    sent = mine.send(order(machine(one), Rung.REPLACE))
    assert (sent.answer, sent.retry_after, fake.calls) == (Answer.REFUSED, 0, [])
    assert "no Auto Scaling group" in sent.message


def test_a_machine_without_the_tag_is_never_touched(fake):
    one = fake.instance(tags={"nhc": "by-hand"})
    mine = repairer(fake, tag="nhc=managed")
    assert "nhc=managed" in mine.can(machine(one), Rung.REBOOT)
    assert mine.send(order(machine(one), Rung.REBOOT)).answer is Answer.REFUSED
    assert fake.calls == []


@pytest.mark.parametrize(
    ("instance", "why"),
    [
        ({"State": "stopped"}, "is stopped"),
        ({"RootDeviceType": "instance-store"}, "instance store"),
        ({"InstanceLifecycle": "spot"}, "Spot"),
    ],
)
def test_what_cannot_be_stopped_and_started_is_said(fake, instance, why):
    one = fake.instance(**instance)
    mine = repairer(fake)
    assert why in mine.can(machine(one), Rung.POWER_CYCLE)
    assert mine.send(order(machine(one), Rung.POWER_CYCLE)).answer is Answer.REFUSED
    assert fake.calls == []


@pytest.mark.thorough
def test_a_member_of_a_group_is_not_stopped(fake):
    assert "would replace an instance that is stopped" in repairer(fake).can(
        machine(fake.instance("workers")), Rung.POWER_CYCLE
    )


@pytest.mark.thorough
def test_within_the_grace_period_nothing_is_sent_and_the_time_is_told(fake):
    launched = datetime.now(timezone.utc) - timedelta(seconds=100)
    one = fake.instance("workers", LaunchTime=launched)
    fake.grace = 600
    sent = repairer(fake).send(order(machine(one), Rung.REPLACE))
    assert (sent.answer, fake.calls) == (Answer.REFUSED, [])
    assert 450 < sent.retry_after <= 500
    assert repairer(fake, respect_grace_period="no").send(order(machine(one), Rung.REPLACE)).answer is Answer.ACCEPTED
    assert fake.asked[-1] == {"InstanceId": one, "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}


@pytest.mark.slow
def test_a_call_that_the_group_ignored_is_a_failure_in_the_end(fake):
    one = fake.instance("workers")
    mine, fake.grace = repairer(fake), 10_000_000
    before = mine.look(machine(one))
    todo = order(machine(one), Rung.REPLACE)
    sent = mine.send(todo)
    assert mine.progress(todo, sent, before).stage is Stage.WORKING
    seen = mine.progress(todo, sent, before._replace(at=before.at - 300))
    assert (seen.stage, "ignored" in seen.message) == (Stage.FAILED, True)


@pytest.mark.thorough
def test_a_group_without_capacity_is_said_while_it_goes_on(fake):
    one = fake.instance("workers")
    mine, fake.capacity = repairer(fake), False
    before = mine.look(machine(one))
    todo = order(machine(one), Rung.REPLACE)
    sent = mine.send(todo)
    fake.settle()
    seen = mine.progress(todo, sent, before)
    assert (seen.stage, seen.replacement) == (Stage.WORKING, "")
    assert "sufficient p5.48xlarge capacity" in seen.message
    fake.capacity = True
    fake._launch("workers")
    seen = mine.progress(todo, sent, before)
    assert (seen.stage, seen.replacement) == (Stage.DONE, list(fake.instances)[-1])


@pytest.mark.thorough
def test_two_replaced_at_a_time_do_not_both_claim_the_same_new_one(fake):
    ones = [fake.instance("workers"), fake.instance("workers")]
    mine = repairer(fake)
    todo = [order(machine(one), Rung.REPLACE, number) for number, one in enumerate(ones)]
    before = [mine.look(machine(one)) for one in ones]
    sent = [mine.send(one) for one in todo]
    fake.settle()
    seen = [mine.progress(*three) for three in zip(todo, sent, before)]
    assert [one.stage for one in seen] == [Stage.DONE, Stage.DONE]
    assert len({one.replacement for one in seen}) == 2


@pytest.mark.thorough
def test_standby_keeps_the_machine(fake):
    one = fake.instance("workers")
    mine = repairer(fake, in_group="standby")
    todo, before = order(machine(one), Rung.REPLACE), mine.look(machine(one))
    sent = mine.send(todo)
    fake.settle()
    assert mine.progress(todo, sent, before).stage is Stage.DONE
    assert (fake.instances[one]["State"], fake.members[one]["LifecycleState"]) == ("running", "Standby")
    assert [claim.actor for claim in mine.claims(machine(one))] == ["operator"]
    assert mine.send(order(machine(one), Rung.REPLACE, 2)).answer is Answer.REFUSED
    assert fake.calls == ["EnterStandby"]


def test_an_impaired_machine_is_reported_to_aws(fake):
    one = fake.instance()
    mine, todo = repairer(fake), order(machine(one), Rung.ESCALATE)
    sent = mine.send(todo._replace(because="x" * 900))
    assert (sent.answer, fake.calls) == (Answer.ACCEPTED, ["ReportInstanceStatus"])
    assert mine.progress(todo, sent, mine.look(machine(one))).stage is Stage.DONE


@pytest.mark.thorough
def test_starting_an_instance_that_lost_its_start_is_sent_again_by_the_loop_alone(fake):
    one = fake.instance()
    mine, todo = repairer(fake), order(machine(one), Rung.POWER_CYCLE)
    before = mine.look(machine(one))
    sent = mine.send(todo)
    fake.settle()
    assert mine.progress(todo, sent, before).stage is Stage.HALFWAY
    fake.next_fault = "throttled"
    again = mine.complete(todo, sent)
    assert (again.answer, again.retry_after > 0) == (Answer.REFUSED, True)
    assert mine.progress(todo, again, before).stage is Stage.HALFWAY
    assert mine.complete(todo, again).answer is Answer.ACCEPTED
    fake.settle()
    seen = mine.progress(todo, again, before)
    assert (seen.stage, seen.replacement) == (Stage.DONE, one)
    assert fake.calls == ["StopInstances", "StartInstances", "StartInstances"]


# Others.


def claims(mine, of):
    return {claim.actor: claim.doing for claim in mine.claims(of)}


def test_nobody_else_acts_on_a_machine_that_nobody_has_claimed(fake):
    assert repairer(fake).claims(machine(fake.instance("workers"))) == []


@pytest.mark.thorough
def test_other_actors_are_found(fake):
    one = fake.instance("workers", tags={"eks:cluster-name": "prod", "eks:nodegroup-name": "gpus"})
    mine, fake.node_repair = repairer(fake), True
    assert claims(mine, machine(one)) == {"eks-node-repair": "repairs the nodes of gpus"}
    fake.node_repair = False
    event = {"InstanceEventId": "instance-event-1", "Code": "instance-retirement", "Description": "hardware"}
    fake.events[one] = [{**event, "NotBefore": datetime(2026, 12, 1, tzinfo=timezone.utc)}]
    assert "instance-retirement" in claims(mine, machine(one))["aws"]
    fake.events[one] = [{**event, "Description": "[Completed] hardware"}]
    assert claims(mine, machine(one)) == {}
    fake.refreshes = [{"InstanceRefreshId": "r-1", "Status": "InProgress"}]
    assert "refresh" in claims(mine, machine(one))["autoscaling"]
    fake.refreshes = [{"InstanceRefreshId": "r-1", "Status": "Successful"}]
    fake.members[one]["HealthStatus"] = "UNHEALTHY"
    assert "will replace" in claims(mine, machine(one))["autoscaling"]


def test_labels_tell_of_auto_mode_and_karpenter(fake):
    mine = repairer(fake, karpenter_node_repair="yes")
    auto = Machine("n1", labels={"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "general"})
    assert list(claims(mine, auto)) == ["eks-auto-mode"]
    karpenter = Machine("n1", labels={"karpenter.sh/nodepool": "gpu"})
    assert list(claims(mine, karpenter)) == ["karpenter"]
    assert repairer(fake).claims(karpenter) == []


# HyperPod.


def hyperpod(fake, **more):
    one = fake.node()
    return Machine(f"hyperpod-{one}", HYPERPOD + one, **more)


@pytest.mark.thorough
def test_hyperpods_own_recovery_holds_ours_only_where_we_would_act(fake):
    fake.recovery = "Automatic"
    assert list(claims(repairer(fake, hyperpod="api"), hyperpod(fake))) == ["hyperpod"]
    assert claims(repairer(fake), hyperpod(fake)) == {}  # asked by label, it is the one that acts
    asked = hyperpod(fake, labels={HEALTH: "UnschedulablePendingReboot"})
    assert claims(repairer(fake), asked) == {"hyperpod": "has been asked to reboot it"}
    fake.recovery = "None"
    assert claims(repairer(fake, hyperpod="api"), asked) == {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "answer", "later"),
    [
        ("InstanceIdNotFound", Answer.REFUSED, False),
        ("InvalidInstanceStatus", Answer.REFUSED, True),
        ("InstanceIdInUse", Answer.REFUSED, True),
        ("InternalServerError", Answer.AMBIGUOUS, False),
    ],
)
def test_a_failure_of_one_node_comes_with_status_200(fake, code, answer, later):
    fake.batch_error = code
    sent = repairer(fake, hyperpod="api").send(order(hyperpod(fake), Rung.REPLACE))
    assert (sent.answer, sent.retry_after > 0, code in sent.message) == (answer, later, True)
    assert fake.calls == ["BatchReplaceClusterNodes"]


def test_a_node_that_hyperpod_holds_is_left(fake):
    of = hyperpod(fake)
    fake.nodes[of.node.removeprefix("hyperpod-")]["Status"] = "DeepHealthCheckInProgress"
    mine = repairer(fake, hyperpod="api")
    sent = mine.send(order(of, Rung.REBOOT))
    assert (sent.answer, sent.retry_after > 0, fake.calls) == (Answer.REFUSED, True, [])
    assert "DeepHealthCheckInProgress" in claims(mine, of)["hyperpod"]


def test_the_replacement_is_found_on_a_later_page(fake):
    fake.page = 1
    of, mine = hyperpod(fake), repairer(fake, hyperpod="api")
    todo, before = order(of, Rung.REPLACE), mine.look(of)
    sent = mine.send(todo)
    for status in ("Pending", "Pending", "Running"):
        last = fake.node()
        fake.nodes[last].update(LaunchTime=fake.tick(), Status=status)
    del fake.nodes[of.node.removeprefix("hyperpod-")]
    seen = mine.progress(todo, sent, before)
    assert (seen.stage, last in seen.message) == (Stage.DONE, True)


@pytest.mark.parametrize(
    ("labels", "reason", "rung"),
    [
        ({HEALTH: "UnschedulablePendingReboot"}, "", Rung.REBOOT),
        ({HEALTH: "UnschedulablePendingReplacement"}, "", Rung.REPLACE),
        ({HEALTH: "UnschedulablePendingReplace"}, "", Rung.REPLACE),
        ({HEALTH: "Schedulable"}, "", None),
        ({HEALTH: "Unschedulable"}, "", None),
        ({}, "Action:Replace", Rung.REPLACE),
        ({}, "action:reboot", Rung.REBOOT),
        ({}, "NHC: Action:Replace", None),
    ],
)
def test_an_operators_words_ask_for_a_repair_once(fake, labels, reason, rung):
    of = hyperpod(fake, labels=labels, settings={"reason": reason}, boot_id="b1")
    asked = repairer(fake).requested(of)
    assert (asked.rung if asked else None) is rung
    if asked:
        assert repairer(fake).requested(of).key == asked.key, "the same request has the same key"
        assert repairer(fake).requested(of._replace(boot_id="b2")).key != asked.key


# Rights, evidence.


@pytest.mark.thorough
def test_rights_that_are_missing_are_named(fake):
    fake.instance()
    fake.denied = True
    found = {right.name: right.granted for right in repairer(fake, tag="nhc=managed").rights()}
    assert found["ec2:RebootInstances"] is False
    assert found["ec2:DescribeInstances"] is True
    assert found["autoscaling:SetInstanceHealth"] is None
    assert fake.calls == []


@pytest.mark.thorough
def test_the_console_is_evidence_and_its_end_is_kept(fake):
    of = machine(fake.instance())
    pieces = {piece.name: piece for piece in repairer(fake).evidence(of, EvidenceBudget())}
    assert list(pieces) == ["console.txt", "screenshot.jpg", "instance-status.json"]
    assert not pieces["console.txt"].cut
    (console,) = repairer(fake).evidence(of, EvidenceBudget(size=100))
    assert (console.cut, len(console.content)) == (True, 100)
    assert console.content.endswith(b"GPU has fallen off the bus.\n")


def test_the_policies_allow_exactly_what_the_code_calls():
    called = set()
    for path in (ROOT / "adapters/nhc_adapters/cloud/aws").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = re.fullmatch(r"(Batch(Reboot|Replace)ClusterNodes)", node.value)
                called |= {("sagemaker", found[1])} if found else set()
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "_call" and path.stem == "lifecycle":
                called.add(("autoscaling", node.args[0].value))
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("call", "pages"):
                called |= {tuple(one.value for one in node.args[:2])} if _named(node.args[:2]) else set()
    allowed = set()
    for path in (ROOT / "adapters/aws").glob("*.json"):
        for statement in json.loads(path.read_text())["Statement"]:
            allowed |= {tuple(action.split(":")) for action in statement["Action"]}
    assert called == allowed
    assert len(called) > 20


def _named(words):
    return len(words) == 2 and all(isinstance(one, ast.Constant) for one in words)
