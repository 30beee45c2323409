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
from nhc.marks.ports.runner import NotStarted, RunPhase, RunState
from nhc.remedy.proving import ProofOrder, proof_run, read, report_in, suite_run
from nhc_adapters.cloud.aws.runner import DELIVERY, SsmRunner
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.aws import FakeAws
from tests.support.waiting import until

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
    return ProofOrder(machine, "quick", time.time() - 60, 600.0)


@pytest.fixture
def runner(aws, tmp_path):
    def made(says=GOOD, status=0, errors="", **more):
        (tmp_path / "said").write_text(says)
        program = tmp_path / "nhc"
        program.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/args\ncat {tmp_path}/said\n'
            f"echo '{errors}' >&2\nexit {status}\n"
        )
        program.chmod(0o755)
        given = {"endpoint": aws.url, "nhc": str(program), "directory": f"{tmp_path}/runs", **more}
        return SsmRunner(given, ENVIRON, 5.0)

    return made


def ended(runner, run, start=True):
    """The state of a run that is over."""
    if start:
        runner.start(run)
    seen = [RunState(RunPhase.ABSENT)]

    def over():
        seen.append(runner.poll([run])[run.key])
        return seen[-1].phase in (RunPhase.ENDED, RunPhase.LOST, RunPhase.STOPPED)

    until(over, 60, what="the command to end")
    return seen[-1]


@pytest.mark.thorough
def test_the_limits_and_the_words_of_a_command(aws, runner, order, tmp_path):
    odd = order._replace(machine=order.machine._replace(node="n1;$(reboot)"))
    ended(runner(), suite_run(odd))
    words = next(one for one in aws.asked if "Parameters" in one)
    assert (words["TimeoutSeconds"], words["Parameters"]["executionTimeout"]) == (DELIVERY, ["660"])
    args = (tmp_path / "args").read_text().splitlines()
    assert args[:5] == ["deep", "run", "quick", "-n", "n1;$(reboot)"], "one word, whatever is in it"
    assert args[-2:] == ["--timeout", "600s"]


@pytest.mark.thorough
@pytest.mark.parametrize(("says", "status", "passed"), [(GOOD, 0, True), (BAD, 1, False), (report(), 3, None)])
def test_a_verdict_is_read_whatever_its_exit_status(runner, order, says, status, passed):
    state = ended(runner(says, status, "a line of stderr"), suite_run(order))
    assert (state.phase, state.status) == (RunPhase.ENDED, status)
    assert read(report_in(state.output), "n1", "quick").passed is passed


@pytest.mark.thorough
def test_an_output_that_is_cut_is_said_to_be(runner, order):
    large = report(*(CheckResult(f"check_{n}", ok(str(hash((n, "salt")) ** 9))) for n in range(900)))
    state = ended(runner(large), suite_run(order))
    assert (state.cut, report_in(state.output)) == (True, "")
    long = report(*(CheckResult("check_a", ok("fine")) for _ in range(900)))
    assert len(long) > 100_000
    state = ended(runner(long), suite_run(order._replace(number=1)))
    assert (state.cut, read(report_in(state.output), "n1", "quick").passed) == (False, True)


@pytest.mark.parametrize(
    ("details", "phase", "said"),
    [
        ("DeliveryTimedOut", "lost", "has not taken it"), ("Undeliverable", "lost", "does not answer"),
        ("ExecutionTimedOut", "lost", "past its limit"), ("Cancelled", "stopped", "cancelled"),
        ("Terminated", "lost", "run again"), ("AccessDenied", "lost", "may not run it"),
        ("InProgress", "running", "InProgress"),
    ],
)  # fmt: skip
@pytest.mark.thorough
def test_every_other_end_says_what_it_means(aws, runner, order, details, phase, said):
    aws.command_ends = details
    run = suite_run(order)
    for _ in range(2):
        runner().start(run)
        state = runner().poll([run])[run.key]
        assert (state.phase.value, said in state.why) == (phase, True), state
    assert aws.calls == ["SendCommand"]


@pytest.mark.thorough
def test_a_lost_answer_is_looked_for_and_the_first_of_two_commands_is_the_run(aws, runner, order, tmp_path):
    """On every page of the list; the node itself begins no second one."""
    aws.page = 1
    aws.next_fault = "lost"
    run = suite_run(order)
    with pytest.raises(AdapterError) as error:
        runner().start(run)
    assert not isinstance(error.value, NotStarted)
    state = ended(runner(), run, start=False)
    assert read(report_in(state.output), "n1", "quick").passed is True
    runner().start(run)
    assert aws.calls == ["SendCommand"], "its answer was lost, and no second one was sent"
    sent = next(one for one in aws.asked if "Parameters" in one)
    (tmp_path / "args").unlink()
    aws.do_SendCommand(**sent)  # as if the list had not shown the first one yet
    aws.commands[1].thread.join(60)
    assert aws.commands[1].done.returncode == 114
    assert not (tmp_path / "args").exists()
    assert runner().poll([run])[run.key] == state


@pytest.mark.thorough
def test_a_throttled_look_and_a_lost_one_say_nothing(aws, runner, order):
    run = suite_run(order)
    ended(runner(), run)
    for fault in ("throttled", "error", "denied"):
        aws.next_reads = [fault]
        assert runner().poll([run])[run.key].phase is RunPhase.UNKNOWN
    assert runner().poll([run])[run.key].phase is RunPhase.ENDED
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
        with pytest.raises(NotStarted, match=said):
            runner(**settings).start(suite_run(order._replace(machine=one)))
    aws.instances[next(iter(aws.instances))]["State"] = "stopped"
    with pytest.raises(NotStarted, match="InvalidInstanceId"):
        runner().start(suite_run(order))
    assert aws.calls == ["SendCommand"]


@pytest.mark.thorough
def test_a_device_is_proved(runner, order, tmp_path):
    run = proof_run(order._replace(device=DeviceId(pci="0000:4e:00.0")), 0)
    assert json.loads(report_in(ended(runner(), run).output))["host"] == "n1"
    assert (tmp_path / "args").read_text().split()[:4] == ["check", "local", "-c", "/dev/stdin"]


@pytest.mark.thorough
def test_the_rights_are_tried_and_the_policy_grants_every_call(aws, runner, order):
    found = {right.name: right.granted for right in runner(tag="nhc=managed").rights()}
    assert found == {
        "ec2:DescribeInstances": True, "ssm:ListCommandInvocations": True, "ssm:GetCommandInvocation": True,
        "ssm:SendCommand": None, "ssm:CancelCommand": None,
    }  # fmt: skip
    aws.next_reads = ["", "", "denied", "denied"]
    assert [right.granted for right in runner().rights()] == [True, False, False, None, None]
    run = suite_run(order)
    ended(runner(), run)
    policy = json.loads((ROOT / "adapters/aws/policy-suite.json").read_text())
    granted = {name for one in policy["Statement"] for name in one["Action"]}
    assert granted == set(found)
    assert {name.partition(":")[2] for name in granted} - {"CancelCommand"} == set(aws.requests)


def test_the_settings_name_their_mistakes():
    for settings, said in (({"bucket": "x"}, "no such key"), ({"tag": "nhc"}, "NAME=VALUE")):
        with pytest.raises(AdapterError, match=re.escape(said)):
            SsmRunner(settings)
