"""The whole loop on a real Slurm: `nhc remedy run` drains, reboots through RebootProgram, proves and resumes a node."""

import time

import pytest

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
    assert cluster.reason(NODE).startswith("NHC-REMEDY: Xid95: gpu3: Xid 95 (episode 1) [action: reboot]")
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
    until(lambda: cluster.reason(NODE) == "", what="the reason to go")  # it stays until its slurmd has answered


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
