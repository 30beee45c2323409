"""Every way in which the AWS repairer repairs keeps the contract of repairers, against AWS on loopback."""

from __future__ import annotations

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.repair import Machine, Rung
from nhc_adapters.cloud.aws.repairer import AwsRepairer
from tests.support.clouds.aws import FakeAws

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
ENVIRON = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


class AwsWorld(RepairerWorld):
    secrets = (SECRET, ENVIRON["AWS_ACCESS_KEY_ID"])
    made_by = AwsRepairer

    def __init__(self, rung, group="", in_hyperpod=False, sees=True, names=True, **settings):
        self.fake, self.rung, self.hyperpod, self.sees_effect = FakeAws(), rung, in_hyperpod, sees
        self.names_replacement = names
        if in_hyperpod:
            one = self.fake.node()
            provider = f"aws:///use1-az1/sagemaker/cluster/hyperpod-abcdefghijkl-{one}"
            self.machine = Machine(
                f"hyperpod-{one}", provider, labels={"sagemaker.amazonaws.com/instance-group-name": "gpus"}
            )
        else:
            one = self.fake.instance(group)
            self.machine = Machine("n1", f"aws:///us-east-1a/{one}", self.fake.instances[one]["PrivateIpAddress"])
        self.one = one
        given = {"endpoint": self.fake.url, "respect-grace-period": "no", **settings}
        self.repairer = AwsRepairer(given, ENVIRON, 5.0)

    def calls(self):
        return self.fake.calls

    def lose_next_answer(self):
        self.fake.next_fault = "lost"

    def fail_next_call(self):
        self.fake.next_fault = "error"

    def throttle_next_call(self):
        self.fake.next_fault = "throttled"

    def deny(self):
        self.fake.denied = True

    def vanish(self):
        self.fake.vanish()

    def stranger(self):
        if self.hyperpod:  # the cluster has replaced it: the id is of no node any more
            gone = "i-0000000000000dead"
            return self.machine._replace(
                node=f"hyperpod-{gone}", provider_id=self.machine.provider_id.replace(self.one, gone)
            )
        return self.machine._replace(address="10.9.9.9")

    def take_effect(self):
        self.fake.settle()

    def effect_fails(self):
        if self.hyperpod:
            self.fake.nodes[self.one].update(Status="Failure", Message="the lifecycle script failed")
        elif self.rung is Rung.REPLACE:
            return False  # a group tries again for ever
        else:
            self.fake.instances[self.one]["State"] = "terminated"
        return True


WORLDS = {
    "reboot": lambda: AwsWorld(Rung.REBOOT, sees=False),
    "power-cycle": lambda: AwsWorld(Rung.POWER_CYCLE),
    "replace-in-group": lambda: AwsWorld(Rung.REPLACE, "workers"),
    "standby": lambda: AwsWorld(Rung.REPLACE, "workers", **{"in-group": "standby"}),
    "terminate-in-group": lambda: AwsWorld(Rung.REPLACE, "workers", **{"in-group": "terminate"}),
    "stop-start": lambda: AwsWorld(Rung.REPLACE, alone="stop-start"),
    "terminate": lambda: AwsWorld(Rung.REPLACE, alone="terminate", names=False),
    "hyperpod-reboot": lambda: AwsWorld(Rung.REBOOT, in_hyperpod=True, sees=False, hyperpod="api"),
    "hyperpod-replace": lambda: AwsWorld(Rung.REPLACE, in_hyperpod=True, hyperpod="api"),
}


#: One of each service. To make botocore's client takes longer than all else: the other worlds are for `make test`.
QUICK = {"reboot", "hyperpod-replace"}


@pytest.fixture(params=[pytest.param(one, marks=[] if one in QUICK else pytest.mark.thorough) for one in WORLDS])
def world(request):
    made = WORLDS[request.param]()
    yield made
    made.fake.close()
    assert made.fake.wrong == [], "what AWS's own model does not allow"


class TestAws(RepairerContract):
    pass
