"""One sshd, one built nhc.pyz and one directory on the "nodes" for all tests of the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

import pytest

from tests.support import ssh
from tests.support.run import nhc


def over(ssh_config: object, **keys: object) -> Tuple[str, ...]:
    """The words for a sweep by an ssh_config, and by other keys of fleet.toml."""
    said = {"ssh-config": ssh_config, **keys}
    return tuple(word for key, value in said.items() for word in ("--set", f"{key.replace('_', '-')}={value}"))


class Fleet:
    """Runs `nhc fleet` as its user does, against a server."""

    def __init__(self, server: Optional[ssh.Server], cache: Path, node_dir: Path, history: Path) -> None:
        self.server, self.cache, self.node_dir, self.history = server, cache, node_dir, history
        self.env: Dict[str, str] = {}

    def __call__(self, *words: object, timeout: float = 60, env: Optional[Dict[str, str]] = None) -> Any:
        environ = {"XDG_CACHE_HOME": str(self.cache), "NHC_FLEET_HISTORY": str(self.history), **self.env, **(env or {})}
        return nhc("fleet", *words, env=environ, timeout=timeout)

    def check(self, *words: object, server: Optional[ssh.Server] = None, **more: Any) -> Any:
        server = server or self.server
        reach = over(server.config) if server else ()
        return self("check", *reach, "--set", f"node-dir={self.node_dir}", *words, **more)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Server]:
    with ssh.sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.trust(["127.0.0.1", *HOSTS.values()])
        yield running


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet")
    (directory / "cache").mkdir()
    return directory


@pytest.fixture
def fleet(server: ssh.Server, shared: Path, tmp_path: Path) -> Fleet:
    return Fleet(server, shared / "cache", shared / "node", tmp_path / "history.sqlite")


HOSTS = {f"gpu{number:02d}": f"127.0.1.{number}" for number in range(1, 41)}


def inventory(path: Path, hosts: Dict[str, str], more: str = "") -> Path:
    """An Ansible inventory with one group `gpu`, in racks of four."""
    lines = [
        f"{name} ansible_host={address} rack=r{number // 4}" for number, (name, address) in enumerate(hosts.items())
    ]
    path.write_text("\n".join(["[gpu]", *lines, more]) + "\n")
    return path


def aliases(server: ssh.Server, hosts: Dict[str, str], path: Path) -> Path:
    """An ssh_config that knows hosts by name, so that node sets work without an inventory."""
    blocks = [f"Host {name}\n  HostName {address}\n" for name, address in hosts.items()]
    path.write_text("".join(blocks) + server.config.read_text())
    return path


@pytest.fixture
def few(server: ssh.Server, tmp_path: Path) -> Path:
    """An ssh_config that knows gpu01 to gpu04."""
    return aliases(server, dict(list(HOSTS.items())[:4]), tmp_path / "few_config")


class Site:
    """A sweep over nodes that a test makes sick: `sick` names them."""

    def __init__(self, fleet: Fleet, directory: Path, names: Tuple[str, ...], env: Dict[str, str]) -> None:
        assert fleet.server is not None
        addresses = {name: f"127.0.6.{number}" for number, name in enumerate(names, 1)}
        fleet.server.trust(list(addresses.values()))
        self.fleet, self.directory, self.env, self.names = fleet, directory, env, names
        self.ssh_config = aliases(fleet.server, addresses, directory / "ssh_config")
        self.config = directory / "nhc.conf"
        self.config.write_text("* || check_fs_mount /\n" + "".join(
            f"{name} || check_file_test -f {directory}/{name}.fine\n" for name in names))  # fmt: skip
        self.sick()

    def sick(self, *sick: str) -> None:
        for name in self.names:
            fine = self.directory / f"{name}.fine"
            fine.unlink(missing_ok=True) if name in sick else fine.touch()

    def check(self, *words: object, **env: str) -> Any:
        reach = over(self.ssh_config, ledger=self.directory / "ledger", connect_timeout="5s")
        return self.fleet.check(*reach, "-c", self.config, *words, env={**self.env, **env})
