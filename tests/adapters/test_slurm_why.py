"""`nhc job why` asks a real slurmctld about jobs that crashed, ran out of time, were cancelled, or lost their node."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nhc.core.system.process import Completed
from nhc.marks.ports.job_control import LossCause
from nhc_adapters.slurm.job_controller import SlurmJobs
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SLEEPS = "exec sleep 600"
CRASHES = "python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'"
RAISES = "python3 -c 'import os; os.environ[\"RANK_THAT_IS_NOT_THERE\"]'"


def submit(cluster, script, *options):
    """A job of one node, running or over; its number."""
    number = cluster.submit(script, "-N1", "-n1", "--no-requeue", *options)
    until(lambda: cluster.job(number)["JobState"] != "PENDING", 60, what="the job to start")
    return number


def over(cluster, number, *states):
    until(lambda: cluster.job(number)["JobState"] in states, 90, what=f"job {number} to be {states}")


def why(cluster, number, *words):
    done = subprocess.run(
        [sys.executable, "-m", "nhc", "job", "why", "-f", "json", number, *words], cwd=ROOT, env=cluster.env,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said", "decided"),
    [(CRASHES, "SIGSEGV", "scheduler"), (RAISES, "KeyError: 'RANK_THAT_IS_NOT_THERE'", "log")],
)
def test_a_program_that_fails_by_itself_is_the_program(cluster, script, said, decided):
    number = submit(cluster, script)
    over(cluster, number, "FAILED")

    status, found = why(cluster, number)

    assert (status, found["answer"], found["state"]) == (0, "your program", "FAILED")
    assert said in found["what"]
    assert decided in [one["witness"] for one in found["evidence"] if one["decided"]]
    assert found["nodes"] == [cluster.job(number)["NodeList"]]


@pytest.mark.slow
def test_a_job_that_its_user_cancelled_is_a_persons(cluster):
    number = submit(cluster, SLEEPS, "--mail-user=ann@example.org", "--mail-type=TIME_LIMIT_50")
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="it to run")
    cluster.run("scancel", number)
    over(cluster, number, "CANCELLED")
    assert SlurmJobs({}, cluster.env, 60.0).end(number).mail == "ann@example.org"

    status, found = why(cluster, number)

    assert (status, found["answer"], found["sure"]) == (0, "the scheduler or a person", "established")


@pytest.mark.slow
def test_a_job_at_its_time_limit_is_its_limit(cluster):
    number = submit(cluster, SLEEPS, "--time=1")
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="it to run")
    cluster.end_its_time(number)
    until(lambda: cluster.job(number)["JobState"] == "TIMEOUT", 150, what="the job to reach its limit")

    status, found = why(cluster, number)

    assert (status, found["answer"], found["sure"]) == (0, "your limits (time)", "established")


@pytest.mark.slow
def test_a_job_whose_node_died_is_the_nodes(cluster):
    number = submit(cluster, SLEEPS)
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", what="it to run")
    node = cluster.job(number)["NodeList"]
    cluster.kill(f"slurmd.{node}")
    cluster.update(node, State="DOWN", Reason="the power supply died")
    over(cluster, number, "NODE_FAIL")

    status, found = why(cluster, number)

    assert (status, found["answer"], found["sure"], found["node"]) == (1, "the node", "established", node)
    assert "its node failed" in found["what"]


@pytest.mark.slow
def test_a_job_that_slurm_does_not_know_is_not_known(cluster):
    status, found = why(cluster, "99999")

    assert (status, found["answer"]) == (3, "not known")
    assert next(one for one in found["witnesses"] if one["name"] == "scheduler")["missing"]


SACCT = """17|OUT_OF_MEMORY|0:125|1790000000|1790000060|n[1-2]||anna|cpu=64,gres/gpu:h100=16,gres/gpu=16,node=2
17.batch|OUT_OF_MEMORY|0:125|1790000000|1790000060|n1|1|
17.0|CANCELLED|0:9|1790000000|1790000060|n[1-2]|4|
"""
CANCELLED = "17|CANCELLED by 1001|0:15|1790000000|1790000060|n1||anna\n"


def asked(accounting):
    """A Slurm whose slurmctld has forgotten the job, and whose accounting has not."""

    def run(argv, timeout, env):
        if argv[0] == "sacct":
            return Completed(0, accounting, "")
        return Completed(1, "", "slurm_load_jobs error: Invalid job id specified")

    return SlurmJobs({}, {}, 5.0, run).end("17")


def test_sacct_has_what_slurmctld_has_forgotten():
    found = asked(SACCT)

    assert (found.state, found.nodes, found.tasks, found.user) == ("OUT_OF_MEMORY", ("n1", "n2"), 4, "anna")
    assert {loss.cause for loss in found.losses} == {LossCause.LIMIT}
    assert (found.ended, found.gpus) == (1790000060.0, 16)


def test_sacct_says_who_cancelled_a_job():
    assert [loss.detail for loss in asked(CANCELLED).losses] == ["it was cancelled by user 1001"]


def test_a_job_that_nobody_knows_is_none():
    assert asked("") is None
