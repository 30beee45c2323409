"""`--from slurm` and `--mark slurm` against a real slurmctld, over a real sshd."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.fleet.conftest import Site
from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

NAMES = ("n1", "n2", "n3", "n4")
EXTRA = """\
NodeName=far1 NodeAddr=127.0.0.1 Port=1 CPUs=1 RealMemory=1 State=UNKNOWN
PartitionName=spare Nodes=far1 State=UP
"""


@pytest.fixture(scope="module")
def running_cluster():
    """Four nodes with a slurmd each, and one that Slurm knows and nobody can reach."""
    need("slurm", not missing(), ", ".join(missing()))
    directory = Path(tempfile.mkdtemp(prefix="nhc-fleet-"))  # short: a munge socket's path is limited
    cluster = Cluster(directory, NAMES, EXTRA)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def cluster(running_cluster):
    """With no node drained. A node that was just put back has a star until slurmctld has pinged it: none waits."""
    if "slurmctld" not in running_cluster.daemons:
        running_cluster.start_controller()
    drained = [name for name in NAMES if state(running_cluster, name) != "idle"]
    for name in drained:
        running_cluster.update(name, State="RESUME")
    until(lambda: all(state(running_cluster, name) == "idle" for name in NAMES), what="idle nodes")
    return running_cluster


def state(cluster, name):
    return cluster.state(name).rstrip("*")


@pytest.fixture
def slurm(cluster, fleet, tmp_path):
    return Site(fleet, tmp_path, NAMES, {"SLURM_CONF": str(cluster.conf)})


EVERY = ("--from", "slurm", "--mark", "slurm")


def test_a_sick_node_is_drained_with_its_reason_once_and_resumed_when_it_is_well(slurm, cluster):
    slurm.sick("n2")
    done = slurm.check(*EVERY, "-x", "far1")
    assert "slurm: would mark  n2  check_file_test: " in done.stdout
    assert (done.returncode, state(cluster, "n2")) == (1, "idle")

    done = slurm.check(*EVERY, "-x", "far1", "--apply")
    assert "slurm: 1 of 1 done" in done.stdout
    assert done.returncode == 1
    assert state(cluster, "n2") == "drain"
    assert cluster.reason("n2").startswith("NHC: [node] check_file_test: ")
    assert [state(cluster, name) for name in ("n1", "n3", "n4")] == ["idle"] * 3

    since = cluster.show("n2")["Reason"]
    done = slurm.check(*EVERY, "-x", "far1", "--apply")
    assert "slurm: 0 of 0 done" in done.stdout
    assert cluster.show("n2")["Reason"] == since  # with who set it and when: nothing was set again

    slurm.sick()
    done = slurm.check(*EVERY, "-x", "far1", "--apply")
    assert "slurm: clear  n2" in done.stdout
    assert (done.returncode, state(cluster, "n2")) == (0, "idle")
    assert cluster.unmarked("n2")


def test_an_operator_s_drain_stays_whether_the_node_is_well_or_not(slurm, cluster):
    for name in ("n1", "n2"):
        cluster.update(name, State="DRAIN", Reason="fan broken, ask Ann")
    slurm.sick("n2")
    slurm.check(*EVERY, "--apply")
    assert [(state(cluster, name), cluster.reason(name)) for name in ("n1", "n2")] == [
        ("drain", "fan broken, ask Ann")
    ] * 2


def test_the_ceiling_holds_across_sweeps(slurm, cluster):
    def out():
        return [name for name in NAMES if state(cluster, name) == "drain"]

    slurm.sick("n1", "n2", "n3")
    words = (*EVERY, "-x", "far1", "--apply", "--set", "max-drained=1")
    for _ in range(2):
        done = slurm.check(*words)
        assert out() == ["n1"]
        assert "not mark  n[2-3]" in done.stdout
    slurm.sick("n2", "n3")
    slurm.check(*words)
    slurm.check(*words)
    assert out() == ["n2"]


def test_a_node_that_cannot_be_reached_is_never_drained_nor_resumed(slurm, cluster):
    """far1 is Slurm's, and no name that resolves; n1 refuses; n2 is ours already and refuses as well."""
    slurm.sick("n2")
    slurm.check(*EVERY, "-x", "far1", "--apply")
    done = slurm.check(*EVERY, "--apply", "--set", "port=1", "-f", "jsonl")
    verdicts = {report["host"]: report["verdict"] for report in map(json.loads, done.stdout.splitlines())}
    assert verdicts == dict.fromkeys((*NAMES, "far1"), "UNKNOWN")
    assert done.returncode == 3
    assert "slurm: 0 of 0 done" in done.stderr
    assert [state(cluster, name) for name in NAMES] == ["idle", "drain", "idle", "idle"]


def test_a_controller_that_is_down_is_one_line_and_3(slurm, cluster):
    cluster.lose_controller()
    done = slurm.check("--from", "slurm")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "--from slurm: " in done.stderr
    assert "Unable to contact slurm controller" in done.stderr
    slurm.sick("n1")
    done = slurm.check("-w", "n1", "--mark", "slurm", "--apply")
    assert done.stdout.startswith("CRIT 1 node n1")  # what was found out is shown all the same
    assert "--mark slurm: " in done.stderr
    assert done.returncode == 1
