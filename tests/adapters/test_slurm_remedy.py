"""The whole loop on a real Slurm: `nhc remedy run` drains, reboots through RebootProgram, proves and resumes a node."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.model import Action, CheckResult, Outcome, Report, Verdict
from nhc.render.json import to_dict
from nhc.store import attempts, audit, episodes, evidence
from nhc.store.connect import open_store
from tests.support.new_store import new_store
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
NODE = "n1"


class Service:
    """`nhc remedy run` as a process, and the reports that it reads."""

    def __init__(self, place, cluster):
        self.place, self.cluster, self.child, self.evidence = place, cluster, None, []
        new_store(str(place)).close()
        self.reports = place / "reports"
        self.reports.mkdir()
        (place / "remedy.toml").write_text(f"""
store = "sqlite:///{place}/store.db"
every = "1s"
[actions]
mark = "on"
reboot = "on"
[sources]
adapter = "slurm"
reports = ["{self.reports}"]
settle = "0s"
[bounds.fleet]
out = {{ nodes = 1 }}
[verify]
healthy-for = "2s"
grace = "0s"
[evidence]
directory = "{place}/evidence"
[repairers.slurm]
boot-time = "60"
""")

    def report(self, boot, sick):
        bad = Outcome(Verdict.CRIT, "Xid95", "gpu3: Xid 95", "gpu3", action=Action.REBOOT)
        result = CheckResult("check_gpu_xid", bad if sick else Outcome(Verdict.OK))
        report = Report(NODE, boot, time.time(), 0.1, (result,))
        path = self.reports / "n1.json"
        path.with_suffix(".tmp").write_text(json.dumps(to_dict(report)))
        path.with_suffix(".tmp").replace(path)

    def start(self):
        env = {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}
        code = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
        words = [sys.executable, "-c", code, "remedy", "run", "-s", str(self.place / "remedy.toml")]
        with open(self.place / "log", "ab") as log:
            self.child = subprocess.Popen(words, env=env, stdout=log, stderr=log)

    def kill(self):
        self.child.kill()
        self.child.wait(60)

    def states(self):
        store = open_store(f"sqlite:///{self.place}/store.db", create=False)
        try:
            with store.read() as connection:
                rows = episodes.list_episodes(connection)
                tried = [one for row in rows for one in attempts.attempts_of(connection, row.id)]
                self.evidence = [one.name for row in rows for one in evidence.of_episode(connection, row.id)]
                whats = [one.what for one in audit.entries(connection, limit=1000)]
        finally:
            store.close()
        return rows, tried, whats


@pytest.fixture
def service(cluster, tmp_path):
    made = Service(tmp_path, cluster)
    yield made
    if made.child is not None and made.child.poll() is None:
        made.kill()
    cluster.scontrol("cancel_reboot", NODE, check=False)
    if "REBOOT" in cluster.show(NODE)["State"]:
        cluster.boot_node(NODE)


def test_from_a_fault_to_a_returned_node_though_the_controller_is_killed(service, cluster):
    service.report("boot1", sick=True)
    service.start()
    until(lambda: "REBOOT_ISSUED" in cluster.show(NODE)["State"], 90, what="the reboot to be issued")
    assert cluster.reason(NODE).startswith("NHC: Xid95: gpu3: Xid 95 (episode 1) [action: reboot]")
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
