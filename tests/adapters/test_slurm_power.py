"""Repairs through a real slurmctld: its RebootProgram and its power saving, by the contract of repairers."""

import re
import subprocess
import time

import pytest

from nhc.core.system.process import Completed
from nhc.lab.testing.repairers import RepairerContract, RepairerWorld
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.repair import Answer, Machine, Order, Rung, Sent, Sighting, Stage
from nhc_adapters._command import run_command
from nhc_adapters.slurm.power import SlurmPower
from tests.support.waiting import until

CHANGES = ("reboot", "update")


class Wire:
    """Runs the real commands; the next one that changes a node can go wrong on its way."""

    def __init__(self):
        self.calls, self.fault, self.denied, self.gone = [], "", False, False

    def __call__(self, argv, timeout, env):
        if self.gone:
            return Completed(1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)\n")
        if argv[1] not in CHANGES or "NodeName=nhc-may-i" in argv:
            return run_command(argv, timeout, env)
        if self.denied:
            return Completed(1, "", "scontrol_reboot_nodes error: Access/permission denied\n")
        self.calls.append(" ".join(argv))
        fault, self.fault = self.fault, ""
        if fault == "error":
            return Completed(1, "", "slurm_update error: Slurm backup controller in standby mode\n")
        if fault == "busy":
            return Completed(1, "", "slurm_update error: Unable to contact slurm controller (connect failure)\n")
        done = run_command(argv, timeout, env)
        return Completed(-15, "", "", timed_out=True) if fault == "lost" else done


RESERVED = """\
NodeName=n3 Arch=x86_64 CoresPerSocket=1
   NodeAddr=127.0.0.1 NodeHostName=localhost Port=23021 Version=24.11.5
   State=IDLE+DRAIN+RESERVED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=work
   BootTime=1763200000 SlurmdStartTime=1763200001
   Reason=NHC-REMEDY: check_x: bad [root@1763200002]
   ReservationName={name}
"""
"""What scontrol of Slurm 24.11.5 shows; that of 22.05 shows no reservation."""


@pytest.mark.parametrize(
    ("name", "settings", "claimed"),
    [
        ("nhc-spare-n3", {}, False),
        ("cold-n3", {"spares": "cold"}, False),
        ("nhc-spare-n3", {"spares": "cold"}, True),
        ("class", {}, True),
        ("nhc-spare-n4", {}, True),
    ],
)
def test_a_spares_own_reservation_is_no_other_actor(name, settings, claimed):
    """A spare that falls sick while it waits is repaired as every other node."""
    shown = Completed(0, RESERVED.format(name=name), "")
    repairer = SlurmPower(settings, {}, run=lambda _argv, _timeout, _env: shown)
    claims = [claim.doing for claim in repairer.claims(Machine("n3"))]
    assert claims == ([f"it is in the reservation {name}"] if claimed else [])


class SlurmWorld(RepairerWorld):
    secrets = ()

    def __init__(self, cluster, node, rung=Rung.REBOOT, **settings):
        self.cluster, self.rung, self.wire = cluster, rung, Wire()
        self.machine = Machine(node, address=cluster.address(node))
        self.repairer = SlurmPower({"boot-time": "60", **settings}, cluster.env, 20.0, self.wire)

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
        self.wire.gone = True

    def stranger(self):
        return self.machine._replace(address="192.0.2.1")

    def take_effect(self):
        node = self.machine.node
        until(lambda: "REBOOT_ISSUED" in self.cluster.show(node)["State"], what="the reboot to be issued")
        booted = int(self.repairer.look(self.machine).boot)
        # slurmctld's boot times waver by a second, and no machine boots twice within three.
        until(lambda: time.time() > booted + 3, what="the last boot to be past")
        self.cluster.boot_node(node)


class TestReboot(RepairerContract):
    @pytest.fixture
    def world(self, cluster):
        cluster.update("n2", State="DRAIN", Reason="NHC: GpuLost")
        yield SlurmWorld(cluster, "n2")
        cluster.scontrol("cancel_reboot", "n2", check=False)
        if "REBOOT" in cluster.show("n2")["State"]:
            cluster.boot_node("n2")


def order(world, rung=Rung.REBOOT, **changes):
    return Order("0b1f", "17", 1, world.machine, rung, "GpuLost: gpu3")._replace(**changes)


def test_a_node_rebooted_while_drained_comes_back_drained(cluster):
    cluster.update("n3", State="DRAIN", Reason="NHC: GpuLost")
    world = SlurmWorld(cluster, "n3")
    before = world.repairer.look(world.machine)
    sent = world.repairer.send(order(world))
    assert "reboot" in world.repairer.look(world.machine).doing

    world.take_effect()

    done = world.repairer.progress(order(world), sent, before)
    assert done.stage is Stage.DONE
    assert re.fullmatch(r"registered again, booted at 20\S+Z, IDLE\+DRAIN", done.message)
    assert cluster.show("n3")["State"].startswith("IDLE+DRAIN")


def test_a_reboot_under_way_is_slurms_claim_and_no_second_is_sent(cluster):
    cluster.update("n3", State="DRAIN", Reason="NHC: GpuLost")
    world = SlurmWorld(cluster, "n3")
    world.repairer.send(order(world))

    again = world.repairer.send(order(world, attempt=2))

    assert (again.answer, len(world.calls())) == (Answer.REFUSED, 1)
    assert [claim.actor for claim in world.repairer.claims(world.machine)] == ["slurm"]
    world.take_effect()


def test_resume_timeout_is_compared_with_how_long_the_node_boots(cluster):
    slow = SlurmWorld(cluster, "n1", **{"boot-time": "900"}).repairer

    assert slow.can(Machine("n1"), Rung.REBOOT) == (
        "ResumeTimeout is 60 s: a node that boots in 900 s (boot-time) would be set DOWN"
    )
    assert [right.granted for right in slow.rights() if right.name == "reboot"] == [False]


def test_what_people_write_about_a_node_is_not_taken_for_what_slurm_says_of_it(cluster):
    """A reason such as "/dev/nvidia3 not found" had every repair of that node refused."""
    world = SlurmWorld(cluster, "n2")
    before = world.repairer.look(world.machine)
    cluster.update("n2", State="DRAIN", Reason="/dev/nvidia3 not found, port State=Down")
    cluster.update("n2", Comment="Node n2 not found BootTime=2001-01-01T00:00:00")
    after = world.repairer.look(world.machine)
    cluster.update("n2", Comment="")
    assert (after.boot, after.power) == (before.boot, "IDLE+DRAIN")
    assert world.repairer.can(world.machine, Rung.REBOOT) == ""


def test_hyperpods_replacement_is_written_in_its_words(cluster):
    world = SlurmWorld(cluster, "n1", Rung.REPLACE, replace="hyperpod")

    sent = world.repairer.send(order(world, Rung.REPLACE))

    assert sent.answer is Answer.ACCEPTED
    assert cluster.show("n1")["State"].startswith("IDLE+FAIL")
    assert cluster.reason("n1") == "Action:Replace"


def test_a_cloud_node_is_powered_down_then_up(cluster):
    world = SlurmWorld(cluster, "far1", Rung.REPLACE, replace="power")
    replace = order(world, Rung.REPLACE)
    cluster.update("far1", State="POWER_UP")
    until(lambda: world.repairer.can(world.machine, Rung.REPLACE) == "", what="far1 to power up")
    assert world.repairer.look(world.machine).actor == "slurm"
    assert world.repairer.send(replace).message in ("nothing sent: it is powering up",
                                                    "nothing sent: it is about to power up")  # fmt: skip

    cluster.update("far1", State="POWER_DOWN_FORCE", Reason="test")
    accepted = Sent(Answer.ACCEPTED, "")

    def seen():
        return world.repairer.progress(replace, accepted, Sighting(0.0, "far1", "1"))

    until(lambda: seen().stage is Stage.HALFWAY, 30, what="far1 to be powered down")
    assert world.repairer.complete(replace, accepted).answer is Answer.ACCEPTED
    until(lambda: seen().message == "it is powering up", what="far1 to power up again")
    cluster.update("far1", State="POWER_DOWN_FORCE", Reason="test")


def test_without_its_setting_slurm_replaces_nothing(cluster):
    assert SlurmWorld(cluster, "n1").repairer.can(Machine("n1"), Rung.REPLACE) == (
        'Slurm has no replace (set replace = "power" or "hyperpod")'
    )


def test_evidence_has_the_node_as_slurm_shows_it(cluster):
    world = SlurmWorld(cluster, "n1")

    pieces = {piece.name: piece.content.decode() for piece in world.repairer.evidence(world.machine, budget())}

    assert pieces["slurm-node.txt"].startswith("NodeName=n1")
    assert "slurm-jobs.txt" in pieces


def budget():
    from nhc.marks.ports.repair import EvidenceBudget

    return EvidenceBudget()


def test_a_boot_time_that_is_no_number_is_named():
    with pytest.raises(AdapterError, match=r"^boot-time: 'soon' is not a duration"):
        SlurmPower({"boot-time": "soon"})


def test_an_order_that_slurmctld_never_saw_is_proved_not_to_have_begun(cluster):
    cluster.update("n3", State="DRAIN", Reason="NHC-REMEDY: GpuLost")
    world = SlurmWorld(cluster, "n3")
    lost, seen = Sent(Answer.AMBIGUOUS, "did not end"), world.repairer.look(world.machine)
    old = seen._replace(at=seen.at - 3600)

    assert world.repairer.progress(order(world), lost, seen).stage is Stage.WORKING, "the command may still run"
    assert world.repairer.progress(order(world), lost, old).stage is Stage.NOT_BEGUN
    assert world.repairer.progress(order(world), Sent(Answer.ACCEPTED, ""), old).stage is Stage.WORKING

    world.repairer.send(order(world))
    assert world.repairer.progress(order(world), lost, old).stage is Stage.WORKING
    cluster.scontrol("cancel_reboot", "n3", check=False)
    assert world.repairer.progress(order(world), lost, old).stage is Stage.WORKING, "it was seen, and taken back"
    if "REBOOT" in cluster.show("n3")["State"]:
        world.take_effect()


def as_nobody(argv, timeout, env):
    done = subprocess.run(argv, timeout=timeout, env=dict(env), user="nobody", group="nogroup", extra_groups=[],
                          capture_output=True, text=True, check=False)  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr)


def test_who_may_change_nodes_is_said_where_slurmctld_does_not_let_us(cluster):
    mine = SlurmPower({"boot-time": "60"}, cluster.env).rights()
    theirs = SlurmPower({"boot-time": "60"}, cluster.env, 20.0, as_nobody).rights()

    assert [(one.name, one.granted) for one in mine][-1] == ("scontrol update NodeName", True)
    assert (theirs[-1].name, theirs[-1].granted) == ("scontrol update NodeName", False)
    assert theirs[-1].message.endswith("without slurmdbd root and SlurmUser alone may: run the loop as root")
