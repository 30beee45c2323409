"""A suite by Systems Manager's Run Command: sent once, followed, read whole, against AWS on loopback.

The fake runs each command by the shell, as the SSM Agent does; nhc on the node is a script that prints a report.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from nhc.core.model import CheckResult, DeviceId, Report, crit, ok
from nhc.core.render.json import render
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.suites import DeviceProof, SuiteOrder
from nhc.remedy.proving import read
from nhc_adapters.cloud.aws.suite_runner import DELIVERY, SsmSuite
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.aws import FakeAws

ROOT = Path(__file__).resolve().parents[3]


def report(*results):
    return render(Report("n1", "b", 5.0, 1.0, results, labels={"suite": "quick"}))


GOOD = report(CheckResult("check_a", ok("fine")))
BAD = report(CheckResult("check_a", crit("Bad", "wrong sums")))


@pytest.fixture
def aws():
    made = FakeAws()
    yield made
    made.close()
    assert made.wrong == [], "what AWS's own model does not allow"


@pytest.fixture
def order(aws):
    one = aws.instance()
    machine = Machine("n1", f"aws:///us-east-1a/{one}", aws.instances[one]["PrivateIpAddress"])
    return SuiteOrder(machine, "quick", time.time() - 60, 600.0)


@pytest.fixture
def runner(aws, tmp_path):
    """One that has waited long enough after 50 looks."""
    ticks = iter(range(10**6))

    def made(says=GOOD, status=0, errors="", **more):
        (tmp_path / "said").write_text(says)
        program = tmp_path / "nhc"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/args\ncat {tmp_path}/said\n'
            f"echo '{errors}' >&2\nexit {status}\n"
        )
        program.chmod(0o755)
        settings = {"endpoint": aws.url, "nhc": str(program), **more}
        return SsmSuite(settings, ENVIRON, 5.0, every=0.01, monotonic=lambda: next(ticks) * 20.0)

    return made


@pytest.mark.thorough
def test_the_limits_and_the_words_of_a_command(aws, runner, order, tmp_path):
    odd = order._replace(machine=order.machine._replace(node="n1;$(reboot)"))
    runner().run(odd)
    words = next(one for one in aws.asked if "Parameters" in one)
    assert (words["TimeoutSeconds"], words["Parameters"]["executionTimeout"]) == (DELIVERY, ["660"])
    args = (tmp_path / "args").read_text().splitlines()
    assert args[:5] == ["deep", "run", "quick", "-n", "n1;$(reboot)"], "one word, whatever is in it"
    assert args[-2:] == ["--timeout", "600s"]


@pytest.mark.thorough
@pytest.mark.parametrize(("says", "status", "passed"), [(GOOD, 0, True), (BAD, 1, False), (report(), 3, None)])
def test_a_verdict_is_read_whatever_its_exit_status(runner, order, says, status, passed):
    assert read(runner(says, status).run(order), order).passed is passed


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("says", "status", "said"),
    [("", 2, "ended with 2: no such suite"), ("", 127, "ended with 127"), ("ha", 0, "ended with 0"), ("", 0, "with 0")],
)
def test_what_is_no_report_proves_nothing(runner, order, says, status, said):
    with pytest.raises(AdapterError, match=said):
        runner(says, status, "no such suite").run(order)


@pytest.mark.thorough
def test_a_report_that_is_cut_proves_nothing(aws, runner, order):
    large = report(*(CheckResult(f"check_{n}", ok(str(hash((n, "salt")) ** 9))) for n in range(900)))
    with pytest.raises(AdapterError, match="longer than the 24000 characters"):
        runner(large).run(order)
    long = report(*(CheckResult("check_a", ok("fine")) for _ in range(900)))
    assert len(long) > 100_000
    assert read(runner(long).run(order), order).passed is True


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("DeliveryTimedOut", "has not taken it"), ("Undeliverable", "does not answer"),
        ("ExecutionTimedOut", "past its limit"), ("Cancelled", "not sent again"), ("Terminated", "asked again"),
        ("AccessDenied", "may not run it"), ("InProgress", "has not ended: InProgress"),
    ],
)  # fmt: skip
@pytest.mark.thorough
def test_every_other_end_says_what_it_means(aws, runner, order, details, said):
    aws.command_ends = details
    with pytest.raises(AdapterError, match=said):
        runner().run(order)


@pytest.mark.thorough
def test_what_somebody_cancelled_is_not_sent_again(aws, runner, order):
    aws.command_ends = "Cancelled"
    for _ in range(2):
        with pytest.raises(AdapterError, match="somebody has cancelled it"):
            runner().run(order)
    assert aws.calls == ["SendCommand"]


@pytest.mark.thorough
def test_a_run_that_is_under_way_is_followed_and_one_that_has_ended_is_asked_for_again(aws, runner, order):
    """After a lost answer, or by another controller: on every page of the list."""
    aws.page = 1
    aws.next_fault = "lost"
    with pytest.raises(AdapterError):
        runner().run(order)
    aws.commands[0].thread.join(60)
    aws.commands[0].ends = "InProgress"
    aws.commands.insert(0, aws.commands[0].__class__("f" * 36, aws.commands[0].instance, "another's", aws.tick()))
    with pytest.raises(AdapterError, match="has not ended"):
        runner().run(order)
    assert aws.calls == ["SendCommand"], "its answer was lost, and no second one was sent"
    aws.commands[1].ends = ""
    assert read(runner().run(order), order).passed is True
    assert aws.calls == ["SendCommand", "SendCommand"], "the node has kept the report"
    assert runner().run(order._replace(since=order.since + 9))


@pytest.mark.thorough
def test_a_throttled_look_and_a_lost_one_are_looked_at_again(aws, runner, order):
    aws.next_reads = ["", "", "throttled", "error"]  # of the instance, of the commands, and of the invocation
    assert read(runner().run(order), order).passed is True
    assert aws.calls == ["SendCommand"]


@pytest.mark.thorough
def test_another_machine_and_one_without_the_tag_are_sent_nothing(aws, runner, order):
    machine = order.machine
    hyperpod = machine._replace(
        provider_id="aws:///use1-az1/sagemaker/cluster/hyperpod-abcdefghijkl-i-00000000000000001"
    )
    wrong = [
        (machine._replace(address="10.9.9.9"), {}, "another machine"), (machine, {"tag": "nhc=other"}, "the tag"),
        (hyperpod, {}, "HyperPod"), (machine._replace(provider_id=""), {}, "no EC2 instance"),
        (machine._replace(node="{{ssm:secret}}"), {}, "cannot be sent"),
    ]  # fmt: skip
    for one, settings, said in wrong:
        with pytest.raises(AdapterError, match=said):
            runner(**settings).run(order._replace(machine=one))
    aws.instances[next(iter(aws.instances))]["State"] = "stopped"
    with pytest.raises(AdapterError, match="InvalidInstanceId"):
        runner().run(order)
    assert aws.calls == ["SendCommand"]


@pytest.mark.thorough
def test_a_device_is_proved(runner, order, tmp_path):
    proof = DeviceProof(order.machine, DeviceId(pci="0000:4e:00.0"), 7, 60.0)
    assert json.loads(runner().prove(proof))["host"] == "n1"
    assert (tmp_path / "args").read_text().split()[:4] == ["check", "local", "-c", "/dev/stdin"]


@pytest.mark.thorough
def test_the_rights_are_tried_and_the_policy_grants_every_call(aws, runner, order):
    found = {right.name: right.granted for right in runner(tag="nhc=managed").rights()}
    assert found == {
        "ec2:DescribeInstances": True, "ssm:ListCommandInvocations": True, "ssm:GetCommandInvocation": True,
        "ssm:SendCommand": None,
    }  # fmt: skip
    aws.next_reads = ["", "", "denied", "denied"]
    assert [right.granted for right in runner().rights()] == [True, False, False, None]
    runner().run(order)
    policy = json.loads((ROOT / "adapters/aws/policy-suite.json").read_text())
    granted = {name for one in policy["Statement"] for name in one["Action"]}
    assert granted == set(found)
    assert {name.partition(":")[2] for name in granted} == set(aws.requests)


def test_the_settings_name_their_mistakes():
    for settings, said in (({"bucket": "x"}, "no such key"), ({"tag": "nhc"}, "NAME=VALUE")):
        with pytest.raises(AdapterError, match=re.escape(said)):
            SsmSuite(settings)
