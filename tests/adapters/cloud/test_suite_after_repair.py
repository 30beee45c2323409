"""`verify.suite` after a real repair by each cloud: to pass and to failure, over a real sshd or Systems Manager, with
the real loop."""

from __future__ import annotations

import pytest

from nhc.marks.ports.repair import Machine, Rung
from nhc_adapters.cloud.aws.client import Aws, AwsAccess
from nhc_adapters.cloud.aws.repairer import AwsRepairer
from nhc_adapters.cloud.aws.runner import SsmRunner
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.adapters.cloud.test_aws_contract import WORLDS as AWS
from tests.adapters.cloud.test_azure import WORLDS as AZURE
from tests.adapters.cloud.test_google import WORLDS as GOOGLE
from tests.adapters.cloud.test_oracle import WORLDS as ORACLE
from tests.remedy.test_proving import SuiteNode, server  # noqa: F401 (a fixture)
from tests.support.clouds.moto_server import moto_server
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.suite_after_repair import play


class MotoWorld:
    """An instance of moto's that is rebooted. (moto's instances keep their LaunchTime through a stop and a start.)"""

    rung = Rung.REBOOT

    def __init__(self):
        self.moto = moto_server()
        url = self.moto.__enter__()
        aws = Aws(AwsAccess(endpoint=url), ENVIRON, 20.0)
        (image,) = aws.call("ec2", "DescribeImages", MaxResults=5)["Images"][:1]
        made = aws.call("ec2", "RunInstances", ImageId=image["ImageId"], MinCount=1, MaxCount=1)["Instances"][0]
        self.machine = Machine("n1", f"aws:///us-east-1a/{made['InstanceId']}", made["PrivateIpAddress"])
        self.repairer = AwsRepairer({"endpoint": url}, ENVIRON)

    def take_effect(self):
        """moto has done it by the time of the answer."""

    def close(self):
        self.moto.__exit__(None, None, None)


WAYS = {
    "ec2-reboot": AWS["reboot"],
    "ec2-group": AWS["replace-in-group"],
    "ec2-reboot-by-moto": MotoWorld,
    "hyperpod-reboot": AWS["hyperpod-reboot"],
    "hyperpod-replace": AWS["hyperpod-replace"],
    "google-group": GOOGLE["recreate"],
    "azure-restart": AZURE["restart"],
    "aks": AZURE["aks"],
    "oracle-pool": ORACLE["pool"],
}


@pytest.fixture
def node(tmp_path, server):  # noqa: F811
    server.config.write_text(f"Host *\n  HostName 127.0.0.1\n{server.config.read_text()}")
    (tmp_path / "node").mkdir()
    return SuiteNode(tmp_path / "node", server)


@pytest.mark.slow
@pytest.mark.parametrize("passes", [True, False], ids=["passes", "fails"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_node_comes_back_by_its_suite_alone(way, passes, store, node):  # noqa: F811
    cloud = WAYS[way]()
    by = None
    if way == "ec2-reboot":
        given = {"endpoint": cloud.fake.url, "nhc": str(node.place / "nhc"), "directory": f"{node.place}/ssm"}
        by = SsmRunner(given, ENVIRON)
    play(cloud, passes, store, node, by)
    (cloud.close if isinstance(cloud, MotoWorld) else getattr(cloud, "close", cloud.fake.close))()
