"""Ways to a node: jump hosts, agents, sudo, several commands over one connection, many hosts at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter

import pytest

from nhc.fleet import node_session, sweep, worker
from nhc.fleet.bundles import SiteFiles
from nhc.fleet.ssh import transport_paramiko
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.ssh.transport_paramiko import Paramiko
from nhc.fleet.transport import Node, Trouble
from tests.fleet.conftest import HOSTS, aliases, over
from tests.support import ssh

FINE = "* || check_fs_mount /\n"


@pytest.fixture
def fine(tmp_path):
    path = tmp_path / "nhc.conf"
    path.write_text(FINE)
    return path


def test_a_node_that_has_answered_and_gone_is_no_trouble():
    """paramiko tells the other side that a channel closes, and raises where that has ended in the same moment."""

    class Gone:
        send = settimeout = None

        def close(self):
            raise EOFError

    transport_paramiko.ParamikoStream(Gone()).close()
    jumped = transport_paramiko.Buffered(Gone())
    jumped.end()
    jumped.close()


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_hosts_behind_a_jump_host(fleet, fine, tmp_path, server, transport):
    """The nodes' server listens where only the jump host's network namespace could reach; here: another port."""
    with ssh.sshd(tmp_path / "jump", more="MaxSessions 1") as jump:
        config = aliases(server, dict(list(HOSTS.items())[:4]), tmp_path / "ssh_config")
        jump.trust(["127.0.0.1"])
        known = tmp_path / "known"
        known.write_text(server.known_hosts.read_text() + jump.known_hosts.read_text())
        config.write_text(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
            f"Host gpu*\n  ProxyJump bastion\nHost *\n  UserKnownHostsFile {known}\n" + config.read_text()
        )
        done = fleet.check(*over(config), "-w", "gpu[01-04]", "-c", fine, "--set", f"transport={transport}")
        assert done.stdout.startswith("OK 4 nodes gpu[01-04]"), done.stdout
        jump.process.terminate()
        jump.process.wait()
        done = fleet.check(
            *over(config), "-w", "gpu01", "-c", fine, "--set", f"transport={transport}", "--set", "retries=0"
        )
        assert "UNKNOWN 1 node gpu01" in done.stdout
        assert "127.0.0.1 port" in done.stdout or "bastion" in done.stdout


def test_a_proxy_command(fleet, fine, few, tmp_path):
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    config = tmp_path / "ssh_config"
    config.write_text(f"Host gpu*\n  ProxyCommand {sys.executable} {relay} %h %p\n" + few.read_text())
    assert fleet.check(*over(config), "-w", "gpu[01-02]", "-c", fine).stdout.startswith("OK 2 nodes gpu[01-02]")


RELAY = """\
import os, select, socket, sys
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for ready in select.select([0, there], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else there.recv(65536)
        if not data:
            sys.exit()
        there.sendall(data) if ready == 0 else os.write(1, data)
"""


@pytest.fixture
def agent(tmp_path, server):
    with ssh.agent(tmp_path / "agent", server.identity) as socket:
        yield socket


def test_a_key_that_only_the_agent_has(fleet, fine, few, tmp_path, agent):
    config = tmp_path / "ssh_config"
    config.write_text(few.read_text().replace(f"IdentityFile {fleet.server.identity}\n  IdentitiesOnly yes", "#"))
    words = [*over(config), "-w", "gpu[01-04]", "-c", fine]
    assert fleet.check(*words, env={"SSH_AUTH_SOCK": str(agent), "HOME": str(tmp_path)}).returncode == 0
    assert "AuthFailed" in fleet.check(*words, env={"SSH_AUTH_SOCK": "", "HOME": str(tmp_path)}).stdout


def test_an_identity_with_a_passphrase_says_that_an_agent_is_needed(fleet, fine, few, tmp_path):
    locked = ssh.keygen(tmp_path / "locked")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(locked)], check=True,
                   capture_output=True)  # fmt: skip
    config = tmp_path / "ssh_config"
    config.write_text(few.read_text().replace(str(fleet.server.identity), str(locked)))
    done = fleet.check(*over(config), "-w", "gpu01", "-c", fine)
    assert "locked needs a passphrase: use an agent" in done.stdout


def sudo_server(tmp_path, script):
    """A server whose users find this `sudo` first."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "sudo").write_text(script)
    (bin_directory / "sudo").chmod(0o755)
    return ssh.sshd(tmp_path / "sshd", more=f"SetEnv PATH={bin_directory}:/usr/local/bin:/usr/bin:/bin")


@pytest.mark.parametrize("asks", [True, False])
def test_sudo_gets_its_password_on_standard_input_whether_it_asks_or_not(tmp_path, fleet, fine, asks):
    """A stand-in for sudo that takes what sudo takes; -S reads a line where a password is due."""
    read = 'read -r line; test "$line" = s3cret || { echo "sudo: 1 incorrect password attempt" >&2; exit 1; }; '
    script = f'#!/bin/sh\ntest "$1$2" = "-S-p" || exit 9\n{read if asks else ""}shift 4\nexec "$@"\n'
    with sudo_server(tmp_path, script) as server:
        server.trust(["127.0.0.1"])
        words = ["-w", "127.0.0.1", "-c", fine, "--sudo", "--ask-sudo-pass"]
        assert fleet.check(*words, server=server, env={"NHC_SUDO_PASSWORD": "s3cret"}).returncode == 0
        if asks:
            done = fleet.check(*words, server=server, env={"NHC_SUDO_PASSWORD": "wrong"})
            assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: sudo: 1 incorrect password attempt" in done.stdout
            assert "wrong" not in done.stdout + done.stderr


def test_sudo_that_would_ask_is_a_reason_not_a_hang(tmp_path, fleet, fine):
    script = '#!/bin/sh\ntest "$1" = "-n" && { echo "sudo: a password is required" >&2; exit 1; }\n'
    with sudo_server(tmp_path, script) as server:
        server.trust(["127.0.0.1"])
        done = fleet.check("-w", "127.0.0.1", "-c", fine, "--sudo", server=server)
    assert "UNKNOWN 1 node 127.0.0.1: SudoRefused: sudo: a password is required" in done.stdout


def by_paramiko(config, accept_new=False):
    return Paramiko(SshConfig(str(config)), HostKeys(accept_new))


@pytest.mark.parametrize("made", [by_paramiko, ssh.by_libssh])
def test_a_connection_serves_several_commands(server, made):
    session = made(server.config).connect(Node("127.0.0.1"), time.monotonic() + 10)
    try:
        for word in ("one", "two", "three"):
            assert say(session, word) == f"{word}\n".encode()
    finally:
        session.close()


def say(session, word):
    stream = session.start(f"echo {word}", time.monotonic() + 10)
    found = b""
    while data := stream.receive(time.monotonic() + 10):
        found += data
    stream.close()
    return found


@pytest.mark.parametrize("made", [by_paramiko, ssh.by_libssh])
def test_a_thousand_hosts_each_once(server, tmp_path, made):
    """Over real connections, with a light command instead of nhc: that is the machine's, not the sweep's, time."""
    hosts = ssh.addresses(1000)
    config = tmp_path / "ssh_config"
    config.write_text(server.config.read_text().replace(str(server.known_hosts), str(tmp_path / "known")))
    transport = made(config, accept_new=True)
    settings = worker.SweepSettings(
        node_session.SweepTask(None, SiteFiles(None, ())), {"ssh": transport}, judge=light, fanout=64
    )
    nodes = [Node(address) for address in hosts]
    verdicts = Counter(arrived.verdict for arrived in sweep.sweep(nodes, settings))
    assert verdicts == {1: 1000}
    known = (tmp_path / "known").read_text().splitlines()
    assert sorted(line.split()[0] for line in known) == sorted(f"[{host}]:{server.port}" for host in hosts)


def light(session, node, task):
    if say(session, "ok") != b"ok\n":
        raise Trouble("Truncated", "it did not say ok")
    report = {"schema": 1, "host": node.name, "started": time.time(), "elapsed": 0,
              "results": [{"check": "x", "verdict": "OK"}]}  # fmt: skip
    return node_session.NodeOutput(json.dumps(report), "x", "3", "pushed")
