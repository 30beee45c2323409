"""Where nodes come from, and what ssh_config and known_hosts say of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.fleet import node_sources
from nhc.fleet.node_sources import NodesError, WantedNodes, group_of
from nhc.fleet.ssh.config import SshConfig
from nhc.fleet.ssh.known_hosts import KnownHosts
from nhc.fleet.transport import Node, Trouble
from tests.support.require import need

# Node sets.


def names(**wanted):
    return [node.name for node in node_sources.nodes(WantedNodes(**wanted))]


def test_node_sets_add_up_less_what_is_excluded():
    assert names(sets=("gpu[01-03]", "login,gpu02"), exclude=("gpu01",)) == ["gpu02", "gpu03", "login"]


@pytest.mark.thorough
def test_set_operators_and_groups_are_clustershell_s(tmp_path, monkeypatch):
    groups = tmp_path / "clustershell" / "groups.conf.d"
    groups.mkdir(parents=True)
    (tmp_path / "clustershell" / "groups.conf").write_text(
        f"[Main]\ndefault: local\nconfdir: {groups}\nautodir: {tmp_path}\n[local]\nmap: echo n[1-4]\nlist: echo racks\n"
    )
    script = "from nhc.fleet.node_sources import from_set; print(from_set('@racks'), from_set('n[1-9]&n[8-20]'))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True,
                          env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": os.getcwd(),
                               "CLUSTERSHELL_CFGDIR": str(tmp_path / "clustershell")})  # fmt: skip
    assert done.stdout == "['n1', 'n2', 'n3', 'n4'] ['n8', 'n9']\n"


def test_a_file_of_nodes_with_comments(tmp_path):
    (tmp_path / "nodes").write_text("# the racks\ngpu[01-02]  login # two\n\n")
    assert names(sets=(f"^{tmp_path}/nodes",)) == ["gpu01", "gpu02", "login"]
    (tmp_path / "nodes").write_text("gpu01\ngpu[01-\n")
    with pytest.raises(NodesError, match=r"nodes:2: .*not closed"):
        names(sets=(f"^{tmp_path}/nodes",))


@pytest.mark.parametrize(("wanted", "said"), [
    ({}, "no nodes"), ({"sets": ("gpu[",)}, "not closed"), ({"sets": ("^/no/file",)}, "No such file"),
    ({"sources": ("slurmm",)}, "did you mean slurm"), ({"sets": ("@no-such-group-at-all",)}, "no-such-group"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line(wanted, said):
    with pytest.raises(NodesError, match=said) as found:
        names(**wanted)
    assert "\n" not in str(found.value)


def test_nodes_from_a_scheduler_bring_its_partitions(monkeypatch):
    from nhc.marks import plugins
    from nhc.marks.ports.adapter import NodeState

    class Scheduler:
        def nodes(self, names=None):
            return [NodeState("gpu01", "idle", True, groups=("batch", "debug"))]

    monkeypatch.setattr(node_sources, "open_adapter", lambda name: Scheduler())
    (found,) = node_sources.nodes(WantedNodes(sources=("slurm",)))
    assert (found.name, found.groups, group_of(found)) == ("gpu01", ("batch", "debug"), "batch")
    assert plugins.open_adapter  # the real one is left alone


def test_the_heat_map_s_groups():
    assert group_of(Node("gpu01", groups=("gpu",), facts={"rack": "r7"})) == "r7"
    assert group_of(Node("gpu01", groups=("gpu",), facts={"rack": "r7", "row": "b"}), "row") == "b"
    assert group_of(Node("gpu01-a")) == "gpu"


# Inventories.


@pytest.fixture(scope="module", autouse=True)
def _ansible():
    import importlib.util

    need("ansible", importlib.util.find_spec("ansible"))


@pytest.mark.thorough
def test_an_ini_inventory_with_templates_and_variables(tmp_path):
    (tmp_path / "hosts").write_text(
        "[gpu]\ngpu[01:02] ansible_host='10.0.0.{{ inventory_hostname[-1] }}' rack=r1\n[gpu:vars]\nansible_user=ops\n"
        "ansible_port=2222\nansible_become=true\n[cpu]\ncpu1 ansible_connection=local\n"
        "cpu2 ansible_ssh_common_args='-J bastion -o Compression=yes'\n"
    )
    found = {node.name: node for node in node_sources.read_inventory([str(tmp_path / "hosts")])}
    gpu = found["gpu02"]
    assert (gpu.address, gpu.user, gpu.port, gpu.groups, gpu.sudo) == ("10.0.0.2", "ops", 2222, ("gpu",), True)
    assert gpu.facts == {"rack": "r1"}
    assert found["cpu1"].connection == "local"
    assert (found["cpu2"].connection, found["cpu2"].arguments) == (
        "openssh",
        ("-J", "bastion", "-o", "Compression=yes"),
    )


@pytest.mark.thorough
def test_a_directory_with_group_vars_yaml_and_a_script(tmp_path):
    place = tmp_path / "site"
    (place / "group_vars").mkdir(parents=True)
    (place / "group_vars" / "gpu.yml").write_text("rack: r9\nansible_user: '{{ who }}'\nwho: admin\n")
    (place / "a.yml").write_text("gpu:\n  hosts:\n    gpu1:\n")
    script = place / "b.sh"
    script.write_text(
        '#!/bin/sh\necho \'{"dyn": {"hosts": ["dyn1"]}, '
        '"_meta": {"hostvars": {"dyn1": {"ansible_host": "10.9.9.9"}}}}\'\n'
    )
    script.chmod(0o755)
    found = {node.name: node for node in node_sources.read_inventory([str(place)])}
    assert (found["gpu1"].user, found["gpu1"].facts) == ("admin", {"rack": "r9"})
    assert (found["dyn1"].address, found["dyn1"].groups) == ("10.9.9.9", ("dyn",))
    assert [node.name for node in node_sources.read_inventory([str(place)], "dyn")] == ["dyn1"]


@pytest.mark.thorough
def test_an_inventory_that_is_empty_or_broken_is_one_line(tmp_path):
    (tmp_path / "hosts.yml").write_text("gpu: [unclosed\n")
    for sources, said in (([str(tmp_path / "hosts.yml")], "YAML parsing failed"), (["/no/such"], "no such inventory")):
        with pytest.raises(node_sources.InventoryError, match=said) as found:
            node_sources.read_inventory(sources)
        assert "\n" not in str(found.value)


@pytest.mark.thorough
def test_a_template_that_fails_is_that_node_s_problem(tmp_path):
    (tmp_path / "hosts").write_text("ok1\nbad1 ansible_host='{{ not_there }}'\n")
    found = {node.name: node for node in node_sources.read_inventory([str(tmp_path / "hosts")])}
    assert found["ok1"].problem == ""
    assert "not_there" in found["bad1"].problem


# ssh_config.


def config(tmp_path, text):
    path = tmp_path / "ssh_config"
    path.write_text(text)
    return SshConfig(str(path))


def test_what_the_node_s_source_says_goes_before_the_configuration(tmp_path):
    ssh = config(tmp_path, "Host gpu*\n  HostName %h.cluster\n  User conf\n  Port 2200\n  IdentityFile ~/.ssh/%h\n")
    route = ssh.lookup(Node("gpu01"))
    assert (route.host, route.user, route.port, route.known_as) == (
        "gpu01.cluster",
        "conf",
        2200,
        "[gpu01.cluster]:2200",
    )
    assert route.identities == (os.path.expanduser("~/.ssh/gpu01.cluster"),)
    route = ssh.lookup(Node("gpu01", user="me", port=22, identity="/key"))
    assert (route.user, route.port, route.identities[0]) == ("me", 22, "/key")


def test_includes_are_read_in_place_and_the_block_goes_on_after_them(tmp_path):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.conf").write_text("Host gpu01\n  Port 2201\n")
    ssh = config(tmp_path, f"Include {tmp_path}/conf.d/*.conf\nUser everyone\nHost gpu*\n  Port 2200\n")
    assert [ssh.lookup(Node(name)).port for name in ("gpu01", "gpu02", "login")] == [2201, 2200, 22]
    assert ssh.lookup(Node("login")).user == "everyone"
    (tmp_path / "ssh_config").write_text(f"Include {tmp_path}/ssh_config\n")
    with pytest.raises(ValueError, match="too deep"):
        SshConfig(str(tmp_path / "ssh_config"))


def test_jumps_and_proxies(tmp_path):
    ssh = config(tmp_path, "Host direct\n  ProxyJump none\nHost *\n  ProxyJump me@gate:2022,ssh://inner\n")
    assert ssh.lookup(Node("gpu01")).jumps == ("me@gate:2022", "ssh://inner")
    assert ssh.lookup(Node("direct")).jumps == ()
    assert ssh.lookup(Node("gate")).jumps == ("ssh://inner",)  # not through itself
    hop = ssh.hop("me@gate:2022")
    assert (hop.user, hop.host, hop.port) == ("me", "gate", 2022)
    with pytest.raises(Trouble, match="ProxyJump"):
        ssh.hop("gate:x")


# known_hosts.

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIE"


def known(tmp_path, text):
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return KnownHosts([str(path), "/no/such/file"])


def hashed(name):
    salt = b"0" * 20
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(("names", "asked", "found"), [
    ("gpu01,10.0.0.1", "10.0.0.1", True), ("GPU01", "gpu01", True), ("gpu*,!gpu09", "gpu01", True),
    ("gpu*,!gpu09", "gpu09", False), ("[gpu01]:2222", "[gpu01]:2222", True), ("[gpu*]:2222", "[gpu01]:2222", True),
    ("gpu01", "[gpu01]:2222", False), (hashed("gpu01"), "gpu01", True), (hashed("gpu01"), "gpu02", False),
])  # fmt: skip
def test_names_as_openssh_matches_them(tmp_path, names, asked, found):
    assert bool(known(tmp_path, f"{names} ssh-ed25519 {KEY}\n").keys(asked)) == found


def test_revoked_keys_certificates_and_rubbish(tmp_path):
    made = known(
        tmp_path, f"# x\n@revoked * ssh-rsa BAD\n@cert-authority *.x ssh-rsa CA\nshort\n|1|bad ssh-rsa {KEY}\n"
    )
    assert made.revoked == {"BAD"}
    assert made.authorities
    assert made.keys("a.x") == []


def test_a_new_key_is_written_once(tmp_path):
    made = known(tmp_path, "")
    path = tmp_path / "new" / "known_hosts"
    for _ in range(2):
        made.add("gpu01", ("ssh-ed25519", KEY), str(path))
    assert path.read_text() == f"gpu01 ssh-ed25519 {KEY}\n"
    assert made.keys("gpu01") == [("ssh-ed25519", KEY)]


@given(st.text(max_size=200))
def test_no_file_breaks_the_reader(text):
    made = KnownHosts([])
    for line in text.splitlines():
        made._read(line)
    made.keys("gpu01")
