"""`verify.suite` after a real repair by each cloud: to pass and to failure, over a real sshd, with the real loop."""

from __future__ import annotations

import pytest

from nhc.model import Action
from nhc.ports.repair import Rung
from nhc.remedy.settings import RepairerSettings
from nhc.store import nodes as store_nodes
from tests.adapters.cloud.test_aws_contract import WORLDS as AWS
from tests.adapters.cloud.test_azure import WORLDS as AZURE
from tests.adapters.cloud.test_google import WORLDS as GOOGLE
from tests.adapters.cloud.test_oracle import WORLDS as ORACLE
from tests.remedy.test_controller import all_episodes, last
from tests.remedy.test_proving import SuiteNode, proved_by, rounds_until, settings
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import Node, Sickness, World
from tests.support.ssh import sshd

WAYS = {
    "ec2-reboot": AWS["reboot"],
    "ec2-group": AWS["replace-in-group"],
    "google-group": GOOGLE["recreate"],
    "azure-restart": AZURE["restart"],
    "aks": AZURE["aks"],
    "oracle-pool": ORACLE["pool"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1"])
        text = running.config.read_text()
        running.config.write_text(f"Host *\n  HostName 127.0.0.1\n{text}")
        yield running


@pytest.fixture
def node(tmp_path, server):
    (tmp_path / "node").mkdir()
    return SuiteNode(tmp_path / "node", server)


@pytest.mark.slow
@pytest.mark.parametrize("passes", [True, False], ids=["passes", "fails"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_node_comes_back_by_its_suite_alone(way, passes, store, node):  # noqa: F811
    cloud, world = WAYS[way](), World(store)
    name = cloud.machine.node
    world.nodes[name] = Node(name)
    with store.write() as connection:
        store_nodes.describe(
            connection,
            [
                store_nodes.NodeDescription(
                    name,
                    provider_id=cloud.machine.provider_id,
                    uuid=cloud.machine.uuid,
                    address=cloud.machine.address,
                    labels=cloud.machine.labels,
                )
            ],
        )
    if not passes:
        (node.place / "slow").touch()
    controller = world.controller(settings(node), suite=proved_by(world, node.runner()))
    (hand,) = controller.hands.crew.hands
    controller.hands.crew.hands[0] = hand._replace(
        settings=RepairerSettings("cloud", "cloud", rungs=frozenset({cloud.rung})), repairer=cloud.repairer
    )
    action = Action.REBOOT if cloud.rung is Rung.REBOOT else Action.REPLACE
    world.fall_sick(name, Sickness(action, cloud.rung))
    begun = []

    def goes_on():
        """What the cloud does, and what the node shows of it."""
        if len(cloud.calls()) > len(begun):
            begun[:] = cloud.calls()
            cloud.take_effect()
            world.nodes[name].boot += 1
            world.nodes[name].sick.clear()
        return all_episodes(world, name) and last(world, name).state in ("returned", "escalated")

    rounds_until(world, controller, goes_on)
    assert last(world, name).state == ("returned" if passes else "escalated"), last(world, name).outcome
    assert world.cleared == ([name] if passes else [])
    assert node.runs() == (1 if passes else 2)  # a failure is looked at twice
    getattr(cloud, "close", cloud.fake.close)()
