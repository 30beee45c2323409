"""The loop on a real Slurm: `nhc serve remedy` drains, reboots through RebootProgram, proves and resumes a node."""

import shutil
import signal
import time

import pytest

from nhc.core.model import Action
from tests.support.slurm_remedy import Service, served
from tests.support.waiting import until

NODE = "n1"


@pytest.fixture
def service(cluster, tmp_path):
    with served(Service(tmp_path, cluster)) as made:
        yield made


def test_from_a_fault_to_a_returned_node_though_the_controller_is_killed(service, cluster):
    service.report("boot1", sick=True)
    service.start()
    until(lambda: "REBOOT_ISSUED" in cluster.show(NODE)["State"], 90, what="the reboot to be issued")
    assert cluster.reason(NODE).startswith("NHC-REMEDY: Xid95: gpu3: Xid 95 (episode 1, attempt 1) [action: reboot]")
    until(lambda: service.states()[0][0].state == "watching", 60, what="the answer to be written down")
    service.kill()
    issued = time.time()
    until(lambda: time.time() > issued + 3, what="the last boot to be past")  # slurmctld's boot times waver by a second
    service.start()
    cluster.boot_node(NODE)

    def back():
        service.report("boot2", sick=False)
        time.sleep(0.2)
        return cluster.state(NODE) == "idle"

    until(back, 120, what="the node to be in service")
    until(lambda: service.states()[0][0].ended is not None, 60, what="the episode to end")
    rows, tried, whats = service.states()
    assert [row.state for row in rows] == ["returned"]
    assert [(one.rung, one.repairer, one.outcome) for one in tried] == [("reboot", "slurm", "succeeded")]
    assert whats.count("attempt.written") == 1
    assert "nhc/report.json" in service.evidence
    assert "slurm/slurm-node.txt" in service.evidence
    until(lambda: cluster.unmarked(NODE), what="the reason to go")  # it stays until its slurmd has answered


def test_a_node_that_an_operator_resumed_meanwhile_is_left_alone(service, cluster):
    job = cluster.run("sbatch", "--parsable", "-o", "/dev/null", "-w", NODE, "--wrap", "sleep 300").stdout.strip()
    until(lambda: cluster.state(NODE) in ("mix", "alloc"), 60, what="the job to run")
    service.report("boot1", sick=True)
    service.start()
    until(lambda: cluster.state(NODE) == "drng", 90, what="the node to be drained")
    until(lambda: service.states()[0][0].state == "draining", 60, what="the loop to wait for the job")
    cluster.update(NODE, State="RESUME")
    until(lambda: service.states()[0][0].state == "withdrawn", 60, what="the loop to withdraw")
    cluster.run("scancel", job)
    service.report("boot1", sick=True)
    until(lambda: cluster.state(NODE) == "idle", 60, what="the node to be idle")
    rows, tried, _ = service.states()
    assert (len(rows), tried) == (1, [])


@pytest.fixture
def impatient(cluster):
    """A Slurm that waits six seconds for a reboot."""
    text = cluster.conf.read_text()
    cluster.conf.write_text(text.replace("ResumeTimeout=60", "ResumeTimeout=6"))
    cluster.scontrol("reconfigure")
    yield cluster
    cluster.conf.write_text(text)
    cluster.scontrol("reconfigure")


def test_a_node_whose_reboot_timed_out_stays_out_when_it_is_heard_again(impatient, tmp_path):
    """slurmctld takes the drain away then, and ReturnToService has the node back though nothing was repaired."""
    made = Service(tmp_path, impatient)
    settings = tmp_path / "remedy.toml"
    settings.write_text(settings.read_text().replace('boot-time = "60"', 'boot-time = "5"'))
    with served(made) as service:
        service.report("boot1", sick=True)
        service.start()
        until(lambda: service.state() == "escalated", 120, what="the loop to give up", said=service.log)
        assert "DRAIN" in impatient.show(NODE)["State"]
        assert impatient.reason(NODE).startswith("NHC-REMEDY: ")
        impatient.boot_node(NODE)
        until(lambda: "DOWN" not in impatient.show(NODE)["State"], 60, what="the node to be heard")
        assert "DRAIN" in impatient.show(NODE)["State"]


def test_a_node_that_is_powered_down_and_up_stays_out_until_it_is_proved(cluster, tmp_path):
    """POWER_DOWN takes the drain away: without more, the next job runs on the sick node as soon as it is up."""
    made = Service(
        tmp_path, cluster, "n2", actions='replace = "on"', slurm='replace = "power"', more="[approval]\nreplace = 2\n"
    )
    with served(made) as service:
        service.report("boot1", sick=True, action=Action.REPLACE)
        service.start()
        until(lambda: service.state() == "awaiting-approval", 90, what="the loop to ask two persons", said=service.log)
        for person in ("ann", "ann"):
            service.nhc("approve", "episode", "1", user=person)
        asked = time.time()
        until(lambda: time.time() > asked + 3, what="some rounds to pass")
        assert service.state() == "awaiting-approval", "one person twice is one person"
        done = service.nhc("approve", "episode", "1", user="bob")
        assert done.returncode == 0, done.stderr
        until(
            lambda: "POWERING_DOWN" in cluster.show("n2")["State"],
            90,
            what="the node to be powered down",
            said=service.log,
        )
        job = cluster.submit("sleep 600", "-w", "n2")
        until(lambda: "DRAIN" in cluster.show("n2")["State"], 90, what="the drain to be set again", said=service.log)
        until(
            lambda: "POWERING_UP" in cluster.show("n2")["State"], 90, what="the node to be powered up", said=service.log
        )
        cluster.boot_node("n2")
        until(lambda: service.state() == "verifying", 90, what="the boot to be seen", said=service.log)
        assert "DRAIN" in cluster.show("n2")["State"]
        assert cluster.reason("n2").startswith("NHC-REMEDY: ")
        assert cluster.job(job)["JobState"] == "PENDING"

        def back():
            service.report("boot2", sick=False)
            time.sleep(0.2)
            return service.state() == "returned"

        until(back, 120, what="the loop to return the node", said=service.log)
        until(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, what="the job to run on the proved node")
        assert [(one.rung, one.outcome) for one in service.states()[1]] == [("replace", "succeeded")]


DYING = """#!/bin/sh
if [ "$1" = reboot ] && rm {die} 2>/dev/null; then kill -9 $PPID; exit 1; fi
exec {scontrol} "$@"
"""


def test_killed_right_before_the_reboot_the_loop_tries_the_same_reboot_again(cluster, tmp_path):
    bin_, die = tmp_path / "bin", tmp_path / "die"
    bin_.mkdir()
    die.touch()
    (bin_ / "scontrol").write_text(DYING.format(die=die, scontrol=shutil.which("scontrol")))
    (bin_ / "scontrol").chmod(0o755)
    slurm = f'timeout = "2s"\npath = "{bin_}"'
    with served(Service(tmp_path, cluster, "n3", actions='power-cycle = "on"', slurm=slurm)) as service:
        service.report("boot1", sick=True)
        service.start()
        until(lambda: service.child.poll() is not None, 90, what="the loop to die")
        assert "REBOOT" not in cluster.show("n3")["State"]
        service.start()

        def again():
            service.report("boot1", sick=True)
            time.sleep(0.5)
            return "REBOOT" in cluster.show("n3")["State"]

        until(again, 120, what="the reboot", said=service.log)
        until(lambda: len(service.states()[1]) == 2, 30, what="the second attempt")
        first, second = service.states()[1]
        assert [(one.rung, one.outcome) for one in (first, second)] == [("reboot", "refused"), ("reboot", "")]
        until(lambda: "attempt 2" in cluster.reason("n3"), 30, what="the reason of the second")


STOPPING = """#!/bin/sh
state=$(sqlite3 -readonly {store} 'SELECT state FROM episodes' 2>/dev/null)
if [ "$state $2" = "acting show" ] && rm {stop} 2>/dev/null; then kill -STOP $PPID; fi
exec {scontrol} "$@"
"""


@pytest.mark.slow
def test_a_loop_that_was_stopped_right_before_the_reboot_sends_it_no_more_once_another_has_repaired_the_node(
    cluster, tmp_path
):
    """Proved and back in service by the other, the node would be drained and rebooted once more."""
    bin_, stop = tmp_path / "bin", tmp_path / "stop"
    bin_.mkdir()
    stop.touch()
    script = STOPPING.format(store=tmp_path / "store.db", stop=stop, scontrol=shutil.which("scontrol"))
    (bin_ / "scontrol").write_text(script)
    (bin_ / "scontrol").chmod(0o755)
    with served(Service(tmp_path, cluster, "n3", slurm=f'timeout = "2s"\npath = "{bin_}"')) as service:
        service.report("boot1", sick=True)
        service.start()
        until(lambda: not stop.exists(), 120, what="the loop to be stopped", said=service.log)
        stopped = service.child
        try:
            service.start()

            def rebooting():
                service.report("boot1", sick=True)
                return "REBOOT_ISSUED" in cluster.show("n3")["State"]

            until(rebooting, 180, what="the other's reboot", said=service.log)
            assert "attempt 2" in cluster.reason("n3")
            issued = time.time()
            until(lambda: time.time() > issued + 3, what="the last boot to be past")
            cluster.boot_node("n3")

            def back():
                service.report("boot2", sick=False)
                return service.state() == "returned"

            until(back, 120, what="the node to be in service", said=service.log)
            stopped.send_signal(signal.SIGCONT)
            until(lambda: "another leads now" in (tmp_path / "log").read_text(), 60, what="it to notice")
            assert "REBOOT" not in cluster.show("n3")["State"]
            assert cluster.state("n3").rstrip("*") == "idle"
        finally:
            stopped.kill()
            stopped.wait(60)


@pytest.mark.parametrize("by", ["cancel_reboot", "resume"])
def test_a_reboot_that_a_person_takes_back_leaves_the_node_out_of_service_for_a_person(cluster, tmp_path, by):
    """Slurm takes the drain away with the reboot: the sick node would take the next job. It shows the same after
    `scontrol cancel_reboot` and after a resume; the next resume is a decision about the node.
    """
    cluster.submit("sleep 600", "-w", "n2", "-n1")
    until(lambda: cluster.state("n2") in ("mix", "alloc"), what="the job to run")
    more = '[drain]\ndeadline = "1s"\nthen = "force"\n'
    with served(Service(tmp_path, cluster, "n2", actions='power-cycle = "on"', more=more)) as service:
        service.report("boot1", sick=True, node="n2")
        service.start()
        until(lambda: "REBOOT_REQUESTED" in cluster.show("n2")["State"], 90, what="the reboot", said=service.log)
        until(lambda: service.state() == "watching", 30, what="the loop to watch it", said=service.log)
        if by == "resume":
            cluster.update("n2", State="RESUME")
        else:
            cluster.scontrol("cancel_reboot", "n2")

        until(lambda: service.state() == "escalated", 30, what="the loop to leave it to a person", said=service.log)
        assert cluster.show("n2")["State"].endswith("+DRAIN")
        assert cluster.reason("n2").startswith("NHC-REMEDY: ")
        assert [(one.rung, one.outcome) for one in service.states()[1]] == [("reboot", "failed")]
        cluster.update("n2", State="RESUME")  # the person's decision
        service.report("boot1", sick=True, node="n2")
        decided = time.time()
        until(lambda: time.time() > decided + 3, what="some rounds to pass")
        assert "DRAIN" not in cluster.show("n2")["State"]
