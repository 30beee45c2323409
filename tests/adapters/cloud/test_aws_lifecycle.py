"""A lifecycle hook of Auto Scaling: what moto's server keeps of it truly, and the answers, by botocore's own model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nhc.core.state import gate_record as record
from nhc.core.state.gate_record import GateState
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.cloud.aws.client import Aws, AwsAccess
from nhc_adapters.cloud.aws.lifecycle import AwsLifecycleHook
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.adapters.test_slurm_gate import ROOT, TOOL
from tests.support.clouds.aws import FakeAws
from tests.support.clouds.moto_server import moto_server
from tests.support.waiting import until

HOOK = {"AutoScalingGroupName": "workers", "LifecycleHookName": "nhc-gate", "DefaultResult": "ABANDON",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 60}  # fmt: skip


@pytest.fixture
def fake() -> Any:
    made = FakeAws()
    yield made
    made.close()
    assert made.wrong == []


@pytest.fixture
def waiting(fake: Any) -> str:
    one: str = fake.instance(group="workers")
    fake.members[one]["LifecycleState"] = "Pending:Wait"
    fake.hooks.append({**HOOK, "GlobalTimeout": 6000})
    return one


def hook(fake: Any, one: str, **more: str) -> AwsLifecycleHook:
    settings = {"name": "nhc-gate", "instance": one, "endpoint": fake.url, "region": "us-east-1", **more}
    return AwsLifecycleHook({key.replace("_", "-"): value for key, value in settings.items()}, ENVIRON, 5.0)


def test_an_instance_that_passed_goes_into_service(fake: Any, waiting: str) -> None:
    mine = hook(fake, waiting)
    assert mine.waits() == "Pending:Wait"
    mine.heartbeat()
    assert fake.heartbeats == [waiting]
    assert "CONTINUE" in mine.complete(True)
    assert fake.members[waiting]["LifecycleState"] == "InService"
    assert mine.waits() == ""


def test_a_failed_one_is_terminated_only_where_the_settings_say_so(fake: Any, waiting: str) -> None:
    assert "is left waiting" in hook(fake, waiting).complete(False)
    assert fake.members[waiting]["LifecycleState"] == "Pending:Wait"
    assert "ABANDON" in hook(fake, waiting, on_failure="abandon").complete(False)
    assert fake.members[waiting]["LifecycleState"] == "Terminating"


def test_limits_are_the_hooks_own(fake: Any, waiting: str) -> None:
    longest, beat = hook(fake, waiting).limits()
    assert (longest.seconds, beat.seconds) == (6000.0, 60.0)
    assert "terminated" in longest.problem
    fake.hooks.clear()
    (none,) = hook(fake, waiting).limits()
    assert none.seconds is None


def test_wrong_settings_are_one_line() -> None:
    with pytest.raises(AdapterError, match=r"hook\.name: missing"):
        AwsLifecycleHook({}, ENVIRON)
    with pytest.raises(AdapterError, match=r"hook\.on-failure: 'drop' is not one of wait, abandon"):
        AwsLifecycleHook({"name": "x", "on-failure": "drop"}, ENVIRON)
    with pytest.raises(AdapterError, match=r"hook\.nam: there is no such key"):
        AwsLifecycleHook({"nam": "x"}, ENVIRON)


@pytest.mark.thorough
def test_limits_from_motos_own_hook() -> None:
    with moto_server() as url:
        aws = Aws(AwsAccess(endpoint=url), ENVIRON, 20.0)
        (image,) = aws.call("ec2", "DescribeImages", MaxResults=5)["Images"][:1]
        data = {"ImageId": image["ImageId"]}
        aws.call("ec2", "CreateLaunchTemplate", LaunchTemplateName="workers", LaunchTemplateData=data)
        aws.call("autoscaling", "CreateAutoScalingGroup", AutoScalingGroupName="workers", MinSize=1, MaxSize=1,
                 AvailabilityZones=["us-east-1a"], LaunchTemplate={"LaunchTemplateName": "workers"})  # fmt: skip
        aws.call("autoscaling", "PutLifecycleHook", **HOOK)
        (group,) = aws.call("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        one = group["Instances"][0]["InstanceId"]
        mine = AwsLifecycleHook({"name": "nhc-gate", "instance": one, "endpoint": url}, ENVIRON, 20.0)
        found = mine.limits()
        assert [limit.seconds for limit in found][1] == 60.0
        assert mine.waits() == "", "moto's instances are in service at once"
        (none,) = AwsLifecycleHook({"name": "other", "instance": one, "endpoint": url}, ENVIRON, 20.0).limits()
        assert "no such hook" in none.problem


class Instance:
    """An instance that boots: its gate with a lifecycle hook, as a process."""

    def __init__(self, fake: Any, one: str, place: Path, more: str = "") -> None:
        self.place = place
        (place / "triad").write_text(TOOL.format(place=place))
        (place / "triad").chmod(0o755)
        line = f"# context deep\n* || check_deep_triad -t 1s -s 8M --binary {place}/triad --floor 10\n"
        (place / "suite.conf").write_text(line)
        (place / "gate.toml").write_text(
            f'scheduler = "none"\n[groups.gpu]\nnodes = "*"\nsuite = "{place}/suite.conf"\ntries = 1\n'
            f'[groups.gpu.hook]\ntype = "aws"\nname = "nhc-gate"\nevery = "1s"\n'
            f'instance = "{one}"\nendpoint = "{fake.url}"\n'
            f'region = "us-east-1"\n{more}\n'
        )
        self.argv = [sys.executable, "-m", "nhc", "gate", "run", "--apply", "-n", "n1", "-s", str(place / "gate.toml")]
        self.env = {
            **os.environ, **ENVIRON, "NHC_GATE_FILE": str(place / "gate.json"), "NHC_DEEP_DIR": str(place / "deep"),
            "NHC_STATE_DIR": str(place / "state"), "PYTHONPATH": f"{ROOT}:{ROOT}/adapters",
        }  # fmt: skip

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv, env=self.env, capture_output=True, text=True, timeout=90, check=False)

    @property
    def state(self) -> GateState:
        found = record.read(str(self.place / "gate.json"))
        assert found is not None
        return found.state


@pytest.mark.thorough
def test_a_gate_beats_while_its_suite_runs_and_then_lets_the_instance_in(
    fake: Any, waiting: str, tmp_path: Path
) -> None:
    mine = Instance(fake, waiting, tmp_path)
    (tmp_path / "hold").touch()
    gate = subprocess.Popen(mine.argv, env=mine.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(fake.heartbeats) >= 2, 60, what="two heartbeats")
    assert fake.members[waiting]["LifecycleState"] == "Pending:Wait"
    (tmp_path / "hold").unlink()
    assert gate.wait(60) == 0
    assert fake.members[waiting]["LifecycleState"] == "InService"
    count = len(fake.asked)
    assert mine.run().returncode == 0
    assert len(fake.asked) == count, "what was answered is not answered again"


@pytest.mark.thorough
@pytest.mark.parametrize(("fails", "state"), [("slow", GateState.FAILED), ("dies", GateState.UNTOLD)])
def test_an_instance_that_did_not_pass_is_given_up_where_that_is_allowed(
    fake: Any, waiting: str, tmp_path: Path, fails: str, state: GateState
) -> None:
    mine = Instance(fake, waiting, tmp_path, 'on-failure = "abandon"')
    (tmp_path / fails).touch()
    done = mine.run()
    assert done.returncode in (1, 3), done.stderr
    assert mine.state is state
    assert fake.members[waiting]["LifecycleState"] == "Terminating"


@pytest.mark.thorough
def test_a_lost_answer_is_looked_for_and_never_sent_blindly(fake: Any, waiting: str, tmp_path: Path) -> None:
    mine = Instance(fake, waiting, tmp_path)
    fake.next_fault = "lost"
    first = mine.run()
    assert "was not answered" in first.stdout + first.stderr
    assert mine.state is GateState.PASSED
    again = mine.run()
    assert again.returncode == 0
    assert "no lifecycle hook waits" in again.stderr
    assert fake.calls.count("CompleteLifecycleAction") == 1
