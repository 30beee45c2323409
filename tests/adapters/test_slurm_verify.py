"""The loop on a real Slurm with a real sshd: the deep suite passes or fails, and quiet hours hold the reboot."""

from __future__ import annotations

import time

import pytest

from tests.remedy.test_proving import SuiteNode, server  # noqa: F401 (a fixture)
from tests.support.slurm_remedy import Service, served
from tests.support.waiting import until


@pytest.fixture
def node(tmp_path, server):  # noqa: F811
    (tmp_path / "node").mkdir()
    return SuiteNode(tmp_path / "node", server)


def verified_by(node):
    return f"""suite = "{node.suite}"
suite-limit = "10m"
[verify.ssh]
config = "{node.server.config}"
nhc = "{node.place}/nhc"
user = "root"
sudo = "no"
"""


def rebooted(service, cluster, name):
    """Let the loop reboot the node, which then reports itself as healthy."""
    until(lambda: "REBOOT_ISSUED" in cluster.show(name)["State"], 90, what="the reboot", said=service.log)
    issued = time.time()
    until(lambda: time.time() > issued + 3, what="the last boot to be past")
    cluster.boot_node(name)


def reporting(service, what):
    def step():
        service.report("boot2", sick=False)
        time.sleep(0.2)
        return what()

    return step


def test_a_node_whose_suite_passes_is_resumed_and_not_before(cluster, tmp_path, node):
    (node.place / "hold").touch()
    with served(Service(tmp_path, cluster, "n1", verify=verified_by(node))) as service:
        service.report("boot1", sick=True)
        service.start()
        rebooted(service, cluster, "n1")
        until(reporting(service, node.runs), 90, what="the suite to run", said=service.log)
        assert (cluster.state("n1"), service.state()) == ("drain", "verifying")
        (node.place / "hold").unlink()
        until(reporting(service, lambda: service.state() == "returned"), 90, what="the node", said=service.log)
        until(lambda: cluster.state("n1") == "idle", 30, what="the node to be in service")
        assert node.runs() == 1


def test_a_node_whose_suite_fails_stays_out_though_it_reports_itself_healthy(cluster, tmp_path, node):
    (node.place / "slow").touch()
    with served(Service(tmp_path, cluster, "n2", verify=verified_by(node))) as service:
        service.report("boot1", sick=True)
        service.start()
        rebooted(service, cluster, "n2")
        until(reporting(service, lambda: service.state() == "escalated"), 120, what="a person", said=service.log)
        assert cluster.show("n2")["State"] == "IDLE+DRAIN"
        assert cluster.reason("n2").startswith("NHC-REMEDY: ")
        assert [(one.rung, one.outcome) for one in service.states()[1]] == [("reboot", "succeeded")]


def test_in_quiet_hours_the_node_is_drained_and_not_rebooted(cluster, tmp_path):
    quiet = '[quiet-hours]\nhours = ["Mon-Sun 00:00-24:00"]\nactions = ["reboot"]\n'
    with served(Service(tmp_path, cluster, "n3", more=quiet)) as service:
        service.report("boot1", sick=True)
        service.start()
        until(lambda: service.state() == "recheck", 90, what="the loop to wait", said=service.log)
        seen = time.time()
        until(lambda: time.time() > seen + 3, what="some rounds to pass")
        assert (service.state(), cluster.show("n3")["State"]) == ("recheck", "IDLE+DRAIN")
        shown = service.nhc("list", "episodes").stdout
        assert "quiet" in shown or "hours" in shown
