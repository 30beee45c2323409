"""Real ansible-playbook runs against real machines: systemd and sshd on an overlay of this system."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

import pytest

from tests.support.kernel_log_lock import kernel_log_lock
from tests.support.machines import Fleet, fleet
from tests.support.require import need

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["gpu001", "gpu002", "gpu003"]


class Run:
    """What a run of ansible-playbook said."""

    def __init__(self, ended: subprocess.CompletedProcess[str]) -> None:
        self.status, self.text = ended.returncode, ended.stdout + ended.stderr

    def recap(self, host: str) -> Dict[str, int]:
        """The recap's counts of one host."""
        line = re.search(rf"^{host} +: (.*)$", self.text, re.MULTILINE)
        assert line, self.text
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line[1])}

    def hosts(self) -> List[str]:
        """The hosts of the recap."""
        return re.findall(r"^(\S+) +: ok=", self.text, re.MULTILINE)

    @property
    def folded(self) -> List[str]:
        """What the callback printed at the end."""
        return self.text.rpartition("\nNHC *")[2].strip().splitlines()[1:]


class Ansible:
    """Runs Ansible's commands from a checkout, with a home of their own and without this user's settings."""

    def __init__(self, home: Path, inventory: str) -> None:
        self.home, self.inventory = home, inventory
        self.bin = Path(sys.executable).parent
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "NHC_"))}
        self.environ.update(
            PATH=f"{self.bin}:{os.environ['PATH']}", ANSIBLE_HOME=str(home), ANSIBLE_NOCOLOR="1",
            # Connections are shared as the machines' own ssh_config says, below their directory: Ansible's default is
            # ~/.ansible/cp, where another run's machines of the same names would be found.
            ANSIBLE_SSH_ARGS="-C", ANSIBLE_PIPELINING="1",
            ANSIBLE_COLLECTIONS_PATH=str(home), XDG_CACHE_HOME=str(home / "cache"), LC_ALL="C.UTF-8",
        )  # fmt: skip

    def __call__(self, playbook: str, *arguments: str, env: Mapping[str, str] = {}, **variables: Any) -> Run:
        """Run a playbook of the checkout on the machines; keywords are extra variables."""
        argv = ["ansible-playbook", f"playbooks/{playbook}.yml", *arguments]
        if "-i" not in arguments:
            argv += ["-i", self.inventory]
        if variables:
            argv += ["-e", json.dumps(variables)]
        return self.command(*argv, env=env)

    def command(self, *argv: str, env: Mapping[str, str] = {}) -> Run:
        return Run(
            subprocess.run(argv, cwd=ROOT, env={**self.environ, **env}, capture_output=True, text=True, timeout=300)
        )


@pytest.fixture(scope="module", autouse=True)
def nobody_writes_to_the_kernels_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """The machines read it as their own."""
    here = [item for item in request.session.items if item.path == request.path]
    with_machines = any("machines" in getattr(item, "fixturenames", ()) for item in here)
    with kernel_log_lock() if with_machines else contextlib.nullcontext():
        yield


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("machines"), NAMES) as made:
        yield made


@pytest.fixture(scope="session")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Ansible:
    """Ansible without machines."""
    need("ansible-core", (Path(sys.executable).parent / "ansible-playbook").exists(), "pip install ansible-core")
    return Ansible(tmp_path_factory.mktemp("ansible"), "")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One archive for all tests, whatever becomes of the checkout while they run."""
    path = tmp_path_factory.mktemp("archive") / "nhc.pyz"
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/adapters"}
    subprocess.run(
        [sys.executable, "-m", "nhc.core.archive.build", str(path)], env=environ, check=True, capture_output=True
    )
    return path


@pytest.fixture(scope="session")
def ansible(controller: Ansible, machines: Fleet, archive: Path) -> Ansible:
    """Ansible whose inventory is the machines, and one that is not there."""
    home = controller.home / "machines"
    home.mkdir()
    inventory = home / "inventory.yml"
    common = f"-F {machines.ssh_config}"
    inventory.write_text(
        json.dumps(
            {
                "gpu": {
                    "hosts": {machine.name: {"rack": f"r{number}"} for number, machine in enumerate(machines.machines)}
                },
                "dead": {"hosts": {"gpu004": {"ansible_host": "127.93.0.250", "ansible_port": 9}}},
                "all": {
                    "vars": {
                        "ansible_ssh_common_args": common,
                        "ansible_python_interpreter": "/usr/bin/python3",
                    }
                },
            }
        )
    )
    made = Ansible(home, str(inventory))
    made.environ["NHC_PYZ"] = str(archive)
    return made


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A configuration by which gpu002 is sick."""
    file = tmp_path / "nhc.conf"
    file.write_text(
        "* || check_hw_mem_free 1MB\n* || check_fs_mount_rw -f /\ngpu002 || check_file_test -f /etc/nonesuch\n"
    )
    return file
