"""The plain connection goes by libssh, every other by paramiko, and nobody can tell from what a sweep says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nhc.fleet.transport import Node, Trouble
from tests.fleet.conftest import over
from tests.support import ssh
from tests.support.run import nhc


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    ssh.need_libssh()
    with ssh.sshd(tmp_path_factory.mktemp("sshd"), more="LogLevel DEBUG1") as running:
        running.trust(["127.0.0.1"])
        yield running


def soon() -> float:
    return time.monotonic() + 20


def clients(server: ssh.Server) -> list[str]:
    """What the clients of the server call themselves, in order."""
    log = (server.config.parent / "sshd.log").read_text()
    return [line.rpartition("software version ")[2] for line in log.splitlines() if "software version" in line]


def reached(server: ssh.Server, config: Path, **fields: str) -> str:
    """The library that carried a connection, which has done its work."""
    before = len(clients(server))
    transport = ssh.by_libssh(config)
    session = transport.connect(Node("127.0.0.1", **fields), soon())
    try:
        stream = session.start("echo said; echo wrong >&2; exit 3", soon())
        said = b""
        while data := stream.receive(soon()):
            said += data
        assert said == b"said\n"
        assert stream.complaint().endswith("wrong\n")  # after sshd's own lines
        stream.close()
    finally:
        session.close()
        transport.close()
    (name,) = {client.partition("_")[0] for client in clients(server)[before:]}
    return name


def config_with(server: ssh.Server, path: Path, first: str) -> Path:
    path.write_text(f"Host *\n{first}\n{server.config.read_text()}")
    return path


def test_a_plain_connection_is_libsshs(server):
    assert reached(server, server.config) == "libssh"


PARAMIKO_LOADED = """
import sys, time
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import HostKeys
from nhc.fleet.ssh.transport_ssh import Ssh
from nhc.fleet.transport import Node
transport = Ssh(SshConfig(sys.argv[1]), HostKeys())
transport.warm([transport.config.lookup(Node("127.0.0.1"))])
transport.connect(Node("127.0.0.1"), time.monotonic() + 60).close()
print("paramiko" in sys.modules, "cryptography" in sys.modules)
transport.paramiko().connect(Node("127.0.0.1"), time.monotonic() + 60).close()
import paramiko
print(paramiko.config.SSHConfig is paramiko.SSHConfig, paramiko.ssh_exception.SSHException is paramiko.SSHException)
"""


@pytest.mark.parametrize(("option", "agent", "loaded"), [
    ("", "", "False False"),
    ("  Ciphers aes*", "", "True True"),
    ("", "/nonexistent/agent", "True True"),
    ("  IdentityAgent none", "/nonexistent/agent", "False False"),
    ("  IdentityFile /nonexistent/key", "", "False False"),
    ("  IdentityFile /etc/passwd", "", "True True"),
])  # fmt: skip
def test_paramiko_is_imported_where_libssh_does_not_do_it_all(server, tmp_path, option, agent, loaded):
    config = config_with(server, tmp_path / "config", option)
    env = {**os.environ, "SSH_AUTH_SOCK": agent, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", PARAMIKO_LOADED, str(config)], capture_output=True, text=True, env=env)
    assert (done.stdout.splitlines(), done.returncode) == ([loaded, "True True"], 0), done.stderr


@pytest.mark.parametrize(("option", "library"), [
    ("  KexAlgorithms curve25519-sha256", "libssh"),
    ("  Ciphers aes256-ctr", "libssh"),
    ("  KexAlgorithms ^diffie-hellman-group14-sha256", "paramiko"),
    ("  Ciphers aes*", "paramiko"),
])  # fmt: skip
def test_lists_of_algorithms_that_change_the_librarys_own_are_paramikos(server, tmp_path, option, library):
    assert reached(server, config_with(server, tmp_path / "config", option)) == library


def test_a_jump_host_is_paramikos(server, tmp_path):
    text = f"Host bastion\n  HostName 127.0.0.1\nHost 127.0.0.1\n  ProxyJump bastion\n{server.config.read_text()}"
    (tmp_path / "config").write_text(text)
    assert reached(server, tmp_path / "config") == "paramiko"


def test_an_agents_key_is_paramikos(server, tmp_path):
    with ssh.agent(tmp_path / "agent", server.identity) as socket_path:
        text = server.config.read_text().replace(f"IdentityFile {server.identity}", f"IdentityAgent {socket_path}")
        config = tmp_path / "config"
        config.write_text(text.replace("IdentitiesOnly yes", "IdentitiesOnly no"))
        assert reached(server, config) == "paramiko"


def test_a_key_that_is_refused_and_one_that_is_not(server, tmp_path):
    """The second identity is the one that lets in: paramiko offers both, and libssh takes that one from then on."""
    other = ssh.keygen(tmp_path / "other")
    config = config_with(server, tmp_path / "config", f"  IdentityFile {other}")
    before = len(clients(server))
    transport = ssh.by_libssh(config)
    for _ in range(2):
        transport.connect(Node("127.0.0.1"), soon()).close()
    used = [client.partition("_")[0] for client in clients(server)[before:]]
    assert used == ["libssh", "paramiko", "libssh"]


@pytest.mark.thorough
@pytest.mark.parametrize(("banner", "reason"), [
    (b"", "NoBanner"),
    (b"SSH-2.0-Silent\r\n", "HandshakeTimeout"),
    (b"220 mail.example ESMTP\r\n" * 3, "NoBanner"),
])  # fmt: skip
def test_a_server_that_says_no_more(tmp_path, banner, reason):
    """A deadline is a deadline, whatever the server has said until then."""
    with ssh.listener(lambda connection: (connection.sendall(banner), ssh.silent(connection))) as (host, port):
        config = tmp_path / "config"
        identity = ssh.keygen(tmp_path / "identity")
        config.write_text(f"Host *\n  IdentityFile {identity}\n  IdentitiesOnly yes\n")
        begin = time.monotonic()
        with pytest.raises(Trouble) as caught:
            ssh.by_libssh(config, accept_new=True).connect(Node(host, port=port), begin + 1.5)
    assert caught.value.reason == reason
    assert time.monotonic() - begin < 40


def test_nothing_is_left_open(server):
    transport = ssh.by_libssh(server.config)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    transport.connect(Node("127.0.0.1"), soon()).close()
    before = descriptors()
    for _ in range(20):
        session = transport.connect(Node("127.0.0.1"), soon())
        session.start("cat", soon())  # still waits for us
        session.close()
    assert descriptors() == before


def test_the_home_directorys_files_of_ssh_are_not_libsshs_to_read(server, tmp_path, monkeypatch):
    """A known_hosts there that says otherwise, a configuration that names another user: ours was named with -F."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  User nobody-at-all\n  Port 1\n")
    (home / ".ssh" / "known_hosts").write_text("* ssh-rsa AAAA\n")
    monkeypatch.setenv("HOME", str(home))
    assert reached(server, server.config) == "libssh"


def test_a_large_input_and_a_large_output(server):
    """More than a channel's window and a socket's buffer, both ways."""
    data = os.urandom(1 << 20)
    transport = ssh.by_libssh(server.config)
    session = transport.connect(Node("127.0.0.1"), soon())
    try:
        stream = session.start(f"head -c {len(data)} > /dev/null; head -c {1 << 22} /dev/zero", soon())
        stream.send(data, soon())
        size = 0
        while more := stream.receive(soon()):
            size += len(more)
        assert size == 1 << 22
    finally:
        session.close()


def test_a_peer_that_dies_in_the_middle(server):
    session = ssh.by_libssh(server.config).connect(Node("127.0.0.1"), soon())
    stream = session.start("echo first; read go; kill -9 $PPID; sleep 60", soon())
    assert stream.receive(soon()) == b"first\n"
    stream.send(b"go\n", soon())
    with pytest.raises(Trouble, match="the connection broke"):
        stream.receive(soon())
    stream.send(b"more", soon())
    session.close()


def test_the_deadline_of_a_command_that_says_nothing(server):
    session = ssh.by_libssh(server.config).connect(Node("127.0.0.1"), soon())
    try:
        stream = session.start("sleep 60", soon())
        with pytest.raises(Trouble) as caught:
            stream.receive(time.monotonic() + 0.2)
        assert caught.value.reason == "Timeout"
    finally:
        session.close()


@pytest.mark.parametrize("library", [b"", b"no library"])
def test_without_libssh_paramiko_does_it_all(server, tmp_path, library):
    """Where the distribution has none, or one that is damaged."""
    (tmp_path / "libssh.so.4").write_bytes(library)  # the loader looks here first, and no further than a file
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount /\n")
    before = len(clients(server))
    done = nhc("fleet", "check", *over(server.config, node_dir=tmp_path / "node"), "-w", "127.0.0.1", "-c", config,
               env={"LD_LIBRARY_PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}, timeout=60)  # fmt: skip
    assert done.returncode == 0, done
    assert {client.partition("_")[0] for client in clients(server)[before:]} == {"paramiko"}


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_kinds_of_keys(tmp_path, kind):
    """The user's and the host's; an RSA key signs with SHA-2."""
    ssh.need_libssh()
    for name in ("identity", "host_key"):
        ssh.keygen(tmp_path / "other" / name, kind)
    with ssh.sshd(tmp_path / "other", more="LogLevel DEBUG1") as other:
        other.trust(["127.0.0.1"])
        assert reached(other, other.config) == "libssh"


def test_keys_that_are_not_libsshs_to_use(tmp_path):
    """One with a passphrase, about which nobody is asked, one that is none, a file that is not there."""
    ssh.need_libssh()
    from nhc.fleet.ssh import libssh

    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked], check=True)
    (tmp_path / "text").write_text("no key\n")
    assert [libssh.load(str(tmp_path / name)) for name in ("locked", "text", "none", "a\0b")] == [None] * 4
