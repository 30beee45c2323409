"""One real Slurm cluster for all tests of this directory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.require import need
from tests.support.slurm import Cluster, missing
from tests.support.slurmhooks import Hooks

EXTRA = """\
NodeName=far[1-2] State=CLOUD CPUs=1 RealMemory=1
NodeName=next1 State=FUTURE CPUs=1 RealMemory=1
PartitionName=cloud Nodes=far[1-2],n1 State=UP
"""


POWER = """\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
RebootProgram=/bin/true
SuspendTime=86400
SuspendTimeout=2
ResumeTimeout=60
"""


@pytest.fixture(scope="session")
def slurm_directory():
    """A short path: a munge socket's is limited to 107 characters."""
    directory = Path(tempfile.mkdtemp(prefix="nhc-slurm-"))
    directory.chmod(0o755)  # jobs of other users run below it
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def running_cluster(slurm_directory):
    need("slurm", not missing(), ", ".join(missing()))
    (slurm_directory / "main").mkdir()
    cluster = Cluster(slurm_directory / "main", ["n1", "n2", "n3"], POWER + EXTRA)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running_cluster):
    """The cluster with every node idle and every job gone."""
    running_cluster.reset()
    return running_cluster


@pytest.fixture(scope="session")
def hooked(slurm_directory):
    """A second cluster, whose nodes run nhc as Prolog, Epilog and, every two seconds, as HealthCheckProgram. n2 and n3
    share a machine.

    At one second slurmctld, which pings and checks health in turn, never gets to ping a node that was resumed.
    """
    need("slurm", not missing(), ", ".join(missing()))
    (slurm_directory / "hooked").mkdir()
    nodes = ["n1", "n2", "n3"]
    cluster = Cluster(slurm_directory / "hooked", nodes, one_machine=["n2", "n3"])
    hooks = Hooks(slurm_directory / "hooks", cluster.nodes, cluster.conf)
    cluster.extra = hooks.slurm_conf(interval=2) + POWER
    try:
        cluster.start()
        yield cluster, hooks
    finally:
        cluster.stop()


@pytest.fixture
def site(hooked):
    cluster, hooks = hooked
    # A health check that is slow on a busy machine keeps slurmctld from pinging the nodes that the reset resumes.
    hooks.program("healthcheck", "exit 0\n")
    cluster.reset()
    hooks.reset()
    return hooked
