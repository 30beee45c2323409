"""Repairs by Redfish: the contract of repairers, against a service of our own and against sushy-emulator."""

import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Stage
from nhc_adapters.bmc.access import differs, forms
from nhc_adapters.bmc.redfish import Redfish
from tests.support.ports import free_ports
from tests.support.redfish import Controller
from tests.support.require import need
from tests.support.waiting import until


class RedfishWorld(RepairerWorld):
    secrets = ("correct horse",)

    def __init__(self, directory, rung, **kinds):
        self.bmc, self.rung = Controller(**kinds), rung
        self.machine = Machine("n1", uuid=self.bmc.uuid, settings={"bmc": self.bmc.url})
        password = directory / "password"
        password.write_text("correct horse\n")
        self.settings = {"user": "nhc", "password-file": str(password), "doctor": self.bmc.url}
        self.repairer = Redfish(self.settings, {}, 5.0)

    def calls(self):
        return self.bmc.calls

    def lose_next_answer(self):
        self.bmc.next = "lost"

    def fail_next_call(self):
        self.bmc.next = "error"

    def throttle_next_call(self):
        self.bmc.next = "busy"

    def deny(self):
        self.bmc.role = "ReadOnly"

    def vanish(self):
        self.bmc.close()

    def stranger(self):
        return self.machine._replace(uuid="564d2f6c-9999-2222-3333-444455556666")

    def take_effect(self):
        self.bmc.take_effect()


@pytest.fixture
def make(tmp_path):
    worlds = []

    def one(rung, **kinds):
        worlds.append(RedfishWorld(tmp_path, rung, **kinds))
        return worlds[-1]

    yield one
    for world in worlds:
        world.bmc.close()


class TestReset(RepairerContract):
    @pytest.fixture
    def world(self, make):
        return make(Rung.REBOOT)


class TestPowerCycle(RepairerContract):
    @pytest.fixture
    def world(self, make):
        return make(Rung.POWER_CYCLE)


class TestPowerCycleByOffAndOn(RepairerContract):
    """A controller that offers no PowerCycle."""

    @pytest.fixture
    def world(self, make):
        return make(Rung.POWER_CYCLE, kinds=("On", "ForceOff", "ForceRestart"))


class TestTasksWithoutSessions(RepairerContract):
    """A service that answers 202 with a task, and takes the password with each request."""

    @pytest.fixture
    def world(self, make):
        world = make(Rung.REBOOT, sessions=False, tasks=True)

        def fails():
            world.bmc.task_state = "Exception"
            return True

        world.effect_fails = fails
        return world


def order(world):
    return Order("0b1f", "17", 1, world.machine, world.rung, "GpuLost: gpu3")


@pytest.mark.thorough
def test_every_session_is_closed_again(make):
    world = make(Rung.REBOOT)

    world.repairer.look(world.machine)
    world.repairer.send(order(world))
    world.bmc.next = "error"
    world.repairer.send(order(world))

    assert world.bmc.opened == 0


@pytest.mark.thorough
def test_a_power_that_is_cut_is_off_before_it_is_on(make):
    world = make(Rung.POWER_CYCLE, kinds=("On", "ForceOff"))
    before = world.repairer.look(world.machine)
    sent = world.repairer.send(order(world))
    assert world.repairer.progress(order(world), sent, before).stage is Stage.WORKING
    world.take_effect()
    assert world.repairer.progress(order(world), sent, before).stage is Stage.HALFWAY

    sent = world.repairer.complete(order(world), sent)
    world.take_effect()

    assert world.bmc.calls == ["ForceOff", "On"]
    assert world.repairer.progress(order(world), sent, before).stage is Stage.DONE


@pytest.mark.thorough
def test_a_controller_that_offers_nothing_fit_is_refused(make):
    world = make(Rung.POWER_CYCLE, kinds=("On", "Nmi"))

    sent = world.repairer.send(order(world))

    assert (sent.answer, world.bmc.calls) == (Answer.REFUSED, [])
    assert "offers none of PowerCycle, ForceOff: On, Nmi" in sent.message


def test_a_target_on_another_host_gets_no_token(make):
    world = make(Rung.REBOOT)
    world.bmc.elsewhere = "http://127.0.0.2:1/redfish/v1/x"

    sent = world.repairer.send(order(world))

    assert sent.answer is Answer.REFUSED
    assert "points to another place" in sent.message


def test_a_user_without_the_privilege_is_seen_by_the_doctor(make):
    world = make(Rung.REBOOT)
    world.bmc.role = "ReadOnly"

    assert [(right.granted, right.message) for right in world.repairer.rights()] == [(False, "nhc has Login")]


@pytest.mark.thorough
def test_a_wrong_password_is_refused_and_not_shown(make, tmp_path):
    world = make(Rung.REBOOT)
    (tmp_path / "password").write_text("wrong horse")

    sent = world.repairer.send(order(world))

    assert sent.answer is Answer.REFUSED
    assert "HTTP 401: wrong user or password" in sent.message
    assert "wrong horse" not in sent.message


def test_the_log_is_evidence(make):
    world = make(Rung.REBOOT)

    pieces = list(world.repairer.evidence(world.machine, EvidenceBudget()))

    assert [piece.name for piece in pieces] == ["bmc-log-Sel.txt"]
    assert b"PCIe fatal error 39" in pieces[0].content


@pytest.mark.parametrize("address", ["http://10.1.2.3", "ftp://x", "10.1.2.3"])
def test_a_password_goes_to_no_address_without_tls(address):
    sent = Redfish({"user": "nhc"}).send(
        Order(
            "k",
            "1",
            1,
            Machine("n1", uuid="564d2f6c-1111-2222-3333-444455556666", settings={"bmc": address}),
            Rung.REBOOT,
            "",
        )
    )

    assert sent.answer is Answer.REFUSED
    assert "https://" in sent.message


def test_a_uuid_is_known_in_every_byte_order():
    ours = "33221100-5544-7766-8899-aabbccddeeff"

    assert forms(ours) == forms("00112233-4455-6677-8899-aabbccddeeff")
    assert not differs(Machine("n1", uuid=ours), "00112233-4455-6677-8899-aabbccddeeff", "bmc")
    assert "another machine" in differs(Machine("n1", uuid=ours), "00112233-4455-6677-8899-aabbccddee00", "bmc")
    assert "cannot be compared" in differs(Machine("n1", uuid="0" * 32), ours, "bmc")
    assert "shows no UUID" in differs(Machine("n1", uuid=ours), "", "bmc")


# The second opinion.


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """OpenStack's Redfish emulator with its fake machines."""
    at = tmp_path_factory.mktemp("sushy")
    port = free_ports(1)[0]
    (at / "emulator.conf").write_text(
        f"SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\n"
        f"SUSHY_EMULATOR_LISTEN_PORT = {port}\nSUSHY_EMULATOR_STATE_DIR = {str(at)!r}\n"
    )
    program = os.path.join(os.path.dirname(sys.executable), "sushy-emulator")
    need("sushy-emulator", os.path.exists(program), "the package sushy-tools, for Python 3.10 and newer")
    log = (at / "log").open("wb")
    running = subprocess.Popen([program, "--config", at / "emulator.conf"], stdout=log, stderr=log, cwd=at)
    log.close()
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/redfish/v1/", timeout=5).close()
            break
        except OSError:
            if running.poll() is not None or time.monotonic() > until:
                running.kill()
                pytest.fail(f"sushy-emulator does not answer:\n{(at / 'log').read_text()[-2000:]}")
    yield f"http://127.0.0.1:{port}"
    running.terminate()
    running.wait(60)


@pytest.mark.slow
def test_a_machine_of_the_emulator_is_switched_off_and_on(emulator):
    listed = urllib.request.urlopen(f"{emulator}/redfish/v1/Systems", timeout=10).read().decode()
    system = re.findall(r"/redfish/v1/Systems/([0-9a-f-]{36})", listed)[0]
    machine = Machine("n1", uuid=system, settings={"bmc": emulator})
    repairer = Redfish({}, {}, 10.0)
    cycle = Order("0b1f", "17", 1, machine, Rung.POWER_CYCLE, "GpuLost")
    before = repairer.look(machine)
    assert before.instance == system

    def wait_until(stage, sent):
        def progress():
            return repairer.progress(cycle, sent, before)

        return until(lambda: (seen := progress()).stage is stage and seen, 60, what=stage.value, said=progress)

    sent = repairer.send(cycle)  # it lists PowerCycle and answers 501: the power is switched off and on
    assert (sent.answer, sent.request_id) == (Answer.ACCEPTED, "ForceOff"), sent
    wait_until(Stage.HALFWAY, sent)
    sent = repairer.complete(cycle, sent)
    assert sent.answer is Answer.ACCEPTED, sent
    assert "again" in wait_until(Stage.DONE, sent).message


def test_a_repair_that_redfish_has_not_says_so():
    assert Redfish({}).can(Machine("n1"), Rung.REPLACE) == "Redfish has no replace"
    with pytest.raises(AdapterError, match="no management controller of n1 is known"):
        Redfish({}).look(Machine("n1"))


@pytest.mark.thorough
def test_a_controller_with_a_name_of_its_own_loses_no_session_and_its_task_is_seen(tmp_path):
    """Controllers write a host name that only they have into Location; each session that stays open is one of a few."""
    world = RedfishWorld(tmp_path, Rung.REBOOT, tasks=True)
    world.bmc.own_name = "https://bmc.factory"
    try:
        order = Order("0b1f", "17", 1, world.machine, Rung.REBOOT, "GpuLost")
        before = world.repairer.look(world.machine)
        sent = world.repairer.send(order)
        assert sent.answer is Answer.ACCEPTED, sent
        assert world.repairer.progress(order, sent, before).stage is Stage.WORKING
        world.take_effect()
        assert world.repairer.progress(order, sent, before).stage is Stage.DONE
        assert world.bmc.opened == 0
    finally:
        world.bmc.close()
