"""Why one bad GPU takes its Slurm node out: what a real slurmctld makes of a node whose GRES becomes smaller.

docs/slurm.md says it; where a release behaves otherwise, that page and `[devices] keep` are to be thought over.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.slurm]
CHARACTER = 0o20666


class GpuCluster(Cluster):
    """One node of eight GPUs, whose device files are copies of /dev/null."""

    gpus = (0, 1, 2, 3, 4, 5, 6, 7)

    def write_conf(self) -> None:
        super().write_conf()
        text = self.conf.read_text().replace(" State=UNKNOWN", f" Gres=gpu:{len(self.gpus)} State=UNKNOWN")
        self.conf.write_text(f"{text}GresTypes=gpu\n")
        numbers = ",".join(map(str, self.gpus))
        (self.directory / "gres.conf").write_text(f"NodeName=n1 Name=gpu File={self.directory}/gpu[{numbers}]\n")

    def without(self, number: int) -> None:
        """Both files as a site would write them for a node without this GPU; no daemon has read them."""
        self.gpus = tuple(one for one in type(self).gpus if one != number)
        self.write_conf()

    def restart_controller(self) -> None:
        self.kill("slurmctld", signal.SIGTERM)
        self.start_controller()


@pytest.fixture
def cluster():
    need("slurm", not missing() and os.geteuid() == 0, ", ".join(missing()) or "mknod needs root")
    directory = Path(tempfile.mkdtemp(prefix="nhc-gres-"))  # short: a munge socket's path is limited
    made = GpuCluster(directory, ["n1"])
    for number in made.gpus:
        os.mknod(directory / f"gpu{number}", CHARACTER, os.makedev(1, 3))
    try:
        made.start()
        if made.version > (22, 5):
            pytest.skip("known of Slurm 22.05 alone")
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory, ignore_errors=True)


def running(cluster, gpus):
    number = cluster.submit("sleep 600", f"--gres=gpu:{gpus}", "-n1")
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", 60, what="the job")
    return number


def test_a_nodes_gres_is_not_made_smaller_by_scontrol(cluster):
    running(cluster, 2)
    done = cluster.scontrol("update", "NodeName=n1", "Gres=gpu:7", check=False)
    assert done.returncode
    assert "Invalid generic resource (gres) specification" in done.stderr
    assert cluster.show("n1")["Gres"] == "gpu:8"


def test_a_smaller_configuration_that_is_read_anew_drains_the_node(cluster):
    cluster.without(3)
    cluster.scontrol("reconfigure")
    until(lambda: "INVALID_REG" in cluster.show("n1")["State"], 60, what="the node's registration")
    assert "count reported lower than configured (7 < 8)" in cluster.reason("n1")
    assert "DRAIN" in cluster.show("n1")["State"]


def test_a_controller_that_is_restarted_with_it_takes_the_nodes_jobs(cluster):
    job = running(cluster, 2)
    cluster.restart_controller()
    until(lambda: cluster.state("n1") == "mix", 60, what="the node")
    assert cluster.job(job)["JobState"] == "RUNNING"  # a restart by itself takes none
    cluster.without(3)
    cluster.restart_controller()
    until(lambda: cluster.job(job).get("Restarts") == "1", 60, what="the job to be requeued")
    assert f"Killing job {job}: gres/gpu count mismatch on node n1 (8 != 7)" in cluster.logged("slurmctld", 1000)


def test_jobs_of_the_smaller_node_are_given_the_numbers_of_other_gpus(cluster):
    cluster.without(3)
    cluster.restart_controller()
    cluster.scontrol("reconfigure")
    until(lambda: cluster.state("n1") == "idle", 60, what="the node")
    job = cluster.submit("echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:7", "-n1")
    shown = cluster.directory / "log" / f"job.{job}.out"
    until(lambda: shown.exists() and shown.read_text().strip(), 60, what="the job")
    assert shown.read_text().strip() == "0,1,2,3,4,5,6"  # 3 is the one that was taken out, 7 the one that is missed
