"""What is wrong on this side is said once, before any connection, and is wrong usage: never a UNKNOWN for each node."""

from __future__ import annotations

import subprocess

import pytest

from nhc.fleet.bundles import config_files
from tests.fleet.conftest import HOSTS, aliases, over
from tests.support import ssh


@pytest.fixture(scope="module")
def door():
    """An address where every connection is noted."""
    heard = []
    with ssh.listener(lambda connection: (heard.append(connection), connection.close())) as (host, port):
        yield host, port, heard


def refused(fleet, door, *words, **more):
    """The lines of a sweep that must end before it connects."""
    host, port, heard = door
    done = fleet("check", "-w", host, "--set", f"port={port}", *words, **more)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert not heard, "a node was asked"
    lines = done.stderr.splitlines()
    assert all(line.startswith("nhc fleet check: ") for line in lines), done.stderr
    return [line.removeprefix("nhc fleet check: ") for line in lines]


def test_a_bad_configuration_names_each_line_once(fleet, door, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount /\nno bars\n* || check_fs_mont /\n* || include nofile.conf\n")
    include, bars, check = refused(fleet, door, "-c", config)
    assert bars == f"{config}:2:1: no `||`: expected TARGET || CHECK"
    assert check.startswith(f"{config}:3:6: no such check: check_fs_mont (did you mean check_fs_mount?)")
    assert include.startswith(f"{config}:4:")
    assert "nofile.conf" in include


def test_what_only_a_node_can_know_is_left_to_it(fleet, few, tmp_path):
    """Its own files, the checks of its own scripts, its groups of nodes."""
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount /\n{@no-such-group} || check_fs_mount /\nnobody || include /no/such.conf\n"
                      "nobody || check_zzz_of_this_site\n")  # fmt: skip
    done = fleet.check(*over(few), "-w", "gpu01", "-c", config)
    assert done.stderr == ""
    assert "1 node: " in done.stdout


@pytest.mark.parametrize(("words", "said"), [
    (["--check", "TYPO"], "--check TYPO: no check has this name"),
    (["--check", "check_fs_mont"], "(did you mean check_fs_mount?)"),
    (["--context", "prologue"], "--context prologue: there is no such context"),
    (["--profile", "no-such-type"], "--profile no-such-type: there is no such profile"),
    (["--set", "identity=/no/such/key"], "identity /no/such/key: No such file or directory"),
    (["--set", "ssh-config=/no/such/config"], "ssh-config /no/such/config: No such file or directory"),
    (["-l", "gpu"], "--limit gpu goes with -i"),
    (["-w", "^/no/such/hosts"], "/no/such/hosts: No such file or directory"),
])  # fmt: skip
def test_wrong_usage_is_one_line(fleet, door, words, said):
    (line,) = refused(fleet, door, *words)
    assert said in line


def test_with_a_configuration_a_tag_or_a_pattern_that_it_has_not_is_refused(fleet, door, tmp_path):
    config = tmp_path / "nhc.conf"
    config.write_text("* |tags mine| check_fs_mount /\n")
    assert "--tag gpuu: no check has this tag" in refused(fleet, door, "-c", config, "--tag", "gpuu")[0]
    assert "--check own_*: no check" in refused(fleet, door, "-c", config, "--check", "own_*")[0]


def test_a_password_that_nobody_gives_is_wrong_usage(fleet, door):
    """Standard input has ended, and there is no terminal to ask on."""
    host, port, heard = door
    environ = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["setsid", *nhc_argv(), "fleet", "check", "-w", host, "--set", f"port={port}", "--set", "keep-history=false",
         "--ask-pass"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environ,
    )  # fmt: skip
    assert done.returncode == 2
    assert "SSH password: none was given, the input has ended" in done.stderr
    assert "Traceback" not in done.stderr
    assert not heard


def nhc_argv():
    import sys
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    return ["env", f"PYTHONPATH={root}:{root / 'adapters'}", sys.executable, "-m", "nhc"]


def test_a_refusal_of_the_node_is_whole_lines_with_the_sites_own_names(fleet, few, tmp_path):
    """The path is longer than what used to be kept of a message, and the node knows the file by another name."""
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    config = deep / "nhc.conf"
    config.write_text("* || include /no/such/file-of-the-node.conf\n* || include /no/such/other.conf\n")
    done = fleet.check(*over(few), "-w", "gpu[01-02]", "-c", config)
    line = done.stdout.splitlines()[0]
    assert line.startswith(f"UNKNOWN 2 nodes gpu[01-02]: BadConfiguration: {config}:1:")
    assert line.endswith("/no/such/file-of-the-node.conf: No such file or directory (and 1 more)")


# Servers as they are met.


def test_a_server_that_has_only_the_standards_name_of_the_key_exchange(fleet, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    with ssh.sshd(tmp_path / "sshd", more="KexAlgorithms curve25519-sha256") as server:
        server.trust(["127.0.0.1"])
        done = fleet.check("-w", "127.0.0.1", "-c", tmp_path / "nhc.conf", server=server)
    assert done.stdout.startswith("OK 1 node 127.0.0.1"), done.stdout


def test_a_silent_host_is_no_hung_login_whichever_program_connects(fleet, tmp_path):
    (tmp_path / "nhc.conf").write_text("* || check_fs_mount /\n")
    for seconds in ("1s", "3s"):
        with ssh.listener(ssh.silent) as (host, port):
            done = fleet("check", "-w", host, "--set", f"port={port}", "-c", tmp_path / "nhc.conf",
                         "--set", "transport=openssh",
                         "--set", f"connect-timeout={seconds}", "-t", "1s", "--set", "retries=0")  # fmt: skip
        assert f"UNKNOWN 1 node {host}: NoBanner" in done.stdout, done.stdout


def test_a_line_of_ssh_config_that_ssh_refuses_is_named(fleet, tmp_path):
    file = tmp_path / "ssh_config"
    file.write_text("Host *\nNoSuchOption 1\n")
    done = fleet("check", "-w", "gpu01", *over(file), "--set", "transport=openssh")
    said = f"UNKNOWN 1 node gpu01: BadSshConfig: {file}: line 2: Bad configuration option: nosuchoption"
    assert done.stdout.splitlines()[0] == said, done.stdout


# Passwords.


def test_passwords_of_the_environment_reach_no_program_that_does_not_ask(fleet, server, tmp_path):
    """A ProxyCommand, an inventory's script and a shell of this machine see none."""
    seen = tmp_path / "seen"
    (tmp_path / "nhc.conf").write_text(f"* || env >>{seen}\n")
    inventory = tmp_path / "hosts.py"
    inventory.write_text(
        f'#!/bin/sh\nenv >>{seen}\necho \'{{"all": {{"hosts": ["gpu01", "here"]}}, "_meta": {{"hostvars": '
        f'{{"here": {{"ansible_connection": "local"}}}}}}}}\'\n'
    )
    inventory.chmod(0o755)
    config = aliases(server, {"gpu01": HOSTS["gpu01"]}, tmp_path / "ssh_config")
    config.write_text(f"Host gpu01\n  ProxyCommand sh -c 'env >>{seen}; exec nc %h %p'\n" + config.read_text())
    secrets = dict.fromkeys(("NHC_SSH_PASSWORD", "NHC_SUDO_PASSWORD"), "s3cret")
    fleet.check(*over(config), "-i", inventory, "-c", tmp_path / "nhc.conf", "--ask-pass", "--ask-sudo-pass",
                "--set", "connect-timeout=3s", env=secrets)  # fmt: skip
    text = seen.read_text()
    assert text.count("\nPATH=") >= 2
    assert "s3cret" not in text


def test_a_directory_that_an_include_finds_empty_is_there_on_the_node_too(tmp_path):
    """Else the node would call it a mistake that there is none."""
    (tmp_path / "conf.d").mkdir()
    config = tmp_path / "nhc.conf"
    config.write_text("* || check_fs_mount_rw /\ninclude conf.d/*.conf\ninclude none/*.conf\n")
    assert set(config_files(str(config))) == {str(config), f"{tmp_path}/conf.d/.empty"}
