"""The repairer of the node keeps the contract: over a client that logs in here, to a node below a directory."""

import time

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.repair import Machine, Rung
from nhc_adapters.node.hand.journal import ENDED, RepairJournal
from nhc_adapters.node.repairer import NodeHand
from tests.support.gpu_node import UUID, GpuNode, remove


class NodeWorld(RepairerWorld):
    rung = Rung.RELOAD_DRIVER
    secrets = ()

    def __init__(self, base):
        self.at = base
        self.node = GpuNode(base / "node")
        self.node.gpus(2, recovery="GPU Reset Required")
        self.node.note("gate", "")
        self.machine = Machine("n1", uuid=UUID)
        settings = {"ssh": str(self.node.ssh(base)), "root": str(self.node.root), "path": str(self.node.path)}
        self.repairer = NodeHand(settings, {}, 20.0)
        self.journal = RepairJournal(str(self.node.root))

    def calls(self):
        return (self.at / "asked").read_text().splitlines() if (self.at / "asked").exists() else []

    def lose_next_answer(self):
        (self.at / "lose").touch()

    def fail_next_call(self):
        (self.at / "break").touch()

    def throttle_next_call(self):
        (self.at / "busy").touch()

    def deny(self):
        (self.at / "no-sudo").touch()

    def vanish(self):
        (self.at / "no-server").touch()

    def stranger(self):
        return self.machine._replace(uuid="00000000-1111-2222-3333-444444444444")

    def take_effect(self):
        remove(self.node.state / "gate")
        self.until_ended()

    def effect_fails(self):
        self.node.note("fail-modprobe--r", "modprobe: FATAL: Module nvidia is in use.")
        self.take_effect()
        return True

    def until_ended(self):
        until = time.monotonic() + 60
        while any(state.phase != ENDED for state in self.journal.states()):
            assert time.monotonic() < until, self.node.calls()
            time.sleep(0.02)


@pytest.mark.thorough
class TestTheNode(RepairerContract):
    @pytest.fixture
    def world(self, tmp_path):
        world = NodeWorld(tmp_path)
        yield world
        world.take_effect()
