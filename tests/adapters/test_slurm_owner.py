"""Hooks, sync and the loop beside each other on a real Slurm: who marked a node until a proof alone puts it back."""

import json
import subprocess
import sys
import time

import pytest

from tests.support.slurm_remedy import CODE, Service, served
from tests.support.waiting import until

NODE = "n1"


@pytest.fixture
def service(site, tmp_path):
    with served(Service(tmp_path, site[0], healthy_for="12s")) as made:
        yield made


def checked(hooks, node):
    """How often the periodic health check of a node has ended by now."""
    memory = hooks.directory / "run" / node / "mark.json"
    return memory.stat().st_mtime_ns if memory.exists() else 0


def test_a_healthy_node_stays_out_until_the_loop_has_proved_it(site, service):
    cluster, hooks = site
    hooks.configure(NHC_REREAD="0")
    service.report("boot1", sick=True)
    service.start()
    until(lambda: "REBOOT_ISSUED" in cluster.show(NODE)["State"], 90, what="the reboot to be issued")
    issued = time.time()
    until(lambda: time.time() > issued + 3, what="the last boot to be past")
    cluster.boot_node(NODE)
    until(lambda: service.state() == "verifying", 60, what="the boot to be seen")
    service.report("boot2", sick=False)
    before = checked(hooks, NODE)
    until(lambda: checked(hooks, NODE) > before, 60, what="the node's own health check to say that it is healthy")
    assert cluster.state(NODE) == "drain"
    assert cluster.reason(NODE).startswith("NHC-REMEDY: ")

    words = ["sync", "slurm", "--report", str(service.reports), "--apply", "--format", "json"]
    env = {**service.env, "NHC_LEDGER_DIR": str(service.place / "ledger")}
    synced = subprocess.run(
        [sys.executable, "-c", CODE, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert "nhc-remedy" in json.dumps(json.loads(synced.stdout)), synced.stderr
    assert cluster.state(NODE) == "drain"

    def back():
        service.report("boot2", sick=False)
        time.sleep(0.2)
        return service.state() == "returned"

    until(back, 120, what="the loop to return the node")
    until(lambda: cluster.state(NODE) == "idle", what="the node to answer and be idle")


def job_runs(cluster, hooks):
    """A job that has begun: its prolog has ended, which would send it back from a node that is sick."""
    begun = hooks.directory / "begun"
    begun.unlink(missing_ok=True)
    cluster.submit(f"touch {begun}; sleep 300", "-w", NODE, "-n1")
    until(begun.exists, what="the job to run")


def test_a_node_that_its_hook_has_drained_is_the_loops_from_its_mark_on(site, service):
    cluster, hooks = site
    job_runs(cluster, hooks)  # the episode waits for it; newer releases check no node that boots
    hooks.sick(NODE)
    until(lambda: cluster.reason(NODE).startswith("NHC: "), 60, what="the health check to drain the node")
    service.report("boot1", sick=True)
    service.start()
    until(lambda: cluster.reason(NODE).startswith("NHC-REMEDY: "), 90, what="the loop to take the node over")
    hooks.well(NODE)
    before = checked(hooks, NODE)
    until(lambda: checked(hooks, NODE) > before, 60, what="the health check to say that it is healthy")
    assert cluster.state(NODE) in ("drng", "drain")


def test_a_mark_of_an_older_loop_becomes_the_loops_own_before_the_health_check_can_clear_it(site, service):
    cluster, hooks = site
    hooks.configure(NHC_REREAD="0")
    job_runs(cluster, hooks)  # the episode waits for it
    service.report("boot1", sick=True)
    service.start()
    until(lambda: service.state() == "draining", 60, what="the loop to wait for the job")
    service.kill()
    hooks.sick(NODE)  # until the loop runs again, any healthy health check would resume the node
    cluster.update(NODE, Reason="NHC: check_gpu_xid: gpu3: Xid 95 [action: reboot]")

    service.start()
    until(lambda: cluster.reason(NODE).startswith("NHC-REMEDY: "), 60, what="the loop to set its own mark")
    hooks.well(NODE)
    before = checked(hooks, NODE)
    until(lambda: checked(hooks, NODE) > before, 60, what="the health check to say that it is healthy")
    assert cluster.state(NODE) in ("drng", "drain")
    assert service.state() == "draining"
