"""A read that fails says nothing of the machine: the loop waits, whichever cloud it is, and sends no harder repair."""

from __future__ import annotations

import time

import pytest

from nhc.marks.ports.repair import Answer, AskLater, Order, RightMissing, Rung, Sent, Stage
from nhc.remedy.settings import RepairerSettings
from nhc.store import attempts
from nhc.store import nodes as store_nodes
from tests.adapters.cloud.test_aws_contract import AwsWorld
from tests.adapters.cloud.test_azure import AzureWorld
from tests.adapters.cloud.test_google import GoogleWorld
from tests.adapters.cloud.test_oracle import OracleWorld
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.remedy_world import World

CLOUDS = {"aws": AwsWorld, "azure": AzureWorld, "google": GoogleWorld, "oracle": OracleWorld}
SENT = Sent(Answer.AMBIGUOUS, "the loop stopped before it knew the answer")


@pytest.fixture(params=list(CLOUDS))
def cloud(request):
    made = CLOUDS[request.param](Rung.REBOOT)
    yield made
    getattr(made, "close", made.fake.close)()


def order(of, rung=Rung.REBOOT):
    return Order("6b1f0a52-5f3c-4b57-9a3f-1f0e2d3c4b5a", "17", 1, of, rung, "GpuFallenOffBus")


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", ["throttled", "error"])
def test_a_read_that_failed_is_no_fact_about_the_machine(cloud, wrong):
    cloud.repairer.look(cloud.machine)  # it has its token by now
    cloud.fake.next_reads = [wrong]
    with pytest.raises(AskLater) as raised:
        cloud.repairer.can(cloud.machine, Rung.REBOOT)
    assert raised.value.retry_after > 0
    assert cloud.repairer.can(cloud.machine, Rung.REBOOT) == ""
    cloud.fake.next_reads = [wrong]
    sent = cloud.repairer.send(order(cloud.machine))
    assert (sent.answer, sent.retry_after > 0, sent.by_machine) == (Answer.REFUSED, True, False), sent
    assert cloud.calls() == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["aws", "azure", "google"])
def test_a_read_that_is_not_allowed_names_the_right(kind):
    """Oracle tells those who may not look that there is nothing."""
    cloud = CLOUDS[kind](Rung.REBOOT)
    cloud.repairer.look(cloud.machine)
    cloud.fake.next_reads = ["denied", "denied"]
    with pytest.raises(RightMissing) as raised:
        cloud.repairer.can(cloud.machine, Rung.REBOOT)
    assert raised.value.right in ("ec2:DescribeInstances", "virtualMachines/read", "compute.instances.get")
    assert cloud.repairer.send(order(cloud.machine)).right == raised.value.right
    cloud.fake.close()


@pytest.mark.parametrize(
    ("kind", "rung"),
    [("aws", Rung.POWER_CYCLE), ("azure", Rung.REBOOT), ("azure", Rung.POWER_CYCLE), ("google", Rung.REBOOT)],
)
def test_a_cloud_proves_that_an_order_has_never_arrived(kind, rung):
    cloud = CLOUDS[kind](rung)
    before = cloud.repairer.look(cloud.machine)
    todo = order(cloud.machine, rung)
    assert cloud.repairer.progress(todo, SENT, before).stage is Stage.WORKING
    long_ago = before._replace(at=time.time() - 1000)
    assert cloud.repairer.progress(todo, SENT, long_ago).stage is Stage.NOT_BEGUN
    cloud.fake.next_fault = "lost"  # it arrives, and its answer does not
    lost = cloud.repairer.send(todo)
    assert cloud.repairer.progress(todo, lost, long_ago).stage is not Stage.NOT_BEGUN
    cloud.fake.close()


def test_an_update_of_an_azure_machine_by_somebody_else_is_not_our_restart():
    cloud = AzureWorld(Rung.REBOOT)
    before = cloud.repairer.look(cloud.machine)
    todo = order(cloud.machine)
    sent = cloud.repairer.send(todo)
    cloud.fake.update_by_somebody()
    assert cloud.repairer.progress(todo, sent, before).stage is Stage.WORKING
    assert cloud.repairer.progress(todo, SENT, before).stage is Stage.WORKING
    cloud.fake.settle()
    assert cloud.repairer.progress(todo, sent, before).stage is Stage.DONE
    cloud.fake.close()


@pytest.mark.thorough
def test_the_loop_on_ec2_stays_with_a_reboot_while_ec2_is_throttled(store):  # noqa: F811
    cloud = AwsWorld(Rung.REBOOT)
    world = World(store)
    with store.write() as connection:
        store_nodes.describe(connection, [store_nodes.NodeDescription("n1", provider_id=cloud.machine.provider_id)])
    controller = world.controller("[effect]\nreboot = '1h'")
    entry = controller.flow.actuators.repairers.entries[0]
    controller.flow.actuators.repairers.entries[0] = entry._replace(
        settings=RepairerSettings("aws", "aws"), repairer=cloud.repairer
    )
    world.fall_sick("n1")
    for reads, fault in ((["throttled"] * 3, ""), (["throttled"], "throttled"), ([], "throttled"), ([], "throttled")):
        cloud.fake.next_reads, cloud.fake.next_fault = list(reads), fault
        world.run(controller, 8, 45)
    world.run(controller, 20, 45)
    assert set(cloud.calls()) == {"RebootInstances"}
    with world.read() as connection:
        outcomes = [(one.rung, one.outcome) for one in attempts.attempts_of(connection, 1)]
    assert outcomes[:-1] == [("reboot", "refused")] * (len(outcomes) - 1)
    assert outcomes[-1][0] == "reboot"
    cloud.fake.close()
