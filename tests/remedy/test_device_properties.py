"""Whatever goes wrong where: no device is reset that is not marked, faulty and free; none is repaired twice by one
episode; no mark of ours is left on a device that no episode stands for.

A machine of hypothesis plays faults of devices and of nodes, work, operators, lost answers, proofs that fail, and a
controller that is killed at any of its boundaries.
"""

import contextlib
import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nhc.core.model import Action
from nhc.marks.ports.adapter import DeviceState, Mark
from nhc.marks.ports.repair import Rung
from nhc.remedy import cases
from nhc.store import episodes
from tests.remedy.test_of_device import GPUS, Proofs, broken, loop
from tests.support.new_store import new_store
from tests.support.remedy_world import Killed, Sickness, World

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SETTINGS = """
[drain]
deadline = "10m"
[verify]
healthy-for = "1m"
deadline = "10m"
grace = "0s"
[effect]
reset-device = "5m"
reload-driver = "5m"
reboot = "5m"
power-cycle = "5m"
replace = "5m"
[limits]
first-run = "100%"
attempts = 30
leave-alone = "1m"
"""
NUMBERS = st.sampled_from([2, 3, 5])


class Devices(RuleBasedStateMachine):
    """One node of eight GPUs beside others that nothing befalls."""

    @initialize()
    def begins(self):
        self.stack = contextlib.ExitStack()
        place = self.stack.enter_context(tempfile.TemporaryDirectory(dir=SHARED))
        store = new_store(place)
        self.stack.callback(store.close)
        self.world = World(store, 2)
        for node in self.world.nodes.values():
            node.devices = {gpu.pci: DeviceState(node.name, gpu) for gpu in GPUS}
        self.node, self.seen, self.wrong = self.world.nodes["n1"], 0, []
        self.world.at_boundary = self.before_it_is_sent
        self.proofs = Proofs(self.world)
        self.controller = loop(self.world, SETTINGS, suite=self.proofs)

    def before_it_is_sent(self, what):
        """What a reset reaches is judged at the moment at which it is sent."""
        if what != "after a repair is sent":
            return
        sent = self.world.sent[-1]
        state = self.node.devices.get(sent.device)
        if sent.node != "n1":
            self.wrong.append(f"{sent} reached a node that nothing befell")
        elif self.node.available and sent.rung is not Rung.RESET_DEVICE:
            self.wrong.append(f"{sent} reached a node that is in service")
        elif self.node.available and (state is None or state.mark is None or not state.mark.ours or state.busy):
            self.wrong.append(f"{sent} reached {state}")

    @rule(number=NUMBERS, cure=st.sampled_from([Rung.RESET_DEVICE, Rung.REBOOT]),
          action=st.sampled_from([Action.RESET_DEVICE, Action.REBOOT]))  # fmt: skip
    def a_device_fails(self, number, cure, action):
        self.world.tick()
        self.world.fall_sick("n1", broken(number, cure=cure, action=action))

    @rule()
    def the_node_fails(self):
        self.world.tick()
        self.world.fall_sick("n1", Sickness(Action.REBOOT, Rung.REBOOT, "FsReadOnly", "/"))

    @rule(number=NUMBERS, busy=st.booleans())
    def work(self, number, busy):
        pci = GPUS[number].pci
        if self.node.devices[pci].mark is None or not busy:  # a marked device is given none
            self.node.devices[pci] = self.node.devices[pci]._replace(busy=busy)

    @rule(wrong=st.booleans())
    def proofs_fail(self, wrong):
        self.proofs.wrong = wrong

    @rule(number=NUMBERS)
    def somebody_takes_the_mark_off(self, number):
        pci = GPUS[number].pci
        self.node.devices[pci] = self.node.devices[pci]._replace(mark=None)

    @rule(number=NUMBERS)
    def somebody_marks_a_device(self, number):
        pci = GPUS[number].pci
        if self.node.devices[pci].mark is None:
            self.node.devices[pci] = self.node.devices[pci]._replace(mark=Mark("theirs", owner="bob"))

    @rule(mood=st.sampled_from(["lost", "dropped", "refused", "throttled"]))
    def an_answer(self, mood):
        self.world.lose.append(mood)

    @rule(rounds=st.integers(1, 6))
    def rounds(self, rounds):
        self.world.run(self.controller, rounds)

    @rule(at=st.integers(1, 40))
    def is_killed(self, at):
        self.world.kill_at = self.world.boundaries + at
        with contextlib.suppress(Killed):
            self.world.run(self.controller, 3)
        self.world.kill_at = -1
        self.controller = loop(self.world, SETTINGS, suite=self.proofs)

    @invariant()
    def nothing_else_was_reached(self):
        assert getattr(self, "wrong", []) == []

    @invariant()
    def each_mark_of_ours_has_its_episode(self):
        if not hasattr(self, "world"):
            return
        ours = [one.device for one in self.node.devices.values() if one.mark is not None and one.mark.ours]
        with self.world.plain.read() as connection:
            rows = episodes.list_episodes(connection, node="n1")
        for device in ours:
            stands = [row for row in rows if any(
                one.known and one.same(device) for one in (cases.about_of(row), cases.details.read(row.detail).widened)
            )]  # fmt: skip
            assert any(row.ended is None or row.state in ("escalated", "aborted", "withdrawn") for row in stands)

    def teardown(self):
        if hasattr(self, "stack"):
            self.world.lose, self.proofs.wrong = [], False
            self.world.run(self.controller, 80)
            with self.world.plain.read() as connection:
                rows = episodes.list_episodes(connection, node="n1", is_open=True)
            assert not rows or any(one.busy for one in self.node.devices.values()), rows
            self.stack.close()


TestDevices = pytest.mark.thorough(Devices.TestCase)
TestDevices.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
