"""The contract of runners over each of them: a real sshd, a real control plane of Kubernetes, AWS on loopback, a real
Slurm. The launcher on Kubernetes: tests/adapters/kubernetes/test_deep_sweep.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.lab.testing.runners import RunnerContract, RunnerWorld
from nhc.marks.ports.repair import Machine
from nhc.marks.ports.runner import Runner
from nhc_adapters.cloud.aws.runner import SsmRunner
from nhc_adapters.kubernetes.repair.job_runner import JobRunner
from nhc_adapters.node.runner import SshRunner
from nhc_adapters.slurm.deep_launch import SlurmLauncher
from tests.adapters.cloud.test_aws_contract import ENVIRON
from tests.support.clouds.aws import FakeAws
from tests.support.kube import Kube, kube, plane
from tests.support.pod_kubelet import kubelet
from tests.support.ports import free_port
from tests.support.slurm import Cluster
from tests.support.ssh import Server, sshd, user

__all__ = ["kube", "plane"]


class SshWorld(RunnerWorld):
    past_limit = 30.0

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.machines = (Machine("n1", address="127.0.0.1"),)

    def runner(self, **more: str) -> Runner:
        given = {"config": str(self.server.config), "user": user(), "sudo": "no", "root": f"{self.folder}/root", **more}
        return SshRunner(given, {}, 30.0)

    def unreachable(self) -> Runner:
        return self.runner(port=str(free_port()))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1"])
        yield running


@pytest.mark.slow
class TestSsh(RunnerContract):
    @pytest.fixture
    def world(self, tmp_path: Path, server: Server) -> SshWorld:
        return SshWorld(tmp_path, server)

    def test_a_run_whose_watcher_was_killed_is_lost_and_ended(self, world: SshWorld) -> None:
        """By whoever asks next: nothing else on the node would."""
        from nhc.lab.testing.runners import PARENT, _alive, _ended, _lines, _run, _until

        run = _run(world, PARENT)
        world.runner().start(run)
        _until(world, lambda: _lines(world, "pids") == 3)
        first = (world.folder / "pids").read_text().split()[0]
        with open(f"/proc/{first}/stat", encoding="ascii") as file:
            os.kill(int(file.read().rpartition(")")[2].split()[1]), 9)
        state = _ended(world, run)
        assert (state.phase.value, "killed" in state.why) == ("lost", True)
        assert _alive(world) == []


class JobWorld(RunnerWorld):
    patience = 120.0

    def __init__(self, folder: Path, cluster: Kube, node: str) -> None:
        self.folder, self.cluster = folder, cluster
        self.machines = (Machine(node),)
        self.config = str(cluster.kubeconfig(folder))

    def runner(self, **more: str) -> Runner:
        given = {"image": "nhc@sha256:" + "0" * 64, "namespace": self.cluster.namespace, "kubeconfig": self.config,
                 "service-account": "default", "priority-class": "", **more}  # fmt: skip
        return JobRunner(given, {}, 10.0)

    def unreachable(self) -> Runner:
        text = Path(self.config).read_text()
        (self.folder / "nobody").write_text(text.replace(str(self.cluster.plane.port), str(free_port())))
        return self.runner(kubeconfig=str(self.folder / "nobody"))


@pytest.mark.slow
class TestJob(RunnerContract):
    @pytest.fixture
    def world(self, kube: Kube, tmp_path: Path) -> Iterator[JobWorld]:
        with kubelet(kube.plane, kube.admin, kube.namespace, tmp_path, os.environ["PATH"]) as running:
            node = f"{kube.prefix}-n1"
            kube.admin.post("/api/v1/nodes", running.node(node, {}))
            kube.nodes.append(node)
            yield JobWorld(tmp_path, kube, node)


class SsmWorld(RunnerWorld):
    def __init__(self, folder: Path, aws: FakeAws) -> None:
        self.folder, self.aws = folder, aws
        instance = aws.instance()
        address = aws.instances[instance]["PrivateIpAddress"]
        self.machines = (Machine("n1", f"aws:///us-east-1a/{instance}", address),)

    def runner(self, **more: str) -> Runner:
        return SsmRunner({"endpoint": self.aws.url, "directory": f"{self.folder}/runs", **more}, ENVIRON, 5.0)

    def unreachable(self) -> Runner:
        return self.runner(endpoint=f"http://127.0.0.1:{free_port()}")


class TestSsm(RunnerContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[SsmWorld]:
        made: Any = FakeAws()
        yield SsmWorld(tmp_path, made)
        made.close()
        assert made.wrong == [], "what AWS's own model does not allow"


class SlurmWorld(RunnerWorld):
    patience = 120.0
    tracks_processes = False  # these slurmd have no cgroups

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.machines = (Machine("n1"),)

    def runner(self, **more: str) -> Runner:
        return SlurmLauncher({"directory": f"{self.folder}/shared"}, {**self.cluster.env, **more}, 20.0)

    def unreachable(self) -> Runner:
        conf = self.cluster.conf.read_text()
        port = f"SlurmctldPort={self.cluster.control_port}"
        assert port in conf
        (self.folder / "slurm.conf").write_text(conf.replace(port, f"SlurmctldPort={free_port()}"))
        return self.runner(SLURM_CONF=str(self.folder / "slurm.conf"))


@pytest.mark.slow
class TestSlurm(RunnerContract):
    @pytest.fixture
    def world(self, cluster: Cluster, slurm_directory: Path) -> Iterator[SlurmWorld]:
        folder = Path(tempfile.mkdtemp(dir=slurm_directory))
        folder.chmod(0o755)
        yield SlurmWorld(cluster, folder)
        shutil.rmtree(folder, ignore_errors=True)
