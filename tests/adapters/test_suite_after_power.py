"""`verify.suite` after a repair by Redfish and by IPMI, to pass and to failure, over a real sshd."""

from __future__ import annotations

import re
import urllib.request

import pytest

from nhc.marks.ports.repair import Machine, Rung
from nhc_adapters.bmc.redfish import Redfish
from tests.adapters.test_ipmi import IpmiWorld, simulator  # noqa: F401 (a fixture)
from tests.adapters.test_redfish import RedfishWorld, emulator  # noqa: F401 (a fixture)
from tests.remedy.test_proving import SuiteNode, server  # noqa: F401 (a fixture)
from tests.support.new_store import store  # noqa: F401 (a fixture)
from tests.support.suite_after_repair import play

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("passes", [True, False], ids=["passes", "fails"])]


@pytest.fixture
def node(tmp_path, server):  # noqa: F811
    (tmp_path / "node").mkdir()
    return SuiteNode(tmp_path / "node", server)


@pytest.mark.parametrize("rung", [Rung.REBOOT, Rung.POWER_CYCLE])
def test_redfish(rung, passes, store, node, tmp_path):  # noqa: F811
    world = RedfishWorld(tmp_path, rung)
    play(world, passes, store, node)
    world.bmc.close()
    assert world.bmc.resets == 1


class EmulatorWorld:
    """A machine of OpenStack's Redfish emulator."""

    rung = Rung.POWER_CYCLE

    def __init__(self, url):
        listed = urllib.request.urlopen(f"{url}/redfish/v1/Systems", timeout=10).read().decode()
        system = re.findall(r"/redfish/v1/Systems/([0-9a-f-]{36})", listed)[0]
        self.machine, self.repairer = Machine("n1", uuid=system, settings={"bmc": url}), Redfish({}, {}, 10.0)

    def take_effect(self):
        """It does so by itself, after some seconds."""


def test_sushy(passes, store, node, emulator):  # noqa: F811
    world = EmulatorWorld(emulator)
    play(world, passes, store, node)
    assert world.repairer.look(world.machine).power == "On"


@pytest.mark.ipmi
@pytest.mark.parametrize("rung", [Rung.REBOOT, Rung.POWER_CYCLE])
def test_ipmi(rung, passes, store, node, simulator, tmp_path):  # noqa: F811
    play(IpmiWorld(simulator, rung, tmp_path), passes, store, node)
    done = (simulator.at / "done").read_text().splitlines()
    assert done == (["reset"] if rung is Rung.REBOOT else ["power 0", "power 1"])
