"""What ssh_config means to the fleet is what it means to OpenSSH (`ssh -G`) and to Fabric."""

import getpass
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fabric import Config, Connection

from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.transport import Node
from tests.support.require import need

ALICE = "Host *\n  User alice\n"
CONFIGS = {
    "names": "Host gpu1\n  HostName 10.0.0.1\n  Port 2201\n  User root\n\nHost gpu*\n  User nobody\n  Port 2299\n"
    + ALICE,
    "tokens": "Host *\n  HostName %h.cluster.example\n  User ops\n  IdentityFile /keys/%n-%r\n",
    "negation": "Host gpu* !gpu1\n  Port 2222\n" + ALICE,
    "question mark": "Host gpu?\n  Port 2223\n" + ALICE,
    "equals and quotes": 'Host=gpu1\n  IdentityFile="/keys/with space"\n  Port=2224\n' + ALICE,
    "first wins, identities add": "IdentityFile /keys/a\nHost gpu1\n  Port 1\n  IdentityFile /keys/b\n"
    "Host gpu1\n  Port 2\n  IdentityFile /keys/c\n" + ALICE,
    "jump": "Host gpu*\n  ProxyJump ops@bastion:2200\n" + ALICE,
    "two jumps": "Host gpu*\n  ProxyJump outer,inner\n" + ALICE,
    "a jump that is none": "Host gpu1\n  ProxyJump none\nHost gpu*\n  ProxyJump bastion\n" + ALICE,
    "command": "Host gpu*\n  ProxyCommand nc -X 5 %h %p\n" + ALICE,
    "match host": "Match host gpu1\n  Port 2225\n" + ALICE,
    "match after the name": "Host gpu1\n  HostName node-a\nMatch host node-*\n  Port 2226\n" + ALICE,
    "match originalhost and user": f"Match originalhost gpu1 localuser {getpass.getuser()}\n  Port 2227\n" + ALICE,
    "comments and tabs": "# first\n\nHost\tgpu1 # one\n\tPort\t2228\n" + ALICE,
}
HOSTS = ("gpu1", "gpu22", "login")


def ours(path, host):
    return SshConfig(str(path)).lookup(Node(host))


def openssh(path, host):
    """What ssh says that it would do."""
    ended = subprocess.run(["ssh", "-G", "-F", str(path), host], capture_output=True, text=True, check=True)
    said = {}
    for line in ended.stdout.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key, []).append(value)
    return said


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", CONFIGS)
def test_openssh_means_the_same(name, host, tmp_path):
    need("ssh", shutil.which("ssh") is not None)
    file = tmp_path / "config"
    file.write_text(CONFIGS[name])
    route, said = ours(file, host), openssh(file, host)
    assert [route.host] == said["hostname"]
    assert [str(route.port)] == said["port"]
    assert [route.user] == said["user"]
    assert ",".join(route.jumps) == said.get("proxyjump", ["none"])[0].replace("none", "")
    # What it prints is as it was written: only what it runs has the tokens' values.
    expand = {"%h": route.host, "%p": str(route.port), "%n": host, "%r": route.user}
    command = said.get("proxycommand", ["none"])[0].replace("none", "")
    assert route.proxy_command == re.sub("%.", lambda token: expand[token[0]], command)
    keys = [re.sub("%.", lambda token: expand[token[0]], path) for path in said["identityfile"]]
    if keys[0].startswith("/keys"):
        assert list(route.identities) == keys


# Fabric takes jumps in the other order than ssh_config(5) has them, and "none" for a host.
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", sorted(set(CONFIGS) - {"two jumps", "a jump that is none"}))
def test_fabric_means_the_same(name, host, tmp_path):
    file = tmp_path / "config"
    file.write_text(CONFIGS[name])
    route = ours(file, host)
    theirs = Connection(host, config=Config(runtime_ssh_path=str(file), lazy=False))
    assert (route.host, route.port, route.user) == (theirs.host, theirs.port, theirs.user)
    gateway = theirs.get_gateway()
    if isinstance(gateway, str):
        assert route.proxy_command == gateway
    elif gateway is None:
        assert (route.jumps, route.proxy_command) == ((), "")
    else:
        hop = SshConfig(str(file)).hop(route.jumps[-1])
        assert (hop.host, hop.port, hop.user) == (gateway.host, gateway.port, gateway.user)
        assert len(route.jumps) == 1


def test_an_include_is_read_as_openssh_reads_it(tmp_path):
    need("ssh", shutil.which("ssh") is not None)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/10-gpu").write_text("Host gpu1\n  Port 2230\n")
    (tmp_path / "conf.d/20-all").write_text(
        "User carol\nHost login\n  Port 2231\nMatch all\n  ProxyJump bastion\nHost gpu* !gpu1\n  Port 2232\n"
    )
    file = tmp_path / "config"
    file.write_text(f"Host gpu*\n  Include {tmp_path}/conf.d/*\n  ConnectTimeout 7\n{ALICE}")
    for host in HOSTS:
        route, said = ours(file, host), openssh(file, host)
        assert (route.host, str(route.port), route.user) == tuple(said[key][0] for key in ("hostname", "port", "user"))
        assert ",".join(route.jumps) == said.get("proxyjump", ["none"])[0].replace("none", "")


def test_what_openssh_refuses_is_refused_in_one_line(tmp_path):
    file = tmp_path / "config"
    file.write_text("Host *\n  Port many\n")
    with pytest.raises(Exception, match="ssh_config for gpu1: ") as caught:
        ours(file, "gpu1")
    assert "\n" not in str(caught.value)
    assert Path(file).exists()


@pytest.mark.thorough
def test_a_sweep_loads_no_invoke_and_a_match_exec_reads_nothing_of_its_input(tmp_path):
    file = tmp_path / "config"
    file.write_text('Match exec "cat; test %h = gpu1"\n  Port 2230\n')
    script = (
        "import sys\n"
        "from nhc.fleet.ssh.paramiko_import import import_paramiko\n"
        "import_paramiko()\n"
        "from nhc.fleet.ssh.config import SshConfig\n"
        "from nhc.fleet.transport import Node\n"
        f"config = SshConfig({str(file)!r})\n"
        "print(config.lookup(Node('gpu1')).port, config.lookup(Node('gpu2')).port, 'invoke' in sys.modules)\n"
        "print(sys.stdin.read())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input="nodes", capture_output=True, text=True, check=True,
                          cwd=Path(__file__).resolve().parents[2])  # fmt: skip
    assert done.stdout.split() == ["2230", "22", "False", "nodes"]
