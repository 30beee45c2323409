"""Power by the real ipmitool, on a controller that OpenIPMI's ipmi_sim plays, by the contract of repairers."""

import re
import subprocess

import pytest

from nhc.core.system.process import Completed
from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, EvidenceBudget, Machine, Order, Rung, Stage
from nhc.node.facts.bmc import parse_lan
from nhc_adapters._command import run_command
from nhc_adapters.bmc.access import forms
from nhc_adapters.bmc.ipmi import Ipmi
from tests.support.ipmi_sim import UUID, IpmiSimulator

POWER = """\
#!/bin/sh
# ipmi_sim asks for its chassis: CONTROLLER get power, or set power 0|1, set reset 1. The power is one file.
at={at}
shift
while [ $# -gt 0 ]; do
  case "$1 $2" in
    "get power") echo "power:$(cat $at/power)"; shift 2 ;;
    "set power") echo "$3" >$at/power; echo "power $3" >>$at/done; shift 3 ;;
    "set reset") echo reset >>$at/done; shift 3 ;;
    "check "*|"get boot") echo "boot:none"; shift 2 ;;
    *) shift ;;
  esac
done
"""
WORDS = ("reset", "off", "on")


class PoweredSimulator(IpmiSimulator):
    """ipmi_sim with a chassis whose power is a file."""

    def __init__(self, at):
        (at / "power").write_text("1\n")
        (at / "chassis").write_text(POWER.format(at=at))
        (at / "chassis").chmod(0o755)
        super().__init__(at, str(at / "chassis"))


class Wire:
    """Runs the real ipmitool; the next power command can go wrong on its way."""

    def __init__(self):
        self.calls, self.fault, self.denied = [], "", False

    def __call__(self, argv, timeout, env):
        assert "test" not in argv  # the password
        if argv[-2] != "power" or argv[-1] not in WORDS:
            return run_command(argv, timeout, env)
        if self.denied:
            return Completed(1, "", "Set Chassis Power Control to Reset failed: Insufficient privilege level\n")
        self.calls.append(argv[-1])
        fault, self.fault = self.fault, ""
        if fault == "error":
            return Completed(1, "", "Set Chassis Power Control to Reset failed: Unspecified error\n")
        if fault == "busy":
            return Completed(1, "", "Set Chassis Power Control to Reset failed: Node busy\n")
        done = run_command(argv, timeout, env)
        return Completed(-15, "", "", timed_out=True) if fault == "lost" else done


class IpmiWorld(RepairerWorld):
    secrets = ("test-password",)
    sees_effect = False

    def __init__(self, simulator, rung, at):
        self.simulator, self.rung, self.wire = simulator, rung, Wire()
        (at / "password").write_text("test\n")
        self.machine = Machine("n1", uuid=UUID)
        self.repairer = Ipmi(
            {"bmc": "127.0.0.1", "port": str(simulator.port), "interface": "lan", "user": "admin",
             "password-file": str(at / "password"), "doctor": "127.0.0.1"}, {}, 1.0, self.wire)  # fmt: skip
        self.repairer.command.timeout = 20.0  # of the command as a whole; one second is for each answer

    def calls(self):
        return self.wire.calls

    def lose_next_answer(self):
        self.wire.fault = "lost"

    def fail_next_call(self):
        self.wire.fault = "error"

    def throttle_next_call(self):
        self.wire.fault = "busy"

    def deny(self):
        self.wire.denied = True

    def vanish(self):
        self.simulator.stop()

    def stranger(self):
        return self.machine._replace(uuid="b1234567-89ab-cdef-a123-456789abcdef")

    def take_effect(self):
        """The chassis has done it by the time of the answer."""


@pytest.fixture
def simulator(tmp_path):
    at = tmp_path / "bmc"
    at.mkdir()
    running = PoweredSimulator(at)
    yield running
    running.stop()


class TestReset(RepairerContract):
    @pytest.fixture
    def world(self, simulator, tmp_path):
        return IpmiWorld(simulator, Rung.REBOOT, tmp_path)


class TestPowerCycle(RepairerContract):
    @pytest.fixture
    def world(self, simulator, tmp_path):
        world = IpmiWorld(simulator, Rung.POWER_CYCLE, tmp_path)
        world.sees_effect = True
        return world

    # The chassis of the simulator is off at once, and off is not the end.
    def test_an_order_that_never_arrived_is_not_done(self, world):
        super().test_an_order_that_never_arrived_is_not_done(world)


def test_a_power_cycle_is_off_and_on(simulator, tmp_path):
    world = IpmiWorld(simulator, Rung.POWER_CYCLE, tmp_path)
    cycle = Order("0b1f", "17", 1, world.machine, Rung.POWER_CYCLE, "GpuLost")
    before = world.repairer.look(world.machine)
    assert not forms(before.instance).isdisjoint(forms(UUID))  # IPMI shows it in another byte order
    assert before.power == "on"

    sent = world.repairer.send(cycle)
    assert world.repairer.look(world.machine).power == "off"
    assert world.repairer.progress(cycle, sent, before).stage is Stage.HALFWAY
    sent = world.repairer.complete(cycle, sent)

    assert world.repairer.progress(cycle, sent, before).stage is Stage.DONE
    assert (simulator.at / "done").read_text().splitlines() == ["power 0", "power 1"]


def test_a_controller_that_shows_no_guid_is_used_only_where_the_site_says_so(simulator, tmp_path):
    world = IpmiWorld(simulator, Rung.REBOOT, tmp_path)
    nameless = Machine("n1")

    assert "cannot be compared" in world.repairer.can(nameless, Rung.REBOOT)
    trusting = Ipmi({"bmc": "127.0.0.1", "identity": "trust"})
    assert trusting.can(nameless, Rung.REBOOT) == ""


def test_the_log_of_the_controller_is_evidence(simulator, tmp_path):
    world = IpmiWorld(simulator, Rung.REBOOT, tmp_path)

    names = [piece.name for piece in world.repairer.evidence(world.machine, EvidenceBudget())]

    assert names[:1] == ["bmc-sel.txt"]


def test_a_password_file_that_is_missing_is_named():
    sent = Ipmi({"bmc": "127.0.0.1", "password-file": "/nonexistent/password"}).send(
        Order("k", "1", 1, Machine("n1", uuid=UUID), Rung.REBOOT, "")
    )

    assert sent.answer is Answer.REFUSED
    assert "/nonexistent/password: No such file" in sent.message


def test_a_port_that_is_no_number_is_named():
    with pytest.raises(AdapterError, match=r"^port: 'abc' is not a whole number"):
        Ipmi({"port": "abc"})


def test_a_response_that_could_not_be_provided_proves_nothing(tmp_path):
    """Completion code CEh (IPMI 2.0, table 5-2): the command was taken, and only its answer is missing."""
    said = "Set Chassis Power Control to Reset failed: Command response could not be provided\n"

    def run(argv, _timeout, _env):
        return Completed(1, "", said) if argv[-1] == "reset" else Completed(0, f"System GUID  : {UUID}\n", "")

    (tmp_path / "password").write_text("test\n")
    mine = Ipmi({"bmc": "127.0.0.1", "password-file": str(tmp_path / "password")}, {}, 5.0, run)
    sent = mine.send(Order("k", "1", 1, Machine("n1", uuid=UUID), Rung.REBOOT, ""))
    assert (sent.answer, sent.retry_after) == (Answer.AMBIGUOUS, 0.0)


@pytest.mark.slow
def test_a_controller_that_does_not_answer_which_cipher_suites_it_has_is_reached(simulator, tmp_path):
    """ipmi_sim is one: it leaves Get Channel Cipher Suites unanswered, which lanplus asks for by default."""
    (tmp_path / "password").write_text("test\n")
    settings = {
        "bmc": "127.0.0.1",
        "port": str(simulator.port),
        "user": "admin",
        "password-file": f"{tmp_path}/password",
    }
    machine = Machine("n1", uuid=UUID)
    sent = Ipmi(settings, {}, 15.0).send(Order("0b1f", "17", 1, machine, Rung.REBOOT, "GpuLost"))
    assert sent.answer is Answer.ACCEPTED, sent
    assert (simulator.at / "done").read_text().split() == ["reset"]


REPORTED = {"bmc": "{bmc}", "bmc-networks": "127.0.0.0/8, 10.9.0.0/16"}


def test_a_reports_address_is_asked_within_the_networks_that_the_settings_name(simulator, tmp_path):
    (tmp_path / "password").write_text("test\n")
    repairer = Ipmi({**REPORTED, "port": str(simulator.port), "interface": "lan", "user": "admin",
                     "password-file": str(tmp_path / "password")}, {}, 20.0)  # fmt: skip
    machine = Machine("n1", uuid=UUID, labels={"machine/bmc": "127.0.0.1"})
    assert repairer.can(machine, Rung.POWER_CYCLE) == ""
    assert repairer.look(machine).power == "on"
    elsewhere = machine._replace(labels={"machine/bmc": "192.0.2.7"})
    assert repairer.can(elsewhere, Rung.POWER_CYCLE) == (
        "its report names the controller 192.0.2.7, which is in none of bmc-networks"
    )
    silent = machine._replace(labels={})
    assert repairer.can(silent, Rung.REBOOT) == (
        "no report of n1 names its controller (machine/bmc), and it has no setting bmc"
    )
    assert repairer.can(silent._replace(settings={"bmc": "127.0.0.1"}), Rung.REBOOT) == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bmc": "{bmc}"}, "bmc-networks: missing"),
        (
            {**REPORTED, "bmc-networks": "10.9.0.1/16"},
            "bmc-networks: '10.9.0.1/16' is not networks such as 10.9.0.0/16",
        ),
        ({**REPORTED, "identity": "trust"}, "identity: trust: the address is a report's word"),
    ],
)
def test_a_reports_address_is_not_believed_without_bounds(settings, said):
    with pytest.raises(AdapterError, match=f"^{re.escape(said)}"):
        Ipmi(settings, {}, 1.0)


def test_ipmitool_prints_the_controllers_address_as_it_is_read(simulator):
    done = subprocess.run([*simulator.tool, "lan", "print", "1"], capture_output=True, text=True, timeout=60)
    assert "IP Address" in done.stdout, done.stderr
    assert parse_lan(done.stdout) in ("", "127.0.0.1")
