"""Spares in a reservation of a real Slurm: one goes in for a node that is out, and comes back after it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.core.model import CheckResult, Outcome, Report, Verdict
from nhc.core.render.json import to_dict
from nhc.marks.ports.adapter import AdapterError, Effect
from nhc.store import audit, episodes, spares
from nhc.store.connect import open_store
from nhc_adapters.slurm.spares import SlurmSpares
from tests.support.new_store import new_store
from tests.support.slurm import ROOT_PATH
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; from nhc.cli.main import main; sys.exit(main(sys.argv[1:]))"
NAME = "nhc-spare"


@pytest.fixture
def reserved(cluster):
    """The cluster with n3 in a reservation of the pool."""
    cluster.scontrol("create", "reservation", f"ReservationName={NAME}-n3", "StartTime=now",
                     "Duration=UNLIMITED", "Users=root", "Nodes=n3")  # fmt: skip
    yield cluster
    cluster.scontrol("delete", f"ReservationName={NAME}-n3", check=False)


def keeper(cluster, **more):
    return SlurmSpares({"reservation": NAME, "conf": str(cluster.conf), "path": ROOT_PATH, **more}, cluster.env)


class SpareRun:
    """`nhc spares` as its user starts it."""

    def __init__(self, place, cluster):
        self.place, self.cluster = place, cluster
        new_store(str(place)).close()
        (place / "reports").mkdir()
        (place / "remedy.toml").write_text(
            f'store = "sqlite:///{place}/store.db"\n[sources]\nadapter = "slurm"\nreports = ["{place}/reports"]\n'
            '[verify]\nhealthy-for = "0s"\n'
        )
        (place / "spares.toml").write_text(
            f'[pools.gpu]\ntype = "slurm"\nreservation = "{NAME}"\nconf = "{cluster.conf}"\nfor = "n*"\nafter = "1m"\n'
        )

    def report(self, node, verdict=Verdict.OK):
        result = CheckResult("check_x", Outcome(verdict, "Bad" if verdict is Verdict.CRIT else ""))
        report = Report(node, "boot", time.time(), 0.1, (result,))
        (self.place / "reports" / f"{node}.json").write_text(json.dumps(to_dict(report)))

    def ask(self, *words):
        env = {**self.cluster.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "HOME": str(self.place)}
        place = self.place
        argv = [
            sys.executable,
            "-c",
            CODE,
            *words,
            "--pools",
            f"{place}/spares.toml",
            "-s",
            f"{place}/remedy.toml",
        ]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)

    def store(self):
        return open_store(f"sqlite:///{self.place}/store.db", create=False)

    def rows(self):
        store = self.store()
        try:
            with store.read() as connection:
                whats = [one.what for one in audit.entries(connection, node="n3", limit=50)]
                return [(row.node, row.state, row.stands_for) for row in spares.in_use(connection)], whats
        finally:
            store.close()


def test_a_spare_goes_in_and_comes_back(reserved, tmp_path):
    run, pool = SpareRun(tmp_path, reserved), keeper(reserved)
    run.report("n3")
    assert run.ask("spares", "verify").returncode == 0
    reserved.update("n1", State="DRAIN", Reason="NHC: check_x: broken")
    store = run.store()
    with store.write() as connection:
        row, _ = episodes.open_episode(connection, "n1", "check_x|Bad|", action="reboot", rung="reboot",
                                       state="watching", now=time.time() - 600, by="test")  # fmt: skip
    dry = run.ask("spares", "swap")
    assert (dry.returncode, "would swap-in  n3  for n1" in dry.stdout, pool.waiting()) == (0, True, ["n3"]), dry
    done = run.ask("spares", "swap", "--apply")
    assert (done.returncode, pool.waiting(), run.rows()[0]) == (0, [], [("n3", "in-service", "n1")]), done
    again = run.ask("spares", "swap", "--apply")
    assert (again.returncode, again.stdout, run.rows()[0]) == (0, "", [("n3", "in-service", "n1")]), again
    job = reserved.run("sbatch", "--parsable", "-o", "/dev/null", "-w", "n3", "--wrap", "sleep 300").stdout.strip()
    until(lambda: reserved.state("n3") in ("mix", "alloc"), 60, what="the job to run on the spare")
    with store.write() as connection:
        step = episodes.EpisodeStep("test", "episode.returned")
        episodes.save_step(connection, row, step, now=time.time(), state="returned", ended=time.time())
    store.close()
    reserved.update("n1", State="RESUME")
    until(lambda: reserved.state("n1") == "idle", what="n1 to be in service")
    next_job = reserved.run(
        "sbatch", "--parsable", "-o", "/dev/null", "-w", "n3", "--exclusive", "--wrap", "sleep 300"
    ).stdout.strip()
    busy = run.ask("spares", "swap", "--apply")
    assert (busy.returncode, "work still runs on it" in busy.stdout) == (1, True), busy
    assert run.rows()[0] == [("n3", "leaving", "n1")]
    status = run.ask("status", "spares").stdout
    assert ("0 verified of 1 wanted" in status, "waits" in status) == (True, False), status
    assert reserved.job(job)["JobState"] == "RUNNING"
    reserved.run("scancel", job)
    until(lambda: reserved.show("n3")["State"] == "IDLE+RESERVED", 60, what="the spare to be idle")
    assert run.ask("spares", "swap", "--apply").returncode == 0
    assert (pool.waiting(), run.rows()[0]) == (["n3"], [])
    assert run.rows()[1] == ["spare.entering", "spare.in-service", "spare.leaving", "spare.waiting"]
    assert reserved.job(next_job)["JobState"] == "PENDING", "on a busy cluster a spare would never be idle"
    reserved.run("scancel", next_job)


def test_a_spare_that_is_sick_is_not_trusted(reserved, tmp_path):
    run = SpareRun(tmp_path, reserved)
    run.report("n3", Verdict.CRIT)
    shown = run.ask("spares", "verify")
    assert (shown.returncode, "0 verified of 1 wanted" in shown.stdout) == (1, True), shown
    assert "its newest report is CRIT" in shown.stdout


def test_both_calls_change_nothing_where_they_took_effect(reserved):
    pool = keeper(reserved)
    assert pool.back("n3").effect is Effect.UNCHANGED
    assert pool.into_service("n3").effect is Effect.CHANGED
    assert pool.into_service("n3").effect is Effect.UNCHANGED
    assert pool.back("n3").effect is Effect.CHANGED
    assert pool.waiting() == ["n3"]


def test_reservations_of_others_are_left_alone_and_a_slurm_that_is_away_is_said(reserved, tmp_path):
    reserved.scontrol("create", "reservation", f"ReservationName={NAME}-other", "StartTime=now", "Duration=UNLIMITED",
                      "Users=root", "Nodes=n2")  # fmt: skip
    try:
        assert keeper(reserved).waiting() == ["n3"]
        assert keeper(reserved).into_service("n2").effect is Effect.UNCHANGED
        assert "nhc-spare-other" in reserved.scontrol("show", "reservation").stdout
    finally:
        reserved.scontrol("delete", f"ReservationName={NAME}-other")
    away = tmp_path / "away.conf"
    away.write_text("ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\n")
    with pytest.raises(AdapterError):
        SlurmSpares({"reservation": NAME, "conf": str(away), "path": ROOT_PATH}, {}).waiting()
